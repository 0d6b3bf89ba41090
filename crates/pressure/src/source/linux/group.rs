//! The control group of this process, version 2 or 1: how much it may still take. Limits of the groups above count too.
//! File cache is headroom: the kernel drops it before it kills anybody.

use super::files::{self, Kept};
use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as a number near 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// The limited groups from this process's own up to the root.
pub(super) struct Group {
    version: Version,
    path: PathBuf,
    limited: Vec<Limited>,
}

/// Which of the kernel's two interfaces is in use.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

/// One group with its limits; version 2 has a hard and a throttling one.
struct Limited {
    limits: Vec<Kept>,
    used: Kept,
    stat: Kept,
}

impl Group {
    /// The group that limits this process's memory, if one does: version 2 first, then 1.
    pub(super) fn find(root: &Path) -> Option<Self> {
        let membership = files::text(&root.join("proc/self/cgroup"))?;
        let mounts = files::text(&root.join("proc/self/mountinfo"))?;
        [Version::Two, Version::One]
            .into_iter()
            .find_map(|version| {
                let member = membership.lines().find_map(|line| version.member(line))?;
                let (mounted, point) = mounts.lines().find_map(|line| version.mount(line))?;
                let top = root.join(point.trim_start_matches('/'));
                // Inside a container the mount shows a part of the tree, or the membership is relative to it already.
                let below = member.strip_prefix(mounted).unwrap_or(member);
                let path = top.join(below.trim_start_matches('/'));
                let path = if path.is_dir() { path } else { top.clone() };
                let groups = path.ancestors().take_while(|group| group.starts_with(&top));
                let limited: Vec<Limited> =
                    groups.filter_map(|group| version.open(group)).collect();
                let mut group = Self {
                    version,
                    path: path.clone(),
                    limited,
                };
                group.headroom().map(|_| group)
            })
    }

    /// `(limit, headroom)` of the tightest group, in bytes; `None` when no limit is set.
    pub(super) fn headroom(&mut self) -> Option<(u64, u64)> {
        let version = self.version;
        let tight = self
            .limited
            .iter()
            .filter_map(|group| group.headroom(version));
        tight.min_by_key(|(_, headroom)| *headroom)
    }

    /// The group's own stalls, which only version 2 counts.
    pub(super) fn stalls(&self) -> Option<Kept> {
        let stalls = Kept::open(&self.path.join("memory.pressure")).ok()?;
        (self.version == Version::Two).then_some(stalls)
    }

    /// "the control group's limit (version 2)".
    pub(super) fn describe(&self) -> String {
        match self.version {
            Version::One => "the control group's limit (version 1)".into(),
            Version::Two => "the control group's limit (version 2)".into(),
        }
    }
}

impl Version {
    /// The path in a line of `/proc/self/cgroup` that speaks of memory.
    fn member(self, line: &str) -> Option<&str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let ours = match self {
            Self::Two => controllers.is_empty(),
            Self::One => controllers.split(',').any(|name| name == "memory"),
        };
        ours.then_some(path)
    }

    /// `(part of the tree that is mounted, mount point)` in a line of `/proc/self/mountinfo`.
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

    fn open(self, group: &Path) -> Option<Limited> {
        let (limits, used): (&[&str], &str) = match self {
            Self::Two => (&["memory.max", "memory.high"], "memory.current"),
            Self::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
        };
        Some(Limited {
            limits: limits
                .iter()
                .filter_map(|name| Kept::open(&group.join(name)).ok())
                .collect(),
            used: Kept::open(&group.join(used)).ok()?,
            stat: Kept::open(&group.join("memory.stat")).ok()?,
        })
    }
}

impl Limited {
    fn headroom(&self, version: Version) -> Option<(u64, u64)> {
        let limits = self
            .limits
            .iter()
            .filter_map(|limit| limit.number().ok().flatten());
        let limit = limits.min().filter(|&limit| limit < NO_LIMIT_BYTES)?;
        let used = self.used.number().ok().flatten()?;
        let cached = match version {
            Version::Two => ["active_file", "inactive_file", "slab_reclaimable"],
            Version::One => ["total_active_file", "total_inactive_file", "-"],
        };
        let cached: u64 = self.stat.named(cached).ok()?.into_iter().flatten().sum();
        Some((limit, limit.saturating_sub(used.saturating_sub(cached))))
    }
}
