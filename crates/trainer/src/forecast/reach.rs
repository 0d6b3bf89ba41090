//! What a forecast is for: the device's forms of operations, its allocator, its threads.

use crate::plan::Plan;
use pressure::Allocator;
use tape::Kernels;

/// What the process takes for each byte in use, measured over the workloads of the bench: 1.03 to 1.18.
const KEPT: f64 = 1.12;

/// The device that will train, as far as memory knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// `metal`, `cuda` or `cpu`.
    pub kind: &'static str,
    /// Forms of the operations that run there.
    pub kernels: Kernels,
    /// How its allocator rounds.
    pub allocator: Allocator,
    /// Threads of the CPU kernels.
    pub threads: usize,
    /// What Ebb may use at most, in bytes: what is decoded ahead depends on it. 0 where nobody knows.
    pub ceiling_bytes: u64,
}

impl Target {
    /// A device by its kind.
    pub fn of(kind: &'static str, threads: usize, ceiling_bytes: u64) -> Self {
        Target {
            kind,
            kernels: match kind {
                "cpu" => Kernels::Fused,
                _ => Kernels::Composed,
            },
            allocator: match kind {
                "metal" => Allocator::PowerOfTwo,
                _ => Allocator::Exact,
            },
            threads,
            ceiling_bytes,
        }
    }

    /// Decoding workers as the run will have them.
    pub(super) fn workers(&self, plan: &Plan) -> usize {
        crate::session::workers(plan, self.kind)
    }

    /// What the process takes for `heap_bytes` in use: its allocator keeps blocks beside them for the next piece.
    pub(super) fn kept_bytes(&self, heap_bytes: u64) -> u64 {
        match self.allocator {
            Allocator::Exact => (heap_bytes as f64 * KEPT) as u64,
            // Counted block by block.
            Allocator::PowerOfTwo => heap_bytes,
        }
    }
}
