//! The source of last resort: it reads this process's footprint and nothing of the machine. Total
//! and available stay 0, which the controller takes as "unreadable".

use super::memory_source::{DeviceReadings, MemorySource};
use super::platform::footprint::own_footprint_bytes;
use crate::error::PressureError;
use crate::memory_sample::MemorySample;
use std::time::Instant;

/// Reads only this process.
pub(super) struct FootprintOnly {
    opened: Instant,
    device: DeviceReadings,
    reason: String,
}

impl FootprintOnly {
    /// A source for a machine that cannot be read, for this `reason`.
    pub(super) fn new(device: DeviceReadings, reason: String) -> Self {
        Self {
            opened: Instant::now(),
            device,
            reason,
        }
    }
}

impl MemorySource for FootprintOnly {
    fn sample(&mut self) -> Result<MemorySample, PressureError> {
        let mut sample = MemorySample {
            at_ms: self.opened.elapsed().as_millis() as u64,
            own_bytes: own_footprint_bytes(),
            ..MemorySample::default()
        };
        self.device.fill(&mut sample);
        Ok(sample)
    }

    fn describe(&self) -> String {
        format!(
            "only Ebb's own footprint, because the machine's memory cannot be read ({})",
            self.reason
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_reported_as_unreadable() {
        let mut source =
            FootprintOnly::new(DeviceReadings::default(), "nothing is readable".into());
        let sample = source.sample().expect("this source never fails");
        assert_eq!((sample.total_bytes, sample.available_bytes), (0, 0));
        assert_eq!(sample.others_bytes(), 0);
        assert!(source.describe().contains("nothing is readable"));
    }
}
