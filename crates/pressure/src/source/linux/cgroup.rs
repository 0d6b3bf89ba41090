//! The control group of this process, version 2 or 1: how much memory it may still take. The limits
//! of parent groups apply too. File cache is headroom, since the kernel drops it before it kills a
//! process.

use super::fast_estimate::FullReading;
use super::kernel_file::{self, KernelFile};
use crate::error::PressureError;
use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as a number near 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// How often this process's membership, and a group without a limit, are read again, in
/// milliseconds.
const REREAD_MS: u64 = 1_000;

/// The groups of this process, version 2 and version 1; either may limit memory.
pub(super) struct Cgroups {
    root: PathBuf,
    /// `/proc/self/cgroup`.
    member_file: Option<KernelFile>,
    membership: String,
    groups: Vec<Group>,
    read_ms: u64,
}

/// This process's group of one version, and its parents up to the root.
struct Group {
    version: Version,
    path: PathBuf,
    /// Whether it is the root group, which counts the whole machine.
    is_the_machine: bool,
    limited: Vec<Limited>,
}

/// Which of the kernel's two interfaces is in use.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

/// One group with its limits; version 2 has a hard limit and a throttling one.
struct Limited {
    limits: Vec<KernelFile>,
    /// Its use. Without it, a limit gives no headroom.
    used_path: PathBuf,
    used: Option<KernelFile>,
    /// How much of its use is cache, if the group reports it.
    stat: Option<KernelFile>,
    /// Until then the group is taken to have no limit.
    unlimited_until_ms: u64,
    /// The newest full reading; `None` without a limit.
    full: Option<FullReading>,
}

impl Cgroups {
    /// Finds the groups of this process.
    pub(super) fn find(root: &Path) -> Self {
        let member_file = KernelFile::open(&root.join("proc/self/cgroup")).ok();
        let membership = membership(member_file.as_ref());
        Self {
            root: root.to_owned(),
            groups: groups(root, &membership),
            member_file,
            membership,
            read_ms: 0,
        }
    }

    /// Checks once per second whether the process was moved; if so, returns the stalls of its new
    /// groups.
    pub(super) fn follow(&mut self, at_ms: u64) -> Option<Vec<KernelFile>> {
        if at_ms < self.read_ms + REREAD_MS {
            return None;
        }
        self.read_ms = at_ms;
        let file = self.member_file.as_ref();
        let same = file.map(|file| file.read(|text| Ok(text == self.membership)));
        if same.is_none_or(|same| same.unwrap_or(self.membership.is_empty())) {
            return None;
        }
        let membership = membership(file);
        self.groups = groups(&self.root, &membership);
        self.membership = membership;
        Some(self.stalls())
    }

    /// `(limit, headroom)` of the tightest group, in bytes; `None` without a limit. `own_bytes` is
    /// the footprint of this process.
    ///
    /// # Errors
    /// A limit can no longer be read. It is left out from then on.
    pub(super) fn headroom(
        &mut self,
        at_ms: u64,
        own_bytes: u64,
    ) -> Result<Option<(u64, u64)>, PressureError> {
        let mut lost = None;
        let mut tightest: Option<(u64, u64)> = None;
        self.groups
            .retain_mut(|group| match group.headroom(at_ms, own_bytes) {
                Ok(found) => {
                    let both = [tightest, found];
                    tightest = both
                        .into_iter()
                        .flatten()
                        .min_by_key(|(_, headroom)| *headroom);
                    true
                }
                Err(error) => {
                    lost = Some(error);
                    false
                }
            });
        match lost {
            Some(error) => Err(error),
            None => Ok(tightest),
        }
    }

    /// `(limit, headroom)` between two full readings, from the use alone; `None` if a full reading
    /// is necessary. `fresh`: this is the first call since the last full reading.
    pub(super) fn headroom_fast(&self, own_bytes: u64, fresh: bool) -> Option<Option<(u64, u64)>> {
        let mut limited = self.groups.iter().flat_map(|group| &group.limited);
        limited.try_fold(None, |tightest: Option<(u64, u64)>, limited| {
            let found = limited.headroom_fast(own_bytes, fresh)?;
            let both = [tightest, found].into_iter().flatten();
            Some(both.min_by_key(|(_, headroom)| *headroom))
        })
    }

    /// The stalls of the groups. Version 2 counts them, even if version 1 sets the limit.
    pub(super) fn stalls(&self) -> Vec<KernelFile> {
        let own = |group: &&Group| group.version == Version::Two && !group.is_the_machine;
        let version_2 = self.groups.iter().filter(own);
        version_2
            .filter_map(|group| KernelFile::open(&group.path.join("memory.pressure")).ok())
            .collect()
    }

    /// "the limit of the cgroup (version 2)"; `None` without a limit.
    pub(super) fn describe(&self) -> Option<String> {
        let version = match self.groups.iter().find(|group| group.is_limited())?.version {
            Version::One => 1,
            Version::Two => 2,
        };
        Some(format!("the limit of the cgroup (version {version})"))
    }
}

/// The groups of this process as the kernel writes them; empty if they cannot be read.
fn membership(file: Option<&KernelFile>) -> String {
    let text = file.map(|file| file.read(|text| Ok(text.to_owned())));
    text.and_then(Result::ok).unwrap_or_default()
}

fn groups(root: &Path, membership: &str) -> Vec<Group> {
    let mounts = kernel_file::text(&root.join("proc/self/mountinfo")).unwrap_or_default();
    [Version::Two, Version::One]
        .into_iter()
        .filter_map(|version| {
            let member = membership.lines().find_map(|line| version.member(line))?;
            let (mounted, point) = mounts.lines().find_map(|line| version.mount(line))?;
            let top = root.join(point.trim_start_matches('/'));
            // In a container the mount shows a part of the tree, or the membership is already
            // relative to it.
            let below = member.strip_prefix(mounted).unwrap_or(member);
            let path = top.join(below.trim_start_matches('/'));
            let path = if path.is_dir() { path } else { top.clone() };
            let above = path.ancestors().take_while(|group| group.starts_with(&top));
            let limited = above.filter_map(|group| version.open(group)).collect();
            // Only a group with a parent has a type, in a container too.
            let is_the_machine = path == top && !path.join("cgroup.type").exists();
            Some(Group {
                version,
                path: path.clone(),
                is_the_machine,
                limited,
            })
        })
        .collect()
}

impl Group {
    /// `(limit, headroom)` of the tightest of this group and its parents, in bytes.
    fn headroom(
        &mut self,
        at_ms: u64,
        own_bytes: u64,
    ) -> Result<Option<(u64, u64)>, PressureError> {
        let mut tightest: Option<(u64, u64)> = None;
        for limited in &mut self.limited {
            let found = limited.headroom(self.version, at_ms, own_bytes)?;
            let both = [tightest, found].into_iter().flatten();
            tightest = both.min_by_key(|(_, headroom)| *headroom);
        }
        Ok(tightest)
    }

    /// Whether this group or a parent has a limit now.
    fn is_limited(&self) -> bool {
        let set = |limited: &Limited| matches!(limited.limit(), Ok(Some(_)));
        self.limited.iter().any(set)
    }
}

impl Version {
    /// The path in a line of `/proc/self/cgroup`, if it is about memory.
    fn member(self, line: &str) -> Option<&str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let ours = match self {
            Self::Two => controllers.is_empty(),
            Self::One => controllers.split(',').any(|name| name == "memory"),
        };
        ours.then_some(path)
    }

    /// `(mounted part of the tree, mount point)` in a line of `/proc/self/mountinfo`.
    fn mount(self, line: &str) -> Option<(&str, &str)> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (mounted, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let ours = match self {
            Self::Two => name == "cgroup2",
            Self::One => name == "cgroup" && options.split(',').any(|option| option == "memory"),
        };
        ours.then_some((mounted.trim_end_matches('/'), point))
    }

    /// Opens the limits of a group; `None` if it cannot be limited, as the root group.
    fn open(self, group: &Path) -> Option<Limited> {
        let (limits, used): (&[&str], &str) = match self {
            Self::Two => (&["memory.max", "memory.high"], "memory.current"),
            Self::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
        };
        let open = |name: &str| KernelFile::open(&group.join(name)).ok();
        let limits: Vec<KernelFile> = limits.iter().filter_map(|name| open(name)).collect();
        (!limits.is_empty()).then(|| Limited {
            limits,
            used_path: group.join(used),
            used: open(used),
            stat: open("memory.stat"),
            unlimited_until_ms: 0,
            full: None,
        })
    }
}

impl Limited {
    /// The smallest of its limits, in bytes.
    fn limit(&self) -> Result<Option<u64>, PressureError> {
        let mut limit = None;
        for file in &self.limits {
            limit = [limit, file.number()?].into_iter().flatten().min();
        }
        Ok(limit.filter(|&limit| limit < NO_LIMIT_BYTES))
    }

    fn headroom(
        &mut self,
        version: Version,
        at_ms: u64,
        own_bytes: u64,
    ) -> Result<Option<(u64, u64)>, PressureError> {
        if at_ms < self.unlimited_until_ms {
            return Ok(None);
        }
        self.full = None;
        let Some(limit) = self.limit()? else {
            self.unlimited_until_ms = at_ms + REREAD_MS;
            return Ok(None);
        };
        let used_file = match self.used.take() {
            Some(used) => used,
            None => KernelFile::open(&self.used_path)?,
        };
        let used = self.used.insert(used_file).number()?.unwrap_or(0);
        let cached = match version {
            Version::Two => ["active_file", "inactive_file", "slab_reclaimable"],
            Version::One => ["total_active_file", "total_inactive_file", "-"],
        };
        let cached = match &self.stat {
            Some(stat) => stat.named(cached)?.into_iter().flatten().sum(),
            None => 0,
        };
        let headroom = limit.saturating_sub(used.saturating_sub(cached));
        self.full = Some(FullReading {
            total_bytes: limit,
            available_bytes: headroom,
            free_bytes: limit.saturating_sub(used),
            own_bytes,
        });
        Ok(Some((limit, headroom)))
    }

    /// `(limit, headroom)` between two full readings; `None` if a full reading is necessary.
    fn headroom_fast(&self, own_bytes: u64, fresh: bool) -> Option<Option<(u64, u64)>> {
        let Some(full) = self.full else {
            return Some(None); // a new limit is found by full readings
        };
        let used = self.used.as_ref()?.number().ok()??;
        let free = full.total_bytes.saturating_sub(used);
        let headroom = full.available_bytes(free, own_bytes, fresh)?;
        Some(Some((full.total_bytes, headroom)))
    }
}
