//! The values of each optimizer step: the loss, raw and smoothed, and what the charts draw with it.

use crate::event::RunEvent;
use crate::loss_smoothing::LossSmoother;
use crate::time_series::{Columns, Series};

/// Values of the loss panel per step.
pub(crate) const LOSS_COLUMNS: usize = 3;
/// All values per step.
pub(crate) const STEP_COLUMNS: usize = 8;

const RAW_LOSS: usize = 0;
const SMOOTHED_LOSS: usize = 1;
const SAMPLES_PER_SECOND: usize = 4;

/// The steps of a run, oldest first. After a resumption, a step is not in it twice.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StepSeries {
    /// Raw and smoothed loss, and the learning rate. Then the gradient norm, the samples per
    /// second, the milliseconds that the step waited for data, its number, and the GPU's
    /// milliseconds per command buffer, NaN if they were not measured.
    values: Series<STEP_COLUMNS>,
    /// The number of each step.
    numbers: Vec<u64>,
    smoother: LossSmoother,
    has_command_buffers: bool,
}

impl StepSeries {
    /// Adds a `RunEvent::Step` and returns its smoothed loss, which is `None` before the first
    /// finite loss. Other events are ignored.
    pub fn push(&mut self, event: &RunEvent) -> Option<f64> {
        let RunEvent::Step {
            at_ms,
            step,
            loss,
            learning_rate,
            gradient_norm,
            samples_per_second,
            wait_ms,
            command_buffer_ms,
            ..
        } = event
        else {
            return None;
        };
        let smoothed = self.smoother.next(*loss);
        let values = [
            *loss,
            smoothed.unwrap_or(f64::NAN),
            *learning_rate,
            *gradient_norm,
            *samples_per_second,
            *wait_ms,
            *step as f64,
            command_buffer_ms.unwrap_or(f64::NAN),
        ];
        self.has_command_buffers |= command_buffer_ms.is_some();
        self.values.push(*at_ms as f64, values);
        self.numbers.push(*step);
        smoothed
    }

    /// Discards the steps after `step`, from which the run was resumed. The smoothed loss continues
    /// from there.
    pub fn truncate_after(&mut self, step: u64) {
        let valid = self.numbers.partition_point(|number| *number <= step);
        self.numbers.truncate(valid);
        self.values.truncate(valid);
        self.smoother = LossSmoother::default();
        for loss in self.values.column(RAW_LOSS) {
            self.smoother.next(f64::from(*loss));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Whether the GPU's time per command buffer was measured in any step.
    pub fn has_command_buffers(&self) -> bool {
        self.has_command_buffers
    }

    /// Times and all columns.
    pub fn all(&self) -> Columns<'_, STEP_COLUMNS> {
        self.values.all()
    }

    /// The number of each step.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    pub fn raw_losses(&self) -> &[f32] {
        self.values.column(RAW_LOSS)
    }

    /// NaN before the first finite loss.
    pub fn smoothed_losses(&self) -> &[f32] {
        self.values.column(SMOOTHED_LOSS)
    }

    pub fn samples_per_second(&self) -> &[f32] {
        self.values.column(SAMPLES_PER_SECOND)
    }

    /// The raw loss of the newest step.
    pub fn last_loss(&self) -> Option<f64> {
        self.raw_losses().last().copied().map(f64::from)
    }

    /// The smoothed loss of the newest step, if it is finite.
    pub fn last_smoothed_loss(&self) -> Option<f64> {
        let smoothed = self.smoothed_losses().last().copied().map(f64::from);
        smoothed.filter(|loss| loss.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn step(number: u64, loss: f64) -> RunEvent {
        RunEvent::Step {
            at_ms: 10 * number,
            step: number,
            epoch: 0,
            loss,
            learning_rate: 0.125,
            gradient_norm: 1.0,
            samples_per_second: 32.0,
            wait_ms: 0.0,
            command_buffer_ms: Some(2.0),
            micro_batches: Vec::new(),
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: BTreeMap::new(),
        }
    }

    fn series(losses: &[f64]) -> StepSeries {
        let mut series = StepSeries::default();
        for (number, loss) in (1..).zip(losses) {
            series.push(&step(number, *loss));
        }
        series
    }

    #[test]
    fn a_resumed_series_is_that_of_a_run_without_interruption() {
        let mut resumed = series(&[4.0, 2.0, 64.0, 64.0]);
        resumed.truncate_after(2);
        assert_eq!(resumed.numbers(), [1, 2]);
        resumed.push(&step(3, 1.0));
        assert_eq!(resumed, series(&[4.0, 2.0, 1.0]));
    }

    #[test]
    fn every_column_has_its_own_value() {
        let series = series(&[4.0, 2.0]);
        assert_eq!(series.raw_losses(), [4.0, 2.0]);
        assert_eq!(series.samples_per_second(), [32.0, 32.0]);
        assert_eq!(series.last_loss(), Some(2.0));
        let smoothed = series.last_smoothed_loss();
        assert!(
            smoothed.is_some_and(|loss| loss > 2.0 && loss < 4.0),
            "{smoothed:?}"
        );
        assert!(series.has_command_buffers());
    }

    #[test]
    fn a_loss_that_is_not_finite_has_no_smoothed_loss_before_a_finite_one() {
        let mut series = StepSeries::default();
        assert_eq!(series.push(&step(1, f64::NAN)), None);
        assert_eq!(series.last_smoothed_loss(), None);
        assert_eq!(series.push(&step(2, 2.0)), Some(2.0));
        assert!(!series.is_empty());
    }
}
