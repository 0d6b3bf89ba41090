//! The size of a launch: thread groups and their threads. A device reads it with [`Grid::within`],
//! which refuses groups that the compiled kernel does not allow.

use crate::error::{Result, TapeError};

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
