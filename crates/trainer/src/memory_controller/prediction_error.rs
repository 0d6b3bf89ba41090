//! The error of the memory model for one micro-batch.

use pressure::{ControllerState, MemoryModel, MicroBatchRecord, Phase};

/// A micro-batch whose peak was predicted and then measured. Both peaks exclude prefetched samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Training or evaluation.
    pub phase: Phase,
    /// The micro-batch that was decided. The last one of an effective batch may be smaller.
    pub steady_micro_batch: u32,
    /// Samples of this micro-batch.
    pub micro_batch: u32,
    /// Footprint that was predicted.
    pub predicted_peak_bytes: u64,
    /// Footprint that was measured.
    pub measured_peak_bytes: u64,
    /// `predicted / measured - 1`.
    pub error_fraction: f64,
}

impl Prediction {
    /// Compares a measurement with `model`, which must not have learned from it yet. `None` if the
    /// model cannot predict this kind of micro-batch.
    pub(super) fn new(
        state: &ControllerState,
        model: &MemoryModel,
        measured: &MicroBatchRecord,
    ) -> Option<Self> {
        Some(Prediction {
            phase: measured.kind.phase,
            steady_micro_batch: state.micro_batch(measured.kind),
            micro_batch: measured.micro_batch,
            predicted_peak_bytes: model.upper_bytes(measured.kind, measured.cost)?,
            measured_peak_bytes: measured.peak_bytes,
            error_fraction: model.error_fraction(measured)?,
        })
    }
}
