//! A memory sample, with the pressure, the level, the budget and the limit at that time.

use pressure::{Level, MemorySample, Reading};
use runlog::{MemoryPeak, RunEvent};

/// What a memory event reports.
#[derive(Debug, Clone, Copy)]
pub struct MemoryReading {
    pub sample: MemorySample,
    /// Pressure and its largest component.
    pub pressure: Reading,
    /// Pressure level, with hysteresis.
    pub level: Level,
    /// Bytes of weights, gradients and moments.
    pub state_bytes: u64,
    /// Bytes that Ebb may use.
    pub budget_bytes: u64,
    /// Bytes that all processes together may use.
    pub limit_bytes: u64,
    /// Samples per micro-batch; 0 while nothing runs.
    pub micro_batch: u32,
}

impl MemoryReading {
    /// The memory event of this reading.
    pub(crate) fn event(&self, at_ms: u64, peak: Option<MemoryPeak>) -> RunEvent {
        RunEvent::Memory {
            at_ms,
            sample: self.sample,
            state_bytes: self.state_bytes,
            pressure: self.pressure.value,
            level: self.level,
            cause: self.pressure.cause,
            budget_bytes: self.budget_bytes,
            micro_batch: self.micro_batch,
            peak,
            limit_bytes: self.limit_bytes,
        }
    }
}
