//! Recording and following kinks, for operations that have them.

use crate::error::Result;
use crate::inplace::to_f64;
use crate::kink_log::{Kink, KinkCursor, KinkLog, relu_way};
use crate::tape::Tape;
use candle_core::Tensor;

impl Tape<'_> {
    /// Makes this tape record the side of every kink in `log`. Each operation with kinks is read
    /// back from the device, so this is for comparisons only.
    pub fn recording_kinks(self, log: &KinkLog) -> Self {
        self.with_kinks(Some(KinkCursor::recording(log)))
    }

    /// Makes this tape take the sides recorded in `log` instead of its own, forward and backward.
    pub fn following_kinks(self, log: &KinkLog) -> Self {
        self.with_kinks(Some(KinkCursor::following(log)))
    }

    /// True if this tape takes the sides of a recorded run.
    pub(super) fn follows_kinks(&self) -> bool {
        self.kinks().is_some_and(KinkCursor::follows)
    }

    /// Records the sides of `y = max(x, 0)`. They are read from `y`, as the backward pass reads
    /// them.
    pub(super) fn record_relu(&self, y: &Tensor) -> Result<()> {
        self.record_ways(Kink::Relu, y.elem_count(), || {
            Ok(to_f64(y)?.into_iter().map(relu_way).collect())
        })
    }

    /// Records the sides that `count` values took, if this tape records.
    pub(super) fn record_ways(
        &self,
        kink: Kink,
        count: usize,
        ways: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        match self.kinks().filter(|cursor| !cursor.follows()) {
            Some(cursor) => cursor.record(kink, count, ways),
            None => Ok(()),
        }
    }

    /// The sides that the recorded run took for the next `count` values, if this tape follows one.
    pub(super) fn recorded_ways(&self, kink: Kink, count: usize) -> Result<Option<Vec<u8>>> {
        let cursor = self.kinks().filter(|cursor| cursor.follows());
        cursor
            .map(|cursor| cursor.recorded(kink, count))
            .transpose()
    }

    /// Counts how far this run diverges from the one it follows.
    pub(super) fn count_divergence(
        &self,
        compared: usize,
        values: &[f64],
        distances: impl IntoIterator<Item = f64>,
    ) {
        if let Some(cursor) = self.kinks() {
            cursor.count_divergence(compared, values, distances);
        }
    }
}
