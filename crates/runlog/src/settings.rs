//! Every setting of a run, declared once: key, type, allowed values, default, help and group.
//! The run config, its checks, the command line's flags, the page of settings and the window's
//! limits all come from this table.
//!
//! To add a setting, add a row. A row whose help, default or range is missing fails a test.

use crate::CheckpointBlocks;
use crate::checkpoint_interval::CheckpointInterval;
use crate::choice_settings::{
    AdapterKind, AdapterScaling, Augmentation, BaselineChoice, ClassWeights, DeviceChoice,
    DropPolicyChoice, DuplicatesChoice, ExchangeChoice, LengthBuckets, LossBalance, LossOn,
    MixChoice, OptimizerChoice, PackingChoice, PolicyTraining, PowerPolicyChoice, PrecisionChoice,
    ScheduleChoice, ShardingChoice, TaskChoice,
};
use crate::quantize::Quantize;
use crate::settings_by_memory::SettingsForMemory;
use crate::trainable_layers::TrainableLayers;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The values that a setting accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allowed {
    /// A path.
    Path,
    /// A name.
    Name,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number between two, both included.
    Integer(u64, u64),
    /// A number between two, both included.
    Number(f64, f64),
    /// `auto`, `10min`, `2epochs` or `500steps`.
    Interval,
    /// A number of blocks, or `all`.
    Blocks,
    /// `head`, `last:N` or `all`.
    TrainedPart,
    /// 8, nf4 or 4.
    Bits,
    /// A number of bytes of at least this many, or a size such as `8GB`.
    Bytes(u64),
}

/// Headings under which `--help` and the page of settings list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What is trained, and from which weights.
    Model,
    /// What the samples are.
    Data,
    /// How the weights change.
    Training,
    /// What computes.
    Compute,
    /// How much memory may be used.
    Memory,
    /// Token compression.
    Compression,
    /// What is saved and when.
    Run,
}

impl Group {
    /// Every group, in the order in which they are shown.
    pub const ALL: [Group; 7] = [
        Group::Model,
        Group::Data,
        Group::Training,
        Group::Compute,
        Group::Memory,
        Group::Compression,
        Group::Run,
    ];

    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Model => "Model",
            Group::Data => "Data",
            Group::Training => "Training",
            Group::Compute => "Device",
            Group::Memory => "Memory",
            Group::Compression => "Token compression",
            Group::Run => "Run",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Key in a config file.
    pub key: &'static str,
    /// Other names of the key that are shorter.
    pub short_keys: &'static [&'static str],
    /// Keys of earlier versions, still read.
    pub old_keys: &'static [&'static str],
    /// Flag on the command line without its dashes; empty if there is none.
    pub flag: &'static str,
    /// Flags of earlier versions, still accepted.
    pub old_flags: &'static [&'static str],
    /// Placeholder of the value in `--help`.
    pub value: &'static str,
    /// The values that it accepts.
    pub allowed: Allowed,
    /// What happens if it is not set.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Heading.
    pub group: Group,
}

/// Counts in the window are plain numbers, which are exact up to here.
pub(crate) const EXACT: u64 = (1 << 53) - 1;

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $key:ident: $kind:ty = {
        $allowed:expr, $group:ident, flag: $flag:literal $value:literal, default: $default:literal
        $(, short_key: $short:literal)? $(, key_was: $old:literal)* $(, flag_was: $old_flag:literal)*
    };)+) => {
        /// A run's configuration. Every key may be absent; Ebb then chooses.
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct RunConfig {
            $($(#[doc = $help])+
            #[serde(skip_serializing_if = "Option::is_none" $(, alias = $short)? $(, alias = $old)*)]
            pub $key: Option<$kind>,)+
            /// Values that depend on the machine's memory; see [`RunConfig::for_memory`].
            #[serde(skip_serializing_if = "Vec::is_empty")]
            pub by_memory: Vec<SettingsForMemory>,
        }

        /// Every setting, in the order of a config file.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            key: stringify!($key),
            short_keys: &[$($short)?],
            old_keys: &[$($old),*],
            flag: $flag,
            old_flags: &[$($old_flag),*],
            value: $value,
            allowed: $allowed,
            default: $default,
            help: concat!($($help),+),
            group: Group::$group,
        }),+];

        impl RunConfig {
            /// Each field of this config, or the one of `base` if it is absent here.
            fn filled_from(self, base: RunConfig) -> RunConfig {
                RunConfig {
                    $($key: self.$key.or(base.$key),)+
                    by_memory: if self.by_memory.is_empty() { base.by_memory } else { self.by_memory },
                }
            }
        }
    };
}

settings! {
    /// Folder or file to train on
    folder: PathBuf = { Allowed::Path, Data, flag: "" "FOLDER", default: "given on the command line" };
    /// Task to train: image-classification, text-classification, language-model or
    /// token-compression
    task: TaskChoice = { Allowed::Words(TaskChoice::WORDS), Model, flag: "task" "TASK", default: "recognized from the folder" };
    /// Network to train, such as convnet or gpt_mini; `ebb plan FOLDER` lists the networks that
    /// suit the folder
    model: String = { Allowed::Name, Model, flag: "model" "NAME", default: "the smallest network for the task" };
    /// Start from pretrained weights: a Hugging Face folder, a GGUF file, or org/name of a model to
    /// download from the hub that the environment variable HF_ENDPOINT names
    from: PathBuf = { Allowed::Path, Model, flag: "from" "FOLDER|FILE|ORG/NAME", default: "random weights" };
    /// Part of the network to train: head (only the new head), last:N (the head and the last N
    /// blocks), or all
    train_only: TrainableLayers = { Allowed::TrainedPart, Model, flag: "train-only" "head|last:N|all", default: "all" };
    /// Freeze the pretrained weights and train low-rank adapters of this rank (LoRA)
    adapter_rank: u32 = { Allowed::Integer(1, 1024), Model, flag: "adapter" "RANK", default: "no adapters" };
    /// Kind of the adapters: lora, or dora, which also trains the norm of each row of the weights
    /// but takes longer
    adapter_kind: AdapterKind = { Allowed::Words(AdapterKind::WORDS), Model, flag: "adapter-kind" "lora|dora", default: "lora" };
    /// Alpha of the adapters. Their scale is alpha / rank or, with rank-stabilized scaling, alpha /
    /// sqrt(rank)
    adapter_alpha: f64 = { Allowed::Number(1e-3, 1e4), Model, flag: "adapter-alpha" "ALPHA", default: "twice the rank" };
    /// How Ebb computes the scale of the adapters: alpha / rank (standard), or alpha / sqrt(rank)
    /// (rank-stabilized). With rank-stabilized, adapters of a high rank learn faster
    adapter_scaling: AdapterScaling = { Allowed::Words(AdapterScaling::WORDS), Model, flag: "adapter-scaling" "standard|rank-stabilized", default: "standard" };
    /// Dropout of the adapters: in each training step, Ebb sets this fraction of their inputs to
    /// zero at random
    adapter_dropout: f64 = { Allowed::Number(0.0, 0.9), Model, flag: "adapter-dropout" "FRACTION", default: "0" };
    /// Linear layers that get adapters, such as q_proj,v_proj; if a name is wrong, Ebb lists the
    /// names in the model
    adapter_targets: String = { Allowed::Name, Model, flag: "adapter-targets" "NAMES", default: "all linear layers of the blocks" };
    /// Store frozen weights in 8 bits or in 4 bits (nf4 or 4), which needs less memory but is
    /// slightly less exact; nf4 is usually more exact than 4
    quantize: Quantize = { Allowed::Bits, Model, flag: "quantize" "8|nf4|4", default: "not quantized" };
    /// Width and height of the square input image, in pixels
    image_size: u32 = { Allowed::Integer(16, 1024), Data, flag: "image-size" "PIXELS", default: "the network's usual size, or the size of the images if they are smaller" };
    /// Maximum length of a text in tokens; for a language model, the context length
    tokens: u32 = { Allowed::Integer(8, 8192), Data, flag: "tokens" "TOKENS", default: "depends on the texts" };
    /// Tokens of a conversation that count in the loss: completions (the answers of the assistant),
    /// or all
    loss_on: LossOn = { Allowed::Words(LossOn::WORDS), Data, flag: "loss-on" "completions|all", default: "completions" };
    /// Pack several short conversations into one context window. A token never attends to tokens of
    /// another conversation, so the loss stays the same
    packing: PackingChoice = { Allowed::Words(PackingChoice::WORDS), Data, flag: "packing" "auto|on|off", default: "auto: on if most conversations are shorter than half a window" };
    /// Put conversations or preferences of similar length into the same step, which reduces
    /// padding; not possible with packed conversations
    length_buckets: LengthBuckets = { Allowed::Words(LengthBuckets::WORDS), Training, flag: "length-buckets" "on|off", default: "on, if conversations are not packed" };
    /// Size of the vocabulary to learn from the texts, in tokens
    vocabulary: u32 = { Allowed::Integer(300, 65_536), Data, flag: "vocabulary" "TOKENS", default: "depends on the texts; language models use single bytes" };
    /// Class weights: none, or balanced, which gives rare classes as much weight as frequent ones
    class_weights: ClassWeights = { Allowed::Words(ClassWeights::WORDS), Training, flag: "class-weights" "none|balanced", default: "none; balanced if a class has at most a tenth of the samples of the largest class" };
    /// Baseline model of edges and colors (images) or n-grams (labeled texts): combined (predicts
    /// together with the network), ngrams (is only compared with it), or none
    baseline: BaselineChoice = { Allowed::Words(BaselineChoice::WORDS), Run, flag: "baseline" "combined|ngrams|none", default: "combined" };
    /// Column of the texts: its name, or its number (the first column is 1)
    text_column: String = { Allowed::Name, Data, flag: "text-column" "COLUMN", default: "recognized from the contents of the columns" };
    /// Column of the labels: its name, or its number (the first column is 1)
    label_column: String = { Allowed::Name, Data, flag: "label-column" "COLUMN", default: "recognized from the contents of the columns" };
    /// How Ebb chooses the tokens to keep: learned (by a trained network), random, every-kth, or
    /// frequency (the rarest tokens)
    policy: DropPolicyChoice = { Allowed::Words(DropPolicyChoice::WORDS), Compression, flag: "policy" "POLICY", default: "learned" };
    /// How the learned policy is trained: gumbel (straight-through Gumbel gradients),
    /// policy-gradient (REINFORCE with a baseline), or joint, which uses the sum of both gradients
    policy_training: PolicyTraining = { Allowed::Words(PolicyTraining::WORDS), Compression, flag: "policy-training" "METHOD", default: "joint", key_was: "policy_learning", flag_was: "policy-learning" };
    /// Fraction of the tokens to keep in each window
    keep_fraction: f64 = { Allowed::Number(0.01, 0.99), Compression, flag: "keep-fraction" "FRACTION", default: "0.5; if you set only a keep cost, the policy decides", key_was: "kept_fraction", flag_was: "kept-fraction" };
    /// Cost of each kept token, in nats. If you set no keep fraction, the policy uses this cost to
    /// decide how many tokens to keep
    keep_cost: f64 = { Allowed::Number(0.0, 100.0), Compression, flag: "keep-cost" "NATS", default: "not used in training", key_was: "kept_cost", flag_was: "kept-cost" };
    /// Temperature of the policy's choices at the first step
    temperature: f64 = { Allowed::Number(0.01, 100.0), Compression, flag: "temperature" "TEMPERATURE", default: "1" };
    /// Temperature of the policy's choices at the last step
    final_temperature: f64 = { Allowed::Number(0.01, 100.0), Compression, flag: "final-temperature" "TEMPERATURE", default: "0.1", key_was: "last_temperature", flag_was: "last-temperature" };
    /// Before attention, the policy and the language model combine each token with this number of
    /// neighbors on each side
    neighbors: u32 = { Allowed::Integer(1, 64), Compression, flag: "neighbors" "TOKENS", default: "4" };
    /// Names of the columns with regression targets, separated by commas. Ebb looks for these
    /// columns in the tables of the image folder
    targets: String = { Allowed::Name, Data, flag: "targets" "COLUMNS", default: "every column of numbers" };
    /// Weight of the loss of the regression targets; the loss of the classes has weight 1
    target_weight: f64 = { Allowed::Number(0.001, 1000.0), Training, flag: "target-weight" "WEIGHT", default: "1" };
    /// How the losses of classes and targets are balanced: fixed, or uncertainty, which learns the
    /// weight of each loss
    loss_balance: LossBalance = { Allowed::Words(LossBalance::WORDS), Training, flag: "loss-balance" "fixed|uncertainty", default: "fixed" };
    /// Beta of direct preference optimization (DPO), for data with chosen and rejected answers.
    /// With a smaller beta, training may change the model more
    preference_beta: f64 = { Allowed::Number(1e-4, 100.0), Training, flag: "beta" "BETA", default: "0.1", short_key: "beta" };
    /// Column that groups images: a group is never divided between training and held-out images;
    /// write none for no groups
    group_by: String = { Allowed::Name, Data, flag: "group-by" "COLUMN|none", default: "the times in the file names, if there are any" };
    /// Classes to leave out, separated by commas; put a name that contains a comma in double quotes
    leave_out_classes: String = { Allowed::Name, Data, flag: "leave-out-classes" "CLASSES", default: "every class is used" };
    /// Classes to merge, such as pets=cat,dog; separate several new classes with semicolons
    merge_classes: String = { Allowed::Name, Data, flag: "merge-classes" "NAME=CLASSES", default: "no class is merged" };
    /// What to do with samples that are the same or nearly the same: keep (use all of them), or
    /// leave-out (use one of each group; Ebb then reads every sample before training)
    duplicates: DuplicatesChoice = { Allowed::Words(DuplicatesChoice::WORDS), Data, flag: "duplicates" "keep|leave-out", default: "keep" };
    /// Number of passes over the training samples
    epochs: u64 = { Allowed::Integer(1, 100_000), Training, flag: "epochs" "EPOCHS", default: "depends on the number of samples" };
    /// Number of optimizer steps; overrides epochs
    steps: u64 = { Allowed::Integer(1, 100_000_000), Training, flag: "steps" "STEPS", default: "follows from epochs" };
    /// End training early after this many evaluations without an improvement; Ebb keeps the best
    /// weights
    patience: u32 = { Allowed::Integer(1, 1000), Training, flag: "patience" "EVALUATIONS", default: "trains to the end" };
    /// Number of samples per optimizer step; memory pressure never changes this number
    effective_batch: u32 = { Allowed::Integer(1, 65_536), Training, flag: "effective-batch" "SAMPLES", default: "depends on the number of samples" };
    /// Maximum number of tokens per optimizer step, for language models: a step consists of whole
    /// samples with at most this many tokens together. Overrides the effective batch in samples
    effective_batch_tokens: u32 = { Allowed::Integer(1, 16_777_216), Training, flag: "effective-batch-tokens" "TOKENS", default: "not set: the effective batch is counted in samples" };
    /// Fixed micro-batch size: the number of samples that Ebb processes at once
    micro_batch: u32 = { Allowed::Integer(1, 65_536), Memory, flag: "micro-batch" "auto|SAMPLES", default: "automatic: depends on the free memory" };
    /// Size of the first micro-batch. Ebb measures how much memory this micro-batch needs, and then
    /// changes the size
    first_micro_batch: u32 = { Allowed::Integer(1, 65_536), Memory, flag: "" "SAMPLES", default: "1" };
    /// Optimizer that updates the weights
    optimizer: OptimizerChoice = { Allowed::Words(OptimizerChoice::WORDS), Training, flag: "optimizer" "NAME", default: "adamw" };
    /// Peak learning rate
    learning_rate: f64 = { Allowed::Number(1e-9, 10.0), Training, flag: "learning-rate" "RATE", default: "depends on the network and the optimizer", short_key: "lr" };
    /// Decoupled weight decay
    weight_decay: f64 = { Allowed::Number(0.0, 10.0), Training, flag: "weight-decay" "DECAY", default: "0.05" };
    /// Fraction of all steps during which the learning rate rises to its peak
    warmup_fraction: f64 = { Allowed::Number(0.0, 1.0), Training, flag: "" "FRACTION", default: "0.05" };
    /// Learning rate schedule: cosine, or rising, which multiplies the rate by the same factor at
    /// every step
    schedule: ScheduleChoice = { Allowed::Words(ScheduleChoice::WORDS), Training, flag: "" "cosine|rising", default: "cosine" };
    /// Label smoothing: fraction of the target probability that is spread over all classes
    label_smoothing: f64 = { Allowed::Number(0.0, 0.99), Training, flag: "label-smoothing" "FRACTION", default: "0.1; 0 without classes" };
    /// In each training step, Ebb leaves out this fraction of the tokens of each labeled text at
    /// random
    token_dropout: f64 = { Allowed::Number(0.0, 0.9), Training, flag: "token-dropout" "FRACTION", default: "0" };
    /// Maximum norm of the gradients of all parameters together; Ebb scales larger gradients down
    /// to this norm
    clip_norm: f64 = { Allowed::Number(1e-6, 1e6), Training, flag: "" "NORM", default: "1" };
    /// Evaluate a moving average of the weights with this decay, such as 0.999; 0 for no average
    ema_decay: f64 = { Allowed::Number(0.0, 0.999_999), Training, flag: "ema-decay" "DECAY", default: "0.995 if there are few images of each class, otherwise no average" };
    /// Image augmentation: standard (crop, mirror, change colors), light (crops less), no-mirror
    /// (slightly rotate, shear, zoom and shift, change colors), randaugment, or none
    augment: Augmentation = { Allowed::Words(Augmentation::WORDS), Training, flag: "augment" "NAME", default: "light for short runs from scratch, otherwise standard; no-mirror if mirroring could change the class of an image" };
    /// Mix pairs of images: none, mixup, cutmix or both
    mix: MixChoice = { Allowed::Words(MixChoice::WORDS), Training, flag: "mix" "NAME", default: "both if there are few images of each class, otherwise none" };
    /// Fraction of each class to hold out for evaluation if the folder has no split
    held_out_fraction: f64 = { Allowed::Number(0.0, 0.99), Data, flag: "" "FRACTION", default: "0.2" };
    /// Device that trains: auto, metal, cuda or cpu
    device: DeviceChoice = { Allowed::Words(DeviceChoice::WORDS), Compute, flag: "device" "DEVICE", default: "auto" };
    /// Data type of activations and gradients: f32, bf16 or f16; on the CPU also f64
    precision: PrecisionChoice = { Allowed::Words(PrecisionChoice::WORDS), Compute, flag: "precision" "TYPE", default: "f32" };
    /// Data type in which several machines exchange gradients: f32, or bf16, which halves the
    /// traffic but rounds the gradients. Ebb adds the rounding errors to the gradients of the next
    /// step
    exchange: ExchangeChoice = { Allowed::Words(ExchangeChoice::WORDS), Compute, flag: "exchange" "f32|bf16", default: "f32" };
    /// How several machines store the optimizer state: none (each has all), optimizer (each has a
    /// part, but exchanges take twice as long), or auto (like none if it fits)
    sharding: ShardingChoice = { Allowed::Words(ShardingChoice::WORDS), Compute, flag: "sharding" "auto|none|optimizer", default: "auto" };
    /// Steps between two exchanges of machines. With 1, they exchange gradients, and the result is
    /// that of one machine; with more, weights (DiLoCo), which changes the result
    sync_every: u64 = { Allowed::Integer(1, 1_000_000), Compute, flag: "sync-every" "STEPS", default: "1" };
    /// Maximum number of samples to evaluate at once during training
    evaluation_batch: u32 = { Allowed::Integer(1, 65_536), Memory, flag: "evaluation-batch" "SAMPLES", default: "depends on the free memory" };
    /// Number of blocks to checkpoint (their activations are recomputed in the backward pass), or
    /// all
    checkpoint_blocks: CheckpointBlocks = { Allowed::Blocks, Memory, flag: "checkpoint-blocks" "N|all", default: "0; more under memory pressure" };
    /// Save the input of only every N-th checkpointed block of a pretrained language model with
    /// rotary positions, and compute the inputs of the others again: long samples need less memory,
    /// and a step takes longer
    checkpoint_segment: u32 = { Allowed::Integer(1, 64), Memory, flag: "checkpoint-segment" "N", default: "1" };
    /// Number of threads for the CPU kernels
    threads: u32 = { Allowed::Integer(1, 1024), Compute, flag: "threads" "THREADS", default: "the number of fast cores" };
    /// Number of threads that decode images in advance; with 0, the training thread decodes the
    /// images
    workers: u32 = { Allowed::Integer(0, 256), Compute, flag: "workers" "THREADS", default: "depends on the device" };
    /// Number of effective batches of images to decode in advance; the decoded images take at most
    /// 64 MB
    prefetch_batches: u32 = { Allowed::Integer(1, 64), Compute, flag: "prefetch" "BATCHES", default: "2; fewer under memory pressure" };
    /// When training rests: auto, always or off. A rest follows each micro-batch and takes as long
    /// as the micro-batch. Rests save battery and keep the machine cool, but training takes about
    /// twice as long
    courtesy: PowerPolicyChoice = { Allowed::Words(PowerPolicyChoice::WORDS), Compute, flag: "courtesy" "auto|always|off", default: "auto: on battery, in low power mode, and while the machine is hot" };
    /// GPU time budget of a Metal command buffer while the display is on, in milliseconds. macOS
    /// draws only between command buffers, so a large budget makes the screen stutter
    command_buffer_ms: u64 = { Allowed::Integer(1, 1000), Compute, flag: "" "MILLISECONDS", default: "10" };
    /// Maximum memory footprint of Ebb, such as 8GB
    memory_cap_bytes: u64 = { Allowed::Bytes(64 << 20), Memory, flag: "memory-cap" "SIZE", default: "the memory that other apps leave" };
    /// Maximum memory footprint of Ebb as a fraction of all memory. If you also set a cap in bytes,
    /// the smaller cap applies
    memory_cap_fraction: f64 = { Allowed::Number(0.1, 0.95), Memory, flag: "memory-target" "FRACTION", default: "no cap" };
    /// Fraction of all memory that Ebb and all other apps may use together; a smaller fraction
    /// leaves more to other apps
    max_system_fraction: f64 = { Allowed::Number(0.5, 0.95), Memory, flag: "max-system-fraction" "FRACTION", default: "0.9", key_was: "politeness", flag_was: "politeness" };
    /// Maximum number of minutes that a run stays suspended; after this time, it ends with a
    /// checkpoint
    max_suspended_minutes: u64 = { Allowed::Integer(1, 100_000), Memory, flag: "" "MINUTES", default: "120", key_was: "parked_most_minutes" };
    /// Random seed of the run, for the initial weights, the order of the samples, the augmentation,
    /// dropout and the split
    seed: u64 = { Allowed::Integer(0, EXACT), Run, flag: "seed" "SEED", default: "7" };
    /// Train on only this many samples
    dev_samples: u64 = { Allowed::Integer(1, EXACT), Run, flag: "dev-samples" "SAMPLES", default: "all samples" };
    /// Interval between checkpoints, such as 10min, 2epochs or 500steps; auto saves less often if
    /// saving takes long
    checkpoint_every: CheckpointInterval = { Allowed::Interval, Run, flag: "checkpoint-every" "INTERVAL", default: "auto: 5 minutes, or longer if saving would cost more than 3 % of the time" };
    /// Number of newest checkpoints to keep, besides the best one; older ones are removed
    keep_checkpoints: u32 = { Allowed::Integer(1, 10_000), Run, flag: "keep" "K", default: "2" };
    /// Also keep every Nth checkpoint
    keep_every: u64 = { Allowed::Integer(1, 1_000_000), Run, flag: "keep-every" "N", default: "no additional checkpoints" };
    /// Text file with prompts, one per line, that a language model answers at each evaluation; 0
    /// for none. Ebb shows how the answers change during the training
    prompts: PathBuf = { Allowed::Path, Run, flag: "prompts" "FILE|0", default: "the first messages of 3 held-out conversations" };
    /// Number of epochs between two evaluations
    evaluate_every_epochs: u64 = { Allowed::Integer(1, 100_000), Run, flag: "" "EPOCHS", default: "depends on the length of an epoch and of the run" };
}

impl Setting {
    /// Every name of the key: its own, shorter ones and former ones.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        let others = self.short_keys.iter().chain(self.old_keys).copied();
        std::iter::once(self.key).chain(others)
    }
}

/// The setting with this key, or with this short or former key.
pub fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.keys().any(|name| name == key))
}

impl RunConfig {
    /// The config for a machine with this much memory. Of `by_memory`, it uses the table with the
    /// largest `at_least` that the machine reaches, or else the one with the smallest. A value
    /// outside of `by_memory` overrides the value of the table. A machine that reports a little
    /// less than its memory, as virtual ones do, still reaches its table.
    pub fn for_memory(self, total_bytes: u64) -> RunConfig {
        let total_bytes = total_bytes + total_bytes / 16;
        let reached = self.by_memory.iter();
        let reached = reached.filter(|tier| tier.at_least <= total_bytes);
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

    /// After how many steps several machines exchange their weights; `None` if they exchange their
    /// gradients in each step.
    pub fn steps_per_sync(&self) -> Option<u64> {
        self.sync_every.filter(|steps| *steps > 1)
    }

    /// This config, with the values of `base` for all absent keys. If this config has `epochs`, the
    /// `steps` of `base` are dropped, too.
    pub fn over(self, base: RunConfig) -> RunConfig {
        let steps = base.steps.filter(|_| self.epochs.is_none());
        self.filled_from(RunConfig { steps, ..base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What is wrong with a row of the table.
    fn faults(setting: &Setting) -> Vec<String> {
        let mut faults = Vec::new();
        let named = |what: &str| format!("{}: {what}", setting.key);
        if setting.help.trim().len() < 10 {
            faults.push(named("has no help"));
        }
        if setting.help.trim_end().ends_with('.') {
            faults.push(named("the help text ends in a full stop"));
        }
        if setting.default.is_empty() {
            faults.push(named("has no default"));
        }
        if setting.value.is_empty() {
            faults.push(named("has no placeholder"));
        }
        let empty = match setting.allowed {
            Allowed::Words(words) => words.is_empty(),
            Allowed::Integer(least, most) => least >= most,
            Allowed::Number(least, most) => least >= most,
            _ => false,
        };
        if empty {
            faults.push(named("allows nothing"));
        }
        faults
    }

    #[test]
    fn every_setting_has_help_a_default_and_a_range() {
        let faults: Vec<String> = SETTINGS.iter().flat_map(faults).collect();
        assert!(faults.is_empty(), "{faults:#?}");
        let bare = Setting {
            help: "",
            default: "",
            allowed: Allowed::Integer(2, 2),
            ..SETTINGS[0]
        };
        assert_eq!(super::tests::faults(&bare).len(), 3);
    }

    #[test]
    fn no_key_or_flag_means_two_settings() {
        let keys = SETTINGS.iter().flat_map(Setting::keys);
        let flags = SETTINGS
            .iter()
            .flat_map(|s| s.old_flags.iter().chain([&s.flag]).copied());
        let flags = flags.filter(|flag| !flag.is_empty());
        for all in [keys.collect::<Vec<_>>(), flags.collect()] {
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        }
    }

    #[test]
    fn every_setting_is_a_key_of_the_config() {
        let config: RunConfig = serde_json::from_str("{}").expect("every key may be absent");
        assert_eq!(config, RunConfig::default());
        for setting in SETTINGS {
            for key in setting.keys() {
                let unknown = serde_json::from_str::<RunConfig>(&format!("{{\"{key}\":null}}"));
                assert!(unknown.is_ok(), "{key}");
            }
        }
    }

    #[test]
    fn a_value_given_here_wins_and_epochs_replace_steps() {
        let base = RunConfig {
            steps: Some(9),
            seed: Some(1),
            ..RunConfig::default()
        };
        let typed = RunConfig {
            epochs: Some(2),
            seed: Some(3),
            ..RunConfig::default()
        };
        let both = typed.over(base);
        assert_eq!(
            (both.epochs, both.steps, both.seed),
            (Some(2), None, Some(3))
        );
    }
}
