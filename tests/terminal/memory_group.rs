//! Memory groups of the kernel for a test: made by the test, holding only processes that it
//! started, and gone with it, also when it fails. Knows version 1 and 2, and where neither may be
//! written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A group with a limit.
pub struct Group(PathBuf);

impl Group {
    /// A group limited to `bytes`; prints why where none can be made.
    pub fn limited(bytes: u64) -> Option<Group> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "ebb-test-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
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
        println!("left out: no memory group can be made here (Linux, root or a delegated group)");
        None
    }

    /// A command that enters the group before it becomes `program`.
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
        println!("{} is still there", self.0.display());
    }
}

/// Folders in which a group may be made, with the name of its limit: from each mount down to the
/// own group.
fn parents() -> Vec<(PathBuf, &'static str)> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut parents = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else {
            continue;
        };
        let kind: Vec<&str> = kind.split(' ').collect();
        let one = kind[0] == "cgroup" && kind[2].split(',').any(|option| option == "memory");
        let point = place.split(' ').nth(4).map(PathBuf::from);
        let (Some(point), true) = (point, one || kind[0] == "cgroup2") else {
            continue;
        };
        let controllers = if one { ":memory:" } else { "0::" };
        let member = own.lines().find_map(|line| line.split_once(controllers));
        let limit = if one {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        let mut parent = point;
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
