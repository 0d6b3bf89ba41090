//! A checked config: every value is known, in range, and fits the folder. Parsed once, then trusted.

use crate::error::{Result, TrainError};
use crate::origin::{Origin, trains_name};
use crate::precision::Precision;
use crate::schedule::Course;
use crate::task::Balance;
use dataset::{Mix, TargetColumn, Task, Tokenizer};
use runlog::{Blocks, Every, RunConfig};
use std::path::PathBuf;
use std::sync::Arc;
use tape::device::{DevicePreference, default_threads, predict_device_kind};

mod choices;
mod image_size;
mod compression;
mod numbers;
mod subject;
mod network;

pub use choices::{Augmentation, Family, ModelKind, OptimizerKind, TextModel, TextSize};
pub use compression::{Compression, DropPolicy, Learning};
pub use image_size::ImageSize;
pub use subject::Dropped;

/// Everything a training does, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The dropped folder.
    pub folder: PathBuf,
    /// Its name, shown.
    pub name: String,
    /// Network.
    pub model: ModelKind,
    /// Side of the square image in pixels; of texts, most tokens.
    pub image_size: u32,
    /// Class names in label order; none of a language model.
    pub classes: Vec<String>,
    /// Numbers that are learnt from photographs, beside classes or alone.
    pub columns: Vec<TargetColumn>,
    /// How their losses are weighed against that of the classes.
    pub balance: Balance,
    /// How much each class counts; all alike where there are none.
    pub class_weights: Option<Vec<f64>>,
    /// Samples trained on.
    pub train_samples: u64,
    /// Samples held out.
    pub held_out_samples: u64,
    /// What texts take in memory as tokens, in bytes: those trained on and those held out. 0 where samples are decoded as they
    /// are needed.
    pub texts_bytes: u64,
    /// Samples a step.
    pub effective_batch: u32,
    /// The size of every piece, where the user fixed it.
    pub fixed_micro_batch: Option<u32>,
    /// Steps in all.
    pub steps: u64,
    /// The epochs that they follow from, where nobody named the steps themselves.
    pub epochs_asked: Option<u64>,
    /// ceil(train samples / effective batch).
    pub steps_per_epoch: u64,
    /// Optimizer.
    pub optimizer: OptimizerKind,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// How the learning rate goes.
    pub course: Course,
    /// Steps of warm-up.
    pub warmup_steps: u64,
    /// Label smoothing.
    pub label_smoothing: f64,
    /// Largest global gradient norm.
    pub clip_norm: f64,
    /// Decay of the moving average of the weights; none is kept where it is absent.
    pub ema_decay: Option<f64>,
    /// What a token compression is asked to do; nothing for other tasks.
    pub compression: Option<Compression>,
    /// Augmentation.
    pub augment: Augmentation,
    /// How photographs are mixed.
    pub mix: Mix,
    /// What pieces are computed in.
    pub precision: Precision,
    /// Blocks that keep their input only and run again in backward.
    pub checkpoint_blocks: u32,
    /// Device asked for.
    pub device: DevicePreference,
    /// Threads of the CPU kernels.
    pub threads: u32,
    /// Decoding workers, where the user chose; else by device.
    pub workers: Option<u32>,
    /// Largest footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// The same as a share of all memory; the smaller of the two counts.
    pub memory_cap_fraction: Option<f64>,
    /// Where the budget line stands, as a share of all memory.
    pub politeness: Option<f64>,
    /// Longest time that the run may be parked before it ends, in milliseconds, where the user set one.
    pub parked_most_ms: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
    /// Train on this many samples only.
    pub dev_samples: Option<u64>,
    /// Rhythm of checkpoints.
    pub checkpoint_every: Every,
    /// Epochs between evaluations.
    pub evaluate_every_epochs: u64,
    /// Published weights that it begins with; absent, they are drawn anew.
    pub origin: Option<Arc<Origin>>,
    /// The config with every choice filled in, for the run folder.
    pub config: RunConfig,
}

impl Plan {
    /// Checks a config against what the folder holds and fills in what the user left open.
    ///
    /// # Errors
    /// The first value that does not work, with what would; a folder that cannot be trained, with why.
    pub fn check<'d>(config: &RunConfig, data: impl Into<Dropped<'d>>) -> Result<Plan> {
        config.validate()?;
        // Who knows the machine's memory has chosen a tier before.
        let config = &match config.by_memory.is_empty() {
            true => config.clone(),
            false => config.clone().for_memory(0),
        };
        let data = data.into();
        data.allowed()?;
        let task = data.task_of(config)?.name();
        let optimizers = OptimizerKind::ALL.map(|o| (o.name(), o));
        let optimizer = chosen(
            "optimizer",
            config.optimizer.as_deref().unwrap_or("adamw"),
            &optimizers,
        )?;
        let augments = Augmentation::ALL.map(|a| (a.name(), a));
        let augment = config.augment.as_deref();
        let augment = augment.map(|augment| chosen("augment", augment, &augments));
        let augment = augment.transpose()?;
        let precision = chosen(
            "precision",
            config.precision.as_deref().unwrap_or("f32"),
            &Precision::ALL.map(|p| (p.name(), p)),
        )?;
        let devices = [
            ("auto", DevicePreference::Auto),
            ("metal", DevicePreference::Metal),
            ("cuda", DevicePreference::Cuda),
            ("cpu", DevicePreference::Cpu),
        ];
        let usual = if precision == Precision::F64 {
            "cpu"
        } else {
            "auto"
        };
        let device = chosen(
            "device",
            config.device.as_deref().unwrap_or(usual),
            &devices,
        )?;
        if precision == Precision::F64 && device != DevicePreference::Cpu {
            return Err(setting(
                "precision",
                precision.name(),
                "f64 runs on the CPU only; add --device cpu",
            ));
        }
        let origin = Origin::of(config)?;
        if let Some(origin) = &origin {
            origin.fits(data.task())?;
        }
        let subject = data.subject(config, predict_device_kind(device), origin.as_ref())?;
        let (model, train_samples) = (subject.model, subject.train_samples);
        let effective_batch = config.effective_batch.unwrap_or(subject.effective_batch);
        let effective_batch = effective_batch.min(train_samples.max(1) as u32);
        let steps_per_epoch = train_samples.div_ceil(u64::from(effective_batch));
        let epochs = config.epochs.unwrap_or(subject.epochs);
        let steps = config.steps.unwrap_or(epochs * steps_per_epoch);
        let rate = numbers::usual_rate(optimizer, origin.as_ref());
        let checkpoint_every = config.checkpoint_every.as_deref().unwrap_or("10min");
        let warmup = config.warmup_fraction.unwrap_or(0.05);
        let mix = numbers::mix(config, data.task(), &subject.columns)?;
        let mut plan = Plan {
            folder: subject.folder,
            name: subject.name,
            model,
            image_size: subject.resolution,
            classes: subject.classes,
            balance: numbers::balance(config, &subject.columns)?,
            columns: subject.columns,
            class_weights: subject.class_weights,
            train_samples,
            held_out_samples: subject.held_out_samples,
            texts_bytes: subject.texts_bytes,
            effective_batch,
            fixed_micro_batch: config.micro_batch,
            steps,
            epochs_asked: config.steps.is_none().then_some(epochs),
            steps_per_epoch,
            optimizer,
            learning_rate: config.learning_rate.unwrap_or(rate),
            weight_decay: config.weight_decay.unwrap_or(0.05),
            course: numbers::course(config)?,
            warmup_steps: warmup_steps(steps, warmup),
            label_smoothing: config.label_smoothing.unwrap_or(subject.label_smoothing),
            clip_norm: config.clip_norm.unwrap_or(1.0),
            ema_decay: config.ema_decay,
            compression: subject.compression.map(|compression| Compression {
                steps,
                ..compression
            }),
            augment: augment.unwrap_or(subject.augment),
            mix,
            precision,
            checkpoint_blocks: 0,
            device,
            threads: config.threads.unwrap_or(default_threads() as u32),
            workers: config.workers,
            memory_cap_bytes: config.memory_cap_bytes,
            memory_cap_fraction: config.memory_cap_fraction,
            politeness: config.politeness,
            parked_most_ms: config.parked_most_minutes.map(|minutes| minutes * 60_000),
            seed: config.seed.unwrap_or(subject.seed),
            dev_samples: config.dev_samples,
            checkpoint_every: Every::parse(checkpoint_every)?,
            evaluate_every_epochs: config
                .evaluate_every_epochs
                .unwrap_or((steps / steps_per_epoch.max(1) / 30).max(1)),
            origin: origin.map(Arc::new),
            config: RunConfig::default(),
        };
        let blocks = plan.blocks_of(model, plan.image_size);
        plan.checkpoint_blocks = checkpoint_blocks(config.checkpoint_blocks, model, blocks)?;
        plan.config = plan.filled_in(config, task, checkpoint_every, warmup);
        Ok(plan)
    }

    /// What is learnt.
    pub fn task(&self) -> Task {
        self.model.task()
    }

    /// Side of the image in pixels, where samples are images.
    fn image_side(&self) -> Option<u32> {
        let is_image = self.task() == Task::ImageClassification;
        is_image.then_some(self.image_size)
    }

    /// Most tokens of the vocabulary that is learnt from the texts, where one is.
    pub(crate) fn learnt_vocabulary(&self) -> Option<u32> {
        let vocabulary = self.text_model()?.vocabulary;
        (vocabulary as usize != Tokenizer::bytes().vocabulary()).then_some(vocabulary)
    }

    /// The same plan for so many samples, now that they were counted: those trained on, and those held out.
    #[must_use]
    pub(crate) fn counted(mut self, (train, held_out): (u64, u64)) -> Self {
        if (self.train_samples, self.held_out_samples) == (train, held_out) {
            return self;
        }
        (self.train_samples, self.held_out_samples) = (train, held_out);
        self.effective_batch = self.effective_batch.min(train.max(1) as u32);
        self.steps_per_epoch = train.div_ceil(u64::from(self.effective_batch));
        if let Some(epochs) = self.epochs_asked {
            self.steps = epochs * self.steps_per_epoch;
            let warmup = self.config.warmup_fraction.unwrap_or_default();
            self.warmup_steps = warmup_steps(self.steps, warmup);
        }
        self.config.effective_batch = Some(self.effective_batch);
        self.config.steps = Some(self.steps);
        self
    }

    /// Ebb's own network, where samples are texts.
    pub fn text_model(&self) -> Option<TextModel> {
        match self.model {
            ModelKind::Texts(model) => Some(model),
            ModelKind::ConvNet
            | ModelKind::VitMicro
            | ModelKind::Images(_)
            | ModelKind::Published(_) => None,
        }
    }

    /// What the summed loss of a sample is divided by: the tokens of a window, else 1.
    pub fn targets(&self) -> u32 {
        match self.task() {
            Task::LanguageModel | Task::TokenCompression => self.image_size,
            Task::ImageClassification | Task::TextClassification => 1,
        }
    }

    /// What the pilot counts a sample's cost in: pixels of an image, tokens of the longest text.
    pub fn sample_cost(&self) -> u64 {
        self.image_side()
            .map_or(u64::from(self.image_size), |side| u64::from(side).pow(2))
    }

    /// Epochs planned, the last one perhaps cut short by `--steps`.
    pub fn epochs(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_epoch.max(1))
    }

    /// The config with every choice that must not change on resume.
    fn filled_in(
        &self,
        asked: &RunConfig,
        task: &str,
        checkpoint_every: &str,
        warmup: f64,
    ) -> RunConfig {
        RunConfig {
            folder: Some(self.folder.clone()),
            task: Some(task.to_owned()),
            model: Some(self.model.name().to_owned()),
            image_size: self.image_side(),
            tokens: (self.task() != Task::ImageClassification).then_some(self.image_size),
            train_only: self
                .origin
                .as_ref()
                .map(|origin| trains_name(origin.tuning().trains)),
            adapter_alpha: self
                .origin
                .as_ref()
                .and_then(|origin| Some(origin.tuning().adapter?.alpha)),
            vocabulary: self.learnt_vocabulary(),
            policy: self.compression.map(|c| c.policy.name().to_owned()),
            policy_learning: self.compression.map(|c| c.learning.name().to_owned()),
            kept_fraction: self.compression.and_then(|c| c.kept_fraction),
            kept_cost: self.compression.map(|c| c.kept_cost),
            temperature: self.compression.map(|c| c.temperature.0),
            last_temperature: self.compression.map(|c| c.temperature.1),
            steps: Some(self.steps),
            effective_batch: Some(self.effective_batch),
            optimizer: Some(self.optimizer.name().to_owned()),
            learning_rate: Some(self.learning_rate),
            weight_decay: Some(self.weight_decay),
            warmup_fraction: Some(warmup),
            label_smoothing: Some(self.label_smoothing),
            clip_norm: Some(self.clip_norm),
            augment: Some(self.augment.name().to_owned()),
            precision: Some(self.precision.name().to_owned()),
            checkpoint_blocks: Some(Blocks::Count(self.checkpoint_blocks)),
            seed: Some(self.seed),
            checkpoint_every: Some(checkpoint_every.to_owned()),
            evaluate_every_epochs: Some(self.evaluate_every_epochs),
            ..asked.clone()
        }
    }
}

fn setting(key: &'static str, value: impl ToString, allowed: impl ToString) -> TrainError {
    TrainError::Setting {
        key,
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

fn chosen<T: Copy>(key: &'static str, value: &str, choices: &[(&str, T)]) -> Result<T> {
    let found = choices
        .iter()
        .find(|(name, _)| *name == value)
        .map(|(_, choice)| *choice);
    found.ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        setting(key, value, format!("choose {}", names.join(" or ")))
    })
}

fn warmup_steps(steps: u64, fraction: f64) -> u64 {
    ((steps as f64 * fraction) as u64).clamp(1, steps.max(1))
}

fn image_size(asked: Option<u32>, model: ModelKind, usual: (u32, u32)) -> Result<u32> {
    let (usual, multiple) = usual;
    let size = asked.unwrap_or(usual);
    if !size.is_multiple_of(multiple) {
        let allowed = format!(
            "{} needs a multiple of {multiple}, {} for instance",
            model.label(),
            size.next_multiple_of(multiple)
        );
        return Err(setting("image_size", size, allowed));
    }
    Ok(size)
}

fn checkpoint_blocks(asked: Option<Blocks>, model: ModelKind, blocks: u32) -> Result<u32> {
    let asked = asked.unwrap_or(Blocks::Count(0));
    asked.of(blocks).ok_or_else(|| {
        let allowed = format!(
            "{} has {blocks} blocks; write 0 to {blocks}, or all",
            model.label()
        );
        setting("checkpoint_blocks", asked, allowed)
    })
}
