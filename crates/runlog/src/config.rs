//! A run's configuration as the user wrote it. The trainer turns it into a `Plan`; this file knows
//! no dataset.

use crate::{Blocks, RunlogError, keys};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A run's configuration. Every key is optional; `None` means that Ebb chooses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The folder with the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// `image-classification`, `text-classification`, `language-model` or
    /// `token-compression`; detected from the folder by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Name of the model; see `MODELS` in `keys.rs`. With `from` it is the model in that folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A folder with a pretrained model. By default the weights are initialized randomly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// Which part of a pretrained model is trained: `head`, `last:N` blocks or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_only: Option<String>,
    /// Rank of the LoRA adapters beside frozen pretrained weights, 1..=1024; no adapters by
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_rank: Option<u32>,
    /// Scale of the adapters: their output is multiplied by alpha / rank, 0.001..=10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_alpha: Option<f64>,
    /// Bits per frozen weight in memory: 8 or 4; not quantized by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantize: Option<u32>,
    /// Side of the square image in pixels, 16..=1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<u32>,
    /// Longest text, or window of a document, in tokens, 8..=4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
    /// Vocabulary size of a tokenizer trained on the texts, 300..=65536; documents are read as
    /// bytes by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<u32>,
    /// Class weights of text classification: `none`, or `balanced` for the inverse class frequency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<String>,
    /// Column of the texts, by name or by number from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_column: Option<String>,
    /// Column of the labels, by name or by number from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// Policy that selects the tokens to keep in token compression: `learned`, or one of the
    /// baselines `random`, `every-kth` and `frequency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Training method of a learned policy: `gumbel`, `policy-gradient` or `joint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_learning: Option<String>,
    /// Fraction of the tokens of each window that is kept, `0.01..=0.99`. If only `keep_cost` is
    /// given, the policy chooses the fraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_fraction: Option<f64>,
    /// Cost of a kept token in nats, `0.0..=100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_cost: Option<f64>,
    /// Temperature of the policy at the first step, `0.01..=100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Temperature of the policy at the last step, `0.01..=100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_temperature: Option<f64>,
    /// Columns of regression targets in a table beside the images, separated by commas; all numeric
    /// columns by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<String>,
    /// Weight of the mean regression loss beside the class loss, `0.001..=1000.0`; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_weight: Option<f64>,
    /// Weights of the losses: `fixed`, or learned with `uncertainty` (Kendall et al. 2018).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_balance: Option<String>,
    /// Column of groups, or `none`. All images of a group are on the same side of the split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// Number of epochs, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Number of steps, 1..=100000000; overrides `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Samples per step, 1..=65536. Memory pressure never changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Fixed micro-batch, 1..=65536; automatic by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u32>,
    /// Initial micro-batch if memory use cannot be estimated, 1..=65536. It is adjusted by
    /// measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_micro_batch: Option<u32>,
    /// `adamw`, `adamw8bit` or `sgd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Peak learning rate, `1e-9..=10.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Decoupled weight decay, `0.0..=10.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Fraction of the steps with linear warm-up, `0.0..=1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_fraction: Option<f64>,
    /// `cosine`, or `rising` for a learning-rate range test: the rate grows exponentially to its
    /// peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Label smoothing, `0.0..=0.99`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// Gradients are clipped to this global norm, `1e-6..=1e6`; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Decay of an exponential moving average of the weights, `0.0..=0.999999`; none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// `none`, `standard` (crop, flip, colour) or `randaugment` (`standard` and RandAugment).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub augment: Option<String>,
    /// Mixing of images: `none`, `mixup`, `cutmix` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
    /// Fraction of each class that is held out if the folder has no split, `0.0..=0.99`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_fraction: Option<f64>,
    /// `auto`, `metal`, `cuda` or `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `f32`, `bf16`, `f16` or `f64` (CPU only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Number of blocks to checkpoint: their activations are recomputed in the backward pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_blocks: Option<Blocks>,
    /// Threads of the CPU kernels, 1..=1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Decoding threads, 0..=256. With 0 the training thread decodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Largest footprint in bytes, at least 64 MB. A file may also contain "8GB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cap_bytes: Option<u64>,
    /// Largest footprint as a fraction of physical memory, `0.1..=0.95`. The smaller of the two
    /// limits applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cap_fraction: Option<f64>,
    /// Fraction of physical memory that Ebb and all other apps may use together, `0.5..=0.95`. The
    /// rest is left free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_system_fraction: Option<f64>,
    /// A run that was suspended for this many minutes ends with its checkpoint on disk, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_suspended_minutes: Option<u64>,
    /// Seed of all random numbers, below 2^53.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Trains on only this many samples, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev_samples: Option<u64>,
    /// Interval between checkpoints: `10min`, `2epochs` or `500steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<String>,
    /// Number of epochs between evaluations, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluate_every_epochs: Option<u64>,
    /// Values that depend on physical memory; see [`RunConfig::for_memory`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_memory: Vec<Tier>,
}

/// Values for machines with at least this much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tier {
    /// Physical memory in bytes. A file may also contain "8GB".
    pub at_least: u64,
    /// Samples per step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Initial micro-batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_micro_batch: Option<u32>,
}

impl RunConfig {
    /// Resolves `by_memory` for a machine with this much memory: the largest tier that it reaches
    /// applies, or the smallest. Values outside the tiers win. Virtual machines report slightly
    /// less memory than they have; 1/16 is tolerated.
    pub fn for_memory(self, total_bytes: u64) -> RunConfig {
        let total_bytes = total_bytes + total_bytes / 16;
        let reached = self
            .by_memory
            .iter()
            .filter(|tier| tier.at_least <= total_bytes);
        let smallest = self.by_memory.iter().min_by_key(|tier| tier.at_least);
        let tier = reached.max_by_key(|tier| tier.at_least).or(smallest);
        let tier = tier.copied().unwrap_or_default();
        RunConfig {
            effective_batch: self.effective_batch.or(tier.effective_batch),
            first_micro_batch: self.first_micro_batch.or(tier.first_micro_batch),
            by_memory: Vec::new(),
            ..self
        }
    }

    /// Checks all values against their ranges.
    ///
    /// # Errors
    /// Names the first value that is out of its range.
    pub fn validate(&self) -> Result<(), RunlogError> {
        let json = serde_json::to_value(self).expect("a config is plain data with text keys");
        let entries = json.as_object().cloned().unwrap_or_default();
        keys::check(entries, |_| "the run config".into()).map(drop)
    }

    /// Merges two configs: values of `self` win over values of `base`. `epochs` in `self` also
    /// replaces `steps` in `base`.
    // tidy: table
    pub fn over(self, base: RunConfig) -> RunConfig {
        let steps = base.steps.filter(|_| self.epochs.is_none());
        RunConfig {
            folder: self.folder.or(base.folder),
            task: self.task.or(base.task),
            model: self.model.or(base.model),
            from: self.from.or(base.from),
            train_only: self.train_only.or(base.train_only),
            adapter_rank: self.adapter_rank.or(base.adapter_rank),
            adapter_alpha: self.adapter_alpha.or(base.adapter_alpha),
            quantize: self.quantize.or(base.quantize),
            image_size: self.image_size.or(base.image_size),
            tokens: self.tokens.or(base.tokens),
            vocabulary: self.vocabulary.or(base.vocabulary),
            class_weights: self.class_weights.or(base.class_weights),
            text_column: self.text_column.or(base.text_column),
            label_column: self.label_column.or(base.label_column),
            policy: self.policy.or(base.policy),
            policy_learning: self.policy_learning.or(base.policy_learning),
            keep_fraction: self.keep_fraction.or(base.keep_fraction),
            keep_cost: self.keep_cost.or(base.keep_cost),
            temperature: self.temperature.or(base.temperature),
            final_temperature: self.final_temperature.or(base.final_temperature),
            targets: self.targets.or(base.targets),
            target_weight: self.target_weight.or(base.target_weight),
            loss_balance: self.loss_balance.or(base.loss_balance),
            group_by: self.group_by.or(base.group_by),
            epochs: self.epochs.or(base.epochs),
            steps: self.steps.or(steps),
            effective_batch: self.effective_batch.or(base.effective_batch),
            micro_batch: self.micro_batch.or(base.micro_batch),
            first_micro_batch: self.first_micro_batch.or(base.first_micro_batch),
            by_memory: if self.by_memory.is_empty() {
                base.by_memory
            } else {
                self.by_memory
            },
            optimizer: self.optimizer.or(base.optimizer),
            learning_rate: self.learning_rate.or(base.learning_rate),
            weight_decay: self.weight_decay.or(base.weight_decay),
            warmup_fraction: self.warmup_fraction.or(base.warmup_fraction),
            schedule: self.schedule.or(base.schedule),
            label_smoothing: self.label_smoothing.or(base.label_smoothing),
            clip_norm: self.clip_norm.or(base.clip_norm),
            ema_decay: self.ema_decay.or(base.ema_decay),
            augment: self.augment.or(base.augment),
            mix: self.mix.or(base.mix),
            held_out_fraction: self.held_out_fraction.or(base.held_out_fraction),
            device: self.device.or(base.device),
            precision: self.precision.or(base.precision),
            checkpoint_blocks: self.checkpoint_blocks.or(base.checkpoint_blocks),
            threads: self.threads.or(base.threads),
            workers: self.workers.or(base.workers),
            memory_cap_bytes: self.memory_cap_bytes.or(base.memory_cap_bytes),
            memory_cap_fraction: self.memory_cap_fraction.or(base.memory_cap_fraction),
            max_system_fraction: self.max_system_fraction.or(base.max_system_fraction),
            max_suspended_minutes: self.max_suspended_minutes.or(base.max_suspended_minutes),
            seed: self.seed.or(base.seed),
            dev_samples: self.dev_samples.or(base.dev_samples),
            checkpoint_every: self.checkpoint_every.or(base.checkpoint_every),
            evaluate_every_epochs: self.evaluate_every_epochs.or(base.evaluate_every_epochs),
        }
    }
}
