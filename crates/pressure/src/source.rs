//! Where samples come from. Each platform has a file with the same interface, chosen only here.

mod fallback_source;
mod memory_source;
#[cfg_attr(target_os = "macos", path = "source/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "source/linux.rs")]
mod platform;
pub mod scripted;
mod footprint_only;

#[cfg(target_os = "macos")]
pub(crate) use platform::thermal_state;

pub use memory_source::{DeviceReading, DeviceReadings, MemorySource};
pub use platform::footprint::{own_footprint_bytes, take_own_peak_bytes};

use fallback_source::FallbackSource;
use footprint_only::FootprintOnly;
use std::time::Instant;

/// The best source that this machine allows; `describe` names it. Never fails: at worst it reads
/// only Ebb's own footprint.
pub fn open(device: DeviceReadings) -> Box<dyn MemorySource> {
    let opened = Instant::now();
    match platform::Machine::open() {
        Ok(machine) => Box::new(FallbackSource::new(machine.with_device(device), opened)),
        Err(error) => Box::new(FootprintOnly::new(device, error.to_string())),
    }
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
            .expect("the memory of a machine that runs tests can be read");
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
