//! What a forecast is for: the device's forms of operations, its allocator, its threads.

use crate::plan::Plan;
use pressure::{Allocator, own_footprint_bytes};
use tape::Kernels;
use tape::memory::live_bytes;

/// What a CUDA process takes for each byte in use, measured over the workloads of the bench.
const KEPT: f64 = 1.03;

/// What the process takes more once steps have run: 6 MB of pages of kernels and of the allocator's notes, packed panels of matrix
/// products, which rehearsals leave out, and what a replay of the heap misses. SelectedDevice over the workloads of the bench: beside their
/// holes nothing was left to explain of a text encoder, and up to 40 MB of a language model.
const KERNELS_BYTES: u64 = 16 << 20;

/// What a whole training takes more than steps alone: threads that decode, watch, record and write, with what the allocator keeps for
/// each, and evaluations between steps, which leave its blocks elsewhere. The middle of four trainings on photographs, of which two
/// networks took 6 and 40 MB.
const BESIDE_STEPS_BYTES: u64 = 24 << 20;

/// The device that will train, as far as memory knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// `metal`, `cuda` or `cpu`.
    pub kind: crate::DeviceKind,
    /// Forms of the operations that run there.
    pub kernels: Kernels,
    /// How its allocator rounds.
    pub allocator: Allocator,
    /// Threads of the CPU kernels.
    pub threads: usize,
    /// What the process takes before anything is built: code, libraries, stacks; and kernels once they have run.
    pub base_bytes: u64,
    /// What Ebb may use at most, in bytes: what is decoded ahead depends on it. 0 where nobody knows.
    pub ceiling_bytes: u64,
}

impl Target {
    /// A device by its kind, for this process as it is now: make it before anything large, or after the allocator has given back
    /// what it keeps.
    pub fn of(kind: crate::DeviceKind, threads: usize, ceiling_bytes: u64) -> Self {
        Target {
            kind,
            kernels: match kind {
                crate::DeviceKind::Cpu => Kernels::Fused,
                _ => Kernels::Composed,
            },
            allocator: match kind {
                crate::DeviceKind::Metal => Allocator::PowerOfTwo,
                _ => Allocator::Exact,
            },
            threads,
            base_bytes: own_footprint_bytes().saturating_sub(live_bytes()) + KERNELS_BYTES,
            ceiling_bytes,
        }
    }

    /// What a training takes before anything is built, and what it has beside its steps.
    pub(super) fn training_base_bytes(&self) -> u64 {
        self.base_bytes + BESIDE_STEPS_BYTES
    }

    /// Decoding workers as the run will have them.
    pub(super) fn workers(&self, plan: &Plan) -> usize {
        crate::session::workers(plan, self.kind)
    }

    /// The allocator keeps what is free between blocks, and the layout of blocks says how much: on the CPU.
    pub(super) fn leaves_holes(&self) -> bool {
        self.kind == crate::DeviceKind::Cpu && self.allocator == Allocator::Exact
    }

    /// What the process takes for `heap_bytes` in use: on the CPU its allocator keeps `holes_bytes` between blocks.
    pub(super) fn kept_bytes(&self, heap_bytes: u64, holes_bytes: u64) -> u64 {
        match self.allocator {
            _ if self.leaves_holes() => heap_bytes + holes_bytes,
            Allocator::Exact => (heap_bytes as f64 * KEPT) as u64,
            // Counted block by block.
            Allocator::PowerOfTwo => heap_bytes,
        }
    }
}
