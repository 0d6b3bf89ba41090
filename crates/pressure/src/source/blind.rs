//! The source of last resort: it knows this process's footprint and nothing of the machine. Total and available stay
//! 0, which the controller reads as "no information".

use super::{DeviceReadings, MemorySource, own_footprint_bytes};
use crate::error::PressureError;
use crate::sample::MemorySample;
use std::time::Instant;

/// Sees only itself.
pub(super) struct Blind {
    opened: Instant,
    device: DeviceReadings,
    why: String,
}

impl Blind {
    /// A blind source; `why` says what could not be read.
    pub(super) fn open(device: DeviceReadings, why: String) -> Self {
        Self {
            opened: Instant::now(),
            device,
            why,
        }
    }
}

impl MemorySource for Blind {
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
        format!("Ebb's own footprint alone: {}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blind_source_claims_no_knowledge_of_the_machine() {
        let mut source = Blind::open(DeviceReadings::default(), "nothing is readable".into());
        let sample = source.sample().expect("a blind source never fails");
        assert_eq!((sample.total_bytes, sample.available_bytes), (0, 0));
        assert_eq!(sample.others_bytes(), 0);
        assert!(source.describe().contains("nothing is readable"));
    }
}
