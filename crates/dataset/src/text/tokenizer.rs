//! Encodes texts as tokens and decodes them: plain bytes, a `tokenizer.json` of a Hugging Face
//! folder, or a vocabulary trained on the texts themselves. A special token that is spelled out in
//! a text is ordinary text here.

use super::tokenizer_chunks::{MOST_LEARNED_BYTES, chunks};
use super::word_counts::WordCounts;
use crate::error::DatasetError;
use ahash::AHashMap;
use compact_str::CompactString;
use format::{format_bytes, format_count};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::models::bpe::{BPE, BpeTrainer, BpeTrainerBuilder};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainerBuilder};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, Encoding, Tokenizer as HfTokenizer, decoders};

/// Most bytes of a `tokenizer.json`. Those of large models have about twenty million.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Most values in the file, about. Those of large models have two million. The library holds all of
/// them in a form that takes up to a hundred bytes for each.
const MAX_VALUES: usize = 4_000_000;
/// Most names in the file, about: each token of a vocabulary is one, and each added token has
/// seven. Those of large models have three hundred thousand.
const MAX_NAMES: usize = 700_000;
/// Most parts of a tokenizer, such as normalizers, about: each works on every text.
const MAX_PARTS: usize = 1_000;
/// Most tokens, and the limit of their numbers. The library writes a vocabulary number by number.
const MAX_TOKENS: usize = 10_000_000;
/// Size of the byte vocabulary: every byte, and the boundary.
const BYTE_VOCABULARY: usize = 257;
/// The boundary token of the byte vocabulary.
const BYTE_BOUNDARY: u32 = 256;
/// The token between documents in vocabularies that Ebb trains.
const END: &str = "<|endoftext|>";
/// End-of-text tokens of pretrained vocabularies, the likeliest first.
const ENDS: [&str; 5] = [END, "</s>", "<eos>", "<|end_of_text|>", "[SEP]"];

/// Tokens, and the place of each in the text.
type EncodedPlaces = (Vec<u32>, Vec<Range<usize>>);

/// How a vocabulary is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    /// Byte-pair encoding over all bytes, as in GPT-2. Every text can be encoded and decodes
    /// unchanged.
    BytePairs,
    /// WordPiece over lower-case words, as in BERT.
    WordPieces,
}

/// Encodes texts as tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Bytes,
    Vocabulary(Box<HfTokenizer>),
}

impl Tokenizer {
    /// One token per byte. Needs no training.
    pub fn bytes() -> Self {
        Self { kind: Kind::Bytes }
    }

    /// Loads a `tokenizer.json`. Its padding and truncation are ignored.
    ///
    /// # Errors
    /// The file cannot be read, is too large, is not a tokenizer, or encodes at random (dropout).
    pub fn load(path: &Path) -> Result<Self, DatasetError> {
        let unusable = |reason: String| DatasetError::Tokenizer {
            subject: path.display().to_string(),
            reason,
        };
        let about = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
        if !about.is_file() {
            // Reading a pipe, for example, could take forever.
            return Err(unusable("it is not a file".to_owned()));
        }
        let bytes = about.len();
        if bytes > MAX_FILE_BYTES {
            return Err(unusable(format!(
                "the file has {}, more than the limit of {}",
                format_bytes(bytes),
                format_bytes(MAX_FILE_BYTES)
            )));
        }
        // tidy: unbounded: its size was checked
        let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let begins_value = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
        if text.iter().filter(begins_value).count() > MAX_VALUES {
            return Err(unusable(
                "the file has too many tokens or settings".to_owned(),
            ));
        }
        let ends_name = |text: &&[u8]| *text == b"\":";
        if text.windows(2).filter(ends_name).count() > MAX_NAMES {
            return Err(unusable(
                "the file has too many tokens or settings".to_owned(),
            ));
        }
        let begins_part = |text: &&[u8]| *text == b"\"type\"";
        if text.windows(6).filter(begins_part).count() > MAX_PARTS {
            return Err(unusable("the file has too many rules".to_owned()));
        }
        let read = catch_unwind(AssertUnwindSafe(|| HfTokenizer::from_bytes(text)));
        let trained = read
            .unwrap_or_else(|_| Err("the vocabulary and the rules do not fit together".into()))
            .map_err(|error| unusable(error.to_string()))?;
        if let ModelWrapper::BPE(model) = trained.get_model()
            && model.dropout.is_some_and(|share| share > 0.0)
        {
            let reason = "the tokenizer leaves out merges at random (dropout), so a text would get different tokens each time; set dropout to null in the file";
            return Err(unusable(reason.to_owned()));
        }
        let tokenizer = Self::new(trained);
        if tokenizer.id_limit() > MAX_TOKENS {
            return Err(unusable(format!(
                "the file has token numbers above {}",
                format_count(MAX_TOKENS as u64)
            )));
        }
        Ok(tokenizer)
    }

    /// Trains a vocabulary of at most `size` tokens on texts, or on 64 MiB that are spread evenly
    /// over them. The same texts give the same byte pairs; word pieces may get different numbers
    /// each time.
    ///
    /// # Errors
    /// The library refuses the size or the texts.
    pub fn train<'t>(
        vocabulary: Vocabulary,
        size: usize,
        texts: impl Iterator<Item = &'t str> + Clone + Send,
    ) -> Result<Self, DatasetError> {
        Self::train_while(vocabulary, size, texts, || true)
    }

    /// Trains a vocabulary like [`Tokenizer::train`], but reads no more text once `goes_on` is
    /// false; the vocabulary is incomplete then. Ebb cannot interrupt what follows the reading.
    ///
    /// # Errors
    /// See [`Tokenizer::train`].
    pub fn train_while<'t>(
        vocabulary: Vocabulary,
        size: usize,
        texts: impl Iterator<Item = &'t str> + Clone + Send,
        goes_on: impl Fn() -> bool + Send,
    ) -> Result<Self, DatasetError> {
        let bytes: usize = texts.clone().map(str::len).sum();
        let interval = (bytes as u64).div_ceil(MOST_LEARNED_BYTES).max(1) as usize;
        let texts = texts.flat_map(chunks).step_by(interval);
        let texts = texts.take_while(move |_| goes_on());
        match vocabulary {
            Vocabulary::BytePairs => {
                let mut counts = WordCounts::default();
                texts.for_each(|chunk| counts.add(chunk));
                Self::learn(size, counts)
            }
            Vocabulary::WordPieces => word_pieces(size, texts)
                .map(Self::new)
                .map_err(unusable_texts),
        }
    }

    /// Learns a vocabulary of at most `size` byte pairs. The same counts give the same byte pairs.
    ///
    /// # Errors
    /// The library refuses the size or the words.
    pub fn learn(size: usize, counts: WordCounts) -> Result<Self, DatasetError> {
        let learned = counts
            .most_frequent()
            .and_then(|words| byte_pairs(size, &words));
        learned.map(Self::new).map_err(unusable_texts)
    }

    fn new(mut trained: HfTokenizer) -> Self {
        trained.with_padding(None);
        // Fails only if truncation is set.
        let _ = trained.with_truncation(None);
        trained.set_encode_special_tokens(true);
        Self {
            kind: Kind::Vocabulary(Box::new(trained)),
        }
    }

    /// The same vocabulary, but special tokens that are spelled out in a text are special tokens,
    /// as in a rendered conversation. Nothing is put around texts.
    #[must_use]
    pub(super) fn reading_special_tokens(self) -> Self {
        match self.kind {
            Kind::Bytes => self,
            Kind::Vocabulary(mut tokenizer) => {
                tokenizer.set_encode_special_tokens(false);
                // It may also shorten the places of tokens.
                tokenizer.with_post_processor(None::<PostProcessorWrapper>);
                Self {
                    kind: Kind::Vocabulary(tokenizer),
                }
            }
        }
    }

    /// Encodes a text without special tokens around it. Each token comes with its place in the
    /// text, in bytes.
    pub(super) fn encode_with_places(&self, text: &str) -> Result<EncodedPlaces, DatasetError> {
        let tokenizer = match &self.kind {
            Kind::Bytes => {
                let places = (0..text.len()).map(|at| at..at + 1).collect();
                return Ok((text.bytes().map(u32::from).collect(), places));
            }
            Kind::Vocabulary(tokenizer) => tokenizer,
        };
        let encoding = guarded(|| tokenizer.encode(text, false))?;
        let places = encoding.get_offsets().iter();
        let places = places.map(|(start, end)| *start..*end).collect();
        Ok((encoding.get_ids().to_vec(), places))
    }

    /// The token that the tokenizer puts before a text; `None` if it puts none.
    pub fn first_token(&self) -> Option<u32> {
        const TEXT: &str = "a";
        let framed = self.encode_framed(TEXT).unwrap_or_default();
        let plain = self.encode(TEXT).unwrap_or_default();
        // It may put a token after the text alone.
        let first = framed.first().filter(|first| plain.first() != Some(first));
        first.copied()
    }

    /// The name of a token.
    pub(super) fn name_of(&self, token: u32) -> Option<String> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Vocabulary(tokenizer) => tokenizer.id_to_token(token),
        }
    }

    /// Whether a token was added to the vocabulary, such as `<|im_end|>`.
    pub(super) fn is_added(&self, token: u32) -> bool {
        match &self.kind {
            Kind::Bytes => false,
            Kind::Vocabulary(tokenizer) => {
                tokenizer.get_added_tokens_decoder().contains_key(&token)
            }
        }
    }

    /// One more than the largest token that ordinary text can have, special tokens left out.
    pub fn text_id_limit(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY,
            Kind::Vocabulary(tokenizer) => {
                let added = tokenizer.get_added_tokens_decoder();
                let is_text = |id: &u32| added.get(id).is_none_or(|token| !token.special);
                let ids = tokenizer.get_vocab(true).into_values().filter(is_text);
                ids.max().map_or(0, |id| id as usize + 1)
            }
        }
    }

    /// Number of tokens, including the boundary.
    pub fn vocabulary(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY,
            Kind::Vocabulary(tokenizer) => tokenizer.get_vocab_size(true),
        }
    }

    /// One more than the largest token in an encoded text. It differs from `vocabulary`, which
    /// includes the boundary and may have gaps.
    pub(crate) fn id_limit(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY - 1,
            Kind::Vocabulary(tokenizer) => {
                let largest = tokenizer.get_vocab(true).into_values().max();
                largest.map_or(0, |id| id as usize + 1)
            }
        }
    }

    /// The token between documents, if the vocabulary has one.
    pub fn boundary(&self) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => Some(BYTE_BOUNDARY),
            Kind::Vocabulary(tokenizer) => ENDS.iter().find_map(|end| tokenizer.token_to_id(end)),
        }
    }

    /// A token by its name, such as `[PAD]`.
    pub fn token(&self, name: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Vocabulary(tokenizer) => tokenizer.token_to_id(name),
        }
    }

    /// Encodes a text without special tokens.
    ///
    /// # Errors
    /// The vocabulary has neither a token for a part of the text nor an unknown token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DatasetError> {
        self.encode_with(text, false)
    }

    /// Encodes a text with the special tokens around it, such as `[CLS]` and `[SEP]`.
    ///
    /// # Errors
    /// See [`Tokenizer::encode`].
    pub fn encode_framed(&self, text: &str) -> Result<Vec<u32>, DatasetError> {
        self.encode_with(text, true)
    }

    fn encode_with(&self, text: &str, framed: bool) -> Result<Vec<u32>, DatasetError> {
        let tokenizer = match &self.kind {
            Kind::Bytes => return Ok(text.bytes().map(u32::from).collect()),
            Kind::Vocabulary(tokenizer) => tokenizer,
        };
        if framed || !encodes_words_separately(tokenizer) {
            return encode_guarded(tokenizer, text, framed);
        }
        let mut tokens = Vec::new();
        for chunk in chunks(text) {
            tokens.extend(encode_guarded(tokenizer, chunk, false)?);
        }
        Ok(tokens)
    }

    /// Encodes a text without special tokens and without cutting it into chunks.
    pub(super) fn encode_whole(&self, text: &str) -> Result<Vec<u32>, DatasetError> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Vocabulary(tokenizer) => encode_guarded(tokenizer, text, false),
        }
    }

    /// Whether each word has the same tokens alone as inside a text, so that words can be cached.
    /// Bytes need no cache.
    pub(super) fn encodes_words_separately(&self) -> bool {
        match &self.kind {
            Kind::Bytes => false,
            Kind::Vocabulary(tokenizer) => {
                // Special tokens that are spelled out are ordinary text; others may take up the
                // white space after them.
                let added = tokenizer.get_added_tokens_decoder();
                encodes_words_separately(tokenizer) && added.values().all(|token| token.special)
            }
        }
    }

    /// Whether it may put special tokens around a text.
    pub(super) fn frames_texts(&self) -> bool {
        match &self.kind {
            Kind::Bytes => false,
            Kind::Vocabulary(tokenizer) => tokenizer.get_post_processor().is_some(),
        }
    }

    /// Decodes tokens. Special tokens are left out, and broken characters become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens
                    .iter()
                    .filter_map(|t| u8::try_from(*t).ok())
                    .collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::Vocabulary(tokenizer) => {
                // A loaded vocabulary is not trusted: a panic costs the text, not the process.
                catch_unwind(AssertUnwindSafe(|| tokenizer.decode(tokens, true)))
                    .map_or_else(|_| String::new(), Result::unwrap_or_default)
            }
        }
    }

    /// The vocabulary as a `tokenizer.json` for other programs. Bytes become a byte-pair encoding
    /// without merges.
    ///
    /// # Errors
    /// The library cannot serialize it.
    pub fn to_exported_json(&self) -> Result<String, DatasetError> {
        match &self.kind {
            Kind::Bytes => Ok(byte_level_json()),
            Kind::Vocabulary(tokenizer) => {
                tokenizer
                    .to_string(true)
                    .map_err(|error| DatasetError::Tokenizer {
                        subject: "The vocabulary".to_owned(),
                        reason: error.to_string(),
                    })
            }
        }
    }

    /// The vocabulary as a `tokenizer.json`; `None` for bytes.
    pub fn to_json(&self) -> Option<String> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Vocabulary(tokenizer) => tokenizer.to_string(false).ok(),
        }
    }
}

/// Encodes a text. A loaded vocabulary is not trusted: a panic costs the text, not the process.
fn encode_guarded(
    tokenizer: &HfTokenizer,
    text: &str,
    framed: bool,
) -> Result<Vec<u32>, DatasetError> {
    let encoding = guarded(|| tokenizer.encode_fast(text, framed))?;
    Ok(encoding.get_ids().to_vec())
}

fn guarded(
    encode: impl FnOnce() -> tokenizers::Result<Encoding>,
) -> Result<Encoding, DatasetError> {
    catch_unwind(AssertUnwindSafe(encode))
        .unwrap_or_else(|_| Err("the rules for splitting texts failed on this text".into()))
        .map_err(|error| DatasetError::Encode {
            text: "a text".to_owned(),
            reason: error.to_string(),
        })
}

fn unusable_texts(error: tokenizers::Error) -> DatasetError {
    DatasetError::Tokenizer {
        subject: "A vocabulary trained on these texts".to_owned(),
        reason: error.to_string(),
    }
}

/// Whether the chunks of a text have the same tokens as the text: the vocabulary splits texts by
/// GPT-2's rules, and no added token has a space.
fn encodes_words_separately(tokenizer: &HfTokenizer) -> bool {
    let splits = matches!(
        tokenizer.get_pre_tokenizer(),
        Some(PreTokenizerWrapper::ByteLevel(level)) if level.use_regex && !level.add_prefix_space
    );
    let added = tokenizer.get_added_tokens_decoder();
    splits
        && tokenizer.get_normalizer().is_none()
        && !added.values().any(|token| token.content.contains(' '))
}

/// The byte vocabulary as a `tokenizer.json`. The format writes each byte as a character: printable
/// ones as themselves, the others as U+0100 and following, in order (Radford et al. 2019).
fn byte_level_json() -> String {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=u8::MAX).filter(|byte| !is_printable(*byte));
    let others: Vec<u8> = others.collect();
    let character = |byte: u8| match others.binary_search(&byte) {
        Ok(index) => char::from_u32(0x100 + index as u32).unwrap_or_default(),
        Err(_) => char::from(byte),
    };
    let ids = (0..=u8::MAX).map(|byte| (character(byte).to_string(), json!(byte)));
    let ids: serde_json::Map<String, Value> = ids.collect();
    let level = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let boundary = json!({
        "id": BYTE_BOUNDARY, "content": END, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false,
    });
    let all = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [boundary], "normalizer": null,
        "pre_tokenizer": level(false), "post_processor": null, "decoder": level(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": ids,
            "merges": [],
        },
    });
    format!("{all:#}\n")
}

fn byte_pairs(
    size: usize,
    words: &AHashMap<CompactString, u64>,
) -> tokenizers::Result<HfTokenizer> {
    let mut model = BPE::default();
    let special = byte_pair_trainer(size).do_train(words, &mut model)?;
    let mut trained = HfTokenizer::new(model);
    trained.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    trained.with_decoder(Some(ByteLevel::default()));
    trained.add_special_tokens(special)?;
    Ok(trained)
}

fn byte_pair_trainer(size: usize) -> BpeTrainer {
    BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END, true)])
        .build()
}

fn word_pieces<'t>(
    size: usize,
    texts: impl Iterator<Item = &'t str> + Send,
) -> tokenizers::Result<HfTokenizer> {
    const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let mut trained = HfTokenizer::new(WordPiece::default());
    trained.with_normalizer(Some(BertNormalizer::default()))?;
    trained.with_pre_tokenizer(Some(BertPreTokenizer));
    trained.with_decoder(Some(decoders::wordpiece::WordPiece::default()));
    let trainer = WordPieceTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(SPECIAL.map(|name| AddedToken::from(name, true)).to_vec())
        .build();
    trained.train(&mut TrainerWrapper::from(trainer), texts)?;
    let token = |name: &str| {
        (
            name.to_owned(),
            trained.token_to_id(name).unwrap_or_default(),
        )
    };
    let frame = BertProcessing::new(token("[SEP]"), token("[CLS]"));
    trained.with_post_processor(Some(frame));
    Ok(trained)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::text_encoder::TextEncoder;

    /// Words, contractions, numbers, several scripts, and white space of every kind.
    fn odd_text() -> String {
        let line = "It's  the 3rd day,\tthey'll say; x=42.\r\n\n  Größe\u{3000} 日本語の文 \u{a0} end \u{1F980}!";
        let words = (0..400u32).map(|i| format!(" w{} {}", i % 37, i.wrapping_mul(7919)));
        format!("{line}{}\n {line} ", words.collect::<String>())
    }

    /// The vocabulary as the library itself learns it from texts.
    fn learned_by_library(size: usize, text: &str) -> String {
        let mut trained = HfTokenizer::new(BPE::default());
        trained.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        trained.with_decoder(Some(ByteLevel::default()));
        let mut trainer = TrainerWrapper::from(byte_pair_trainer(size));
        let texts = std::iter::once(text);
        trained.train(&mut trainer, texts).expect("there is text");
        trained.to_string(false).expect("it can be written")
    }

    #[test]
    fn counted_words_give_the_vocabulary_that_the_library_learns_from_the_text() {
        let text = odd_text();
        let texts = std::iter::once(text.as_str());
        let learned = Tokenizer::train(Vocabulary::BytePairs, 420, texts).expect("there is text");
        assert_eq!(learned.to_json(), Some(learned_by_library(420, &text)));
    }

    #[test]
    fn the_token_before_a_text_is_not_the_one_after_it() {
        let (text, special) = (odd_text(), "<|endoftext|>");
        let texts = std::iter::once(text.as_str());
        let learned = Tokenizer::train(Vocabulary::BytePairs, 300, texts).expect("there is text");
        let id = learned.token(special).expect("it is known");
        let json = learned.to_json().expect("it is a vocabulary");
        let mut json: Value = serde_json::from_str(&json).expect("it is JSON");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("tokenizer.json");
        let token = json!({"SpecialToken": {"id": special, "type_id": 0}});
        let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
        let second = json!({"Sequence": {"id": "B", "type_id": 1}});
        for (single, first) in [
            (vec![&token, &sequence], Some(id)),
            (vec![&sequence, &token], None),
            (vec![&token, &sequence, &token], Some(id)),
            (vec![&sequence], None),
        ] {
            json["post_processor"] = json!({
                "type": "TemplateProcessing", "single": single, "pair": [sequence, second],
                "special_tokens": {(special): {"id": special, "ids": [id], "tokens": [special]}},
            });
            std::fs::write(&path, json.to_string()).expect("it can be written");
            let loaded = Tokenizer::load(&path).expect("it is a tokenizer");
            assert_eq!(loaded.first_token(), first, "{single:?}");
        }
        assert_eq!(Tokenizer::bytes().first_token(), None);
    }

    #[test]
    fn a_file_that_encodes_at_random_is_refused() {
        let text = odd_text();
        let texts = std::iter::once(text.as_str());
        let learned = Tokenizer::train(Vocabulary::BytePairs, 300, texts).expect("there is text");
        let json = learned.to_json().expect("it is a vocabulary");
        let mut json: Value = serde_json::from_str(&json).expect("it is JSON");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("tokenizer.json");
        for (share, is_used) in [(Value::Null, true), (json!(0.0), true), (json!(0.1), false)] {
            json["model"]["dropout"] = share;
            fs::write(&path, json.to_string()).expect("it can be written");
            let error = Tokenizer::load(&path).err().map(|error| error.to_string());
            assert_eq!(error.is_none(), is_used, "{error:?}");
            assert!(error.is_none_or(|error| error.contains("dropout")));
        }
    }

    #[test]
    fn cached_words_on_several_threads_have_the_tokens_of_the_whole_text() {
        let text = odd_text();
        let texts = std::iter::once(text.as_str());
        let learned = Tokenizer::train(Vocabulary::BytePairs, 420, texts).expect("there is text");
        let long = text.repeat(1 + (3 << 20) / text.len());
        let whole = learned.encode_whole(&text).expect("it can be encoded");
        for threads in [1, 3] {
            let mut encoder = TextEncoder::new(&learned, threads);
            let mut all: Vec<u32> = Vec::new();
            let mut bytes = 0;
            let encoded = encoder.encode(&long, &mut |tokens, length| {
                all.extend_from_slice(tokens);
                bytes += length;
                Ok(())
            });
            encoded.expect("it can be encoded");
            assert_eq!(bytes, long.len());
            assert_eq!(all, learned.encode(&long).expect("it can be encoded"));
            assert_eq!(learned.decode(&all), long);
            let framed = encoder.encode_framed(&text).expect("it can be encoded");
            assert_eq!(framed, whole);
        }
    }
}
