//! The limits set on this process itself (RLIMIT_AS, RLIMIT_DATA). Read anew each time: `prlimit` moves them while a process
//! runs. Knows no group and no machine.
//!
//! The kernel counts what is mapped, and so do we where a limit was there from the beginning: the allocator's mappings have
//! gaps that not every size can fill. Where a limit came down later, what was mapped before counts only as far as it was
//! filled, and what is never filled (stacks): the gaps are what pieces live in until the limit goes up again.

use super::files::Kept;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Places in `/proc/self/statm`, in pages.
const MAPPED: usize = 0;
const RESIDENT: usize = 1;
const SHARED: usize = 2;
const DATA: usize = 5;

/// Numbers of `/proc/self/statm` that are read.
pub(super) type Pages = [u64; 6];

/// The limits on this process.
pub(super) struct Limits {
    from: From,
    /// The limits when Ebb began to read, bytes.
    first: [Option<u64>; 2],
    /// One was set when they were last looked at.
    set: bool,
}

/// Who says what they are.
enum From {
    /// The kernel: two calls, for which it writes no text.
    Kernel,
    /// A file like `/proc/self/limits`, kept open, below another root than the machine's.
    File(Option<Kept>),
}

impl Limits {
    /// None are known where the file cannot be read.
    pub(super) fn open(root: &Path) -> Self {
        let from = match root == Path::new("/") {
            true => From::Kernel,
            false => From::File(Kept::open(&root.join("proc/self/limits")).ok()),
        };
        let mut limits = Self {
            from,
            first: [None; 2],
            set: false,
        };
        limits.first = limits.soft();
        limits.look();
        limits
    }

    /// Looks whether one is set. Until then none is, and [`Limits::headrooms`] asks nobody.
    pub(super) fn look(&mut self) {
        self.set = self.are_set();
    }

    /// A limit is set now.
    pub(super) fn are_set(&self) -> bool {
        self.soft().iter().any(Option::is_some)
    }

    /// One was set when that was last looked at.
    pub(super) fn were_set(&self) -> bool {
        self.set
    }

    /// `(limit, headroom)` of each limit that is set, in bytes. `pages` is what statm says; `idle_bytes` are mapped and never
    /// filled.
    pub(super) fn headrooms(
        &self,
        pages: &Pages,
        page_bytes: u64,
        idle_bytes: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let limits = match self.set {
            true => self.soft(),
            false => [None; 2],
        };
        let used = match limits == self.first {
            true => mapped(pages, page_bytes),
            false => filled(pages, page_bytes, idle_bytes),
        };
        let set = limits
            .into_iter()
            .zip(used)
            .filter_map(|(limit, used)| limit.map(|limit| (limit, used)));
        set.map(|(limit, used)| (limit, limit.saturating_sub(used)))
    }

    /// The least headroom under limits that nobody will move; nothing where one was lowered since the beginning: whoever did
    /// that may raise it again.
    pub(super) fn lasting_headroom(&mut self, pages: &Pages, page_bytes: u64) -> Option<u64> {
        self.look();
        if self.soft() != self.first {
            return None;
        }
        let headrooms = self.headrooms(pages, page_bytes, 0);
        headrooms.map(|(_, headroom)| headroom).min()
    }

    fn soft(&self) -> [Option<u64>; 2] {
        match &self.from {
            From::Kernel => [Resource::As, Resource::Data].map(|limit| getrlimit(limit).current),
            From::File(file) => ["Max address space", "Max data size"].map(|name| {
                let found = file.as_ref()?.read(|text| Ok(soft_limit(text, name)));
                found.ok().flatten()
            }),
        }
    }
}

/// Bytes mapped of the address space and of the data size.
fn mapped(pages: &Pages, page_bytes: u64) -> [u64; 2] {
    [MAPPED, DATA].map(|index| pages[index] * page_bytes)
}

/// The same less what is mapped and may still be filled.
fn filled(pages: &Pages, page_bytes: u64, idle_bytes: u64) -> [u64; 2] {
    let [resident, shared] = [RESIDENT, SHARED].map(|index| pages[index] * page_bytes);
    let [mapped, data] = mapped(pages, page_bytes);
    let filled = data.min(resident.saturating_sub(shared) + idle_bytes);
    [mapped.saturating_sub(data - filled), filled]
}

/// The soft limit in a line of `/proc/self/limits`, in bytes.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
