//! Memory cgroups of a test. They hold only processes that the test has started and are removed
//! with it. Supports versions 1 and 2; without permission to create a cgroup the test is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A cgroup with a memory limit. Its processes are killed on drop.
pub struct Group(PathBuf);

impl Group {
    /// A cgroup limited to `bytes`. Prints why the test is skipped if none can be created.
    pub fn limited(bytes: u64) -> Option<Group> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "ebb-test-{}-{}",
            std::process::id(),
            CREATED.fetch_add(1, Ordering::Relaxed)
        );
        for (parent, limit) in parents() {
            let group = parent.join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Group(group);
            if fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        println!(
            "skipped: no memory cgroup can be created here (needs Linux and root or a delegated cgroup)"
        );
        None
    }

    /// A command that enters the cgroup before it executes `program`.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" || exit 98; exec \"$@\""])
            .arg(self.0.join("cgroup.procs"))
            .arg(program.as_ref());
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
            for member in members.lines() {
                let _ = Command::new("kill").args(["-KILL", member]).status();
            }
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{} could not be removed", self.0.display());
    }
}

/// Folders in which a cgroup may be created, each with the file name of its limit: from every mount
/// down to the cgroup of this process.
fn parents() -> Vec<(PathBuf, &'static str)> {
    let own_groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut parents = Vec::new();
    for line in mounts.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else {
            continue;
        };
        let kind: Vec<&str> = kind.split(' ').collect();
        let is_version_1 =
            kind[0] == "cgroup" && kind[2].split(',').any(|option| option == "memory");
        let mount_point = mount.split(' ').nth(4).map(PathBuf::from);
        let (Some(mount_point), true) = (mount_point, is_version_1 || kind[0] == "cgroup2") else {
            continue;
        };
        let controllers = if is_version_1 { ":memory:" } else { "0::" };
        let member = own_groups
            .lines()
            .find_map(|line| line.split_once(controllers));
        let limit = if is_version_1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        let mut parent = mount_point;
        parents.push((parent.clone(), limit));
        for part in member
            .map_or("", |(_, path)| path)
            .split('/')
            .filter(|p| !p.is_empty())
        {
            parent.push(part);
            parents.push((parent.clone(), limit));
        }
    }
    parents
}
