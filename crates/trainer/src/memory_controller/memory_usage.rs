//! The memory that this process itself uses beside micro-batches: its base footprint, prefetched
//! samples and the optimizer's moments.

use super::ModelMemory;
use crate::error::{Result, TrainError};
use crate::optimizer::has_8bit_variant;
use crate::plan::Plan;
use crate::shared_device::SharedDevice;
use candle_core::Device;
use pressure::{MemoryModel, Moments, Monitor, RecoveryReserve};
use tape::counting_allocator::{Purge, live_bytes, release, take_peak_bytes};
use tape::device::{trim, trim_old};

/// Most faults that are read from a device after a failure.
const MOST_FAULTS: usize = 8;

/// Memory use of this process.
pub(super) struct Usage {
    device: Device,
    /// The same device, as the memory source reads it.
    shared_device: SharedDevice,
    purge: Purge,
    /// Footprint outside the heap: code, stacks and the allocator's minimum.
    base_bytes: u64,
    prefetched_bytes: u64,
    /// Bytes of a checkpoint that waits in memory.
    waiting_bytes: u64,
    reserve: RecoveryReserve,
    /// Where the memory model assumes the moments.
    moments: Moments,
    /// Bytes of the moments if they are in full precision, else 0.
    full_precision_moments_bytes: u64,
}

impl Usage {
    pub fn new(plan: &Plan, device: SharedDevice, purge: Purge, model: ModelMemory) -> Self {
        Usage {
            device: device.get(),
            shared_device: device,
            purge,
            base_bytes: u64::MAX,
            prefetched_bytes: 0,
            waiting_bytes: 0,
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

    /// Adjusts the memory model to the bytes of a checkpoint that waits in memory.
    pub fn set_waiting_bytes(&mut self, bytes: u64, model: &mut MemoryModel) {
        let before = std::mem::replace(&mut self.waiting_bytes, bytes);
        if before > bytes {
            model.state_shrank(before - bytes);
        } else {
            model.state_grew(bytes - before);
        }
    }

    /// Frees buffers of a GPU that no recent micro-batch used. One has just ended.
    pub fn trim_old(&self) {
        trim_old(&self.device);
    }

    /// Returns cached memory to the system.
    pub fn release(&self) -> Result<()> {
        Ok(release(&self.device, self.purge)?)
    }

    /// As [`Usage::release`], after a failure. Returns the first fault that the device reports; it
    /// is that of work which nothing uses, or of the gradients accumulated so far.
    ///
    /// # Errors
    /// The device is lost.
    pub fn drain(&self) -> Result<Option<TrainError>> {
        let mut first = None;
        for _ in 0..MOST_FAULTS {
            match self.release() {
                Ok(()) => return Ok(first),
                Err(error) if error.is_passing_fault() => first = first.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Ok(first)
    }

    /// Whether the device may report one of several failures and forget the others.
    pub fn forgets_failures(&self) -> bool {
        tape::device::forgets_failures(&self.device)
    }

    /// Measures another device from now on.
    pub fn replace_device(&mut self, device: &Device) {
        trim(&self.device);
        self.device = device.clone();
        self.shared_device.replace(device);
    }

    /// Whether the device has memory of its own, which is no part of the footprint.
    fn has_separate_memory(&self) -> bool {
        self.device.is_cuda()
    }

    /// Highest use of the device's own memory since [`Usage::start_peak`], in bytes; `None` if it
    /// has none, or if its driver does not report it.
    pub fn take_separate_peak(&self) -> Option<u64> {
        let peak = || tape::device::take_peak_bytes(&self.device);
        let bytes = self.has_separate_memory().then(peak);
        bytes.filter(|bytes| *bytes > 0)
    }

    /// Starts to measure a peak.
    pub fn start_peak(&mut self, monitor: &Monitor) {
        if self.has_separate_memory() {
            tape::device::take_peak_bytes(&self.device);
        }
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
