//! The defaults of a plan for labeled texts or documents. Reads no file.

use super::super::Compression;
use super::super::setting_errors::{find_by_name, invalid_setting};
use super::{
    DatasetDefaults, DatasetRef, SAMPLES_SEEN, chosen_class_weights, class_weights,
    pretrained_model, refuse, seed,
};
use crate::error::Result;
use crate::plan::{Augmentation, ConversationOptions, Plan};
use crate::task_conversion::model_task;
use dataset::{LearnedTokens, Split, Task, TextInspection, TextSample, Tokenizer};
use models::{ModelId, Pretrained, TextModel, TextSize};
use runlog::{LengthBuckets, LossOn, MixChoice, PackingChoice, RunConfig};

/// Tokens processed in a default run of a language model.
const TOKENS_SEEN: u64 = 3_000_000;
/// Those of the smallest network. In the same time it learns more than a network six times as large
/// (`docs/benchmarks.md`).
const TOKENS_SEEN_BY_SMALLEST: u64 = 12_000_000;
/// The most tokens processed in a default run of a language model: a larger text is read in part.
const MAX_TOKENS_SEEN: u64 = 12_000_000;
/// Default size of a learned vocabulary.
const VOCABULARY: u32 = 4096;
/// Assumed bytes per token of a vocabulary; the tokens are counted once the documents are
/// tokenized.
const TOKEN_BYTES: u64 = 4;
/// Assumed characters per token of a learned vocabulary; about right for English.
const TOKEN_CHARACTERS: u32 = 3;
/// Bytes in memory per token of a document that is read byte by byte.
const DOCUMENT_TOKEN_BYTES: u64 = 1;
/// Documents of a split with more bytes than this are tokenized into a file.
pub(crate) const MOST_TEXT_BYTES_IN_MEMORY: u64 = 16 << 20;
/// Bytes in memory per token of a labeled text.
const TEXT_TOKEN_BYTES: u64 = 4;
/// Bytes in memory per text besides its tokens: its end, its position in an epoch, its label and
/// its file.
const OVERHEAD_BYTES: u64 = 20;
/// Default tokens per window of documents.
const WINDOW: u32 = 256;
/// Default tokens per window of documents for the smallest network, which learns faster at first if
/// its windows are shorter.
const WINDOW_OF_SMALLEST: u32 = 128;
/// Default effective batch of token compression: eight micro-batches of four when memory is short.
const COMPRESSION_BATCH: u32 = 32;
/// Default tokens per window for token compression.
const COMPRESSION_WINDOW: u32 = 128;
/// Passes over conversations if a pretrained model is fine-tuned on them.
const CONVERSATION_EPOCHS: u64 = 3;
/// Default beta of direct preference optimization.
const PREFERENCE_BETA: f64 = 0.1;
/// Range of the default length of conversations, in tokens.
const CONVERSATION_TOKENS: (u32, u32) = (128, 1024);
/// Assumed tokens of a conversation that its template adds.
const TEMPLATE_TOKENS: u32 = 32;
/// Range of the default length of texts, in tokens.
const TEXT_TOKENS: (u32, u32) = (32, 256);

/// The defaults for texts.
pub(super) fn texts(
    config: &RunConfig,
    found: &TextInspection,
    kind: crate::DeviceKind,
    pretrained: Option<&Pretrained>,
) -> Result<DatasetDefaults> {
    let task = DatasetRef::Texts(found).configured_task(config)?;
    let is_language = found.task == Task::LanguageModel;
    refuse_foreign(config, task, is_language, pretrained)?;
    let is_smallest = pretrained.is_none() && own_size(config, task, kind)? == TextSize::GptMicro;
    let tokens = length(config, task, found, pretrained, is_smallest)?;
    let conversations = conversations(config, found, tokens, pretrained)?;
    let seed = config.seed.unwrap_or(seed(found.split));
    let compresses = task == Task::TokenCompression;
    let compression = compresses.then(|| Compression::from_config(config, seed));
    let compression = compression.transpose()?;
    let has_vocabulary = pretrained.is_some() || config.vocabulary.is_some();
    let count = |part| {
        if let Some(options) = conversations {
            conversation_windows(found, part, tokens, options.packs)
        } else if is_language {
            windows(found, part, tokens).div_ceil(if has_vocabulary { TOKEN_BYTES } else { 1 })
        } else {
            found.count(part)
        }
    };
    let train_samples = count(Split::Train);
    let windows_seen = windows_seen(is_smallest, tokens);
    Ok(DatasetDefaults {
        folder: found.folder.clone(),
        name: found.name.clone(),
        model: match pretrained {
            Some(pretrained) => pretrained_model(config, pretrained)?,
            None => ModelId::Text(TextModel {
                policy: compression.map(|compression| compression.policy),
                ..own_model(config, task, kind, tokens)?
            }),
        },
        input_size: tokens,
        classes: found.classes.iter().map(|c| c.name.clone()).collect(),
        columns: Vec::new(),
        class_weights: class_weights(config, &found.classes),
        train_samples,
        train_tokens: train_tokens(found, conversations, train_samples, tokens),
        held_out_samples: count(Split::HeldOut),
        texts_bytes: texts_bytes(found, tokens),
        seed,
        effective_batch: effective_batch(task, is_smallest, kind),
        epochs: default_epochs(found, pretrained.is_some(), train_samples, windows_seen),
        max_samples_seen: max_windows_seen(found, tokens),
        label_smoothing: if is_language { 0.0 } else { 0.1 },
        augment: Augmentation::None,
        mix: MixChoice::None,
        ema_decay: None,
        conversations,
        preference_beta: preference_beta(config, found)?,
        compression,
    })
}

/// The tokens of all training samples, about, if each has at most `tokens`.
fn train_tokens(
    found: &TextInspection,
    conversations: Option<ConversationOptions>,
    train_samples: u64,
    tokens: u32,
) -> u64 {
    match conversations {
        Some(options) if !options.packs => conversation_sizes(found, Split::Train, tokens).sum(),
        _ => train_samples * u64::from(tokens),
    }
}

/// Ebb's own network for texts of at most `tokens` tokens, without token compression.
fn own_model(
    config: &RunConfig,
    task: Task,
    kind: crate::DeviceKind,
    tokens: u32,
) -> Result<TextModel> {
    let vocabulary = || vocabulary(task != Task::TextClassification);
    Ok(TextModel {
        size: own_size(config, task, kind)?,
        tokens,
        vocabulary: config.vocabulary.unwrap_or_else(vocabulary),
        policy: None,
        neighbors: config.neighbors.unwrap_or(TextModel::NEIGHBORS),
    })
}

/// The size of Ebb's own network that a config asks for. The default is the first one of the task,
/// but a language model on the CPU has the smallest network.
fn own_size(config: &RunConfig, task: Task, kind: crate::DeviceKind) -> Result<TextSize> {
    let sizes = TextSize::for_task(model_task(task));
    let sizes: Vec<(&str, TextSize)> = sizes.map(|size| (size.name(), size)).collect();
    let is_on_cpu = matches!(kind, crate::DeviceKind::Cpu);
    let default = match task {
        Task::LanguageModel if is_on_cpu => TextSize::GptMicro.name(),
        _ => sizes.first().map_or("", |(name, _)| name),
    };
    find_by_name("model", config.model.as_deref().unwrap_or(default), &sizes)
}

/// Default size of the vocabulary.
fn vocabulary(is_language: bool) -> u32 {
    if is_language {
        Tokenizer::bytes().vocabulary() as u32
    } else {
        VOCABULARY
    }
}

fn effective_batch(task: Task, is_smallest: bool, kind: crate::DeviceKind) -> u32 {
    let is_gpu = matches!(kind, crate::DeviceKind::Metal | crate::DeviceKind::Cuda);
    match (task, is_gpu) {
        (Task::TokenCompression, _) => COMPRESSION_BATCH,
        (Task::LanguageModel, true) => 32,
        (Task::LanguageModel, false) if is_smallest => 16,
        (Task::LanguageModel, false) => 8,
        (_, true) => 64,
        (_, false) => 32,
    }
}

/// The most windows that a default run processes; `None` if the data are not documents.
fn max_windows_seen(found: &TextInspection, tokens: u32) -> Option<u64> {
    let is_documents = found.task == Task::LanguageModel && !found.has_conversations();
    is_documents.then_some(MAX_TOKENS_SEEN / u64::from(tokens.max(1)))
}

/// Windows of `tokens` tokens that a default run of a language model processes.
fn windows_seen(is_smallest: bool, tokens: u32) -> u64 {
    let seen = if is_smallest {
        TOKENS_SEEN_BY_SMALLEST
    } else {
        TOKENS_SEEN
    };
    seen / u64::from(tokens.max(1))
}

fn default_epochs(
    found: &TextInspection,
    is_pretrained: bool,
    train_samples: u64,
    windows_seen: u64,
) -> u64 {
    if is_pretrained && found.has_conversations() {
        CONVERSATION_EPOCHS
    } else if found.task == Task::LanguageModel {
        (windows_seen / train_samples.max(1)).clamp(1, 60)
    } else if is_pretrained {
        (SAMPLES_SEEN / train_samples.max(1)).clamp(3, 30)
    } else {
        (SAMPLES_SEEN / train_samples.max(1)).clamp(8, 60)
    }
}

/// Refuses settings that do not apply to this task.
fn refuse_foreign(
    config: &RunConfig,
    task: Task,
    is_language: bool,
    pretrained: Option<&Pretrained>,
) -> Result<()> {
    refuse(
        "image_size",
        config.image_size,
        "this setting is for images; for texts, set the length with --tokens",
    )?;
    let images = "this setting is for images; remove it for texts";
    refuse("targets", config.targets.as_ref(), images)?;
    refuse("group_by", config.group_by.as_ref(), images)?;
    // The complete config of a run on texts has "none", and so has a preset.
    let augment = config.augment.filter(|it| *it != Augmentation::None);
    refuse("augment", augment, images)?;
    if task != Task::TokenCompression {
        let foreign = "this setting is for --task token-compression; remove it for other tasks";
        refuse("policy", config.policy.as_ref(), foreign)?;
        refuse("keep_fraction", config.keep_fraction, foreign)?;
        refuse("keep_cost", config.keep_cost, foreign)?;
        refuse("neighbors", config.neighbors, foreign)?;
    } else {
        let bytes = "models with token compression read raw bytes and use no tokenizer; remove this setting";
        refuse("vocabulary", config.vocabulary, bytes)?;
        let from = config.from.as_ref().map(|from| from.display().to_string());
        let scratch = "token compression always trains from scratch; remove this setting";
        refuse("from", from, scratch)?;
    }
    if is_language {
        let none = "documents have no classes; remove this setting";
        refuse("class_weights", chosen_class_weights(config), none)?;
        let labeled = "this setting is for texts with labels; remove it for documents";
        refuse("token_dropout", config.token_dropout, labeled)?;
    } else {
        let samples =
            "the steps of labeled texts are counted in texts; set --effective-batch instead";
        refuse(
            "effective_batch_tokens",
            config.effective_batch_tokens,
            samples,
        )?;
    }
    if pretrained.is_some() {
        let own = "pretrained weights bring their own vocabulary; remove this setting";
        refuse("vocabulary", config.vocabulary, own)?;
    }
    Ok(())
}

/// The most tokens of a window or a text.
fn length(
    config: &RunConfig,
    task: Task,
    found: &TextInspection,
    pretrained: Option<&Pretrained>,
    is_smallest: bool,
) -> Result<u32> {
    let default = match task {
        Task::TokenCompression => COMPRESSION_WINDOW,
        _ if found.has_conversations() => conversation_tokens(found),
        Task::LanguageModel if is_smallest => WINDOW_OF_SMALLEST,
        Task::LanguageModel => WINDOW,
        _ => default_tokens(found),
    };
    let limit = pretrained
        .and_then(Pretrained::text_limits)
        .map_or(u32::MAX, |limits| limits.tokens);
    let tokens = config.tokens.unwrap_or(default.min(limit));
    if tokens > limit {
        let allowed = format!("the pretrained model reads at most {limit} tokens");
        return Err(invalid_setting("tokens", tokens, allowed));
    }
    Ok(tokens)
}

/// Bytes of the run's texts as tokens in memory.
fn texts_bytes(found: &TextInspection, most_tokens: u32) -> u64 {
    let used = found
        .samples
        .iter()
        .filter(|sample| sample.split != Split::Test);
    let in_file = |part| found.split_bytes(part) > MOST_TEXT_BYTES_IN_MEMORY;
    let in_file = [Split::Train, Split::HeldOut].map(|part| (part, in_file(part)));
    let tokens = |sample: &TextSample| match found.task {
        Task::LanguageModel if in_file.contains(&(sample.split, true)) => 0,
        Task::LanguageModel => DOCUMENT_TOKEN_BYTES * u64::from(sample.end - sample.start),
        // Two more tokens mark the beginning and the end of a text.
        _ => {
            TEXT_TOKEN_BYTES
                * u64::from((sample.characters / TOKEN_CHARACTERS + 2).min(most_tokens))
        }
    };
    used.map(|sample| tokens(sample) + OVERHEAD_BYTES).sum()
}

/// A length that nearly all texts fit in.
fn default_tokens(found: &TextInspection) -> u32 {
    let (least, most) = TEXT_TOKENS;
    (found.lengths.p95_characters / TOKEN_CHARACTERS)
        .clamp(least, most)
        .next_multiple_of(32)
}

impl Plan {
    /// Number of labeled texts of the training and the held-out set that probably have more than
    /// `tokens` tokens and are cut, estimated from their characters. 0 for other data.
    pub fn estimate_cut_texts(found: &TextInspection, tokens: u32) -> u64 {
        if found.task != Task::TextClassification {
            return 0;
        }
        let is_cut = |sample: &&TextSample| {
            sample.split != Split::Test && sample.characters / TOKEN_CHARACTERS > tokens
        };
        found.samples.iter().filter(is_cut).count() as u64
    }
}

/// Whether texts of this default length are cut, rather than the longest ones being this short.
pub(crate) fn is_longest_default(tokens: u32) -> bool {
    tokens >= TEXT_TOKENS.1
}

/// Number of windows of a split that is read byte by byte. Each document is followed by a boundary
/// token.
fn windows(found: &TextInspection, part: Split, tokens: u32) -> u64 {
    let documents = found.samples.iter().filter(|sample| sample.split == part);
    let places = documents.map(|sample| u64::from(sample.end - sample.start) + 1);
    places.sum::<u64>().div_ceil(u64::from(tokens))
}

/// How conversations are learned; `None` for other texts.
fn conversations(
    config: &RunConfig,
    found: &TextInspection,
    tokens: u32,
    pretrained: Option<&Pretrained>,
) -> Result<Option<ConversationOptions>> {
    if !found.has_conversations() {
        let chats = "this setting is for conversations; remove it for other texts";
        refuse("loss_on", config.loss_on, chats)?;
        refuse("packing", config.packing, chats)?;
        refuse("length_buckets", config.length_buckets, chats)?;
        return Ok(None);
    }
    let separates = pretrained.is_some_and(Pretrained::separates_documents);
    let choice = config.packing.unwrap_or(PackingChoice::Auto);
    if choice == PackingChoice::On && !separates {
        let allowed = "this network does not separate the conversations of a window; use off, or start from a newer language model, such as Llama or Qwen";
        return Err(invalid_setting("packing", choice.name(), allowed));
    }
    // Longer ones leave little to gain.
    let are_short = 2 * found.lengths.median_characters / TOKEN_CHARACTERS <= tokens;
    let packs = match choice {
        PackingChoice::Auto => separates && are_short && !found.has_preferences(),
        PackingChoice::On => true,
        PackingChoice::Off => false,
    };
    if packs && config.length_buckets == Some(LengthBuckets::On) {
        let allowed = "windows of packed conversations have nearly the same length; use off, or set packing to off";
        return Err(invalid_setting(
            "length_buckets",
            LengthBuckets::On,
            allowed,
        ));
    }
    Ok(Some(ConversationOptions {
        learned: match config.loss_on.unwrap_or(LossOn::Completions) {
            LossOn::Completions => LearnedTokens::Answers,
            LossOn::All => LearnedTokens::All,
        },
        packs,
        by_length: !packs && config.length_buckets != Some(LengthBuckets::Off),
    }))
}

/// Beta of direct preference optimization; `None` if the data are no preferences.
fn preference_beta(config: &RunConfig, found: &TextInspection) -> Result<Option<f64>> {
    if !found.has_preferences() {
        let preferences = "this setting is for data with chosen and rejected answers; remove it";
        refuse("preference_beta", config.preference_beta, preferences)?;
        return Ok(None);
    }
    if config.loss_on == Some(LossOn::All) {
        let allowed = "preferences compare only the answers; use completions";
        return Err(invalid_setting("loss_on", LossOn::All, allowed));
    }
    if config.packing == Some(PackingChoice::On) {
        let allowed = "the two answers of a preference cannot be packed; use off or auto";
        return Err(invalid_setting("packing", PackingChoice::On, allowed));
    }
    Ok(Some(config.preference_beta.unwrap_or(PREFERENCE_BETA)))
}

/// A length that nearly all conversations fit in.
fn conversation_tokens(found: &TextInspection) -> u32 {
    let (least, most) = CONVERSATION_TOKENS;
    let tokens = found.lengths.p95_characters / TOKEN_CHARACTERS + TEMPLATE_TOKENS;
    tokens.clamp(least, most).next_multiple_of(32)
}

/// Number of windows of a split, about. They are counted once the conversations are tokenized.
fn conversation_windows(found: &TextInspection, part: Split, tokens: u32, packs: bool) -> u64 {
    let sizes = conversation_sizes(found, part, tokens);
    if !packs {
        return sizes.count() as u64;
    }
    sizes.sum::<u64>().div_ceil(u64::from(tokens))
}

/// The tokens of each conversation of a split, about, if at most `tokens` of them are used.
fn conversation_sizes(
    found: &TextInspection,
    part: Split,
    tokens: u32,
) -> impl Iterator<Item = u64> {
    let samples = found
        .samples
        .iter()
        .filter(move |sample| sample.split == part);
    samples.map(move |sample| {
        let size = sample.characters / TOKEN_CHARACTERS + TEMPLATE_TOKENS;
        u64::from(size.min(tokens))
    })
}
