//! Resolves a config into a plan: checks it against a dataset and fills in what the user left open.

use super::dataset_defaults::DatasetDefaults;
use super::hyperparameters::{self, warmup_steps};
use super::setting_errors::invalid_setting;
use super::{
    Augmentation, Compression, ConversationOptions, DatasetRef, Plan, augmentation, limited_steps,
    mean_samples,
};
use crate::error::Result;
use crate::optimizer::OptimizerKind;
use crate::precision::Precision;
use crate::pretrained;
use crate::prompt_choice::PromptChoice;
use crate::task_conversion::task_choice;
use dataset::Task;
use models::{ModelId, Pretrained};
use pressure::PowerPolicyMode;
use runlog::{
    BaselineChoice, CheckpointBlocks, CheckpointInterval, ClassWeights, DeviceChoice,
    ExchangeChoice, PowerPolicyChoice, PrecisionChoice, RunConfig, ShardingChoice,
};
use std::sync::Arc;
use tape::device::{DevicePreference, default_threads, predict_device_kind, select_device};

/// Preferences take a lower learning rate than conversations, by this factor: with a higher one,
/// the probabilities of both answers fall.
const PREFERENCE_RATE: f64 = 0.05;

/// Choices of a config that do not depend on the dataset.
struct NamedChoices {
    optimizer: OptimizerKind,
    augment: Option<Augmentation>,
    precision: Precision,
    device: DevicePreference,
}

impl NamedChoices {
    fn from_config(config: &RunConfig) -> Result<Self> {
        let precision = Precision::from(config.precision.unwrap_or(PrecisionChoice::F32));
        let is_double = precision == Precision::F64;
        let default = if is_double {
            DeviceChoice::Cpu
        } else {
            DeviceChoice::Auto
        };
        let device = Plan::device_preference(config.device.unwrap_or(default));
        if is_double && device != DevicePreference::Cpu {
            let allowed = "f64 runs on the CPU only; add --device cpu";
            return Err(invalid_setting("precision", precision.name(), allowed));
        }
        check_exchange(config.exchange, precision)?;
        let optimizer = config.optimizer.unwrap_or(OptimizerKind::AdamW);
        check_sync_every(config, optimizer, precision)?;
        Ok(NamedChoices {
            optimizer,
            augment: config.augment,
            precision,
            device,
        })
    }
}

/// The samples per step and the steps per epoch. A limit in tokens decides them with the estimated
/// number of tokens, which are counted once the texts are tokenized.
fn step_size(config: &RunConfig, defaults: &DatasetDefaults) -> (u32, u64) {
    let samples = defaults.train_samples;
    if let Some(most) = config.effective_batch_tokens {
        let steps = defaults.train_tokens.div_ceil(u64::from(most));
        let steps = steps.clamp(1, samples.max(1));
        return (mean_samples(samples, steps), steps);
    }
    let effective_batch = config.effective_batch.unwrap_or(defaults.effective_batch);
    let effective_batch = effective_batch.min(samples.max(1) as u32);
    (
        effective_batch,
        samples.div_ceil(u64::from(effective_batch)),
    )
}

impl Plan {
    /// The tape's name for a choice of device.
    pub fn device_preference(choice: DeviceChoice) -> DevicePreference {
        match choice {
            DeviceChoice::Auto => DevicePreference::Auto,
            DeviceChoice::Metal => DevicePreference::Metal,
            DeviceChoice::Cuda => DevicePreference::Cuda,
            DeviceChoice::Cpu => DevicePreference::Cpu,
        }
    }

    /// Resolves a config: checks it against a dataset and fills in what the user left open.
    ///
    /// # Errors
    /// The first setting that does not work, with the values that do; or why the dataset cannot be
    /// trained on.
    pub fn resolve<'d>(config: &RunConfig, data: impl Into<DatasetRef<'d>>) -> Result<Plan> {
        config.validate()?;
        // Callers that know the machine's memory have chosen a tier already.
        let config = &if config.by_memory.is_empty() {
            config.clone()
        } else {
            config.clone().for_memory(0)
        };
        let data = data.into();
        data.expect_trainable()?;
        let task = data.configured_task(config)?;
        let choices = NamedChoices::from_config(config)?;
        check_prompts(config, data.task())?;
        let pretrained = pretrained::open(config)?;
        if let Some(pretrained) = &pretrained {
            pretrained::check_task(pretrained, data.task())?;
        }
        let mut plan = Plan::assemble(config, data, &choices, pretrained)?;
        let blocks = plan.blocks_of(plan.model);
        plan.checkpoint_blocks = checkpoint_blocks(config.checkpoint_blocks, plan.model, blocks)?;
        plan.config = plan.complete_config(config, task);
        Ok(plan)
    }

    /// A plan without its checkpointed blocks and its complete config.
    // tidy: table
    fn assemble(
        config: &RunConfig,
        data: DatasetRef,
        choices: &NamedChoices,
        pretrained: Option<Pretrained>,
    ) -> Result<Plan> {
        let defaults = data.defaults(
            config,
            predict_device_kind(choices.device),
            pretrained.as_ref(),
        )?;
        let train_samples = defaults.train_samples;
        let (effective_batch, steps_per_epoch) = step_size(config, &defaults);
        let epochs = config.epochs.unwrap_or(defaults.epochs);
        let is_default_length = config.steps.is_none() && config.epochs.is_none();
        let max_samples_seen = defaults.max_samples_seen.filter(|_| is_default_length);
        let all_steps = epochs * steps_per_epoch;
        let all_steps = limited_steps(all_steps, max_samples_seen, effective_batch);
        let steps = config.steps.unwrap_or(all_steps);
        let rate = hyperparameters::default_rate(choices.optimizer, pretrained.as_ref());
        let rate = rate * defaults.preference_beta.map_or(1.0, |_| PREFERENCE_RATE);
        let mix = config.mix.unwrap_or(defaults.mix);
        let mix = hyperparameters::mix(mix, data.task(), &defaults.columns)?;
        Ok(Plan {
            folder: defaults.folder,
            name: defaults.name,
            model: defaults.model,
            input_size: defaults.input_size,
            classes: defaults.classes,
            balance: hyperparameters::balance(config, &defaults.columns)?,
            columns: defaults.columns,
            class_weights: defaults.class_weights,
            train_samples,
            held_out_samples: defaults.held_out_samples,
            held_out_copies: 0,
            texts_bytes: defaults.texts_bytes,
            effective_batch,
            effective_batch_tokens: config.effective_batch_tokens,
            fixed_micro_batch: config.micro_batch,
            steps,
            requested_epochs: config.steps.is_none().then_some(epochs),
            max_samples_seen,
            steps_per_epoch,
            optimizer: choices.optimizer,
            learning_rate: config.learning_rate.unwrap_or(rate),
            weight_decay: config.weight_decay.unwrap_or(0.05),
            lr_schedule: hyperparameters::lr_schedule(config),
            warmup_steps: warmup_steps(steps, warmup_fraction(config)),
            label_smoothing: config.label_smoothing.unwrap_or(defaults.label_smoothing),
            token_dropout: config.token_dropout.unwrap_or(0.0),
            clip_norm: config.clip_norm.unwrap_or(1.0),
            ema_decay: config
                .ema_decay
                .or(defaults.ema_decay)
                .filter(|decay| *decay > 0.0),
            conversations: defaults.conversations,
            preference_beta: defaults.preference_beta,
            compression: defaults.compression.map(|compression| Compression {
                steps,
                ..compression
            }),
            augment: choices.augment.unwrap_or(defaults.augment),
            mix,
            precision: choices.precision,
            checkpoint_blocks: 0,
            device: choices.device,
            threads: config.threads.unwrap_or(default_threads() as u32),
            workers: config.workers,
            memory_cap_bytes: config.memory_cap_bytes,
            memory_cap_fraction: config.memory_cap_fraction,
            whole_state: None,
            max_system_fraction: config.max_system_fraction,
            max_suspended_ms: config.max_suspended_minutes.map(|minutes| minutes * 60_000),
            courtesy: courtesy(config.courtesy),
            seed: config.seed.unwrap_or(defaults.seed),
            dev_samples: config.dev_samples,
            checkpoint_every: checkpoint_every(config),
            keep_checkpoints: config.keep_checkpoints.unwrap_or(2) as usize,
            keep_every: config.keep_every,
            evaluate_every_epochs: config.evaluate_every_epochs,
            pretrained: pretrained.map(Arc::new),
            config: RunConfig::default(),
        })
    }

    /// The config with every choice that must not change on resume.
    fn complete_config(&self, asked: &RunConfig, task: Task) -> RunConfig {
        let pretrained = self.pretrained.as_ref();
        let tuning = pretrained.map(|pretrained| pretrained.tuning());
        let weights = self.class_weights.as_ref();
        let balanced = weights.map(|_| ClassWeights::Balanced);
        let (compression, is_image) = (self.compression, self.task() == Task::ImageClassification);
        RunConfig {
            folder: Some(self.folder.clone()),
            task: Some(task_choice(task)),
            model: Some(self.model.name().to_owned()),
            image_size: self.image_side(),
            tokens: (self.task() != Task::ImageClassification).then_some(self.input_size),
            train_only: tuning.map(|tuning| pretrained::trainable_layers(tuning.trained)),
            adapter_alpha: tuning.and_then(|tuning| Some(tuning.adapter?.alpha)),
            loss_on: self.conversations.map(ConversationOptions::loss_on),
            packing: self.conversations.map(ConversationOptions::packing),
            length_buckets: self.conversations.map(ConversationOptions::length_buckets),
            preference_beta: self.preference_beta,
            vocabulary: self.learned_vocabulary(),
            policy: compression.and_then(|c| c.policy.name().parse().ok()),
            policy_training: compression.map(|c| c.learning),
            keep_fraction: compression.and_then(|c| c.keep_fraction),
            keep_cost: compression.map(|c| c.keep_cost),
            temperature: compression.map(|c| c.temperature.0),
            final_temperature: compression.map(|c| c.temperature.1),
            steps: Some(self.steps),
            effective_batch: self.effective_batch_setting(),
            optimizer: Some(self.optimizer),
            learning_rate: Some(self.learning_rate),
            weight_decay: Some(self.weight_decay),
            warmup_fraction: Some(warmup_fraction(asked)),
            label_smoothing: Some(self.label_smoothing),
            class_weights: balanced.or(asked.class_weights),
            token_dropout: (self.task() == Task::TextClassification).then_some(self.token_dropout),
            baseline: match self.task() {
                Task::TextClassification | Task::ImageClassification => {
                    asked.baseline.or(Some(BaselineChoice::Combined))
                }
                _ => asked.baseline,
            },
            clip_norm: Some(self.clip_norm),
            augment: Some(self.augment),
            mix: if is_image {
                Some(augmentation::mix_choice(self.mix))
            } else {
                asked.mix
            },
            ema_decay: if is_image {
                Some(self.ema_decay.unwrap_or(0.0))
            } else {
                asked.ema_decay
            },
            precision: Some(self.precision.into()),
            checkpoint_blocks: Some(CheckpointBlocks::Count(self.checkpoint_blocks)),
            seed: Some(self.seed),
            checkpoint_every: Some(checkpoint_every(asked)),
            ..asked.clone()
        }
    }

    /// Whether the machines of a group exchange gradients in bf16.
    pub(crate) fn exchanges_in_bf16(&self) -> bool {
        self.config.exchange == Some(ExchangeChoice::Bf16)
    }

    /// After how many steps the machines of a group exchange their weights; `None` if they exchange
    /// their gradients in each step.
    pub(crate) fn sync_every(&self) -> Option<u64> {
        self.config.steps_per_sync()
    }

    /// What the machines of a group have in parts.
    pub(crate) fn sharding(&self) -> ShardingChoice {
        self.config.sharding.unwrap_or(ShardingChoice::Auto)
    }

    /// Refuses what cannot be trained before anything of a run is created: preferences without
    /// adapters, and a half precision on the CPU. If the prediction of the device is wrong, the run
    /// is refused when it starts.
    ///
    /// # Errors
    /// The data are preferences, but the network has no adapters. Or the precision is half, the
    /// device can only be the CPU, and the user did not ask for the CPU by name.
    pub fn check_start(&self) -> Result<()> {
        let tuning = self.pretrained.as_ref().map(|it| it.tuning());
        if self.preference_beta.is_some() && tuning.is_none_or(|it| it.adapter.is_none()) {
            let (key, allowed) = if tuning.is_some() {
                (
                    "adapter_rank",
                    "preferences need adapters, because Ebb compares the model with the same model without adapters; add --adapter RANK",
                )
            } else {
                (
                    "from",
                    "preferences need a pretrained model with adapters; add --from MODEL --adapter RANK",
                )
            };
            return Err(invalid_setting(key, "none", allowed));
        }
        if self.precision.is_half() && predict_device_kind(self.device) == crate::DeviceKind::Cpu {
            self.precision
                .device_warning(&select_device(self.device)?, self.device)?;
        }
        Ok(())
    }
}

/// Refuses prompts that cannot be read, or that no model answers.
fn check_prompts(config: &RunConfig, task: Task) -> Result<()> {
    match (PromptChoice::from_config(config)?, &config.prompts) {
        (PromptChoice::Texts(_), Some(file)) if task != Task::LanguageModel => {
            let allowed = "only language models answer prompts; remove this setting";
            Err(invalid_setting("prompts", file.display(), allowed))
        }
        _ => Ok(()),
    }
}

/// Refuses to exchange gradients in bf16 if their precision is for proofs, or if a loss scale that
/// changes between steps would also change the unit of the rounding errors.
fn check_exchange(exchange: Option<ExchangeChoice>, precision: Precision) -> Result<()> {
    let allows_bf16 = matches!(precision, Precision::F32 | Precision::Bf16);
    if exchange == Some(ExchangeChoice::Bf16) && !allows_bf16 {
        let allowed = format!(
            "with --precision {}, machines exchange gradients in f32 only",
            precision.name()
        );
        return Err(invalid_setting("exchange", ExchangeChoice::Bf16, allowed));
    }
    Ok(())
}

/// Refuses what has no meaning if machines exchange weights only every few steps, and what their
/// means would not have.
fn check_sync_every(
    config: &RunConfig,
    optimizer: OptimizerKind,
    precision: Precision,
) -> Result<()> {
    let Some(steps) = config.steps_per_sync() else {
        return Ok(());
    };
    let problem = if config.exchange == Some(ExchangeChoice::Bf16) {
        "machines that synchronize every few steps exchange no gradients; leave out --exchange bf16"
    } else if config.sharding == Some(ShardingChoice::Optimizer) {
        "if machines synchronize every few steps, each needs the whole optimizer state; leave out --sharding optimizer"
    } else if precision.loss_scale().is_some() {
        "the loss scale of --precision f16 would differ between machines; use --precision f32 or bf16"
    } else if optimizer == OptimizerKind::AdamW8bit {
        "the rounded moments of --optimizer adamw8bit cannot be averaged; use --optimizer adamw, lion or sgd"
    } else {
        return Ok(());
    };
    Err(invalid_setting("sync_every", steps, problem))
}

/// When training rests, by the setting.
pub(crate) fn courtesy(setting: Option<PowerPolicyChoice>) -> PowerPolicyMode {
    match setting.unwrap_or(PowerPolicyChoice::Auto) {
        PowerPolicyChoice::Auto => PowerPolicyMode::Auto,
        PowerPolicyChoice::Always => PowerPolicyMode::Always,
        PowerPolicyChoice::Off => PowerPolicyMode::Off,
    }
}

fn warmup_fraction(config: &RunConfig) -> f64 {
    config.warmup_fraction.unwrap_or(0.05)
}

fn checkpoint_every(config: &RunConfig) -> CheckpointInterval {
    let default = CheckpointInterval::Automatic;
    config.checkpoint_every.unwrap_or(default)
}

fn checkpoint_blocks(asked: Option<CheckpointBlocks>, model: ModelId, blocks: u32) -> Result<u32> {
    let asked = asked.unwrap_or(CheckpointBlocks::Count(0));
    asked.resolve(blocks).ok_or_else(|| {
        let allowed = format!(
            "{} has {blocks} blocks; write a number from 0 to {blocks}, or all",
            model.label()
        );
        invalid_setting("checkpoint_blocks", asked, allowed)
    })
}
