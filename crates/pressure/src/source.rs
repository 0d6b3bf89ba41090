//! Where samples come from. The files for each platform are twins with the same surface, chosen here and nowhere else.
//! Knows no GPU library: the device's own readings come in as closures.

mod blind;
mod lasting;
#[cfg_attr(target_os = "macos", path = "source/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "source/linux.rs")]
mod platform;
pub mod scripted;

use crate::error::PressureError;
use crate::sample::MemorySample;
use std::time::Instant;

/// Reads the machine's memory.
pub trait MemorySource: Send {
    /// One reading, now, of everything.
    fn sample(&mut self) -> Result<MemorySample, PressureError>;

    /// A look between two samples, for calm times: what can turn within a beat is read (what is available, this process's footprint,
    /// stalls, the kernel's level), and what turns slowly (limits, swap, disk, heat) is the newest sample's. Where what it reads
    /// calls for a sample it is one.
    fn glance(&mut self) -> Result<MemorySample, PressureError> {
        self.sample()
    }

    /// What is read, for the user: "MemAvailable and memory stalls".
    fn describe(&self) -> String;

    /// This process's footprint now, in bytes: a small part of a sample, cheap enough to ask often.
    fn own_bytes(&mut self) -> u64 {
        own_footprint_bytes()
    }

    /// Highest footprint since the last call, where the platform keeps one itself.
    fn take_peak_bytes(&mut self) -> Option<u64> {
        None
    }

    /// What the limits set on this process itself leave, in bytes; `None` without such a limit. Nobody else can give it back.
    /// `None` too where somebody moved a limit since the source was opened: whoever did may move it again.
    fn own_headroom_bytes(&mut self) -> Option<u64> {
        None
    }

    /// What has become unreadable since the last call, in a sentence that says what is read in its place. Each loss is said once.
    fn take_notice(&mut self) -> Option<String> {
        None
    }

    /// Each call of `sample` is one step of a script: nobody may sample on the side.
    fn is_stepped(&self) -> bool {
        false
    }
}

/// One number of the device, in bytes.
pub type DeviceReading = Box<dyn Fn() -> u64 + Send>;

/// What the device says of itself, and what only the caller knows of this process. Every closure answers in microseconds and may be called from any thread.
pub struct DeviceReadings {
    /// Live bytes by the tape's and trainer's own count.
    pub live_bytes: DeviceReading,
    /// What the GPU driver says this process has allocated; 0 on the CPU.
    pub allocated_bytes: DeviceReading,
    /// The GPU's recommended working set; 0 where there is none.
    pub limit_bytes: DeviceReading,
    /// What this process has mapped and never fills, such as the far ends of its stacks; it counts where a limit on the
    /// process counts mappings.
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
    /// Writes the three readings into `sample`.
    fn fill(&self, sample: &mut MemorySample) {
        sample.device_live_bytes = (self.live_bytes)();
        sample.device_allocated_bytes = (self.allocated_bytes)();
        sample.device_limit_bytes = (self.limit_bytes)();
    }
}

/// The best source this machine lets us read; `describe` says which. Never fails: at worst it is blind.
pub fn open(device: DeviceReadings) -> Box<dyn MemorySource> {
    let opened = Instant::now();
    match platform::Machine::open() {
        Ok(machine) => Box::new(lasting::Lasting::of(machine.with_device(device), opened)),
        Err(why) => Box::new(blind::Blind::open(device, why.to_string())),
    }
}

/// Footprint of this process, in bytes; 0 where even that cannot be read. About a microsecond.
pub fn own_footprint_bytes() -> u64 {
    platform::own_footprint_bytes()
}

/// Highest footprint of this process since the last call, where the kernel counts it exactly.
pub fn take_own_peak_bytes() -> Option<u64> {
    platform::take_own_peak_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_read() {
        let device = DeviceReadings {
            live_bytes: Box::new(|| 1),
            allocated_bytes: Box::new(|| 2),
            limit_bytes: Box::new(|| 3),
            ..DeviceReadings::default()
        };
        let mut source = open(device);
        let sample = source
            .sample()
            .expect("a machine that runs tests can be read");
        assert!(sample.own_bytes > 1 << 20, "{sample:?}");
        assert!(
            sample.total_bytes >= sample.available_bytes && sample.available_bytes > 0,
            "{sample:?}"
        );
        assert_eq!(
            (
                sample.device_live_bytes,
                sample.device_allocated_bytes,
                sample.device_limit_bytes
            ),
            (1, 2, 3)
        );
        assert!(!source.describe().is_empty());
    }
}
