//! What the forecast says cannot fit is refused before it trains, with the number that would do.

use super::{Fit, Forecast, Forms, Target, Waiting};
use crate::error::{Result, TrainError};
use crate::plan::{Dropped, Plan};
use pressure::{DataNeed, DeviceLimits, DoesNotFit, Policy, Processes, Shortage, suggest_config};
use runlog::{Blocks, RunConfig, format_bytes};

/// A machine larger than any: the cap alone counts.
const ENDLESS_BYTES: u64 = 1 << 60;

/// Checks a config as [`Plan::check`] does; and where there is a memory cap, in bytes or as a share of `total_bytes`, that one
/// sample fits below it. Blocks are checkpointed where that is what it takes and the user left it open: the training stays
/// the same to the bit.
///
/// # Errors
/// As [`Plan::check`]; a cap below what one sample needs, with a cap that would do.
pub fn settle<'d>(
    config: &RunConfig,
    found: impl Into<Dropped<'d>>,
    total_bytes: u64,
) -> Result<Plan> {
    let dropped = found.into();
    let plan = Plan::check(config, dropped)?;
    let cap = Policy {
        memory_cap_bytes: plan.memory_cap_bytes,
        memory_cap_fraction: plan.memory_cap_fraction,
        ..Policy::default()
    };
    let Some(cap_bytes) = cap.cap_bytes(total_bytes) else {
        return Ok(plan);
    };
    let kind = tape::device::foresee_kind(plan.device);
    let target = Target::of(kind, plan.threads as usize, cap_bytes);
    let forms = match config.checkpoint_blocks {
        Some(_) => Forms::Planned,
        None => Forms::Fewest(Fit {
            budget_bytes: cap_bytes,
            micro_batch: plan.fixed_micro_batch.unwrap_or(1),
            effective_batch: plan.effective_batch,
            waiting: Waiting::GivesWay,
        }),
    };
    // What is decoded ahead gives way before a piece does.
    let forecast =
        Forecast::of_plan(&plan, plan.model, plan.image_size, target, forms)?.without_waiting();
    let device = DeviceLimits {
        total_bytes: ENDLESS_BYTES,
        limit_bytes: 0,
        memory_cap_bytes: Some(cap_bytes),
        max_system_fraction: Policy::default().max_system_fraction,
    };
    let data = DataNeed {
        effective_batch: plan.effective_batch,
        fixed_micro_batch: plan.fixed_micro_batch,
    };
    let also: Vec<u32> = plan.fixed_micro_batch.into_iter().collect();
    let need = forecast.need(plan.effective_batch, &also);
    match suggest_config(&need, &data, &device, &Processes::default()) {
        Ok(found) if found.checkpoint_blocks == plan.checkpoint_blocks => Ok(plan),
        Ok(found) => {
            let checkpointed = RunConfig {
                checkpoint_blocks: Some(Blocks::Count(found.checkpoint_blocks)),
                ..config.clone()
            };
            Plan::check(&checkpointed, dropped)
        }
        Err(no) => Err(does_not_fit(&forecast, &no, Some(cap_bytes))),
    }
}

impl Forecast {
    /// Where a training is stuck that does not fit, by its smallest piece with as many blocks checkpointed as help.
    pub fn stuck(&self, no: &DoesNotFit) -> Shortage {
        let (needed_bytes, checkpointed_blocks) = no.least;
        Shortage {
            missing_bytes: needed_bytes.saturating_sub(no.budget_bytes),
            activations_bytes: needed_bytes.saturating_sub(self.standing.state_bytes()),
            // Moments of a byte a value, and SGD's, are small already.
            moments_bytes: match self.standing.moments_bytes {
                bytes if bytes >= 2 * self.standing.weights_bytes => bytes,
                _ => 0,
            },
            own_bytes: needed_bytes,
            micro_batch: no.micro_batch,
            checkpointed_blocks,
            element_bytes: match self.precision {
                "f64" => 8,
                "f32" => 4,
                _ => 2,
            },
            ..Shortage::default()
        }
    }
}

/// The refusal of what does not fit: below a cap, or on the machine.
pub fn does_not_fit(forecast: &Forecast, no: &DoesNotFit, cap_bytes: Option<u64>) -> TrainError {
    let samples = match no.micro_batch {
        1 => "one sample".to_owned(),
        samples => format!("a piece of {samples} samples"),
    };
    let needs = format!(
        "{samples} of {} at {} takes a footprint of {}{}",
        forecast.model,
        forecast.resolution,
        format_bytes(no.predicted_peak_bytes),
        match no.least {
            (_, 0) => String::new(),
            (least, blocks) => format!(
                ", {} with {blocks} blocks checkpointed",
                format_bytes(least)
            ),
        }
    );
    let megabytes = no.enough_bytes >> 20;
    let capped = cap_bytes.filter(|cap| *cap <= no.budget_bytes);
    match capped {
        Some(cap) => TrainError::Setting {
            key: "memory_cap_bytes",
            value: format_bytes(cap),
            allowed: format!(
                "{needs}; {megabytes}MB would do, or choose smaller images or another model"
            ),
        },
        None => TrainError::DoesNotFit {
            needs,
            budget: format_bytes(no.budget_bytes),
            enough: format!("{megabytes} MB"),
        },
    }
}
