//! The micro-batch that is running, and the record of it once it has ended.

use pressure::{MicroBatchKind, MicroBatchRecord, Outcome};
use std::time::Instant;

/// The micro-batch that is running.
pub(super) struct RunningMicroBatch {
    /// Its phase, checkpointed blocks and input size.
    pub kind: MicroBatchKind,
    /// Its samples.
    pub micro_batch: u32,
    /// Their cost in pixels or tokens, with padding.
    pub cost: u64,
    /// Bytes of prefetched samples when it started.
    pub prefetched_bytes: u64,
    /// When it started, by the clock.
    pub started: Instant,
    /// When it started, by the time of the memory sample it was admitted with.
    pub started_at_ms: u64,
    /// Its duration under a script that advances per decision.
    pub scripted_ms: Option<f64>,
}

/// What was measured of a micro-batch that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    /// Highest footprint meanwhile, with prefetched samples.
    pub peak_bytes: u64,
    /// Its duration in milliseconds.
    pub ms: f64,
}

impl RunningMicroBatch {
    /// Time since it started, in milliseconds.
    pub fn duration_ms(&self) -> f64 {
        let elapsed_ms = || self.started.elapsed().as_secs_f64() * 1000.0;
        self.scripted_ms.unwrap_or_else(elapsed_ms)
    }

    /// The record of this micro-batch, which ended with `outcome`.
    pub fn record(&self, measured: Measurement, outcome: Outcome) -> MicroBatchRecord {
        MicroBatchRecord {
            at_ms: self.started_at_ms + measured.ms as u64,
            kind: self.kind,
            micro_batch: self.micro_batch,
            cost: self.cost,
            peak_bytes: measured.peak_bytes.saturating_sub(self.prefetched_bytes),
            ms: measured.ms,
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_excludes_prefetched_samples_and_ends_after_its_duration() {
        let running = RunningMicroBatch {
            kind: MicroBatchKind::default(),
            micro_batch: 4,
            cost: 64,
            prefetched_bytes: 300,
            started: Instant::now(),
            started_at_ms: 1000,
            scripted_ms: Some(50.0),
        };
        let record = |peak_bytes| {
            let measured = Measurement {
                peak_bytes,
                ms: running.duration_ms(),
            };
            running.record(measured, Outcome::Ok)
        };
        assert_eq!((record(1000).at_ms, record(1000).peak_bytes), (1050, 700));
        assert_eq!(record(200).peak_bytes, 0, "the prefetch was shortened");
    }
}
