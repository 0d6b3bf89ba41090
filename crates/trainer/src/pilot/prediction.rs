//! How far the pilot's prediction for a piece was off. Decides nothing; the journal says it now and then.

use super::Pilot;
use pressure::{Phase, MicroBatchRecord};

/// A confirmed piece whose peak was predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Training or evaluation.
    pub phase: Phase,
    /// The micro-batch as decided, which the last piece of a batch may fall short of.
    pub steady: u32,
    /// Samples of the piece.
    pub micro_batch: u32,
    /// Footprint that was expected, without what a shorter prefetch gives back.
    pub predicted_peak_bytes: u64,
    /// Footprint that was reached, without the same.
    pub measured_peak_bytes: u64,
    /// `predicted / measured - 1`.
    pub error_fraction: f64,
}

impl Pilot {
    /// How far the model was off for the newest piece, once; before the model has learnt from it.
    pub fn take_prediction(&mut self) -> Option<Prediction> {
        self.prediction.take()
    }

    pub(super) fn compare_peaks(&self, piece: &MicroBatchRecord) -> Option<Prediction> {
        Some(Prediction {
            phase: piece.kind.phase,
            steady: self.state.micro_batch(piece.kind),
            micro_batch: piece.micro_batch,
            predicted_peak_bytes: self.model.upper_bytes(piece.kind, piece.cost)?,
            measured_peak_bytes: piece.peak_bytes,
            error_fraction: self.model.error_fraction(piece)?,
        })
    }
}
