//! What a receipt can be had of: a run with the weights of its newest checkpoint, a dropped folder with a fresh network, a
//! workload of the bench.

use super::split::Splits;
use super::{Compared, Precision, Receipt, compare, room};
use crate::bench::Workload;
use crate::certificate::trusted;
use crate::checkpoint::{self, Moments};
use crate::error::{Result, TrainError};
use crate::feed::Ahead;
use crate::learner::Learner;
use crate::machine::Machine;
use crate::origin::config_of;
use crate::plan::Plan;
use crate::roster;
use crate::task::{Data, Sample, Supply, TrainedPiece};
use crate::train::{counted, on_threads};
use candle_core::DType;
use dataset::Inspection;
use runlog::{RunConfig, RunFolder, format_count};
use std::ops::Range;
use tape::device::{DevicePreference, SelectedDevice, default_threads, with_autorelease_pool};
use tape::{Cancel, Parameters, Rng};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Question {
    /// Samples of the effective batch; absent: as the run trains, 16 for a workload.
    pub effective_batch: Option<u32>,
    /// Splits to try.
    pub splits: Splits,
    /// Element type. A run in f64 stays in f64.
    pub precision: Precision,
    /// Device; f64 is the CPU's.
    pub device: DevicePreference,
}

/// Samples of a workload's effective batch unless asked otherwise.
const WORKLOAD_BATCH: u32 = 16;

/// The receipt of a run: its newest good weights, its config, and the first effective batch of the epoch it is in.
pub fn of_run(run: &RunFolder, question: &Question, machine: &Machine) -> Result<Receipt> {
    let found = roster::read(run)?;
    let trained = Plan::check(&question.choose_device(config_of(run)?), &found)?;
    let plan = Plan::check(&question.config(config_of(run)?), &found)?;
    on_threads(plan.threads as usize, || {
        let chosen = trusted(plan.device, machine.certificate.as_deref())?;
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
        Ok(Receipt {
            subject: format!("{} at step {}", run.id(), format_count(step)),
            device: chosen.kind.name(),
            precision: precision(&plan),
            compared: question.of_samples(learner, &samples, machine)?,
            notes: damaged.into_iter().chain(unread).collect(),
        })
    })
}

/// The receipt of a dropped folder: a fresh network and the first effective batch.
pub fn of_folder(
    inspection: &Inspection,
    question: &Question,
    machine: &Machine,
) -> Result<Receipt> {
    let plan = Plan::check(&question.config(RunConfig::default()), inspection)?;
    on_threads(plan.threads as usize, || {
        let chosen = trusted(plan.device, machine.certificate.as_deref())?;
        let learner = Learner::new(&plan, &chosen.device)?;
        let data = Data::Photographs(Box::new(inspection.clone()));
        let (samples, notes) = samples(&plan, &data, 0)?;
        Ok(Receipt {
            subject: plan.name.clone(),
            device: chosen.kind.name(),
            precision: precision(&plan),
            compared: question.of_samples(learner, &samples, machine)?,
            notes,
        })
    })
}

/// The receipt of a workload: its fresh network on its made-up batch. `checkpointed` blocks keep their input only.
pub fn of_workload(
    workload: Workload,
    checkpointed: usize,
    question: &Question,
    machine: &Machine,
) -> Result<Receipt> {
    on_threads(default_threads(), || {
        let (wanted, dtype) = match question.precision {
            Precision::Single => (question.device, DType::F32),
            Precision::Double => (DevicePreference::Cpu, DType::F64),
        };
        let chosen = trusted(wanted, machine.certificate.as_deref())?;
        let (model, parameters) = workload.build(dtype, &chosen.device)?;
        let samples = question.effective_batch.unwrap_or(WORKLOAD_BATCH) as usize;
        let batch = workload.batch(samples);
        let piece = |range: Range<usize>| {
            let part = batch.part(range.start, range.end);
            with_autorelease_pool(|| {
                Ok(model
                    .piece(&parameters, &part, &chosen.device, (checkpointed, 1.0))?
                    .0)
            })
        };
        Ok(Receipt {
            subject: workload.name().to_owned(),
            device: chosen.kind.name(),
            precision: question.precision,
            compared: question.compared(&parameters, samples, machine, piece)?,
            notes: Vec::new(),
        })
    })
}

/// The same weights in the element type of `plan`.
fn converted(weights: &Parameters, plan: &Plan, chosen: &SelectedDevice) -> Result<Learner> {
    let mut learner = Learner::new(plan, &chosen.device)?;
    for (index, weight) in weights.iter().enumerate() {
        let dtype = learner.parameters.at(index).tensor.dtype();
        learner
            .parameters
            .set(index, weight.tensor.to_dtype(dtype)?)?;
    }
    Ok(learner)
}

fn precision(plan: &Plan) -> Precision {
    match plan.config.precision.as_deref() {
        Some("f64") => Precision::Double,
        _ => Precision::Single,
    }
}

/// The samples of a step as training sees them, and a sentence for each that could not be read.
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

impl Question {
    fn of_samples(
        &self,
        mut learner: Learner,
        samples: &[Sample],
        machine: &Machine,
    ) -> Result<Compared> {
        learner.optimizer.unload();
        let work = learner.work(Cancel::default());
        let piece = |range: Range<usize>| with_autorelease_pool(|| work.gradients(&samples[range]));
        self.compared(&learner.parameters, samples.len(), machine, piece)
    }

    fn compared(
        &self,
        parameters: &Parameters,
        samples: usize,
        machine: &Machine,
        mut piece: impl FnMut(Range<usize>) -> Result<TrainedPiece>,
    ) -> Result<Compared> {
        let splits = self.splits.of(samples, Rng::new(SEED))?;
        room::ask(machine, parameters, samples, &mut piece)?;
        compare(parameters, samples, splits, piece)
    }

    /// A config with the device of this question: the user's, else the config's, else what f64 needs.
    fn choose_device(&self, mut config: RunConfig) -> RunConfig {
        config.device = match self.device {
            DevicePreference::Metal => Some("metal".to_owned()),
            DevicePreference::Cuda => Some("cuda".to_owned()),
            DevicePreference::Cpu => Some("cpu".to_owned()),
            DevicePreference::Auto if self.precision_for(&config) == Precision::Double => {
                Some("cpu".to_owned())
            }
            DevicePreference::Auto => config.device,
        };
        config
    }

    fn config(&self, config: RunConfig) -> RunConfig {
        let mut config = self.choose_device(config);
        config.effective_batch = self.effective_batch.or(config.effective_batch);
        config.precision = Some(self.precision_for(&config).name().to_owned());
        config
    }

    fn precision_for(&self, config: &RunConfig) -> Precision {
        match config.precision.as_deref() {
            Some("f64") => Precision::Double,
            _ => self.precision,
        }
    }
}

/// Seed of the random splits.
const SEED: u64 = 5;
