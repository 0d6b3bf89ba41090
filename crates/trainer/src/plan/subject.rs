//! What is trained on: photographs, labelled texts or documents, as far as a plan depends on which. Reads no file.

use super::{
    Augmentation, Compression, ModelKind, TextModel, TextSize, chosen, image_size, setting,
};
use crate::error::{Result, TrainError};
use crate::origin::Origin;
use dataset::{
    DEFAULT_SEED, Found, Inspection, Part, SplitKind, TargetColumn, Task, TextInspection,
    TextSample, Tokenizer,
};
use runlog::RunConfig;
use std::path::PathBuf;

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
/// Windows of a default run of a language model.
const WINDOWS_SEEN: u64 = 12_000;
/// Tokens that are learnt from texts unless asked otherwise.
const VOCABULARY: u32 = 4096;
/// Bytes of a token of a vocabulary, before the documents were split: they are counted when they are.
const TOKEN_BYTES: u64 = 4;
/// Characters that a token of a learnt vocabulary holds: English takes some three for each.
const TOKEN_CHARACTERS: u32 = 3;
/// Bytes of a token that stays in memory: of a document read byte by byte, and of a labelled text.
const KEPT_BYTES: (u64, u64) = (1, 4);
/// What a document, or a text, takes beside its tokens: where it ends, its place in an epoch; its label, its file. Bytes.
const BESIDE_BYTES: u64 = 20;
/// Tokens of a window of documents unless asked otherwise.
const WINDOW: u32 = 256;
/// Tokens of a window that is compressed unless asked otherwise.
const COMPRESSED: u32 = 128;
/// Most tokens of a text unless asked otherwise.
const TEXT_TOKENS: (u32, u32) = (32, 256);

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
        kind: &str,
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
    kind: &str,
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
            "metal" => 64,
            "cuda" => 32,
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

fn texts(
    config: &RunConfig,
    found: &TextInspection,
    (kind, origin): (&str, Option<&Origin>),
) -> Result<Subject> {
    let task = Dropped::Texts(found).task_of(config)?;
    let sizes: Vec<(&str, TextSize)> = TextSize::ALL
        .into_iter()
        .filter(|size| size.task() == task)
        .map(|size| (size.name(), size))
        .collect();
    let usual = sizes.first().map_or("", |(name, _)| name);
    let size = match origin {
        Some(_) => None,
        None => {
            let asked = config.model.as_deref().unwrap_or(usual);
            Some(chosen("model", asked, &sizes)?)
        }
    };
    refuse(
        "image_size",
        config.image_size,
        "it is for photographs; --tokens sets the length of texts",
    )?;
    let is_language = found.task == Task::LanguageModel;
    if task != Task::TokenCompression {
        let foreign = "it is for --task token-compression; leave it out";
        refuse("policy", config.policy.as_ref(), foreign)?;
        refuse("kept_fraction", config.kept_fraction, foreign)?;
        refuse("kept_cost", config.kept_cost, foreign)?;
    } else {
        let bytes = "texts are compressed byte by byte, from scratch; leave it out";
        refuse("vocabulary", config.vocabulary, bytes)?;
        let from = config.from.as_ref().map(|from| from.display().to_string());
        refuse("from", from, bytes)?;
    }
    if is_language {
        let none = "documents have no classes; leave it out";
        refuse("class_weights", config.class_weights.as_ref(), none)?;
    }
    let (vocabulary, tokens) = match is_language {
        true => (Tokenizer::bytes().vocabulary() as u32, WINDOW),
        false => (VOCABULARY, usual_tokens(found)),
    };
    if origin.is_some() {
        let own = "published weights bring their own; leave it out";
        refuse("vocabulary", config.vocabulary, own)?;
    }
    let tokens = match task {
        Task::TokenCompression => COMPRESSED,
        _ => tokens,
    };
    let room = origin
        .and_then(Origin::room)
        .map_or(u32::MAX, |(room, _)| room);
    let tokens = config.tokens.unwrap_or(tokens.min(room));
    if tokens > room {
        let allowed =
            format!("the published weights have room for {room} tokens; write at most that");
        return Err(setting("tokens", tokens, allowed));
    }
    let seed = config.seed.unwrap_or(seed(found.split));
    let compression = match task {
        Task::TokenCompression => Some(Compression::check(config, seed)?),
        _ => None,
    };
    let bytes_of_token = match (origin, config.vocabulary) {
        (None, None) => 1,
        (Some(_), _) | (_, Some(_)) => TOKEN_BYTES,
    };
    let count = |part| match is_language {
        true => windows(found, part, tokens).div_ceil(bytes_of_token),
        false => found.count(part),
    };
    let train_samples = count(Part::Train);
    Ok(Subject {
        folder: found.folder.clone(),
        name: found.name.clone(),
        model: match (size, origin) {
            (Some(size), _) => ModelKind::Texts(TextModel {
                size,
                tokens,
                vocabulary: config.vocabulary.unwrap_or(vocabulary),
                policy: compression.map(|compression| compression.policy),
            }),
            (None, Some(origin)) => published(config, origin)?,
            (None, None) => return Err(setting("model", usual, "choose a model")),
        },
        resolution: tokens,
        classes: found.classes.iter().map(|c| c.name.clone()).collect(),
        columns: Vec::new(),
        class_weights: class_weights(config, found)?,
        train_samples,
        held_out_samples: count(Part::HeldOut),
        texts_bytes: texts_bytes(found, tokens),
        seed,
        effective_batch: match (is_language, kind) {
            // Eight pieces of four, where memory is short.
            _ if compression.is_some() => 32,
            (true, "metal" | "cuda") => 32,
            (true, _) => 8,
            (false, "metal" | "cuda") => 64,
            (false, _) => 32,
        },
        epochs: match is_language {
            true => (WINDOWS_SEEN / train_samples.max(1)).clamp(1, 60),
            false if origin.is_some() => (SAMPLES_SEEN / train_samples.max(1)).clamp(3, 30),
            false => (SAMPLES_SEEN / train_samples.max(1)).clamp(8, 60),
        },
        label_smoothing: if is_language { 0.0 } else { 0.1 },
        augment: Augmentation::None,
        compression,
    })
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

/// What the texts of a run take as tokens, in bytes.
fn texts_bytes(found: &TextInspection, most_tokens: u32) -> u64 {
    let used = found
        .samples
        .iter()
        .filter(|sample| sample.part != Part::Test);
    let tokens = |sample: &TextSample| match found.task {
        Task::LanguageModel => KEPT_BYTES.0 * u64::from(sample.end - sample.start),
        // Two tokens frame a text.
        _ => KEPT_BYTES.1 * u64::from((sample.characters / TOKEN_CHARACTERS + 2).min(most_tokens)),
    };
    used.map(|sample| tokens(sample) + BESIDE_BYTES).sum()
}

/// Tokens that nearly all texts have room in.
fn usual_tokens(found: &TextInspection) -> u32 {
    let (least, most) = TEXT_TOKENS;
    (found.lengths.p95_characters / TOKEN_CHARACTERS)
        .clamp(least, most)
        .next_multiple_of(32)
}

/// Windows of the documents of a part, read byte by byte: each document has a boundary more than bytes.
fn windows(found: &TextInspection, part: Part, tokens: u32) -> u64 {
    let documents = found.samples.iter().filter(|sample| sample.part == part);
    let places = documents.map(|sample| u64::from(sample.end - sample.start) + 1);
    places.sum::<u64>().div_ceil(u64::from(tokens))
}

/// Where they are balanced: the weight of a class of n of N texts in K classes is `N / (K n)`, so that the mean is 1.
fn class_weights(config: &RunConfig, found: &TextInspection) -> Result<Option<Vec<f64>>> {
    let choices = [("none", false), ("balanced", true)];
    let asked = config.class_weights.as_deref().unwrap_or("none");
    if !chosen("class_weights", asked, &choices)? {
        return Ok(None);
    }
    let all: u32 = found.classes.iter().map(|class| class.train).sum();
    let mean = f64::from(all) / found.classes.len().max(1) as f64;
    let weight = |class: &dataset::Class| mean / f64::from(class.train.max(1));
    Ok(Some(found.classes.iter().map(weight).collect()))
}

/// Refuses a setting that this kind of samples has no use for.
fn refuse(key: &'static str, value: Option<impl ToString>, why: &str) -> Result<()> {
    match value {
        Some(value) => Err(setting(key, value.to_string(), why)),
        None => Ok(()),
    }
}
