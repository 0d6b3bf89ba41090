//! Gradients of one effective batch of a run or a folder, computed as training computes them. The
//! split check compares them over different splits.
//!
//! Refuses to know splits and what is compared.

use crate::checkpoint::{self, Moments};
use crate::device_check::checked_device;
use crate::error::{Result, TrainError};
use crate::feed::Ahead;
use crate::learner::Learner;
use crate::machine::Machine;
use crate::origin::config_of;
use crate::plan::Plan;
use crate::roster;
use crate::task::{Data, Sample, Supply, TrainedPiece};
use crate::train::{counted, on_threads};
use dataset::Inspection;
use runlog::{RunConfig, RunFolder, format_count};
use serde::Serialize;
use std::ops::Range;
use tape::device::{Chosen, Wanted, piece_scope};
use tape::{Cancel, Parameters};

/// Element type of the weights and of the computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum ElementType {
    /// As in training.
    #[default]
    #[serde(rename = "f32")]
    Single,
    /// Tells rounding from a broken split law. CPU only.
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
    pub device: Wanted,
}

/// A network with weights, and the samples of one effective batch.
pub struct BatchGradients {
    learner: Learner,
    samples: Vec<Sample>,
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
        let found = roster::read(run)?;
        let trained = Plan::check(&settings.with_device(config_of(run)?), &found)?;
        let plan = Plan::check(&settings.config(config_of(run)?), &found)?;
        on_threads(plan.threads as usize, || {
            let chosen = checked_device(plan.device, machine.device_check_path.as_deref())?;
            let (loaded, damaged) = checkpoint::newest(run)?;
            let mut learner = Learner::new(&trained, &chosen.device)?;
            checkpoint::load(&loaded, &mut learner, Moments::Leave)?;
            if plan.config.precision != trained.config.precision {
                learner = converted(&learner.parameters, &plan, &chosen)?;
            }
            let data = Data::open(&plan, &found, run)?;
            let plan = counted(plan, &data);
            let step = loaded.state.step;
            let last = step.min(plan.steps.saturating_sub(1));
            let first = last - last % plan.steps_per_epoch.max(1);
            let (samples, unread) = samples(&plan, &data, first)?;
            learner.optimizer.unload();
            work(&BatchGradients {
                learner,
                samples,
                subject: format!("{} at step {}", run.id(), format_count(step)),
                device: chosen.kind,
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
        inspection: &Inspection,
        settings: &BatchSettings,
        machine: &Machine,
        work: impl FnOnce(&BatchGradients) -> Result<R> + Send,
    ) -> Result<R> {
        let plan = Plan::check(&settings.config(RunConfig::default()), inspection)?;
        on_threads(plan.threads as usize, || {
            let chosen = checked_device(plan.device, machine.device_check_path.as_deref())?;
            let mut learner = Learner::new(&plan, &chosen.device)?;
            let data = Data::Photographs(Box::new(inspection.clone()));
            let (samples, notes) = samples(&plan, &data, 0)?;
            learner.optimizer.unload();
            work(&BatchGradients {
                learner,
                samples,
                subject: plan.name.clone(),
                device: chosen.kind,
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
        self.samples.len()
    }

    /// The summed gradients of a range of the samples, as one micro-batch.
    ///
    /// # Errors
    /// The device has too little memory or fails.
    pub fn gradients(&self, range: Range<usize>) -> Result<TrainedPiece> {
        let work = self.learner.work(Cancel::default());
        piece_scope(|| work.gradients(&self.samples[range]))
    }
}

/// Copies the weights into a network with the element type of `plan`.
fn converted(weights: &Parameters, plan: &Plan, chosen: &Chosen) -> Result<Learner> {
    let mut learner = Learner::new(plan, &chosen.device)?;
    for (index, weight) in weights.iter().enumerate() {
        let dtype = learner.parameters.at(index).tensor.dtype();
        learner
            .parameters
            .set(index, weight.tensor.to_dtype(dtype)?)?;
    }
    Ok(learner)
}

fn element_type(plan: &Plan) -> ElementType {
    match plan.config.precision.as_deref() {
        Some("f64") => ElementType::Double,
        _ => ElementType::Single,
    }
}

/// The samples of a step as training sees them, and a sentence for each file that could not be
/// read.
fn samples(plan: &Plan, data: &Data, step: u64) -> Result<(Vec<Sample>, Vec<String>)> {
    let ahead = Ahead {
        cache_bytes: 0,
        ..Ahead::of(plan, 0, 0)
    };
    let mut supply = Supply::start(plan, data, ahead, step);
    let count = supply.begin(step);
    let (mut samples, mut notes) = (Vec::with_capacity(count), Vec::new());
    for arrived in supply.fetch(count) {
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
            Wanted::Metal => Some("metal".to_owned()),
            Wanted::Cuda => Some("cuda".to_owned()),
            Wanted::Cpu => Some("cpu".to_owned()),
            Wanted::Auto if self.element_type_for(&config) == ElementType::Double => {
                Some("cpu".to_owned())
            }
            Wanted::Auto => config.device,
        };
        config
    }

    fn config(&self, config: RunConfig) -> RunConfig {
        let mut config = self.with_device(config);
        config.effective_batch = self.effective_batch.or(config.effective_batch);
        config.precision = Some(self.element_type_for(&config).name().to_owned());
        config
    }

    fn element_type_for(&self, config: &RunConfig) -> ElementType {
        match config.precision.as_deref() {
            Some("f64") => ElementType::Double,
            _ => self.element_type,
        }
    }
}
