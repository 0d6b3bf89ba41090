//! What the user asked for, as written: TOML or JSON, unknown keys refused. Checked into a `Plan` by the trainer;
//! this file only parses and knows no data set.

use crate::{Blocks, RunlogError, keys};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A run's configuration. Every key may be absent; `None` means "Ebb chooses".
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The dropped folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// `image-classification`, `text-classification`, `language-model` or `token-compression`; absent, the folder says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `convnet` or `vit_micro`; of texts `text_micro` or `text_mini`; of documents `gpt_micro`, `gpt_mini` or `gpt_small`; with
    /// `from` what that folder holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// A folder of published weights to begin with; absent, the network begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// What of published weights trains: `head`, `last:N` blocks or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_only: Option<String>,
    /// Rank of the adapters that train beside frozen published weights, 1..=1024; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_rank: Option<u32>,
    /// What adapters are multiplied by, over their rank, 0.001..=10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_alpha: Option<f64>,
    /// Bits of a frozen weight in memory: 8 or 4; absent means as precise as the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantize: Option<u32>,
    /// Side of the square image in pixels, 16..=1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_size: Option<u32>,
    /// Most tokens of a text, or the tokens of a window of documents, 8..=4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
    /// Different tokens learnt from the texts, 300..=65536; absent, documents are read byte by byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<u32>,
    /// How much each class of texts counts: `none`, or `balanced`, all classes alike however many texts they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<String>,
    /// The column of texts, by name or by number from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_column: Option<String>,
    /// The column of labels, by name or by number from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// Who chooses the tokens that a token compression keeps: `learned`, or a baseline: `random`, `every-kth` or `frequency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What a learned policy learns by: `gumbel`, `policy-gradient` or `joint`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_learning: Option<String>,
    /// Share of the tokens of each window that is kept, `0.01..=0.99`; left out beside a `kept_cost`, the policy weighs that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_fraction: Option<f64>,
    /// What a kept token costs, in nats, `0.0..=100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_cost: Option<f64>,
    /// Temperature of the policy's choices at the first step, `0.01..=100.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The same at the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_temperature: Option<f64>,
    /// Columns of a table beside photographs whose numbers are learnt, with commas between; absent, every column of numbers is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<String>,
    /// How much the numbers' mean loss counts beside the class loss, `0.001..=1000.0`; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_weight: Option<f64>,
    /// `fixed`, or `uncertainty`: the weights of the losses are learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_balance: Option<String>,
    /// The column by which photographs stay together on one side of the split, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// Epochs, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Steps, 1..=100000000; overrides `epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Samples a step, 1..=65536. Never changed by pressure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Fixed micro-batch, 1..=65536; absent means automatic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u32>,
    /// Micro-batch to begin with where memory cannot be predicted, 1..=65536: a first guess, which measurement overrules.
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
    /// Steps of linear warm-up as a fraction of all steps, `0.0..=1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_fraction: Option<f64>,
    /// `cosine`, or `rising`: the rate grows to its peak by the same factor every step, to see where the loss falls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Label smoothing, `0.0..=0.99`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// Largest global gradient norm, `1e-6..=1e6`; absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Decay of a moving average of the weights, `0.0..=0.999999`; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_decay: Option<f64>,
    /// `none`, `standard` (crop, flip, colour) or `randaugment` (the same, and RandAugment).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub augment: Option<String>,
    /// How photographs are mixed with one another: `none`, `mixup`, `cutmix` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
    /// Share of each class held out when the folder has no split, `0.0..=0.99`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_out_fraction: Option<f64>,
    /// `auto`, `metal`, `cuda` or `cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// `f32`, `bf16`, `f16` or `f64` (CPU only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Blocks that keep their input only and run again in backward: 0 to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_blocks: Option<Blocks>,
    /// Threads of the CPU kernels, 1..=1024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Decoding workers, 0..=256; with 0 the training thread decodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Largest footprint, in bytes, at least 64 MB. A file may also say "8GB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cap_bytes: Option<u64>,
    /// The same as a share of all memory, `0.1..=0.95`: two thirds leave the user one. The smaller of the two counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_cap_fraction: Option<f64>,
    /// Where the budget line stands, as a share of all memory, `0.5..=0.95`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub politeness: Option<f64>,
    /// Longest time that a run may be parked before it ends with its checkpoint on disk, in minutes, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_most_minutes: Option<u64>,
    /// Seed of everything random, below 2^53.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Train on this many samples only, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev_samples: Option<u64>,
    /// `10min`, `2epochs` or `500steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<String>,
    /// Evaluate after this many epochs, 1..=100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluate_every_epochs: Option<u64>,
    /// Values by the machine's memory; see [`RunConfig::for_memory`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_memory: Vec<Tier>,
}

/// Values for machines with at least so much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tier {
    /// Physical memory, in bytes. A file may also say "8GB".
    pub at_least: u64,
    /// Samples a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<u32>,
    /// Micro-batch to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_micro_batch: Option<u32>,
}

impl RunConfig {
    /// The config for a machine with so much memory: of `by_memory` the largest tier that it reaches, else the smallest. What the
    /// config says beside the tiers wins. A machine that holds back a little of its memory, as virtual ones do, counts as whole.
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

    /// Refuses the first value that is out of its range.
    pub fn validate(&self) -> Result<(), RunlogError> {
        let written = serde_json::to_value(self).expect("a config is plain data with text keys");
        let entries = written.as_object().cloned().unwrap_or_default();
        keys::check(entries, |_| "The run config".into()).map(drop)
    }

    /// Lays this config over `base`: what is given here wins, the rest comes from there. `epochs` given here also
    /// takes the place of `steps` given there.
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
            kept_fraction: self.kept_fraction.or(base.kept_fraction),
            kept_cost: self.kept_cost.or(base.kept_cost),
            temperature: self.temperature.or(base.temperature),
            last_temperature: self.last_temperature.or(base.last_temperature),
            targets: self.targets.or(base.targets),
            target_weight: self.target_weight.or(base.target_weight),
            loss_balance: self.loss_balance.or(base.loss_balance),
            group_by: self.group_by.or(base.group_by),
            epochs: self.epochs.or(base.epochs),
            steps: self.steps.or(steps),
            effective_batch: self.effective_batch.or(base.effective_batch),
            micro_batch: self.micro_batch.or(base.micro_batch),
            first_micro_batch: self.first_micro_batch.or(base.first_micro_batch),
            by_memory: match self.by_memory.is_empty() {
                true => base.by_memory,
                false => self.by_memory,
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
            politeness: self.politeness.or(base.politeness),
            parked_most_minutes: self.parked_most_minutes.or(base.parked_most_minutes),
            seed: self.seed.or(base.seed),
            dev_samples: self.dev_samples.or(base.dev_samples),
            checkpoint_every: self.checkpoint_every.or(base.checkpoint_every),
            evaluate_every_epochs: self.evaluate_every_epochs.or(base.evaluate_every_epochs),
        }
    }
}
