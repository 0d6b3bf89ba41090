//! The size of a launch: thread groups and their threads. A device reads it with [`Grid::within`],
//! which refuses groups that the compiled kernel does not allow. Every launch first passes
//! [`Grid::expect_indexable`]: an index of 32 bits would wrap around, and overwrite other elements.

use crate::error::{Result, TapeError};

/// Operations use a kernel only for tensors with fewer elements, and another form for larger ones.
pub(crate) const FEWER_ELEMENTS: usize = 1 << 31;

/// The most elements that a launch may index. Tensors that an operation makes on the way, such as
/// the columns of a convolution, are larger than those that it was chosen for. Threads count up to
/// a few thousand elements beyond the end before they stop, so that the last 65,536 are left out.
const MOST_INDEXED: usize = u32::MAX as usize - (1 << 16);

/// The number of thread groups, and of simdgroups (32 lanes) in each; the simdgroups of a group
/// meet at barriers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    groups: usize,
    simds: usize,
}

/// A grid that the device accepts.
#[cfg_attr(
    not(any(feature = "cuda", target_os = "macos", test)),
    allow(dead_code, reason = "without a GPU nothing is launched")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchSize {
    /// Thread groups.
    pub groups: usize,
    /// Threads of each.
    pub threads: usize,
}

impl Grid {
    /// `groups` groups of `simds` simdgroups.
    pub fn groups(groups: usize, simds: usize) -> Self {
        Grid { groups, simds }
    }

    /// One thread for every four elements.
    pub fn elements(count: usize) -> Self {
        Grid::groups(count.div_ceil(1024), 8)
    }

    /// One thread for every element.
    pub fn each(count: usize) -> Self {
        Grid::groups(count.div_ceil(256), 8)
    }

    /// One simdgroup per row.
    pub fn rows(rows: usize) -> Self {
        Grid::groups(rows.div_ceil(4), 4)
    }

    /// True if there is nothing to do.
    pub fn is_empty(self) -> bool {
        self.groups == 0
    }

    /// Threads of all groups.
    pub fn total_threads(self) -> usize {
        self.groups.saturating_mul(32 * self.simds)
    }

    /// Refuses a launch if one of its numbers does not fit into 32 bits. `counts` are the numbers
    /// that the kernel gets, `elements` those of each of its tensors from the first to the last
    /// one. `kernel` names the kernel in the error.
    ///
    /// # Errors
    /// [`TapeError::Memory`], as if a tensor did not fit into memory: a smaller micro-batch helps.
    pub fn expect_indexable(
        self,
        counts: impl IntoIterator<Item = usize>,
        elements: impl IntoIterator<Item = usize>,
        kernel: impl FnOnce() -> String,
    ) -> Result<()> {
        let fits = |count: usize| u32::try_from(count).is_ok();
        let is_indexable = counts.into_iter().all(fits)
            && elements.into_iter().all(|count| count <= MOST_INDEXED)
            && fits(self.total_threads());
        if is_indexable {
            return Ok(());
        }
        Err(TapeError::Memory(format!(
            "the kernel {} would work on more than {MOST_INDEXED} elements; choose a smaller micro-batch",
            kernel()
        )))
    }

    /// The size of the launch, if a group has at most `allowed` threads. How many a compiled kernel
    /// allows depends on the registers that it uses. Metal drops a wider launch without an error:
    /// its output would be whatever was in memory. `kernel` names the kernel in the error.
    ///
    /// # Errors
    /// A group has more threads.
    pub fn within(self, allowed: usize, kernel: impl FnOnce() -> String) -> Result<LaunchSize> {
        let threads = 32 * self.simds;
        if threads <= allowed {
            return Ok(LaunchSize {
                groups: self.groups,
                threads,
            });
        }
        Err(TapeError::Device(format!(
            "the kernel {} needs groups of {threads} threads but this GPU allows {allowed}; choose --device cpu",
            kernel()
        )))
    }
}
