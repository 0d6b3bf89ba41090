//! Optimizer steps that were skipped because the loss or a gradient was not finite.

use crate::error::Result;
use candle_core::Tensor;
use runlog::{NonFiniteGradient, format_count};
use serde::{Deserialize, Serialize};
use tape::Parameters;
use tape::optim::{Health, health};

/// Counts of skipped steps. Saved in every checkpoint, so that a resumed run continues them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SkippedSteps {
    /// Since the run started. The optimizer does not count these steps.
    pub total: u64,
    /// Consecutive ones until now, without those caused by a loss scale that was too high.
    pub in_a_row: u32,
}

/// One skipped step. It changed neither weights nor moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Skipped {
    /// What was not finite first: the loss, or a gradient or weight with its parameter's name.
    pub item: String,
    /// The gradients that were not finite, in the order of the parameters.
    pub gradients: Vec<NonFiniteGradient>,
    /// The loss scale at which f16 overflowed, if that is the cause. It has been halved since.
    pub overflowed_at: Option<f64>,
}

/// Name of the first parameter that holds a value that is not finite.
pub fn first_non_finite(parameters: &Parameters) -> Result<Option<String>> {
    let weights: Vec<Tensor> = parameters.iter().map(|p| p.tensor.clone()).collect();
    let first = health(&weights)?.non_finite.into_iter().next();
    Ok(first.map(|found| parameters.at(found.index).name.clone()))
}

impl Skipped {
    /// Describes the step from its `loss` and the `health` of its gradients.
    pub(crate) fn from_health(parameters: &Parameters, loss: f64, health: &Health) -> Result<Self> {
        let gradients: Vec<NonFiniteGradient> = health
            .non_finite
            .iter()
            .map(|found| NonFiniteGradient {
                parameter: parameters.at(found.index).name.clone(),
                nan: found.nan,
                infinite: found.infinite,
            })
            .collect();
        // Backward runs from the loss to the first layer and passes NaN on, so the last of these
        // parameters is where it started.
        let pretrained = gradients
            .last()
            .map(|g| format!("the gradient of {}", g.parameter));
        let item = match (first_non_finite(parameters)?, loss.is_finite(), pretrained) {
            (Some(name), ..) => format!("the parameter {name}"),
            (None, false, Some(gradient)) => format!("the loss, and with it {gradient},"),
            (None, false, None) => "the loss".to_owned(),
            (None, true, Some(gradient)) => gradient,
            (None, true, None) => "the norm of the gradient".to_owned(),
        };
        Ok(Skipped {
            item,
            gradients,
            overflowed_at: None,
        })
    }

    /// The cause and the consequence, as the predicate of a sentence about `item`.
    pub fn reason(&self) -> String {
        const CONSEQUENCE: &str = "the step was skipped and the training continues";
        if let Some(scale) = self.overflowed_at {
            return format!(
                "overflowed in f16; the loss scale drops from {} to {}; {CONSEQUENCE}",
                format_count(scale as u64),
                format_count(scale as u64 / 2)
            );
        }
        let total = |count: fn(&NonFiniteGradient) -> u64| {
            format_count(self.gradients.iter().map(count).sum())
        };
        format!(
            "not finite ({} NaN and {} infinite values in {} gradients); {CONSEQUENCE}",
            total(|g| g.nan),
            total(|g| g.infinite),
            self.gradients.len()
        )
    }
}
