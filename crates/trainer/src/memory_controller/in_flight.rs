//! The micro-batch that is running, and how long it takes.

use pressure::MicroBatchKind;
use std::time::Instant;

/// The micro-batch that is running.
pub(super) struct InFlight {
    /// Its phase, checkpointed blocks and input size.
    pub kind: MicroBatchKind,
    /// Its samples.
    pub micro_batch: u32,
    /// Bytes of prefetched samples when it started.
    pub prefetched_bytes: u64,
    /// When it started, by the clock.
    pub started: Instant,
    /// When it started, by the time of the memory sample it was admitted with.
    pub started_at_ms: u64,
    /// Its duration under a script that advances per decision.
    pub scripted_ms: Option<f64>,
}

impl InFlight {
    /// Time since it started, in milliseconds.
    pub fn duration_ms(&self) -> f64 {
        let elapsed_ms = || self.started.elapsed().as_secs_f64() * 1000.0;
        self.scripted_ms.unwrap_or_else(elapsed_ms)
    }
}
