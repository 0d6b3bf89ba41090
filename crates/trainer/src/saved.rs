//! A trained run put to use: evaluated on a folder, or asked what a photograph shows. Starts nothing and writes nothing.

use crate::certificate::trusted;
use crate::checkpoint::{self, Moments, RunState};
use crate::error::{Result, TrainError};
use crate::feed::{Ahead, HeldOutFeed};
use crate::image_task::{EvaluatedPiece, Prediction};
use crate::learner::Learner;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::roster;
use dataset::{
    Augment, Class, ImageDataset, ImageFile, ImageOptions, InspectOptions, Inspection, Part, Sample,
};
use runlog::RunFolder;
use std::path::{Path, PathBuf};
use tape::Cancel;
use tape::device::{Wanted, piece_scope};

/// Samples worked at once. Forward only: small beside a training piece.
const PIECE: usize = 16;

/// A run with the weights of its best checkpoint.
pub struct SavedRun {
    plan: Plan,
    learner: Learner,
    /// What the checkpoint says of itself.
    pub state: RunState,
    /// Why this device.
    pub device: String,
}

/// Held-out numbers of a saved run.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// Samples evaluated.
    pub samples: u64,
    /// Mean loss.
    pub loss: f64,
    /// Share of samples whose best score is the right class.
    pub accuracy: f64,
    /// Share of samples whose class is among the five best.
    pub top_5: f64,
    /// Files that could not be read: name and reason.
    pub skipped: Vec<(PathBuf, String)>,
}

impl SavedRun {
    /// Loads the best checkpoint of a run.
    /// `certificate` remembers whether a GPU was found right.
    pub fn load(run: &RunFolder, device: Wanted, certificate: Option<&Path>) -> Result<Self> {
        let mut plan = Plan::check(&run.config()?, &roster::read(run)?)?;
        let device = if plan.precision == Precision::F64 {
            Wanted::Cpu
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
        Ok(SavedRun {
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

    /// How the run's own folder was split: by this its held-out part is found again.
    pub fn split(&self) -> InspectOptions {
        let held_out = self.plan.config.held_out_fraction;
        let default = InspectOptions::default();
        InspectOptions {
            held_out_fraction: held_out.unwrap_or(default.held_out_fraction),
            seed: self.plan.seed,
        }
    }

    /// Evaluates on the photographs of a folder: its test part where it has one, else the held-out part, else all of it.
    /// Classes go by name.
    pub fn evaluate(&self, inspection: &Inspection) -> Result<Evaluated> {
        let part = [Part::Test, Part::HeldOut, Part::Train]
            .into_iter()
            .find(|&p| inspection.count(p) > 0);
        let Some(part) = part else {
            let sentence = inspection
                .refusal
                .clone()
                .unwrap_or_else(|| "there is no photograph to evaluate".to_owned());
            return Err(TrainError::NotTrainable { sentence });
        };
        let inspection = self.relabelled(inspection)?;
        let ahead = Ahead {
            depth_samples: 4 * PIECE,
            cache_bytes: 0,
            ..Ahead::of(&self.plan, self.plan.threads as usize, 0)
        };
        let mut feed = HeldOutFeed::open(&self.plan, &inspection, part, ahead);
        feed.begin();
        let (mut sum, mut skipped) = (EvaluatedPiece::default(), Vec::new());
        loop {
            let arrived = feed.fetch(PIECE);
            if arrived.is_empty() {
                break;
            }
            let mut samples: Vec<Sample> = Vec::with_capacity(arrived.len());
            for result in arrived {
                match result {
                    Ok(sample) => samples.push(sample),
                    Err(error) => skipped.push((error.file, error.reason)),
                }
            }
            if !samples.is_empty() {
                sum.add(piece_scope(|| {
                    self.learner
                        .evaluation_task(Cancel::default())
                        .evaluate(&samples)
                })?);
            }
        }
        let samples = sum.samples.max(1) as f64;
        Ok(Evaluated {
            samples: sum.samples,
            loss: sum.loss / samples,
            accuracy: sum.right as f64 / samples,
            top_5: sum.in_top_5 as f64 / samples,
            skipped,
        })
    }

    /// What each photograph shows, or why it cannot be read.
    pub fn predict(
        &self,
        files: &[PathBuf],
    ) -> Result<Vec<std::result::Result<Prediction, String>>> {
        files.iter().map(|file| self.predict_one(file)).collect()
    }

    fn predict_one(&self, file: &Path) -> Result<std::result::Result<Prediction, String>> {
        let dataset = ImageDataset::open(&alone(file), Part::Test, self.options(), None, 0);
        let sample = match dataset.sample(0, 0) {
            Ok(sample) => sample,
            Err(error) => return Ok(Err(error.reason)),
        };
        let mut predictions = self
            .learner
            .evaluation_task(Cancel::default())
            .predict(&[sample])?;
        Ok(predictions
            .pop()
            .ok_or_else(|| "nothing was predicted".to_owned()))
    }

    fn options(&self) -> ImageOptions {
        ImageOptions {
            size: self.plan.image_size,
            augment: Augment::None,
            seed: self.plan.seed,
        }
    }

    /// The folder's labels in this run's order of classes.
    fn relabelled(&self, inspection: &Inspection) -> Result<Inspection> {
        let label = |class: &Class| {
            let found = self
                .plan
                .classes
                .iter()
                .position(|name| *name == class.name);
            found.map(|label| label as u32).ok_or_else(|| TrainError::NotTrainable {
                sentence: format!(
                    "the class {} of {} is unknown to this run, which knows {}; name the folder as in training or leave it out",
                    class.name,
                    inspection.name,
                    self.plan.classes.join(", ")
                ),
            })
        };
        let labels = inspection
            .classes
            .iter()
            .map(label)
            .collect::<Result<Vec<u32>>>()?;
        let mut inspection = inspection.clone();
        inspection
            .files
            .iter_mut()
            .for_each(|file| file.label = labels[file.label as usize]);
        Ok(inspection)
    }
}

/// One file as a folder of its own.
fn alone(file: &Path) -> Inspection {
    let image = |path: PathBuf| ImageFile {
        path,
        label: 0,
        part: Part::Test,
        width: 0,
        height: 0,
        bytes: 0,
    };
    let name = file.file_name().map(PathBuf::from).unwrap_or_default();
    let folder = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Inspection {
        folder: folder.to_owned(),
        name: name.display().to_string(),
        classes: Vec::new(),
        files: vec![image(name)],
        skipped: Vec::new(),
        ignored: Default::default(),
        typical_size: None,
        bytes: 0,
        refusal: None,
        notes: Vec::new(),
        split: dataset::SplitKind::Given,
        split_folders: Vec::new(),
    }
}
