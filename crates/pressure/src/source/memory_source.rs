//! The trait of everything that memory samples come from, and the device's own readings.

use super::platform::footprint;
use crate::error::PressureError;
use crate::memory_sample::MemorySample;

/// Reads the machine's memory.
pub trait MemorySource: Send {
    /// A full sample, read now.
    ///
    /// # Errors
    /// The machine's memory cannot be read.
    fn sample(&mut self) -> Result<MemorySample, PressureError>;

    /// A fast sample, for calm periods. Available memory, the footprint, stalls and the kernel's
    /// level are read; limits, swap, disk and thermal state are those of the newest full sample. If
    /// a change calls for it, this is a full sample.
    ///
    /// # Errors
    /// The machine's memory cannot be read.
    fn sample_fast(&mut self) -> Result<MemorySample, PressureError> {
        self.sample()
    }

    /// A description of the readings, for the user: "MemAvailable, PSI".
    fn describe(&self) -> String;

    /// This process's footprint now, in bytes. Much cheaper than a sample.
    fn own_bytes(&mut self) -> u64 {
        footprint::own_footprint_bytes()
    }

    /// Highest footprint since the last call, in bytes, if the platform counts it.
    fn take_peak_bytes(&mut self) -> Option<u64> {
        None
    }

    /// Bytes that the limits on this process leave, which no other process can free. `None` without
    /// a limit, and also if a limit was changed since the source was opened, because it may change
    /// again.
    fn own_headroom_bytes(&mut self) -> Option<u64> {
        None
    }

    /// A sentence about a reading that was lost since the last call and what is read instead. Each
    /// loss is reported once.
    fn take_notice(&mut self) -> Option<String> {
        None
    }

    /// Whether each call of `sample` is one step of a script, so that only the decisions may
    /// sample.
    fn is_stepped(&self) -> bool {
        false
    }
}

/// One reading of the device, in bytes.
pub type DeviceReading = Box<dyn Fn() -> u64 + Send>;

/// Readings of the device and of this process that only the caller knows. Every closure returns
/// within microseconds and may be called from any thread.
pub struct DeviceReadings {
    /// Live bytes as counted by the tape and the trainer.
    pub live_bytes: DeviceReading,
    /// Bytes that this process has allocated according to the GPU driver; 0 on the CPU.
    pub allocated_bytes: DeviceReading,
    /// Most bytes of `allocated_bytes` since the last call; 0 if the driver does not know.
    pub take_peak_bytes: DeviceReading,
    /// The GPU's recommended working set; 0 without one.
    pub limit_bytes: DeviceReading,
    /// Memory that this process has mapped and never touches, such as the far ends of its stacks.
    /// It matters if a limit on the process counts mappings.
    pub idle_bytes: DeviceReading,
}

impl Default for DeviceReadings {
    fn default() -> Self {
        Self {
            live_bytes: Box::new(|| 0),
            allocated_bytes: Box::new(|| 0),
            take_peak_bytes: Box::new(|| 0),
            limit_bytes: Box::new(|| 0),
            idle_bytes: Box::new(|| 0),
        }
    }
}

impl DeviceReadings {
    /// Writes the device's three readings into `sample`.
    pub(super) fn fill(&self, sample: &mut MemorySample) {
        sample.device_live_bytes = (self.live_bytes)();
        sample.device_allocated_bytes = (self.allocated_bytes)();
        sample.device_limit_bytes = (self.limit_bytes)();
    }

    /// This process's memory in bytes: the footprint, which leaves out GPU buffers that are still
    /// untouched, or all GPU buffers.
    #[cfg_attr(
        not(any(target_os = "macos", test)),
        allow(dead_code, reason = "elsewhere GPU memory is separate")
    )]
    pub(super) fn own_bytes(&self, footprint_bytes: u64) -> u64 {
        footprint_bytes.max((self.allocated_bytes)())
    }

    /// Peak of this process's memory in bytes since the last call, if the driver counts it: the
    /// driver's peak beside everything that is not on the GPU.
    #[cfg_attr(
        not(any(target_os = "macos", test)),
        allow(dead_code, reason = "elsewhere GPU memory is separate")
    )]
    pub(super) fn take_peak(&self, footprint_bytes: u64) -> Option<u64> {
        let peak_bytes = (self.take_peak_bytes)();
        let host_bytes = footprint_bytes.saturating_sub((self.allocated_bytes)());
        (peak_bytes > 0).then(|| peak_bytes + host_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(allocated: u64, peak: u64) -> DeviceReadings {
        DeviceReadings {
            allocated_bytes: Box::new(move || allocated),
            take_peak_bytes: Box::new(move || peak),
            ..DeviceReadings::default()
        }
    }

    #[test]
    fn untouched_gpu_buffers_count_as_own_memory() {
        assert_eq!(device(700, 0).own_bytes(300), 700);
        assert_eq!(device(200, 0).own_bytes(300), 300);
    }

    #[test]
    fn a_peak_includes_buffers_that_were_freed_since() {
        // 300 bytes of the footprint are now on the GPU, where 900 were in use.
        assert_eq!(device(300, 900).take_peak(500), Some(1100));
        assert_eq!(
            device(300, 0).take_peak(500),
            None,
            "the driver counts none"
        );
    }
}
