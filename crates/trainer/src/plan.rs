//! A plan: all decisions about a run before it starts. It is checked once against the config and
//! the dataset. The rest of the crate relies on it without further checks.

mod augmentation;
mod resolve;
mod token_compression;
mod dataset_defaults;
mod hyperparameters;
mod build_network;
mod setting_errors;
mod run_length;
mod evaluation_schedule;
mod explain_defaults;

pub use augmentation::Augmentation;
pub use dataset_defaults::DatasetRef;
pub(crate) use dataset_defaults::MOST_TEXT_BYTES_IN_MEMORY;
pub(crate) use resolve::courtesy;
pub(crate) use run_length::LengthChange;
pub use run_length::RunLength;
pub use token_compression::{Compression, relaxes_choice, scores_choice};

use crate::lr_schedule::LrSchedule;
use crate::optimizer::OptimizerKind;
use crate::precision::Precision;
use crate::task_conversion::network_task;
use dataset::{LearnedTokens, Mix, TargetColumn, Task, Tokenizer};
use models::{Balance, Heads, ModelId, Pretrained, TextModel};
use pressure::{PowerPolicyMode, WholeStateNeed};
use runlog::{CheckpointInterval, LengthBuckets, LossOn, PackingChoice, RunConfig};
use std::path::PathBuf;
use std::sync::Arc;
use tape::device::{DeviceKind, DevicePreference};

/// Everything that a run does, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The dataset folder.
    pub folder: PathBuf,
    /// Name of the dataset, as shown to the user.
    pub name: String,
    /// Network.
    pub model: ModelId,
    /// Side of the square image in pixels, or the most tokens of a text.
    pub input_size: u32,
    /// Class names in label order; empty for language models.
    pub classes: Vec<String>,
    /// Regression targets of images, besides classes or alone.
    pub columns: Vec<TargetColumn>,
    /// How the losses of regression targets are weighed against that of the classes.
    pub balance: Balance,
    /// Weight of each class in the loss; all equal if absent.
    pub class_weights: Option<Vec<f64>>,
    /// Number of training samples.
    pub train_samples: u64,
    /// Number of held-out samples.
    pub held_out_samples: u64,
    /// Held-out samples that are exact copies of training samples, as far as Ebb compared them.
    /// Only a new run knows it.
    pub held_out_copies: u64,
    /// Bytes of all texts as tokens in memory. Images, which are decoded when they are needed, and
    /// tokens in a file count as 0.
    pub texts_bytes: u64,
    /// Samples per step; the average, rounded up, if `effective_batch_tokens` limits the steps.
    pub effective_batch: u32,
    /// The most tokens of a step, if its samples are counted in tokens. A longer sample has a step
    /// of its own.
    pub effective_batch_tokens: Option<u32>,
    /// The size of every micro-batch, if the user fixed it.
    pub fixed_micro_batch: Option<u32>,
    /// Number of steps.
    pub steps: u64,
    /// The number of epochs that `steps` follows from, unless the user chose the steps.
    pub requested_epochs: Option<u64>,
    /// The most samples that a run of the default length processes, if that is limited.
    pub max_samples_seen: Option<u64>,
    /// Training samples over the effective batch, rounded up; the number of steps with the tokens
    /// of an epoch if `effective_batch_tokens` limits them.
    pub steps_per_epoch: u64,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// How the learning rate changes over the run.
    pub lr_schedule: LrSchedule,
    /// Steps of warm-up.
    pub warmup_steps: u64,
    /// Label smoothing.
    pub label_smoothing: f64,
    /// Fraction of the tokens of a text that are left out at random in each step.
    pub token_dropout: f64,
    /// Largest global gradient norm.
    pub clip_norm: f64,
    /// Decay of the moving average of the weights; absent, there is no average.
    pub ema_decay: Option<f64>,
    /// How conversations are learned; absent for other data.
    pub conversations: Option<ConversationOptions>,
    /// Beta of direct preference optimization, if the data are preferences.
    pub preference_beta: Option<f64>,
    /// The options of token compression, for that task alone.
    pub compression: Option<Compression>,
    /// Augmentation of images.
    pub augment: Augmentation,
    /// How images are mixed.
    pub mix: Mix,
    /// Number type of the computation.
    pub precision: Precision,
    /// Number of checkpointed blocks.
    pub checkpoint_blocks: u32,
    /// The requested device.
    pub device: DevicePreference,
    /// Threads of the CPU kernels.
    pub threads: u32,
    /// Decoding workers; absent, they depend on the device.
    pub workers: Option<u32>,
    /// Largest footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// Largest footprint as a fraction of all memory; the smaller of the two limits holds.
    pub memory_cap_fraction: Option<f64>,
    /// What one of several processes needs if it has the whole optimizer state, if the memory is
    /// capped and they may divide it.
    pub whole_state: Option<WholeStateNeed>,
    /// The part of all memory that the whole system may use before the training gives way.
    pub max_system_fraction: Option<f64>,
    /// A run that is suspended for longer than this ends, in milliseconds.
    pub max_suspended_ms: Option<u64>,
    /// When the training rests.
    pub courtesy: PowerPolicyMode,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Trains on this many samples only.
    pub dev_samples: Option<u64>,
    /// Interval between checkpoints.
    pub checkpoint_every: CheckpointInterval,
    /// Number of newest checkpoints that are kept, besides the best one.
    pub keep_checkpoints: usize,
    /// Every Nth checkpoint is kept too, if set.
    pub keep_every: Option<u64>,
    /// Epochs between evaluations, if the user chose them. [`Plan::evaluation_interval`] decides
    /// otherwise.
    pub evaluate_every_epochs: Option<u64>,
    /// The pretrained model to start from; absent, weights are random.
    pub pretrained: Option<Arc<Pretrained>>,
    /// The config with every choice filled in, for the run folder.
    pub config: RunConfig,
}

/// At most `steps` steps, which process at most `max_samples` samples, rounded up to a whole step.
fn limited_steps(steps: u64, max_samples: Option<u64>, effective_batch: u32) -> u64 {
    let batch = u64::from(effective_batch.max(1));
    max_samples.map_or(steps, |most| steps.min(most.div_ceil(batch).max(1)))
}

/// The average number of samples per step, rounded up, if `steps` steps process `samples` samples.
fn mean_samples(samples: u64, steps: u64) -> u32 {
    samples.div_ceil(steps.max(1)).max(1) as u32
}

/// How conversations are learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationOptions {
    /// The tokens that are learned.
    pub learned: LearnedTokens,
    /// Whether several conversations share a window.
    pub packs: bool,
    /// Whether the windows of a step have similar lengths.
    pub by_length: bool,
}

impl ConversationOptions {
    /// The setting `loss_on`.
    fn loss_on(self) -> LossOn {
        match self.learned {
            LearnedTokens::Answers => LossOn::Completions,
            LearnedTokens::All => LossOn::All,
        }
    }

    /// The setting `packing`.
    fn packing(self) -> PackingChoice {
        if self.packs {
            PackingChoice::On
        } else {
            PackingChoice::Off
        }
    }

    /// The setting `length_buckets`.
    fn length_buckets(self) -> LengthBuckets {
        if self.by_length {
            LengthBuckets::On
        } else {
            LengthBuckets::Off
        }
    }
}

/// Number of samples in each split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleCounts {
    /// Training samples.
    pub train: u64,
    /// Held-out samples.
    pub held_out: u64,
    /// Steps per epoch, if they follow from the number of tokens of each sample.
    pub steps_per_epoch: Option<u64>,
}

impl Plan {
    /// Whether more of a pretrained network trains than adapters or a new head, so that a part of
    /// it could be frozen.
    pub fn can_freeze(&self) -> bool {
        let pretrained = self.pretrained.as_ref();
        pretrained.is_some_and(|pretrained| pretrained.smaller_part().is_some())
    }

    /// Number of threads that decode samples for a device of this kind: enough to keep it busy.
    pub(crate) fn workers_on(&self, kind: DeviceKind) -> usize {
        self.workers.map_or_else(
            || match kind {
                DeviceKind::Metal => 4,
                DeviceKind::Cuda => 2,
                _ => (self.threads as usize).min(4),
            },
            |n| n as usize,
        )
    }

    /// The task.
    pub fn task(&self) -> Task {
        network_task(self.model.task())
    }

    /// The outputs of an image network.
    pub fn heads(&self) -> Heads {
        Heads {
            classes: self.classes.len(),
            targets: self.columns.len(),
            balance: self.balance,
        }
    }

    /// Side of the images in pixels, for image tasks.
    fn image_side(&self) -> Option<u32> {
        let is_image = self.task() == Task::ImageClassification;
        is_image.then_some(self.input_size)
    }

    /// The size of the vocabulary that is learned from the texts, if one is.
    pub(crate) fn learned_vocabulary(&self) -> Option<u32> {
        let vocabulary = self.text_model()?.vocabulary;
        (vocabulary as usize != Tokenizer::bytes().vocabulary()).then_some(vocabulary)
    }

    /// Adjusts the plan to the number of samples counted in the opened dataset.
    #[must_use]
    pub(crate) fn with_sample_counts(mut self, counts: SampleCounts) -> Self {
        let planned = SampleCounts {
            train: self.train_samples,
            held_out: self.held_out_samples,
            steps_per_epoch: self.effective_batch_tokens.map(|_| self.steps_per_epoch),
        };
        if planned == counts {
            return self;
        }
        (self.train_samples, self.held_out_samples) = (counts.train, counts.held_out);
        if let Some(steps) = counts.steps_per_epoch {
            self.steps_per_epoch = steps;
            self.effective_batch = mean_samples(counts.train, steps);
        } else {
            self.effective_batch = self.effective_batch.min(counts.train.max(1) as u32);
            self.steps_per_epoch = counts.train.div_ceil(u64::from(self.effective_batch));
        }
        if let Some(epochs) = self.requested_epochs {
            let all = epochs * self.steps_per_epoch;
            self.steps = limited_steps(all, self.max_samples_seen, self.effective_batch);
            let warmup = self.config.warmup_fraction.unwrap_or_default();
            self.warmup_steps = hyperparameters::warmup_steps(self.steps, warmup);
        }
        self.config.effective_batch = self.effective_batch_setting();
        self.config.steps = Some(self.steps);
        self
    }

    /// The setting `effective_batch`, unless tokens limit the steps.
    fn effective_batch_setting(&self) -> Option<u32> {
        let in_tokens = self.effective_batch_tokens.is_some();
        (!in_tokens).then_some(self.effective_batch)
    }

    /// Ebb's own text network, if the plan uses one.
    pub fn text_model(&self) -> Option<TextModel> {
        match self.model {
            ModelId::Text(model) => Some(model),
            ModelId::Image(_) | ModelId::Pretrained(_) => None,
        }
    }

    /// The number of targets that the loss of a sample is summed over: tokens of a window, or 1.
    pub(crate) fn targets_per_sample(&self) -> u32 {
        if self.task().is_on_documents() && self.preference_beta.is_none() {
            self.input_size
        } else {
            1
        }
    }

    /// The number of targets that the loss of a step is summed over, about.
    pub(crate) fn targets_per_step(&self) -> u32 {
        let of_sample = self.targets_per_sample();
        match self.effective_batch_tokens {
            Some(tokens) if of_sample > 1 => tokens,
            _ => self.effective_batch.saturating_mul(of_sample),
        }
    }

    /// The size of the largest sample: pixels of an image, tokens of a text.
    pub fn sample_cost(&self) -> u64 {
        self.image_side()
            .map_or(u64::from(self.input_size), |side| u64::from(side).pow(2))
    }

    /// Number of epochs; the last one may be incomplete.
    pub fn epochs(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_epoch.max(1))
    }
}
