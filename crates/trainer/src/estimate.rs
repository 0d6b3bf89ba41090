//! Estimates the memory of a run before it starts, from its model, input size, micro-batch,
//! checkpointed blocks, precision and optimizer. The state is counted from shapes; a micro-batch is
//! measured in a dry run.

pub(crate) mod inefficient_size_hints;
mod fixed_footprint;
mod lighter_tuning;
pub(crate) mod dry_run;
mod micro_batch_memory;
mod min_checkpointing;
mod memory_cap_check;
mod seconds_per_sample;
mod target_device;

pub use target_device::Target;

use crate::data::PrefetchOptions;
use crate::error::Result;
use crate::optimizer::OptimizerKind;
use crate::plan::Plan;
use dataset::Task;
use dry_run::{DryRun, PlanDryRun};
use fixed_footprint::Baseline;
use inefficient_size_hints::AttentionSize;
use micro_batch_memory::HeapProfile;
use models::ModelId;
use pressure::{LighterTuning, ModelNeed, ModelVariant, Peak, sensible_sizes};
use std::time::Duration;
use tape::Parameters;

/// Image sizes that suit every model. `ebb plan` lists them.
pub const IMAGE_SIZES: [u32; 8] = [32, 48, 64, 96, 128, 160, 192, 224];
/// Time for the dry runs of one variant. Those of one and two samples run however long they take.
const DRY_RUN_TIME: Duration = Duration::from_millis(2000);
/// Time for the dry runs of each of many models in a list.
const LISTED_DRY_RUN_TIME: Duration = Duration::from_millis(150);
/// Time of recomputing every block, as a fraction of a step without: one more forward pass is a
/// third of a step.
const RECOMPUTE_FRACTION: f64 = 0.33;

/// Which numbers of checkpointed blocks are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variants {
    /// The number in the plan.
    Planned,
    /// The number in the plan. If the plan does not fit into memory: also all blocks, and the
    /// smallest number with which it fits.
    MinCheckpointing(Requirement),
}

/// The smallest micro-batch that may be used, and the memory that it must fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement {
    /// Largest footprint that Ebb may reach.
    pub budget_bytes: u64,
    /// Samples of the micro-batch.
    pub micro_batch: u32,
    /// Samples per step.
    pub effective_batch: u32,
    /// Whether the footprint includes samples that are decoded in advance.
    pub prefetched: Prefetched,
}

/// Whether the footprint includes samples that are decoded in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetched {
    /// They are part of the footprint.
    Included,
    /// They are freed before a micro-batch is made smaller.
    Excluded,
}

/// A network whose memory is estimated.
#[derive(Debug, Clone)]
pub struct NetworkFacts<'a> {
    /// `convnet`, `gpt`, …
    pub name: &'a str,
    /// Image size in pixels, or tokens per sequence.
    pub resolution: u32,
    /// Weights in the optimizer's precision. Their values do not matter.
    pub masters: &'a Parameters,
    /// Decides the size of the moments.
    pub optimizer: OptimizerKind,
    /// Name of the precision of a micro-batch.
    pub precision: &'static str,
    /// Bytes that the host holds per sample of an effective batch until the step ends.
    pub batch_sample_bytes: u64,
    /// Number of blocks that can be checkpointed.
    pub blocks: u32,
    /// `None` for a network without attention.
    pub attention: Option<AttentionSize>,
    /// Whether it reads texts, which are measured in tokens.
    pub reads_texts: bool,
}

/// Estimated memory of one model at one resolution.
#[derive(Debug, Clone)]
pub struct MemoryEstimate {
    /// `convnet`, `gpt`, …
    pub model: String,
    /// Image size in pixels, or tokens per sequence.
    pub resolution: u32,
    /// Number of trained parameters.
    pub parameters: u64,
    /// The part that does not depend on the micro-batch.
    pub baseline: Baseline,
    /// Name of the precision of a micro-batch.
    pub precision: &'static str,
    batch_sample_bytes: u64,
    attention: Option<AttentionSize>,
    /// By number of checkpointed blocks, smallest first.
    variants: Vec<(u32, HeapProfile)>,
    blocks: u32,
    target: Target,
    /// What the footprint is multiplied by.
    factor: f64,
    /// The resolution of the dry runs.
    measured_resolution: u32,
    reads_texts: bool,
    /// Whether a part of the trained weights could be frozen.
    can_freeze: bool,
    lighter_tuning: LighterTuning,
}

impl MemoryEstimate {
    /// Estimates a plan, or the plan with another model or image size.
    ///
    /// # Errors
    /// The network cannot be built, for example because its weights cannot be read, or its dry run
    /// fails.
    pub fn for_plan(
        plan: &Plan,
        model: ModelId,
        image_size: u32,
        target: Target,
        variants: Variants,
    ) -> Result<Self> {
        let (dry_run, masters) = PlanDryRun::new(plan, model, image_size)?;
        let time = match variants {
            Variants::Planned => LISTED_DRY_RUN_TIME,
            Variants::MinCheckpointing(_) => DRY_RUN_TIME,
        };
        let network = NetworkFacts {
            name: model.name(),
            resolution: image_size,
            masters: &masters,
            optimizer: plan.optimizer,
            precision: plan.precision.name(),
            batch_sample_bytes: 0,
            blocks: plan.blocks_of(model),
            attention: model.attention(image_size as usize).map(|a| AttentionSize {
                width: a.width,
                heads: a.heads,
            }),
            reads_texts: plan.task() != Task::ImageClassification,
        };
        let mut estimate = MemoryEstimate::before_dry_run(&network, target)?;
        estimate.add_training(plan, image_size, &masters)?;
        estimate.with_variants(&dry_run, plan.checkpoint_blocks, variants, time)
    }

    /// Estimates a network outside of a plan, without anything that a run has besides its
    /// steps.
    ///
    /// # Errors
    /// The dry run fails.
    pub fn for_network(
        network: &NetworkFacts,
        dry_run: &dyn DryRun,
        checkpointed: u32,
        target: Target,
        variants: Variants,
    ) -> Result<Self> {
        let estimate = MemoryEstimate::before_dry_run(network, target)?;
        estimate.with_variants(dry_run, checkpointed, variants, DRY_RUN_TIME)
    }

    fn before_dry_run(network: &NetworkFacts, target: Target) -> Result<Self> {
        Ok(MemoryEstimate {
            model: network.name.to_owned(),
            resolution: network.resolution,
            parameters: network.masters.count() as u64,
            baseline: Baseline::new(network.masters, network.optimizer, target)?,
            precision: network.precision,
            batch_sample_bytes: network.batch_sample_bytes,
            attention: network.attention,
            variants: Vec::new(),
            blocks: network.blocks,
            target,
            factor: 1.0,
            measured_resolution: network.resolution,
            reads_texts: network.reads_texts,
            can_freeze: false,
            lighter_tuning: LighterTuning::default(),
        })
    }

    /// Adds what a run has besides its steps: decoded samples, texts, averages and a rounded
    /// copy of the weights.
    fn add_training(&mut self, plan: &Plan, image_size: u32, masters: &Parameters) -> Result<()> {
        let dtype = plan.precision.dtype();
        let (workers, ceiling_bytes) = (self.target.workers(plan), self.target.ceiling_bytes);
        self.baseline = Baseline {
            base_bytes: self.target.training_base_bytes(),
            copy_bytes: if plan.precision.is_half() {
                masters.rounded(dtype)?.bytes_in(dtype)
            } else {
                0
            },
            averages_bytes: plan.ema_decay.map_or(0, |_| masters.bytes()),
            prefetch_bytes: match plan.task() {
                Task::ImageClassification => {
                    PrefetchOptions::for_image_size(plan, image_size, workers, ceiling_bytes)
                        .max_bytes(plan)
                }
                _ => 0,
            },
            texts_bytes: plan.texts_bytes,
            ..self.baseline
        };
        self.can_freeze = plan.can_freeze();
        self.lighter_tuning = plan.lighter_tuning()?;
        Ok(())
    }

    /// Highest footprint of the process, in bytes, while micro-batches of `micro_batch` make up an
    /// effective batch. `None` if this number of checkpointed blocks was not estimated.
    pub fn peak_bytes(
        &self,
        checkpointed: u32,
        micro_batch: u32,
        effective_batch: u32,
    ) -> Option<u64> {
        let heap_bytes = self.heap_bytes(checkpointed, micro_batch, effective_batch)?;
        self.process_bytes(checkpointed, micro_batch, heap_bytes)
    }

    /// Footprint of the process while `heap_bytes` of its heap are in use for this micro-batch.
    fn process_bytes(&self, checkpointed: u32, micro_batch: u32, heap_bytes: u64) -> Option<u64> {
        let samples = self.measured_samples(micro_batch);
        let unreused_bytes = self.variant(checkpointed)?.unreused_bytes(samples);
        let resident_bytes = self.target.resident_bytes(heap_bytes, unreused_bytes);
        let bytes = self.baseline.base_bytes + resident_bytes;
        Some((self.factor * bytes as f64) as u64)
    }

    fn variant(&self, checkpointed: u32) -> Option<&HeapProfile> {
        let mut variants = self.variants.iter();
        let (_, heap) = variants.find(|(blocks, _)| *blocks == checkpointed)?;
        Some(heap)
    }

    /// The part of [`MemoryEstimate::peak_bytes`] that is in use on the heap.
    pub fn heap_bytes(
        &self,
        checkpointed: u32,
        micro_batch: u32,
        effective_batch: u32,
    ) -> Option<u64> {
        let micro_batch_bytes = self.micro_batch_bytes(checkpointed, micro_batch)?;
        let accumulated = if micro_batch < effective_batch {
            self.baseline.gradients_bytes
        } else {
            0
        };
        let samples = u64::from(effective_batch) * self.batch_sample_bytes;
        Some(self.baseline.heap_bytes() + accumulated + samples + micro_batch_bytes)
    }

    /// Bytes that a micro-batch takes on top of the baseline. `None` if this number of checkpointed
    /// blocks was not estimated.
    pub(crate) fn micro_batch_bytes(&self, checkpointed: u32, micro_batch: u32) -> Option<u64> {
        let heap = self.variant(checkpointed)?;
        Some(heap.peak_bytes(self.measured_samples(micro_batch), self.target.allocator))
    }

    /// The number of samples of the dry runs that have as many tokens as this micro-batch.
    fn measured_samples(&self, micro_batch: u32) -> f64 {
        let relative = f64::from(self.resolution) / f64::from(self.measured_resolution.max(1));
        f64::from(micro_batch) * relative
    }

    /// This estimate for texts of another length in tokens. Attention is computed in blocks, so
    /// that the memory of a micro-batch is proportional to its tokens. The estimate must be one of
    /// a network that reads texts.
    #[must_use]
    pub fn at_length(&self, tokens: u32) -> Self {
        MemoryEstimate {
            resolution: tokens,
            ..self.clone()
        }
    }

    /// Whether dry runs had this resolution.
    pub fn is_measured(&self) -> bool {
        self.resolution == self.measured_resolution
    }

    /// This estimate, multiplied by `factor`, because earlier runs needed that much more or less.
    #[must_use]
    pub fn corrected(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// This estimate without samples decoded ahead.
    pub fn without_prefetch(mut self) -> Self {
        self.baseline.prefetch_bytes = 0;
        self
    }

    /// The question to [`pressure::suggest_config`]: footprints at the sensible micro-batches, and
    /// at those in `also`.
    pub fn need(&self, effective_batch: u32, also: &[u32]) -> ModelNeed {
        let mut sizes = sensible_sizes(effective_batch);
        sizes.extend(also);
        let variant = |&(checkpoint_blocks, _): &(u32, HeapProfile)| ModelVariant {
            checkpoint_blocks,
            extra_time_fraction: RECOMPUTE_FRACTION * f64::from(checkpoint_blocks)
                / f64::from(self.blocks.max(1)),
            peaks: sizes
                .iter()
                .filter_map(|&micro_batch| {
                    let peak_bytes =
                        self.peak_bytes(checkpoint_blocks, micro_batch, effective_batch)?;
                    Some(Peak {
                        micro_batch,
                        peak_bytes,
                    })
                })
                .collect(),
        };
        ModelNeed {
            state_bytes: self.baseline.state_bytes(),
            precision: self.precision.to_owned(),
            variants: self.variants.iter().map(variant).collect(),
        }
    }
}
