//! What a run has reached: evaluations, checkpoints, and predicted peaks beside measured ones. Plain values.

use serde::Serialize;
use std::collections::BTreeMap;

/// One evaluation of the held-out samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Epochs begun.
    pub epoch: u64,
    /// Mean held-out loss.
    pub loss: f64,
    /// Held-out accuracy, as a fraction, where the task has one.
    pub accuracy: Option<f64>,
    /// All that was measured beside the loss, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// One checkpoint as the events tell of it; it may have been removed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Folder inside the run folder.
    pub path: String,
}

/// A predicted peak beside the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Predicted {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// Samples of the piece.
    pub micro_batch: u32,
    /// Footprint that was expected.
    pub predicted_peak_bytes: u64,
    /// Footprint that was reached.
    pub measured_peak_bytes: u64,
    /// `predicted / measured - 1`.
    pub error_fraction: f64,
}
