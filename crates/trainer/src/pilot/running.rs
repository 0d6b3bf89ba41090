//! The piece at work, and how long it took. Knows no rule.

use pressure::MicroBatchKind;
use std::time::Instant;

/// The piece at work.
pub(super) struct Running {
    /// Which kind.
    pub kind: MicroBatchKind,
    /// Samples.
    pub micro_batch: u32,
    /// What a shorter prefetch would have given back when it began, in bytes.
    pub spare_bytes: u64,
    /// When it began by the clock.
    pub begun: Instant,
    /// When it began by the reading it rests on.
    pub begun_at_ms: u64,
    /// On a machine that makes a step for each piece: how long a step is, whatever the piece's size.
    pub scripted_ms: Option<f64>,
}

impl Running {
    /// How long it has taken, in milliseconds.
    pub fn ms(&self) -> f64 {
        let clocked = || self.begun.elapsed().as_secs_f64() * 1000.0;
        self.scripted_ms.unwrap_or_else(clocked)
    }
}
