//! The memory that this process itself uses beside micro-batches: its base footprint, prefetched
//! samples and the optimizer's moments.

use super::ModelMemory;
use crate::error::Result;
use crate::optimizer::has_8bit_variant;
use crate::plan::Plan;
use candle_core::Device;
use pressure::{MemoryModel, Moments, Monitor, RecoveryReserve};
use tape::memory::{Purge, live_bytes, release, take_peak_bytes};

/// Memory use of this process.
pub(super) struct Usage {
    device: Device,
    purge: Purge,
    /// Footprint outside the heap: code, stacks and the allocator's minimum.
    base_bytes: u64,
    prefetched_bytes: u64,
    reserve: RecoveryReserve,
    /// Where the memory model assumes the moments.
    moments: Moments,
    /// Bytes of the moments if they are in full precision, else 0.
    full_precision_moments_bytes: u64,
}

impl Usage {
    pub fn new(plan: &Plan, device: &Device, purge: Purge, model: ModelMemory) -> Self {
        Usage {
            device: device.clone(),
            purge,
            base_bytes: u64::MAX,
            prefetched_bytes: 0,
            reserve: model.reserve,
            moments: Moments::Resident,
            full_precision_moments_bytes: if has_8bit_variant(plan.optimizer) {
                model.reserve.moments_bytes
            } else {
                0
            },
        }
    }

    /// What the run can free beside samples.
    pub fn reserve(&self) -> RecoveryReserve {
        self.reserve
    }

    /// Bytes in use that a shorter prefetch would free.
    pub fn prefetched_bytes(&self) -> u64 {
        self.prefetched_bytes
    }

    /// Sets the bytes in use that a shorter prefetch would free.
    pub fn set_prefetched_bytes(&mut self, bytes: u64) {
        self.prefetched_bytes = bytes;
    }

    /// Bytes of moments in memory that 8-bit moments would reduce.
    pub fn reducible_moments_bytes(&self) -> u64 {
        match self.moments {
            Moments::Resident => self.full_precision_moments_bytes,
            Moments::Mapped => 0,
        }
    }

    /// Adjusts the memory model when the moments move between memory and disk.
    pub fn move_moments(&mut self, moments: Moments, model: &mut MemoryModel) {
        let bytes = self.reserve.moments_bytes;
        match (std::mem::replace(&mut self.moments, moments), moments) {
            (Moments::Resident, Moments::Mapped) => model.state_shrank(bytes),
            (Moments::Mapped, Moments::Resident) => model.state_grew(bytes),
            (Moments::Resident, Moments::Resident) | (Moments::Mapped, Moments::Mapped) => {}
        }
    }

    /// Returns cached memory to the system.
    pub fn release(&self) -> Result<()> {
        Ok(release(&self.device, self.purge)?)
    }

    /// Starts to measure a peak.
    pub fn start_peak(&mut self, monitor: &Monitor) {
        let live = live_bytes();
        if live > 0 && self.device.is_cpu() {
            // The smallest difference is the best: the allocator caches nothing then.
            let own = pressure::own_footprint_bytes();
            self.base_bytes = self.base_bytes.min(own.saturating_sub(live));
            take_peak_bytes();
        } else {
            monitor.take_peak();
        }
    }

    /// Highest footprint since [`Usage::start_peak`], in bytes.
    pub fn take_peak(&self, monitor: &Monitor) -> u64 {
        if live_bytes() > 0 && self.device.is_cpu() {
            self.base_bytes + take_peak_bytes()
        } else {
            monitor.take_peak()
        }
    }
}
