//! The device that an estimate is for: which form of the operations it runs, how its allocator
//! rounds, and how many threads it has.

use crate::plan::Plan;
use pressure::{Allocator, own_footprint_bytes};
use tape::Kernels;
use tape::counting_allocator::live_bytes;

/// Resident bytes of a CUDA process per byte in use, measured over the workloads.
const CUDA_RESIDENT_FACTOR: f64 = 1.03;

/// The fraction of the freed blocks of other sizes that a CPU process still holds: its allocator
/// keeps them for half a second and reuses them in part. Measured over the workloads and runs
/// on images. See `docs/decisions/008-allocator-replay.md`.
const UNREUSED_FRACTION: f64 = 0.4;

/// Additional memory of the process once steps have run: pages of kernels and of the allocator's
/// own data, and packed panels of matrix products, which dry runs leave out. Chosen by measuring
/// the workloads.
const KERNELS_BYTES: u64 = 36 << 20;

/// Memory of a run besides its steps: threads that decode, sample memory and write, with the
/// memory that the allocator holds for each, and evaluations between steps. Chosen by measuring
/// runs on images.
const BESIDES_STEPS_BYTES: u64 = 8 << 20;

/// The properties of the device that affect memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// `metal`, `cuda` or `cpu`.
    pub kind: crate::DeviceKind,
    /// Form of the operations that the device runs.
    pub kernels: Kernels,
    /// How the device's allocator rounds.
    pub allocator: Allocator,
    /// Threads of the CPU kernels.
    pub threads: usize,
    /// What the process takes before anything is built (code, libraries, stacks), and its kernels
    /// once they have run.
    pub base_bytes: u64,
    /// The most memory that Ebb may use, in bytes, which limits the samples decoded ahead; 0 if
    /// unknown.
    pub ceiling_bytes: u64,
    /// Number of devices that have the optimizer's moments in parts; 1 if one device has all.
    moments_divided_by: usize,
    /// One of several devices that exchange weights only every few steps.
    has_outer_steps: bool,
}

impl Target {
    /// A device by its kind, for this process in its present state. Create it before anything large
    /// is allocated, or after the allocator has given back what it keeps.
    pub fn new(kind: crate::DeviceKind, threads: usize, ceiling_bytes: u64) -> Self {
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
            moments_divided_by: 1,
            has_outer_steps: false,
        }
    }

    /// One of several devices, each of which has a part of the optimizer's moments.
    #[must_use]
    pub fn with_moments_divided_by(self, devices: usize) -> Self {
        Target {
            moments_divided_by: devices.max(1),
            ..self
        }
    }

    /// Number of devices that have the optimizer's moments in parts; 1 if one device has all.
    pub fn moments_divided_by(&self) -> usize {
        self.moments_divided_by
    }

    /// One of several devices that exchange weights only every few steps, if `has_outer_steps`. It
    /// has a copy of the weights and a momentum for the outer steps.
    #[must_use]
    pub fn with_outer_steps(self, has_outer_steps: bool) -> Self {
        Target {
            has_outer_steps,
            ..self
        }
    }

    /// Whether this is one of several devices that exchange weights only every few steps.
    pub(super) fn has_outer_steps(&self) -> bool {
        self.has_outer_steps
    }

    /// What a run takes before anything is built, and besides its steps.
    pub(super) fn training_base_bytes(&self) -> u64 {
        self.base_bytes + BESIDES_STEPS_BYTES
    }

    /// Number of decoding threads that the run will have.
    pub(super) fn workers(&self, plan: &Plan) -> usize {
        plan.workers_on(self.kind)
    }

    /// Resident bytes while `heap_bytes` are in use. `unreused_bytes` are those of freed blocks of
    /// other sizes.
    pub(super) fn resident_bytes(&self, heap_bytes: u64, unreused_bytes: u64) -> u64 {
        match self.allocator {
            // Counted block by block.
            Allocator::PowerOfTwo => heap_bytes,
            Allocator::Exact if self.kind == crate::DeviceKind::Cpu => {
                heap_bytes + (UNREUSED_FRACTION * unreused_bytes as f64) as u64
            }
            Allocator::Exact => (heap_bytes as f64 * CUDA_RESIDENT_FACTOR) as u64,
        }
    }
}
