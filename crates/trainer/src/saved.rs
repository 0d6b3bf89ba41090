//! A trained run put to use: evaluated on a folder, asked what a photograph shows or a text is, asked to write on, or
//! exported. Starts nothing, and writes nothing but the folder that it is exported to.

mod compressed;
mod generate;
mod known;
mod photographs;
mod texts;

pub use compressed::Compressed;
pub use generate::Wording;

use crate::certificate::trusted;
use crate::checkpoint::{self, Moments, RunState};
use crate::error::{Result, TrainError};
use crate::learner::Learner;
use crate::origin::config_of;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::published::{Exported, Trained};
use crate::roster;
use crate::task::{
    EvaluatedPiece, EvaluationReport, Metrics, Reading, Sample, TOKENIZER, kept_shares,
};
use dataset::{
    Class, Found, InspectOptions, Part, SampleError, TableOptions, TargetColumn, Task, TextOptions,
    Tokenizer, look,
};
use known::Known;
use runlog::{RunConfig, RunFolder, format_count, most_like};
use std::path::{Path, PathBuf};
use tape::Cancel;
use tape::device::{DevicePreference, with_autorelease_pool};

/// Samples worked at once. Forward only: small beside a training piece.
const PIECE: usize = 16;

/// Classes that are named where a run knows more than one reads.
const FEW_CLASSES: usize = 5;

/// A run with the weights of its best checkpoint.
pub struct SavedRun {
    plan: Plan,
    learner: Learner,
    /// The vocabulary that the run's texts were read with.
    tokenizer: Tokenizer,
    /// What windows of documents are read for.
    reading: Reading,
    /// The files that it was trained on and measured by.
    known: Known,
    /// What the checkpoint says of itself.
    pub state: RunState,
    /// Why this device.
    pub device: String,
}

/// In what form a run leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As the Hugging Face hub has them: settings and safetensors.
    #[default]
    HuggingFace,
    /// One ONNX file with what goes with it.
    Onnx,
}

/// Held-out numbers of a saved run.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// What it came to.
    pub metrics: Metrics,
    /// The same class by class and number by number.
    pub report: EvaluationReport,
    /// Files that could not be read: name and reason.
    pub skipped: Vec<(PathBuf, String)>,
}

impl SavedRun {
    /// Loads the best checkpoint of a run.
    /// `certificate` remembers whether a GPU was found right.
    pub fn load(
        run: &RunFolder,
        device: DevicePreference,
        certificate: Option<&Path>,
    ) -> Result<Self> {
        let list = roster::read(run)?;
        let mut plan = Plan::check(&config_of(run)?, &list)?;
        let device = if plan.precision == Precision::F64 {
            DevicePreference::Cpu
        } else {
            device
        };
        let chosen = trusted(device, certificate)?;
        if plan.precision.is_half() && chosen.device.is_cpu() {
            // The weights are f32 whatever the run computed in, and here f32 is the faster one.
            plan.precision = Precision::F32;
        }
        let mut learner = Learner::new(&plan, &chosen.device)?;
        let loaded = checkpoint::best(run)?;
        checkpoint::load(&loaded, &mut learner, Moments::Leave)?;
        let tokenizer = match (&plan.origin, plan.learnt_vocabulary()) {
            (Some(origin), _) if plan.task() != Task::ImageClassification => origin.tokenizer()?,
            (None, Some(_)) => Tokenizer::load(&run.path.join(TOKENIZER))?,
            (Some(_), _) | (None, None) => Tokenizer::bytes(),
        };
        Ok(SavedRun {
            known: Known::of(&list),
            tokenizer,
            reading: match plan.compression {
                None => Reading::Next,
                Some(_) => Reading::Whole(kept_shares(&run.path)?),
            },
            plan,
            learner,
            state: loaded.state,
            device: format!("{}: {}", chosen.kind, chosen.reason),
        })
    }

    /// Class names in label order.
    pub fn classes(&self) -> &[String] {
        &self.plan.classes
    }

    /// What the run has learnt.
    pub fn task(&self) -> Task {
        self.plan.task()
    }

    /// Numbers that the run has learnt.
    pub fn columns(&self) -> &[TargetColumn] {
        &self.plan.columns
    }

    /// What sums over samples of what is named `measured` come to.
    fn evaluated(
        &self,
        (sum, skipped): (EvaluatedPiece, Vec<(PathBuf, String)>),
        bytes: u64,
        measured: &'static str,
    ) -> Evaluated {
        let about = (self.plan.heads(), self.plan.columns.as_slice());
        let metrics = Metrics::of(&sum, self.task(), bytes, about);
        let names = (self.plan.classes.as_slice(), self.plan.columns.as_slice());
        Evaluated {
            report: EvaluationReport::of(&sum, &metrics, names, (self.state.step, measured)),
            metrics,
            skipped,
        }
    }

    /// How the run's own folder was looked at.
    pub fn reading(&self) -> TextOptions {
        let config = &self.plan.config;
        TextOptions {
            task: Some(self.task()),
            text_column: config.text_column.clone(),
            label_column: config.label_column.clone(),
        }
    }

    /// Writes the weights that evaluate best as a folder that other programs load.
    ///
    /// # Errors
    /// The folder has something in it, or cannot be written; the format has no words for the network.
    pub fn export(&self, folder: &Path, format: Format) -> Result<Exported> {
        let average = self.learner.average.as_ref();
        let trained = Trained {
            kind: self.plan.model,
            side: self.plan.image_size,
            classes: &self.plan.classes,
            columns: &self.plan.columns,
            parameters: average.map_or(&self.learner.parameters, |a| &a.parameters),
            origin: self.plan.origin.as_deref(),
            tokenizer: Some(&self.tokenizer),
        };
        match format {
            Format::HuggingFace => trained.write(folder),
            Format::Onnx => trained.write_onnx(folder),
        }
    }

    /// How the run's own folder was split: by this its held-out part is found again.
    pub fn split(&self) -> InspectOptions {
        let held_out = self.plan.config.held_out_fraction;
        let default = InspectOptions::default();
        InspectOptions {
            held_out_fraction: held_out.unwrap_or(default.held_out_fraction),
            seed: self.plan.seed,
            table: table_options(&self.plan.config),
        }
    }

    /// Evaluates on the run's own samples: its test part where there is one, else the held-out part.
    ///
    /// # Errors
    /// The list of samples is damaged, or files of texts changed since.
    pub fn evaluate_own(&self, run: &RunFolder) -> Result<Evaluated> {
        self.evaluate(&roster::read(run)?)
    }

    /// Looks at a folder or file as evaluating it needs: one with files of the run is split as in training, so that what was
    /// trained on is not measured on; of one that the run has never seen nothing is held back, unless it brings parts of its own.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn look(&self, path: &Path) -> Result<Found> {
        let found = look(path, &self.split(), &self.reading(), &|_| {})?;
        if !self.known.is_new(&found) {
            return Ok(found);
        }
        let whole = InspectOptions {
            held_out_fraction: 0.0,
            ..self.split()
        };
        Ok(look(path, &whole, &self.reading(), &|_| {})?)
    }

    /// Evaluates on what was found in a folder: its test part where it has one, else the held-out part, else all of it. Classes
    /// go by name.
    ///
    /// # Errors
    /// The folder is for another task, has nothing to evaluate, or has classes that the run does not know.
    pub fn evaluate(&self, found: &Found) -> Result<Evaluated> {
        match (found, self.task()) {
            (Found::Photographs(found), Task::ImageClassification) => self.of_photographs(found),
            (
                Found::Texts(found),
                Task::TextClassification | Task::LanguageModel | Task::TokenCompression,
            ) => self.of_texts(found),
            _ => Err(self.wrong_task(&format!("a folder for {}", found.task().label()))),
        }
    }

    /// Sums over samples that come in parts, until none comes.
    fn sums(
        &self,
        mut fetch: impl FnMut() -> Vec<std::result::Result<Sample, SampleError>>,
    ) -> Result<(EvaluatedPiece, Vec<(PathBuf, String)>)> {
        let (mut sum, mut skipped) = (EvaluatedPiece::default(), Vec::new());
        loop {
            let arrived = fetch();
            if arrived.is_empty() {
                return Ok((sum, skipped));
            }
            let mut samples = Vec::with_capacity(arrived.len());
            for result in arrived {
                match result {
                    Ok(sample) => samples.push(sample),
                    Err(error) => skipped.push((error.file, error.reason)),
                }
            }
            if !samples.is_empty() {
                sum.add(with_autorelease_pool(|| {
                    self.learner.evaluate(Cancel::default(), &samples)
                })?);
            }
        }
    }

    /// The refusal of what the run was not trained for.
    fn wrong_task(&self, what: &str) -> TrainError {
        let ask = match self.task() {
            Task::ImageClassification => "predict RUN PHOTOGRAPH",
            Task::TextClassification | Task::TokenCompression => "predict RUN \"a text\"",
            Task::LanguageModel => "generate RUN --prompt \"a text\"",
        };
        let sentence = format!(
            "the task of this run is {}; it has no use for {what}. `ebb {ask}` asks it",
            self.task().label()
        );
        TrainError::NotTrainable { sentence }
    }

    /// The folder's labels in this run's order of classes.
    fn labels(&self, name: &str, classes: &[Class]) -> Result<Vec<u32>> {
        let label = |class: &Class| {
            let known = &self.plan.classes;
            let found = known.iter().position(|name| *name == class.name);
            found.map(|label| label as u32).ok_or_else(|| TrainError::NotTrainable {
                sentence: format!(
                    "the class {} of {name} is unknown to this run, which knows {}; name the folder as in training or leave it out",
                    class.name,
                    some_of(known, &class.name)
                ),
            })
        };
        classes.iter().map(label).collect()
    }
}

/// All of a few classes; of many their count, and those most like `name`.
fn some_of(classes: &[String], name: &str) -> String {
    if classes.len() <= FEW_CLASSES {
        return classes.join(", ");
    }
    let like = most_like(name, classes.iter().map(String::as_str), FEW_CLASSES);
    let count = format_count(classes.len() as u64);
    format!("{count} classes, most like it {}", like.join(", "))
}

/// How a config wants tables beside photographs read.
pub fn table_options(config: &RunConfig) -> TableOptions {
    let names = |names: &String| {
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect()
    };
    TableOptions {
        label_column: None,
        group_by: config.group_by.clone(),
        targets: config.targets.as_ref().map(names),
    }
}

/// The part of a folder that is evaluated, by how many samples each part has.
fn part(count: impl Fn(Part) -> u64, refusal: Option<&String>, sample: &str) -> Result<Part> {
    let part = [Part::Test, Part::HeldOut, Part::Train]
        .into_iter()
        .find(|&p| count(p) > 0);
    part.ok_or_else(|| TrainError::NotTrainable {
        sentence: refusal
            .cloned()
            .unwrap_or_else(|| format!("there is no {sample} to evaluate")),
    })
}
