//! The limits on this process (RLIMIT_AS, RLIMIT_DATA). Read each time, since `prlimit` may change
//! them while the process runs.
//!
//! The kernel counts mapped memory. So do we if a limit was set from the start, because the
//! allocator's mappings have gaps that not every size can fill. If a limit was lowered later,
//! earlier mappings count only if they were touched or are never touched (stacks): micro-batches
//! use the gaps until the limit is raised again.

use super::kernel_file::KernelFile;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// Positions in `/proc/self/statm`, which counts pages.
const MAPPED: usize = 0;
const RESIDENT: usize = 1;
const SHARED: usize = 2;
const DATA: usize = 5;

/// The numbers of `/proc/self/statm` that are read.
pub(super) type Pages = [u64; 6];

/// The limits on this process.
pub(super) struct Limits {
    reading: Reading,
    /// The limits when the source was opened, in bytes.
    first: [Option<u64>; 2],
    /// Whether one was set at the last refresh.
    set: bool,
}

/// How the limits are read.
enum Reading {
    /// By two system calls, which format no text.
    Kernel,
    /// From a file like `/proc/self/limits`, below another root.
    File(Option<KernelFile>),
}

impl Limits {
    /// Opens the limits. None are known if the file cannot be read.
    pub(super) fn open(root: &Path) -> Self {
        let reading = if root == Path::new("/") {
            Reading::Kernel
        } else {
            Reading::File(KernelFile::open(&root.join("proc/self/limits")).ok())
        };
        let mut limits = Self {
            reading,
            first: [None; 2],
            set: false,
        };
        limits.first = limits.soft();
        limits.refresh();
        limits
    }

    /// Checks whether a limit is set. [`Limits::headrooms`] relies on the last check.
    pub(super) fn refresh(&mut self) {
        self.set = self.are_set();
    }

    /// Whether a limit is set now.
    pub(super) fn are_set(&self) -> bool {
        self.soft().iter().any(Option::is_some)
    }

    /// Whether a limit was set at the last refresh.
    pub(super) fn were_set(&self) -> bool {
        self.set
    }

    /// `(limit, headroom)` of each limit that is set, in bytes. `pages` is the content of statm;
    /// `idle_bytes` are mapped and never touched.
    pub(super) fn headrooms(
        &self,
        pages: &Pages,
        page_bytes: u64,
        idle_bytes: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let limits = if self.set { self.soft() } else { [None; 2] };
        let used = if limits == self.first {
            mapped(pages, page_bytes)
        } else {
            touched(pages, page_bytes, idle_bytes)
        };
        let set = limits
            .into_iter()
            .zip(used)
            .filter_map(|(limit, used)| limit.map(|limit| (limit, used)));
        set.map(|(limit, used)| (limit, limit.saturating_sub(used)))
    }

    /// The smallest headroom under limits that are not expected to change; `None` if one was
    /// changed since the start, because it may change again.
    pub(super) fn lasting_headroom(&mut self, pages: &Pages, page_bytes: u64) -> Option<u64> {
        self.refresh();
        if self.soft() != self.first {
            return None;
        }
        let headrooms = self.headrooms(pages, page_bytes, 0);
        headrooms.map(|(_, headroom)| headroom).min()
    }

    fn soft(&self) -> [Option<u64>; 2] {
        match &self.reading {
            Reading::Kernel => [Resource::As, Resource::Data].map(|limit| getrlimit(limit).current),
            Reading::File(file) => ["Max address space", "Max data size"].map(|name| {
                let found = file.as_ref()?.read(|text| Ok(soft_limit(text, name)));
                found.ok().flatten()
            }),
        }
    }
}

/// Mapped bytes of the address space and of the data segment.
fn mapped(pages: &Pages, page_bytes: u64) -> [u64; 2] {
    [MAPPED, DATA].map(|index| pages[index] * page_bytes)
}

/// Mapped bytes, excluding those that can still be touched.
fn touched(pages: &Pages, page_bytes: u64, idle_bytes: u64) -> [u64; 2] {
    let [resident, shared] = [RESIDENT, SHARED].map(|index| pages[index] * page_bytes);
    let [mapped, data] = mapped(pages, page_bytes);
    let touched = data.min(resident.saturating_sub(shared) + idle_bytes);
    [mapped.saturating_sub(data - touched), touched]
}

/// The soft limit in a line of `/proc/self/limits`, in bytes.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
