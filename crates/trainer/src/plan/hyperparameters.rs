//! Default hyperparameters, and those that depend on the dataset.

use super::Plan;
use super::augmentation;
use super::setting_errors::invalid_setting;
use crate::error::Result;
use crate::lr_schedule::LrSchedule;
use crate::optimizer::{OptimizerKind, rate_factor};
use dataset::{Mix, TargetColumn, Task};
use models::hub_format::TrainedLayers;
use models::{Balance, Pretrained};
use runlog::{LossBalance, MixChoice, RunConfig, ScheduleChoice, TrainableLayers};

/// How the learning rate changes over the run.
pub(super) fn lr_schedule(config: &RunConfig) -> LrSchedule {
    match config.schedule.unwrap_or(ScheduleChoice::Cosine) {
        ScheduleChoice::Cosine => LrSchedule::Cosine,
        ScheduleChoice::Rising => LrSchedule::Rising,
    }
}

/// How images are mixed: as `asked`. A mixed image has shares of two classes, but no meaningful
/// regression targets.
pub(super) fn mix(asked: MixChoice, task: Task, columns: &[TargetColumn]) -> Result<Mix> {
    let mix = augmentation::mix(asked);
    let problem = match (mix, task) {
        (Mix::None, _) => return Ok(mix),
        (_, Task::ImageClassification) if columns.is_empty() => return Ok(mix),
        (_, Task::ImageClassification) => {
            "this folder has regression targets, which mixed images cannot have; remove this setting"
        }
        (_, Task::TextClassification | Task::LanguageModel | Task::TokenCompression) => {
            "this setting is for images; remove it for texts"
        }
    };
    Err(invalid_setting("mix", asked, problem))
}

/// How the losses of regression targets are weighed.
pub(super) fn balance(config: &RunConfig, columns: &[TargetColumn]) -> Result<Balance> {
    if columns.is_empty() {
        let problem = "the folder has no table with regression targets; remove this setting";
        if let Some(asked) = config.loss_balance {
            return Err(invalid_setting("loss_balance", asked, problem));
        }
        if let Some(weight) = config.target_weight {
            return Err(invalid_setting("target_weight", weight, problem));
        }
    }
    Ok(match config.loss_balance.unwrap_or(LossBalance::Fixed) {
        LossBalance::Fixed => Balance::Fixed(config.target_weight.unwrap_or(1.0)),
        LossBalance::Uncertainty => Balance::Uncertainty,
    })
}

/// The default peak learning rate. Pretrained weights take a lower one, a new head alone a higher
/// one.
pub(super) fn default_rate(optimizer: OptimizerKind, pretrained: Option<&Pretrained>) -> f64 {
    let tuning = pretrained.map(Pretrained::tuning);
    rate(
        optimizer,
        tuning.map(|tuning| (tuning.adapter.is_some(), tuning.trained)),
    )
}

impl Plan {
    /// The learning rate that Ebb suggests for this config.
    pub fn usual_learning_rate(config: &RunConfig) -> f64 {
        let trained = match config.train_only {
            Some(TrainableLayers::Head) => TrainedLayers::Head,
            Some(TrainableLayers::Last(_)) => TrainedLayers::Last(1),
            Some(TrainableLayers::All) | None => TrainedLayers::All,
        };
        let tuning = config.from.as_ref();
        let tuning = tuning.map(|_| (config.adapter_rank.is_some(), trained));
        rate(config.optimizer.unwrap_or(OptimizerKind::AdamW), tuning)
    }
}

/// The default for random weights, or for pretrained ones with or without adapters.
fn rate(optimizer: OptimizerKind, tuning: Option<(bool, TrainedLayers)>) -> f64 {
    let adam = match tuning {
        None | Some((true, _)) => 1e-3,
        Some((false, TrainedLayers::Head)) => 1e-2,
        Some((false, TrainedLayers::Last(_))) => 3e-4,
        Some((false, TrainedLayers::All)) => 1e-4,
    };
    adam * rate_factor(optimizer)
}

/// Steps of warm-up: a fraction of all steps, at least one.
pub(super) fn warmup_steps(steps: u64, fraction: f64) -> u64 {
    ((steps as f64 * fraction) as u64).clamp(1, steps.max(1))
}
