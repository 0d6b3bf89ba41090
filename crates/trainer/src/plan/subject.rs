//! What is trained on: photographs, labelled texts or documents, as far as a plan depends on which. Reads no file.

mod texts;

use super::{Augmentation, Compression, ModelKind, chosen, image_size, setting};
use crate::error::{Result, TrainError};
use crate::origin::Origin;
use dataset::{
    DEFAULT_SEED, Found, Inspection, Part, SplitKind, TargetColumn, Task, TextInspection,
};
use runlog::RunConfig;
use std::path::PathBuf;
use texts::texts;

/// What was found in a folder, borrowed.
#[derive(Debug, Clone, Copy)]
pub enum Dropped<'a> {
    /// Photographs.
    Photographs(&'a Inspection),
    /// Texts with labels, or documents.
    Texts(&'a TextInspection),
}

impl<'a> From<&'a Inspection> for Dropped<'a> {
    fn from(found: &'a Inspection) -> Self {
        Dropped::Photographs(found)
    }
}

impl<'a> From<&'a TextInspection> for Dropped<'a> {
    fn from(found: &'a TextInspection) -> Self {
        Dropped::Texts(found)
    }
}

impl<'a> From<&'a Found> for Dropped<'a> {
    fn from(found: &'a Found) -> Self {
        match found {
            Found::Photographs(found) => Dropped::Photographs(found),
            Found::Texts(found) => Dropped::Texts(found),
        }
    }
}

/// What a plan takes from the folder, with what is usual for it.
pub(super) struct Subject {
    pub folder: PathBuf,
    pub name: String,
    pub model: ModelKind,
    pub resolution: u32,
    pub classes: Vec<String>,
    pub columns: Vec<TargetColumn>,
    pub class_weights: Option<Vec<f64>>,
    pub train_samples: u64,
    pub held_out_samples: u64,
    pub texts_bytes: u64,
    pub seed: u64,
    pub effective_batch: u32,
    pub epochs: u64,
    pub label_smoothing: f64,
    pub augment: Augmentation,
    pub compression: Option<Compression>,
}

/// Samples that make a default run long enough: small folders get more epochs.
const SAMPLES_SEEN: u64 = 30_000;
/// Side of images from which numbers are learnt unless asked otherwise, in pixels.
const NUMBERS_SIDE: u32 = 224;

impl Dropped<'_> {
    /// What can be learnt from it.
    pub fn task(self) -> Task {
        match self {
            Dropped::Photographs(_) => Task::ImageClassification,
            Dropped::Texts(found) => found.task,
        }
    }

    /// All that can be learnt from it, what it is found to be first.
    pub fn tasks(self) -> Vec<Task> {
        match self.task() {
            Task::LanguageModel => vec![Task::LanguageModel, Task::TokenCompression],
            task => vec![task],
        }
    }

    /// What a config wants learnt from it: what it is found to be, unless it names another.
    pub(super) fn task_of(self, config: &RunConfig) -> Result<Task> {
        let asked = config.task.as_deref().unwrap_or(self.task().name());
        let tasks: Vec<_> = self.tasks().into_iter().map(|t| (t.name(), t)).collect();
        chosen("task", asked, &tasks)
    }

    /// Refuses a folder that cannot be trained, with why.
    pub(super) fn allowed(self) -> Result<()> {
        let refusal = match self {
            Dropped::Photographs(found) => &found.refusal,
            Dropped::Texts(found) => &found.refusal,
        };
        match refusal {
            Some(sentence) => Err(TrainError::NotTrainable {
                sentence: sentence.clone(),
            }),
            None => Ok(()),
        }
    }

    /// What a plan on a device of this `kind` takes from it.
    pub(super) fn subject(
        self,
        config: &RunConfig,
        kind: crate::DeviceKind,
        origin: Option<&Origin>,
    ) -> Result<Subject> {
        match self {
            Dropped::Photographs(found) => photographs(config, found, kind, origin),
            Dropped::Texts(found) => {
                let limit = config.dev_samples.map(|limit| limit as usize);
                match limit {
                    Some(limit) => texts(
                        config,
                        &found
                            .clone()
                            .limited(config.seed.unwrap_or(seed(found.split)), limit),
                        (kind, origin),
                    ),
                    None => texts(config, found, (kind, origin)),
                }
            }
        }
    }
}

fn seed(split: SplitKind) -> u64 {
    match split {
        SplitKind::Seeded { seed, .. } => seed,
        SplitKind::Given => DEFAULT_SEED,
    }
}

fn photographs(
    config: &RunConfig,
    found: &Inspection,
    kind: crate::DeviceKind,
    origin: Option<&Origin>,
) -> Result<Subject> {
    let models: Vec<_> = ModelKind::of_photographs().map(|m| (m.name(), m)).collect();
    let model = match origin {
        Some(origin) => published(config, origin)?,
        None => chosen(
            "model",
            config.model.as_deref().unwrap_or("convnet"),
            &models,
        )?,
    };
    let usual = (model.usual_side(), model.multiple());
    let side = origin.map_or(usual, Origin::side);
    let all = found.count(Part::Train);
    let train_samples = config.dev_samples.map_or(all, |limit| limit.min(all));
    let foreign = "it is for texts; leave it out for photographs";
    refuse("tokens", config.tokens, foreign)?;
    refuse("vocabulary", config.vocabulary, foreign)?;
    refuse("class_weights", config.class_weights.as_ref(), foreign)?;
    refuse("policy", config.policy.as_ref(), foreign)?;
    Ok(Subject {
        folder: found.folder.clone(),
        name: found.name.clone(),
        model,
        resolution: image_size(config.image_size.or(usual_side(found, origin)), model, side)?,
        classes: found.classes.iter().map(|c| c.name.clone()).collect(),
        columns: found.targets.clone(),
        class_weights: None,
        train_samples,
        held_out_samples: found.count(Part::HeldOut),
        texts_bytes: 0,
        seed: seed(found.split),
        effective_batch: match kind {
            crate::DeviceKind::Metal => 64,
            crate::DeviceKind::Cuda => 32,
            _ => 16,
        },
        epochs: match origin {
            Some(_) => (SAMPLES_SEEN / train_samples.max(1)).clamp(3, 30),
            None => (SAMPLES_SEEN / train_samples.max(1)).clamp(5, 60),
        },
        label_smoothing: 0.1,
        augment: Augmentation::Standard,
        compression: None,
    })
}

/// Numbers are read off details, a plate's in photographs of a dish; published weights know their own side.
fn usual_side(found: &Inspection, origin: Option<&Origin>) -> Option<u32> {
    (!found.targets.is_empty() && origin.is_none()).then_some(NUMBERS_SIDE)
}

/// What published weights are, where the config asks for nothing else.
fn published(config: &RunConfig, origin: &Origin) -> Result<ModelKind> {
    let family = origin.family();
    let asked = config.model.as_deref().unwrap_or(family.name());
    if asked == family.name() {
        return Ok(ModelKind::Published(family));
    }
    let allowed = format!(
        "the weights that it begins with are a {}'s; leave it out, or leave --from out",
        family.label()
    );
    Err(setting("model", asked, allowed))
}

/// Refuses a setting that this kind of samples has no use for.
fn refuse(key: &'static str, value: Option<impl ToString>, why: &str) -> Result<()> {
    match value {
        Some(value) => Err(setting(key, value.to_string(), why)),
        None => Ok(()),
    }
}
