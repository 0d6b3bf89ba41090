//! Refuses a run that cannot fit by estimate, and names a cap that would be enough.

use super::{MemoryEstimate, Prefetched, Requirement, Target, Variants};
use crate::error::{Result, TrainError};
use crate::plan::{DatasetRef, Plan};
use pressure::{
    BatchConfig, DeviceLimits, DoesNotFit, Policy, Processes, Shortage, suggest_config,
};
use runlog::{CheckpointBlocks, RunConfig, format_bytes};

/// Memory of an imaginary machine that is larger than any real one, so that only the cap limits the
/// run.
const UNLIMITED_BYTES: u64 = 1 << 60;

impl Plan {
    /// Checks a config as [`Plan::resolve`] does. If it has a memory cap, in bytes or as a fraction
    /// of `total_bytes`, the smallest micro-batch must fit below it. Blocks are checkpointed if
    /// that is needed and the user did not choose their number. The result of the training stays
    /// the same to the bit.
    ///
    /// # Errors
    /// Those of [`Plan::resolve`]; the cap is below what one sample needs, with a cap that would be
    /// enough.
    pub fn within_cap<'d>(
        config: &RunConfig,
        found: impl Into<DatasetRef<'d>>,
        total_bytes: u64,
    ) -> Result<Plan> {
        let dropped = found.into();
        let plan = Plan::resolve(config, dropped)?;
        let cap = Policy {
            memory_cap_bytes: plan.memory_cap_bytes,
            memory_cap_fraction: plan.memory_cap_fraction,
            ..Policy::default()
        };
        let Some(cap_bytes) = cap.cap_bytes(total_bytes) else {
            return Ok(plan);
        };
        let estimate = estimate_under_cap(&plan, config, cap_bytes)?;
        let device = DeviceLimits {
            total_bytes: UNLIMITED_BYTES,
            limit_bytes: 0,
            memory_cap_bytes: Some(cap_bytes),
            max_system_fraction: Policy::default().max_system_fraction,
        };
        let data = BatchConfig {
            effective_batch: plan.effective_batch,
            fixed_micro_batch: plan.fixed_micro_batch,
        };
        let also: Vec<u32> = plan.fixed_micro_batch.into_iter().collect();
        let need = estimate.need(plan.effective_batch, &also);
        match suggest_config(&need, &data, &device, &Processes::default()) {
            Ok(found) if found.checkpoint_blocks == plan.checkpoint_blocks => Ok(plan),
            Ok(found) => {
                let checkpointed = RunConfig {
                    checkpoint_blocks: Some(CheckpointBlocks::Count(found.checkpoint_blocks)),
                    ..config.clone()
                };
                Plan::resolve(&checkpointed, dropped)
            }
            Err(no) => {
                let unit = plan.task().size_unit();
                Err(estimate.does_not_fit(unit, &no, Some(cap_bytes)))
            }
        }
    }
}

/// The memory of a plan without samples decoded ahead, which are freed before a micro-batch is made
/// smaller.
fn estimate_under_cap(plan: &Plan, config: &RunConfig, cap_bytes: u64) -> Result<MemoryEstimate> {
    let kind = tape::device::predict_device_kind(plan.device);
    let target = Target::new(kind, plan.threads as usize, cap_bytes);
    let variants = match config.checkpoint_blocks {
        Some(_) => Variants::Planned,
        None => Variants::MinCheckpointing(Requirement {
            budget_bytes: cap_bytes,
            micro_batch: plan.fixed_micro_batch.unwrap_or(1),
            effective_batch: plan.effective_batch,
            prefetched: Prefetched::Excluded,
        }),
    };
    let estimate = MemoryEstimate::for_plan(plan, plan.model, plan.input_size, target, variants)?;
    Ok(estimate.without_prefetch())
}

impl MemoryEstimate {
    /// The error for a run that does not fit: the memory that is missing for its smallest
    /// micro-batch, with the number of checkpointed blocks that needs the least memory.
    pub fn stuck(&self, no: &DoesNotFit) -> Shortage {
        let (needed_bytes, checkpointed_blocks) = no.least;
        Shortage {
            missing_bytes: needed_bytes.saturating_sub(no.budget_bytes),
            activations_bytes: needed_bytes.saturating_sub(self.baseline.state_bytes()),
            // Moments of one byte per value, and those of SGD, are already small.
            moments_bytes: match self.baseline.moments_bytes {
                bytes if bytes >= 2 * self.baseline.weights_bytes => bytes,
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

    /// The error for a run that does not fit below the user's cap, or on the machine. `unit` is
    /// that of the input size: "px" or "tokens".
    pub fn does_not_fit(&self, unit: &str, no: &DoesNotFit, cap_bytes: Option<u64>) -> TrainError {
        let samples = match no.micro_batch {
            1 => "one sample".to_owned(),
            samples => format!("a micro-batch of {samples}"),
        };
        let needs = format!(
            "{samples} of {} at {} {unit} needs {}{}",
            self.model,
            self.resolution,
            format_bytes(no.predicted_peak_bytes),
            match no.least {
                (_, 0) => String::new(),
                (least, blocks) => format!(
                    ", or {} with {blocks} checkpointed blocks",
                    format_bytes(least)
                ),
            }
        );
        let smaller = match unit {
            "tokens" => "fewer --tokens",
            _ => "smaller images",
        };
        let megabytes = no.enough_bytes >> 20;
        let capped = cap_bytes.filter(|cap| *cap <= no.budget_bytes);
        match capped {
            Some(cap) => TrainError::Setting {
                key: "memory_cap_bytes",
                value: format_bytes(cap),
                allowed: format!(
                    "{needs}; choose a cap of at least {megabytes}MB (--memory-cap), {smaller} or another model"
                ),
            },
            None => TrainError::EstimateTooLarge {
                needs,
                budget: format_bytes(no.budget_bytes),
                enough: format_bytes(no.enough_bytes),
                smaller,
            },
        }
    }
}
