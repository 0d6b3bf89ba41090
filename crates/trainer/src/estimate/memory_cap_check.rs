//! Refuses a run that cannot fit by estimate, and names a cap that would be enough.

use super::{MemoryEstimate, Prefetched, Requirement, Target, Variants};
use crate::error::{Result, TrainError};
use crate::plan::{DatasetRef, Plan};
use pressure::{
    BatchConfig, DeviceLimits, DoesNotFit, LighterTuning, Policy, Processes, Shortage,
    WholeStateNeed, cheapest_setting, suggest_config,
};
use runlog::{CheckpointBlocks, RunConfig, ShardingChoice, format_bytes};

/// Memory of an imaginary machine that is larger than any real one, so that only the cap limits the
/// run.
const UNLIMITED_BYTES: u64 = 1 << 60;

impl Plan {
    /// Checks a config as [`Plan::resolve`] does. If it has a memory cap, in bytes or as a fraction
    /// of `total_bytes`, the smallest micro-batch must fit below it. Blocks are checkpointed if
    /// that is needed and the user did not choose their number. The result of the training stays
    /// the same to the bit. Of `processes` that train the run together, each has a part of the
    /// optimizer state if the group divides it under this cap; the plan then has what the group
    /// needs to decide the same.
    ///
    /// # Errors
    /// Those of [`Plan::resolve`]; the cap is below what one sample needs, with a cap that would be
    /// enough.
    pub fn within_cap<'d>(
        config: &RunConfig,
        found: impl Into<DatasetRef<'d>>,
        total_bytes: u64,
        processes: usize,
    ) -> Result<Plan> {
        let dropped = found.into();
        let mut plan = Plan::resolve(config, dropped)?;
        let cap = Policy {
            memory_cap_bytes: plan.memory_cap_bytes,
            memory_cap_fraction: plan.memory_cap_fraction,
            ..Policy::default()
        };
        let Some(cap_bytes) = cap.cap_bytes(total_bytes) else {
            return Ok(plan);
        };
        let device = only_capped(cap_bytes);
        let data = plan.batch_config();
        let also: Vec<u32> = plan.fixed_micro_batch.into_iter().collect();
        let target = target_under_cap(&plan, cap_bytes, processes);
        let suggest = |plan: &Plan, divided_by| -> Result<_> {
            let target = target.with_moments_divided_by(divided_by);
            let estimate = estimate_under_cap(plan, config, target)?;
            let need = estimate.need(plan.effective_batch, &also);
            let suggested = suggest_config(&need, &data, &device, &Processes::default());
            Ok((estimate, suggested))
        };
        let suggested = match plan.sharding() {
            ShardingChoice::Optimizer if !target.has_outer_steps() => suggest(&plan, processes)?,
            ShardingChoice::Auto if plan.may_divide_moments(processes) => {
                let whole = suggest(&plan, 1)?;
                let need = whole.0.whole_state(&data);
                plan.whole_state = Some(need);
                match need.shortage(cap_bytes) {
                    Some(_) => suggest(&plan, processes)?,
                    None => whole,
                }
            }
            _ => suggest(&plan, 1)?,
        };
        match suggested {
            (_, Ok(found)) if found.checkpoint_blocks == plan.checkpoint_blocks => Ok(plan),
            (_, Ok(found)) => {
                let checkpointed = RunConfig {
                    checkpoint_blocks: Some(CheckpointBlocks::Count(found.checkpoint_blocks)),
                    ..config.clone()
                };
                Ok(Plan {
                    whole_state: plan.whole_state,
                    ..Plan::resolve(&checkpointed, dropped)?
                })
            }
            (estimate, Err(no)) => {
                let unit = plan.task().size_unit();
                Err(estimate.does_not_fit(unit, &no, Some(cap_bytes)))
            }
        }
    }
}

impl Plan {
    /// Whether several processes divide the optimizer state if it does not fit into the memory of
    /// each.
    fn may_divide_moments(&self, processes: usize) -> bool {
        let is_auto = self.sharding() == ShardingChoice::Auto;
        is_auto && processes > 1 && self.sync_every().is_none()
    }

    fn batch_config(&self) -> BatchConfig {
        BatchConfig {
            effective_batch: self.effective_batch,
            fixed_micro_batch: self.fixed_micro_batch,
        }
    }

    /// Estimates what one of `processes` needs with the whole optimizer state, if the memory is
    /// capped and they may divide it. A run that is resumed was not checked as
    /// [`Plan::within_cap`] does.
    ///
    /// # Errors
    /// Those of an estimate.
    pub(crate) fn estimate_whole_state(&mut self, processes: usize) -> Result<()> {
        let is_capped = self.memory_cap_bytes.is_some() || self.memory_cap_fraction.is_some();
        if is_capped && self.may_divide_moments(processes) {
            let target = target_under_cap(self, 0, processes);
            let (model, size) = (self.model, self.input_size);
            let estimate = MemoryEstimate::for_plan(self, model, size, target, Variants::Planned)?;
            let need = estimate
                .without_prefetch()
                .whole_state(&self.batch_config());
            self.whole_state = Some(need);
        }
        Ok(())
    }
}

/// An imaginary machine on which only a cap limits a run.
fn only_capped(cap_bytes: u64) -> DeviceLimits {
    DeviceLimits {
        total_bytes: UNLIMITED_BYTES,
        limit_bytes: 0,
        memory_cap_bytes: Some(cap_bytes),
        max_system_fraction: Policy::default().max_system_fraction,
    }
}

/// The device of one of `processes` that train the run together, each with the whole optimizer
/// state.
fn target_under_cap(plan: &Plan, cap_bytes: u64, processes: usize) -> Target {
    let kind = tape::device::predict_device_kind(plan.device);
    let has_outer_steps = processes > 1 && plan.sync_every().is_some();
    Target::new(kind, plan.threads as usize, cap_bytes).with_outer_steps(has_outer_steps)
}

/// The memory of a plan without samples decoded ahead, which are freed before a micro-batch is made
/// smaller. The ceiling of `target` is the cap.
fn estimate_under_cap(plan: &Plan, config: &RunConfig, target: Target) -> Result<MemoryEstimate> {
    let variants = match config.checkpoint_blocks {
        Some(_) => Variants::Planned,
        None => Variants::MinCheckpointing(Requirement {
            budget_bytes: target.ceiling_bytes,
            micro_batch: plan.fixed_micro_batch.unwrap_or(1),
            effective_batch: plan.effective_batch,
            prefetched: Prefetched::Excluded,
        }),
    };
    let estimate = MemoryEstimate::for_plan(plan, plan.model, plan.input_size, target, variants)?;
    Ok(estimate.without_prefetch())
}

impl MemoryEstimate {
    /// What a process needs that has the whole optimizer state, which the estimate must be for.
    pub fn whole_state(&self, data: &BatchConfig) -> WholeStateNeed {
        let also: Vec<u32> = data.fixed_micro_batch.into_iter().collect();
        let need = self.need(data.effective_batch, &also);
        WholeStateNeed {
            state_bytes: self.baseline.parameter_bytes(),
            peak_bytes: need.least_peak(data).0,
        }
    }

    /// What a run that does not fit lacks and could free: the memory that is missing for its
    /// smallest micro-batch, with the number of checkpointed blocks that needs the least memory.
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
            can_freeze: self.can_freeze,
            lighter_tuning: self.lighter_tuning_of_least(no),
            reads_texts: self.reads_texts,
            ..Shortage::default()
        }
    }

    /// What lighter ways to fine-tune would free of the smallest footprint. A micro-batch of
    /// adapters has no gradients of the weights beside its activations.
    fn lighter_tuning_of_least(&self, no: &DoesNotFit) -> LighterTuning {
        let (_, blocks) = no.least;
        let heap = self.variant(blocks);
        let micro_batch_bytes = self.micro_batch_bytes(blocks, no.micro_batch).unwrap_or(0);
        let activations_bytes = heap.map_or(0, |heap| {
            heap.growing_bytes(self.measured_samples(no.micro_batch))
        });
        let own_gradients_bytes = micro_batch_bytes
            .saturating_sub(activations_bytes)
            .min(self.baseline.gradients_bytes);
        let tuning = self.lighter_tuning;
        let with_adapters = |bytes: u64| match bytes {
            0 => 0,
            bytes => bytes + own_gradients_bytes,
        };
        let quantized = |bytes| {
            if tuning.trains_all {
                with_adapters(bytes)
            } else {
                bytes
            }
        };
        LighterTuning {
            adapters_bytes: with_adapters(tuning.adapters_bytes),
            eight_bits_bytes: quantized(tuning.eight_bits_bytes),
            nf4_bytes: quantized(tuning.nf4_bytes),
            trains_all: tuning.trains_all,
        }
    }

    /// The cheapest setting with which a run would fit that does not: "; --adapter 8 frees 4.1 GB,
    /// which is enough". Empty if no setting is enough.
    fn help(&self, no: &DoesNotFit) -> String {
        let shortage = self.stuck(no);
        let help = cheapest_setting(&Shortage {
            // More checkpointed blocks were tried.
            checkpointed_blocks: match self.variants.len() {
                ..2 if self.blocks > 0 => shortage.checkpointed_blocks,
                _ => self.blocks.max(1),
            },
            ..shortage
        });
        help.map_or_else(String::new, |help| format!("; {help}, which is enough"))
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
                    "{needs}; choose a cap of at least {megabytes}MB (--memory-cap), {smaller} or another model{}",
                    self.help(no)
                ),
            },
            None => TrainError::EstimateTooLarge {
                needs,
                budget: format_bytes(no.budget_bytes),
                enough: format_bytes(no.enough_bytes),
                smaller,
                help: self.help(no),
            },
        }
    }
}
