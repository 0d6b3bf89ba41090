//! What is trained on, where it is texts: labelled ones or documents. Reads no file.

use super::super::{Compression, ModelKind, TextModel, TextSize, chosen, setting};
use super::{Dropped, SAMPLES_SEEN, Subject, published, refuse, seed};
use crate::error::Result;
use crate::origin::Origin;
use crate::plan::Augmentation;
use dataset::{Part, Task, TextInspection, TextSample, Tokenizer};
use runlog::RunConfig;

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

/// What a plan takes from texts.
pub(super) fn texts(
    config: &RunConfig,
    found: &TextInspection,
    (kind, origin): (crate::DeviceKind, Option<&Origin>),
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
    let is_language = found.task == Task::LanguageModel;
    refuse_foreign(config, task, is_language, origin)?;
    let vocabulary = match is_language {
        true => Tokenizer::bytes().vocabulary() as u32,
        false => VOCABULARY,
    };
    let tokens = length(config, task, found, origin)?;
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
            (true, crate::DeviceKind::Metal | crate::DeviceKind::Cuda) => 32,
            (true, _) => 8,
            (false, crate::DeviceKind::Metal | crate::DeviceKind::Cuda) => 64,
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

/// Refuses settings that have no use for this task.
fn refuse_foreign(
    config: &RunConfig,
    task: Task,
    is_language: bool,
    origin: Option<&Origin>,
) -> Result<()> {
    refuse(
        "image_size",
        config.image_size,
        "it is for photographs; --tokens sets the length of texts",
    )?;
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
    if origin.is_some() {
        let own = "published weights bring their own; leave it out";
        refuse("vocabulary", config.vocabulary, own)?;
    }
    Ok(())
}

/// Tokens of a window or of a text, at most.
fn length(
    config: &RunConfig,
    task: Task,
    found: &TextInspection,
    origin: Option<&Origin>,
) -> Result<u32> {
    let usual = match task {
        Task::TokenCompression => COMPRESSED,
        _ if found.task == Task::LanguageModel => WINDOW,
        _ => usual_tokens(found),
    };
    let room = origin
        .and_then(Origin::room)
        .map_or(u32::MAX, |(room, _)| room);
    let tokens = config.tokens.unwrap_or(usual.min(room));
    if tokens > room {
        let allowed =
            format!("the published weights have room for {room} tokens; write at most that");
        return Err(setting("tokens", tokens, allowed));
    }
    Ok(tokens)
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
