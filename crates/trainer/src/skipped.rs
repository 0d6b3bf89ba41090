//! A step that was left out because loss or gradient were not finite: where it began, how much was lost, and why.

use crate::error::Result;
use candle_core::Tensor;
use runlog::{NonFiniteGradient, format_count};
use serde::{Deserialize, Serialize};
use tape::Parameters;
use tape::optim::{Health, health};

/// How many steps changed nothing: part of every checkpoint, so that a resumed run counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SkippedSteps {
    /// Since the run began. The optimizer does not count these.
    pub total: u64,
    /// In a row until now, those that a loss scale is to blame for left out.
    pub in_a_row: u32,
}

/// A step that changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    /// Where it began: the loss, or the gradient or weight of a parameter by name.
    pub what: String,
    /// The gradients that were not finite, in the parameters' order.
    pub gradients: Vec<NonFiniteGradient>,
    /// The loss scale at which f16 overflowed, when that is why; it has been halved.
    pub overflowed_at: Option<f64>,
}

/// The name of the first parameter whose values are not all finite.
pub fn first_non_finite(parameters: &Parameters) -> Result<Option<String>> {
    let weights: Vec<Tensor> = parameters.iter().map(|p| p.tensor.clone()).collect();
    let first = health(&weights)?.non_finite.into_iter().next();
    Ok(first.map(|found| parameters.at(found.index).name.clone()))
}

impl Skipped {
    /// What `health` found in a step of this `loss`.
    pub fn found(parameters: &Parameters, loss: f64, health: &Health) -> Result<Self> {
        let gradients: Vec<NonFiniteGradient> = health
            .non_finite
            .iter()
            .map(|found| NonFiniteGradient {
                parameter: parameters.at(found.index).name.clone(),
                nan: found.nan,
                infinite: found.infinite,
            })
            .collect();
        // Backward runs from the loss to the first layer and carries what is not finite along: it began at the last.
        let begun = gradients
            .last()
            .map(|g| format!("the gradient of {}", g.parameter));
        let what = match (first_non_finite(parameters)?, loss.is_finite(), begun) {
            (Some(name), ..) => format!("the parameter {name}"),
            (None, false, Some(gradient)) => format!("the loss, and with it {gradient},"),
            (None, false, None) => "the loss".to_owned(),
            (None, true, Some(gradient)) => gradient,
            (None, true, None) => "the norm of the gradient".to_owned(),
        };
        Ok(Skipped {
            what,
            gradients,
            overflowed_at: None,
        })
    }

    /// How much was not finite, and what came of it.
    pub fn reason(&self) -> String {
        const AFTER: &str = "this step changed nothing and the training goes on";
        if let Some(scale) = self.overflowed_at {
            return format!(
                "overflowed in f16; the loss scale goes from {} to {}, {AFTER}",
                format_count(scale as u64),
                format_count(scale as u64 / 2)
            );
        }
        let sum =
            |of: fn(&NonFiniteGradient) -> u64| format_count(self.gradients.iter().map(of).sum());
        format!(
            "not finite ({} NaN and {} infinite values in {} gradients); {AFTER}",
            sum(|g| g.nan),
            sum(|g| g.infinite),
            self.gradients.len()
        )
    }
}
