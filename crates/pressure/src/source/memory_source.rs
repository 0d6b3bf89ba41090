//! The trait of everything that memory samples come from, and the device's own readings.

use super::platform::footprint;
use crate::error::PressureError;
use crate::sample::MemorySample;

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

    /// A description of the readings, for the user: "MemAvailable, memory stalls".
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
}
