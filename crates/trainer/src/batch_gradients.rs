//! Gradients of one effective batch of a run or a folder, computed as training computes them. The
//! split check compares them over different splits.

use crate::checkpoint::{self, OptimizerState};
use crate::data::{PrefetchOptions, TrainLoader};
use crate::device_check::checked_device;
use crate::error::{Result, TrainError};
use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::pretrained::config_of;
use crate::sample_manifest;
use crate::task::{ForwardContext, ImageTask, MicroBatchResult, Sample, Task, with_task};
use crate::threads::on_threads;
use crate::train::with_sample_counts;
use crate::train_state::TrainState;
use dataset::ImageInspection;
use runlog::{DeviceChoice, PrecisionChoice, RunConfig, RunFolder, format_count};
use serde::Serialize;
use std::ops::Range;
use tape::device::{DevicePreference, SelectedDevice, convert, with_autorelease_pool};
use tape::{Cancel, Parameters};

/// Element type of the weights and of the computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum ElementType {
    /// As in training.
    #[default]
    #[serde(rename = "f32")]
    Single,
    /// f64, which separates rounding from a wrong gradient. CPU only.
    #[serde(rename = "f64")]
    Double,
}

impl ElementType {
    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            ElementType::Single => "f32",
            ElementType::Double => "f64",
        }
    }
}

/// How the batch is chosen and computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchSettings {
    /// Samples of the effective batch; `None` for as many as the run trains with.
    pub effective_batch: Option<u32>,
    /// A run in f64 stays in f64.
    pub element_type: ElementType,
    /// f64 needs the CPU.
    pub device: DevicePreference,
}

/// The samples of one effective batch, of any task.
struct Batch {
    len: usize,
    gradients: RangeGradients,
}

/// The gradients of a range of samples.
type RangeGradients = Box<dyn Fn(&ForwardContext, Range<usize>) -> Result<MicroBatchResult>>;

impl Batch {
    fn new<S: Sample + 'static>(samples: Vec<S>) -> Self {
        Batch {
            len: samples.len(),
            gradients: Box::new(move |context, range| context.gradients(&samples[range])),
        }
    }
}

/// A network with weights, and the samples of one effective batch.
pub struct BatchGradients {
    learner: TrainState,
    batch: Batch,
    /// The folder's name, or the run's id and its step.
    pub subject: String,
    /// `metal`, `cuda` or `cpu`.
    pub device: &'static str,
    /// The one asked for, or f64 for a run in f64.
    pub element_type: ElementType,
    /// One sentence for each damaged checkpoint and each file that could not be read.
    pub notes: Vec<String>,
}

impl BatchGradients {
    /// Passes `work` the newest good weights of a run and the first effective batch of its current
    /// epoch.
    ///
    /// # Errors
    /// The run has no good checkpoint, its data have moved, the settings are refused, or `work`
    /// fails.
    pub fn with_run<R: Send>(
        run: &RunFolder,
        settings: &BatchSettings,
        machine: &Machine,
        work: impl FnOnce(&BatchGradients) -> Result<R> + Send,
    ) -> Result<R> {
        let found = sample_manifest::read(run)?;
        let trained = Plan::resolve(&settings.with_device(config_of(run)?), &found)?;
        let plan = Plan::resolve(&settings.config(config_of(run)?), &found)?;
        on_threads(plan.threads as usize, || {
            let chosen = checked_device(plan.device, machine.device_check_path.as_deref())?;
            let (loaded, damaged) = checkpoint::newest(run)?;
            let mut learner = TrainState::new(&trained, &chosen.device)?;
            with_autorelease_pool(|| {
                checkpoint::load(&loaded, &mut learner, OptimizerState::Skip)
            })?;
            if plan.config.precision != trained.config.precision {
                learner = converted(&learner.parameters, &plan, &chosen)?;
            }
            let step = loaded.state.step;
            let (plan, first, batch, unread) = with_task!(plan.task(), T => {
                let data = T::open(&plan, &found, run)?;
                let plan = with_sample_counts::<T>(plan, &data);
                let last = step.min(plan.steps.saturating_sub(1));
                let first = last - last % plan.steps_per_epoch.max(1);
                let (samples, unread) = samples::<T>(&plan, &data, first)?;
                (plan, first, Batch::new(samples), unread)
            });
            learner.optimizer.unload();
            learner.begin_step(first);
            work(&BatchGradients {
                learner,
                batch,
                subject: format!("{} at step {}", run.id(), format_count(step)),
                device: chosen.kind.name(),
                element_type: element_type(&plan),
                notes: damaged.into_iter().chain(unread).collect(),
            })
        })
    }

    /// Passes `work` a new network and the first effective batch of a folder of images.
    ///
    /// # Errors
    /// Not one sample can be read, the settings are refused, or `work` fails.
    pub fn with_folder<R: Send>(
        inspection: &ImageInspection,
        settings: &BatchSettings,
        machine: &Machine,
        work: impl FnOnce(&BatchGradients) -> Result<R> + Send,
    ) -> Result<R> {
        let plan = Plan::resolve(&settings.config(RunConfig::default()), inspection)?;
        on_threads(plan.threads as usize, || {
            let chosen = checked_device(plan.device, machine.device_check_path.as_deref())?;
            let mut learner = TrainState::new(&plan, &chosen.device)?;
            let (samples, notes) = samples::<ImageTask>(&plan, inspection, 0)?;
            let batch = Batch::new(samples);
            learner.optimizer.unload();
            work(&BatchGradients {
                learner,
                batch,
                subject: plan.name.clone(),
                device: chosen.kind.name(),
                element_type: element_type(&plan),
                notes,
            })
        })
    }

    /// Trained parameters, in the order of the gradients.
    pub fn parameters(&self) -> &Parameters {
        &self.learner.parameters
    }

    /// Number of samples of the effective batch.
    pub fn samples(&self) -> usize {
        self.batch.len
    }

    /// The summed gradients of a range of the samples, as one micro-batch.
    ///
    /// # Errors
    /// The device has too little memory or fails.
    pub fn gradients(&self, range: Range<usize>) -> Result<MicroBatchResult> {
        let context = self.learner.forward_context(Cancel::default());
        with_autorelease_pool(|| (self.batch.gradients)(&context, range))
    }
}

/// Copies the weights into a network with the element type of `plan`.
fn converted(weights: &Parameters, plan: &Plan, chosen: &SelectedDevice) -> Result<TrainState> {
    let mut learner = TrainState::new(plan, &chosen.device)?;
    for (index, weight) in weights.iter().enumerate() {
        let dtype = learner.parameters.at(index).tensor.dtype();
        let weight = convert(&weight.tensor, dtype)?;
        learner.parameters.set(index, weight)?;
    }
    Ok(learner)
}

fn element_type(plan: &Plan) -> ElementType {
    match plan.config.precision {
        Some(PrecisionChoice::F64) => ElementType::Double,
        _ => ElementType::Single,
    }
}

/// The samples of a step as training sees them, and a sentence for each file that could not be
/// read.
fn samples<T: Task>(
    plan: &Plan,
    data: &T::Data,
    step: u64,
) -> Result<(Vec<T::Sample>, Vec<String>)> {
    let ahead = PrefetchOptions {
        cache_bytes: 0,
        ..PrefetchOptions::new(plan, 0, 0)
    };
    let mut loader = T::train_loader(plan, data, ahead, step);
    let count = loader.begin(step);
    let (mut samples, mut notes) = (Vec::with_capacity(count), Vec::new());
    for arrived in loader.fetch(count) {
        match arrived {
            Ok(sample) => samples.push(sample),
            Err(error) => notes.push(format!(
                "skipped {}: {}",
                error.file.display(),
                error.reason
            )),
        }
    }
    if samples.is_empty() {
        let folder = plan.folder.clone();
        return Err(TrainError::NoData { step, folder });
    }
    Ok((samples, notes))
}

impl BatchSettings {
    /// Sets the device: the user's choice, else the CPU for f64, else the config's choice.
    fn with_device(&self, mut config: RunConfig) -> RunConfig {
        config.device = match self.device {
            DevicePreference::Metal => Some(DeviceChoice::Metal),
            DevicePreference::Cuda => Some(DeviceChoice::Cuda),
            DevicePreference::Cpu => Some(DeviceChoice::Cpu),
            DevicePreference::Auto if self.element_type_for(&config) == ElementType::Double => {
                Some(DeviceChoice::Cpu)
            }
            DevicePreference::Auto => config.device,
        };
        config
    }

    fn config(&self, config: RunConfig) -> RunConfig {
        let mut config = self.with_device(config);
        if self.effective_batch.is_some() {
            config.effective_batch = self.effective_batch;
            config.effective_batch_tokens = None;
        }
        config.precision = Some(match self.element_type_for(&config) {
            ElementType::Single => PrecisionChoice::F32,
            ElementType::Double => PrecisionChoice::F64,
        });
        config
    }

    fn element_type_for(&self, config: &RunConfig) -> ElementType {
        match config.precision {
            Some(PrecisionChoice::F64) => ElementType::Double,
            _ => self.element_type,
        }
    }
}
