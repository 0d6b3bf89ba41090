//! What a network for photographs gives, output by output: scores of classes first, then numbers; and how much the loss of each
//! counts. Knows no column and no unit: numbers are in deviations from their mean.

use crate::error::Result;
use dataset::ImageSample;
use std::borrow::Borrow;
use tape::inplace::to_f64;
use tape::{Parameters, Tape, Value};

/// Name of the parameter that the losses are balanced by where that is learnt.
pub(crate) const BALANCE: &str = "balance.log_variances";
/// Huber's loss is a square up to one deviation.
pub(crate) const DELTA: f64 = 1.0;

/// How the losses of classes and numbers are weighed against one another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Balance {
    /// The class loss counts 1, the mean loss of the numbers this much.
    Fixed(f64),
    /// Each loss `L` counts as `exp(-s) L + s / 2` with a learnt log variance `s` (Kendall, Gal and Cipolla 2018).
    Uncertainty,
}

/// What a network gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Scores of classes.
    pub classes: usize,
    /// Numbers behind them.
    pub numbers: usize,
    /// How much each loss counts.
    pub balance: Balance,
}

impl Heads {
    /// Classes alone.
    pub fn of_classes(classes: usize) -> Self {
        Heads {
            classes,
            numbers: 0,
            balance: Balance::Fixed(1.0),
        }
    }

    /// Outputs of the network.
    pub fn outputs(&self) -> usize {
        self.classes + self.numbers
    }

    /// Losses: one of the classes where there are any, one of each number.
    pub fn terms(&self) -> usize {
        usize::from(self.classes > 0) + self.numbers
    }

    /// Scores of the classes [samples, classes], where there are any.
    pub(super) fn scores(&self, tape: &Tape, outputs: &Value) -> Result<Option<Value>> {
        Ok(match (self.classes, self.numbers) {
            (0, _) => None,
            (_, 0) => Some(outputs.clone()),
            (classes, _) => Some(tape.narrow(outputs, 1, 0..classes)?),
        })
    }

    /// Number `k` of every sample, [samples, 1].
    pub(super) fn number(&self, tape: &Tape, outputs: &Value, k: usize) -> Result<Value> {
        let place = self.classes + k;
        Ok(tape.narrow(outputs, 1, place..place + 1)?)
    }

    /// How much each term counts now, and what is added for each sample whatever its loss. The log variances are read from the
    /// device: a wait once a piece.
    pub(super) fn weights(&self, parameters: &Parameters) -> Result<Vec<(f64, f64)>> {
        match self.balance {
            Balance::Fixed(numbers) => {
                let each = numbers / self.numbers.max(1) as f64;
                let class = (self.classes > 0).then_some((1.0, 0.0));
                let numbers = (0..self.numbers).map(|_| (each, 0.0));
                Ok(class.into_iter().chain(numbers).collect())
            }
            Balance::Uncertainty => {
                let found = parameters.iter().find(|p| p.name == BALANCE);
                let values = found.map(|p| to_f64(&p.tensor)).transpose()?;
                let values = values.unwrap_or_else(|| vec![0.0; self.terms()]);
                Ok(values.iter().map(|s| ((-s).exp(), s / 2.0)).collect())
            }
        }
    }
}

/// Number `k` of the samples, a mask of those that are there, and the factor of its loss: the same for a whole effective batch.
pub(super) fn targets<S: Borrow<ImageSample>>(
    samples: &[S],
    k: usize,
) -> (Vec<f32>, Vec<bool>, f64) {
    let at = |sample: &S| sample.borrow().targets.get(k).copied().flatten();
    let found: Vec<Option<f32>> = samples.iter().map(at).collect();
    let factor = samples
        .first()
        .and_then(|s| s.borrow().factors.get(k).copied());
    (
        found.iter().map(|value| value.unwrap_or(0.0)).collect(),
        found.iter().map(Option::is_some).collect(),
        factor.unwrap_or(1.0),
    )
}
