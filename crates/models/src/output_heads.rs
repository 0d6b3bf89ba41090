//! The outputs of an image network: class scores first, then regression targets in standard
//! deviations from their mean, and how much the loss of each counts.

use crate::error::Result;
use tape::inplace::to_f64;
use tape::{Parameters, Tape, Value};

/// Name of the trained parameter that holds the log variances of [`Balance::Uncertainty`].
pub const BALANCE: &str = "balance.log_variances";
/// Huber's loss is quadratic up to this many standard deviations.
pub const HUBER_DELTA: f64 = 1.0;

/// How the losses of classes and regression targets are weighed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Balance {
    /// The class loss counts 1, the mean loss of the targets counts this much.
    Fixed(f64),
    /// Each loss `L` counts as `exp(-s) L + s / 2` with a trained log variance `s` (Kendall, Gal
    /// and Cipolla 2018).
    Uncertainty,
}

/// The outputs of a network, in this order: classes, then regression targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heads {
    /// Number of classes.
    pub classes: usize,
    /// Number of regression targets.
    pub targets: usize,
    /// How their losses are weighed.
    pub balance: Balance,
}

impl Heads {
    /// Classes without regression targets.
    pub fn for_classes(classes: usize) -> Self {
        Heads {
            classes,
            targets: 0,
            balance: Balance::Fixed(1.0),
        }
    }

    /// Number of outputs of the network.
    pub fn outputs(&self) -> usize {
        self.classes + self.targets
    }

    /// Number of loss terms: one for the classes if there are any, one for each target.
    pub fn terms(&self) -> usize {
        usize::from(self.classes > 0) + self.targets
    }

    /// Class scores [samples, classes] of `outputs` [samples, outputs]; `None` without classes.
    ///
    /// # Errors
    /// The device cannot copy them.
    pub fn scores(&self, tape: &Tape, outputs: &Value) -> Result<Option<Value>> {
        Ok(match (self.classes, self.targets) {
            (0, _) => None,
            (_, 0) => Some(outputs.clone()),
            (classes, _) => Some(tape.narrow(outputs, 1, 0..classes)?),
        })
    }

    /// Regression target `k` of every sample, [samples, 1].
    ///
    /// # Errors
    /// The device cannot copy it.
    pub fn target(&self, tape: &Tape, outputs: &Value, k: usize) -> Result<Value> {
        let column = self.classes + k;
        Ok(tape.narrow(outputs, 1, column..column + 1)?)
    }

    /// The weight of each loss term, and an offset that is added for every sample, whatever its
    /// loss. With [`Balance::Uncertainty`] the log variances are read from the device, which waits
    /// for it once.
    ///
    /// # Errors
    /// The log variances cannot be read.
    pub fn weights(&self, parameters: &Parameters) -> Result<Vec<(f64, f64)>> {
        match self.balance {
            Balance::Fixed(targets) => {
                let each = targets / self.targets.max(1) as f64;
                let class = (self.classes > 0).then_some((1.0, 0.0));
                let targets = (0..self.targets).map(|_| (each, 0.0));
                Ok(class.into_iter().chain(targets).collect())
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
