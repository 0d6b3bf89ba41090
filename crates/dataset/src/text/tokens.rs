//! From text to tokens and back: bytes as they are, a `tokenizer.json` of a Hugging Face folder, or a vocabulary learnt from
//! the texts themselves. A special token spelt out in a text is ordinary text here. Knows no files of texts and no model.

use crate::error::DatasetError;
use serde_json::{Value, json};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainerBuilder};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::{AddedToken, Tokenizer as PersistedState, decoders};

/// Bytes of the largest `tokenizer.json`. Those of large models have some twenty million.
const MAX_FILE_BYTES: u64 = 128 << 20;
/// Tokens of bytes: every byte, and the boundary.
const BYTE_VOCABULARY: usize = 257;
/// The boundary behind the last byte.
const BYTE_BOUNDARY: u32 = 256;
/// Stands between documents, in the vocabularies that Ebb learns.
const END: &str = "<|endoftext|>";
/// Tokens that end a text in published vocabularies, the likeliest first.
const ENDS: [&str; 5] = [END, "</s>", "<eos>", "<|end_of_text|>", "[SEP]"];

/// How a vocabulary is learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    /// Byte pairs over all bytes, as GPT-2 has them: any text can be written in it, and comes back as it was.
    BytePairs,
    /// Word pieces over lower-case words, as BERT has them.
    WordPieces,
}

/// Splits texts into tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Bytes,
    PersistedState(Box<PersistedState>),
}

impl Tokenizer {
    /// One token a byte; needs nothing to be learnt.
    pub fn bytes() -> Self {
        Self { kind: Kind::Bytes }
    }

    /// Reads a `tokenizer.json`. Padding and cutting that it asks for are left to whoever trains.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or is no tokenizer.
    pub fn load(path: &Path) -> Result<Self, DatasetError> {
        let no = |reason: String| DatasetError::Tokenizer {
            what: path.display().to_string(),
            reason,
        };
        let bytes = fs::metadata(path)
            .map_err(|error| no(error.to_string()))?
            .len();
        if bytes > MAX_FILE_BYTES {
            return Err(no(format!(
                "it has {} MB, more than the 134 that are read",
                bytes / 1_000_000
            )));
        }
        let text = fs::read(path).map_err(|error| no(error.to_string()))?;
        let read = catch_unwind(AssertUnwindSafe(|| PersistedState::from_bytes(text)));
        let learnt = read
            .unwrap_or_else(|_| Err("its parts do not fit together".into()))
            .map_err(|error| no(error.to_string()))?;
        Ok(Self::of(learnt))
    }

    /// Learns a vocabulary of at most `size` tokens from texts. The same texts give the same byte
    /// pairs; word pieces may be numbered in another way each time.
    ///
    /// # Errors
    /// The library refuses the size or the texts.
    pub fn learn<'t>(
        vocabulary: Vocabulary,
        size: usize,
        texts: impl Iterator<Item = &'t str> + Send,
    ) -> Result<Self, DatasetError> {
        let learnt = match vocabulary {
            Vocabulary::BytePairs => byte_pairs(size, texts),
            Vocabulary::WordPieces => word_pieces(size, texts),
        };
        let no = |error: tokenizers::Error| DatasetError::Tokenizer {
            what: "A vocabulary learnt from these texts".to_owned(),
            reason: error.to_string(),
        };
        Ok(Self::of(learnt.map_err(no)?))
    }

    fn of(mut learnt: PersistedState) -> Self {
        learnt.with_padding(None);
        // Fails only for a cut that is asked for.
        let _ = learnt.with_truncation(None);
        learnt.set_encode_special_tokens(true);
        Self {
            kind: Kind::PersistedState(Box::new(learnt)),
        }
    }

    /// Number of tokens there are, boundary included.
    pub fn vocabulary(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY,
            Kind::PersistedState(learnt) => learnt.get_vocab_size(true),
        }
    }

    /// One more than the largest token that a text can have in it; `vocabulary` counts the boundary too, and may have gaps.
    pub(crate) fn ids(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTE_VOCABULARY - 1,
            Kind::PersistedState(learnt) => {
                let largest = learnt.get_vocab(true).into_values().max();
                largest.map_or(0, |id| id as usize + 1)
            }
        }
    }

    /// The token that stands between documents, where the vocabulary has one.
    pub fn boundary(&self) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => Some(BYTE_BOUNDARY),
            Kind::PersistedState(learnt) => ENDS.iter().find_map(|end| learnt.token_to_id(end)),
        }
    }

    /// A token by its name, such as `[PAD]`.
    pub fn token(&self, name: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::PersistedState(learnt) => learnt.token_to_id(name),
        }
    }

    /// The tokens of a text, without any special ones.
    ///
    /// # Errors
    /// The vocabulary has no token for a part of it, not even one for the unknown.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DatasetError> {
        self.split(text, false)
    }

    /// The tokens of a text with those that the vocabulary puts around it, such as `[CLS]` and `[SEP]`.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_framed(&self, text: &str) -> Result<Vec<u32>, DatasetError> {
        self.split(text, true)
    }

    fn split(&self, text: &str, framed: bool) -> Result<Vec<u32>, DatasetError> {
        let learnt = match &self.kind {
            Kind::Bytes => return Ok(text.bytes().map(u32::from).collect()),
            Kind::PersistedState(learnt) => learnt,
        };
        let no = |reason: String| DatasetError::NotTokenized { reason };
        // The rules of a loaded vocabulary are a stranger's: a panic costs the text, not the process.
        catch_unwind(AssertUnwindSafe(|| learnt.encode_fast(text, framed)))
            .unwrap_or_else(|_| Err("its rules fail on it".into()))
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| no(error.to_string()))
    }

    /// The text of tokens; special tokens are left out, broken characters are U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens
                    .iter()
                    .filter_map(|t| u8::try_from(*t).ok())
                    .collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::PersistedState(learnt) => learnt.decode(tokens, true).unwrap_or_default(),
        }
    }

    /// The vocabulary as a `tokenizer.json` that other programs read; bytes are byte pairs none of which was learnt.
    ///
    /// # Errors
    /// The library cannot write it.
    pub fn published(&self) -> Result<String, DatasetError> {
        match &self.kind {
            Kind::Bytes => Ok(bytes_alone()),
            Kind::PersistedState(learnt) => {
                learnt
                    .to_string(true)
                    .map_err(|error| DatasetError::Tokenizer {
                        what: "The vocabulary".to_owned(),
                        reason: error.to_string(),
                    })
            }
        }
    }

    /// The vocabulary as a `tokenizer.json`; nothing for bytes.
    pub fn to_json(&self) -> Option<String> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::PersistedState(learnt) => learnt.to_string(false).ok(),
        }
    }
}

/// Bytes in the words of the format, which writes each as a character: one that can be seen as itself, the others as those from
/// U+0100 on, in order (Radford et al. 2019).
fn bytes_alone() -> String {
    let seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let others = (0..=u8::MAX).filter(|byte| !seen(*byte));
    let others: Vec<u8> = others.collect();
    let character = |byte: u8| match others.binary_search(&byte) {
        Ok(place) => char::from_u32(0x100 + place as u32).unwrap_or_default(),
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

fn byte_pairs<'t>(
    size: usize,
    texts: impl Iterator<Item = &'t str> + Send,
) -> tokenizers::Result<PersistedState> {
    let mut learnt = PersistedState::new(BPE::default());
    learnt.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    learnt.with_decoder(Some(ByteLevel::default()));
    let trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(size)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END, true)])
        .build();
    learnt.train(&mut TrainerWrapper::from(trainer), texts)?;
    Ok(learnt)
}

fn word_pieces<'t>(
    size: usize,
    texts: impl Iterator<Item = &'t str> + Send,
) -> tokenizers::Result<PersistedState> {
    const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let mut learnt = PersistedState::new(WordPiece::default());
    learnt.with_normalizer(Some(BertNormalizer::default()))?;
    learnt.with_pre_tokenizer(Some(BertPreTokenizer));
    learnt.with_decoder(Some(decoders::wordpiece::WordPiece::default()));
    let trainer = WordPieceTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(size)
        .special_tokens(SPECIAL.map(|name| AddedToken::from(name, true)).to_vec())
        .build();
    learnt.train(&mut TrainerWrapper::from(trainer), texts)?;
    let frame = |name: &str| {
        (
            name.to_owned(),
            learnt.token_to_id(name).unwrap_or_default(),
        )
    };
    let frame = BertProcessing::new(frame("[SEP]"), frame("[CLS]"));
    learnt.with_post_processor(Some(frame));
    Ok(learnt)
}
