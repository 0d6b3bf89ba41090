//! How losses are weighed, photographs mixed and rates moved, where the folder allows it. Reads no file.

use super::choices::MIXES;
use super::{OptimizerKind, Plan, chosen, setting};
use crate::error::Result;
use crate::schedule::Course;
use crate::task::{Balance, Heads};
use dataset::{Mix, TargetColumn, Task};
use models::Pretrained;
use models::hub_format::TrainedLayers;
use runlog::RunConfig;

impl Plan {
    /// What the network gives.
    pub fn heads(&self) -> Heads {
        Heads {
            classes: self.classes.len(),
            targets: self.columns.len(),
            balance: self.balance,
        }
    }
}

/// How the learning rate goes.
pub(super) fn course(config: &RunConfig) -> Result<Course> {
    let asked = config.schedule.as_deref().unwrap_or("cosine");
    let choices = [("cosine", Course::Cosine), ("rising", Course::Rising)];
    chosen("schedule", asked, &choices)
}

/// How photographs are mixed: a mixed photograph has shares of two classes, but it has no mass.
pub(super) fn mix(config: &RunConfig, task: Task, columns: &[TargetColumn]) -> Result<Mix> {
    let asked = config.mix.as_deref().unwrap_or("none");
    let mix = chosen("mix", asked, &MIXES)?;
    let why = match (mix, task) {
        (Mix::None, _) => return Ok(mix),
        (_, Task::ImageClassification) if columns.is_empty() => return Ok(mix),
        (_, Task::ImageClassification) => {
            "numbers are learnt from this folder, and a mixed photograph has none; leave it out"
        }
        (_, Task::TextClassification | Task::LanguageModel | Task::TokenCompression) => {
            "it is for photographs; leave it out for texts"
        }
    };
    Err(setting("mix", asked, why))
}

/// How the losses of numbers are weighed, where there are any.
pub(super) fn balance(config: &RunConfig, columns: &[TargetColumn]) -> Result<Balance> {
    let asked = config.loss_balance.as_deref();
    if columns.is_empty() && (asked.is_some() || config.target_weight.is_some()) {
        let why = "the folder has no table with numbers to learn; leave it out";
        return Err(match asked {
            Some(asked) => setting("loss_balance", asked, why),
            None => setting(
                "target_weight",
                config.target_weight.unwrap_or_default(),
                why,
            ),
        });
    }
    let weight = config.target_weight.unwrap_or(1.0);
    let choices = [
        ("fixed", Balance::Fixed(weight)),
        ("uncertainty", Balance::Uncertainty),
    ];
    chosen("loss_balance", asked.unwrap_or("fixed"), &choices)
}

/// The peak learning rate that suits an optimizer, and what it begins with: weights that know something are moved by less, a
/// head alone by more.
pub(super) fn usual_rate(optimizer: OptimizerKind, pretrained: Option<&Pretrained>) -> f64 {
    let adam = match pretrained.map(Pretrained::tuning) {
        None => 1e-3,
        Some(tuning) if tuning.adapter.is_some() => 1e-3,
        Some(tuning) => match tuning.trained {
            TrainedLayers::Head => 1e-2,
            TrainedLayers::Last(_) => 3e-4,
            TrainedLayers::All => 1e-4,
        },
    };
    match optimizer {
        OptimizerKind::AdamW | OptimizerKind::AdamW8bit => adam,
        OptimizerKind::Sgd => 20.0 * adam,
    }
}
