//! Encodes long texts with one vocabulary: on several threads, and words that occur again from a
//! cache. The tokens do not depend on the number of threads.

use super::tokenizer::Tokenizer;
use super::word_boundaries::{word_end, words};
use crate::error::DatasetError;
use std::collections::HashMap;

/// Bytes of a text that one thread encodes at once.
const STRIP_BYTES: usize = 1 << 20;
/// Most bytes of a word in the cache of a thread, and most words. They take about 15 MB.
const CACHED_WORD_BYTES: usize = 32;
const CACHED_WORDS: usize = 1 << 17;

/// Encodes texts with a vocabulary. It keeps a cache of words for each of its threads.
#[derive(Debug)]
pub struct TextEncoder<'t> {
    tokenizer: &'t Tokenizer,
    /// One for each thread.
    caches: Vec<WordCache>,
}

/// Takes tokens and the number of bytes of their text.
type TakeTokens<'f> = dyn FnMut(&[u32], usize) -> Result<(), DatasetError> + 'f;

impl<'t> TextEncoder<'t> {
    /// An encoder that uses up to `threads` threads for a long text.
    pub fn new(tokenizer: &'t Tokenizer, threads: usize) -> Self {
        let cache = || WordCache {
            uses_words: tokenizer.encodes_words_separately(),
            ..WordCache::default()
        };
        TextEncoder {
            tokenizer,
            caches: (0..threads.max(1)).map(|_| cache()).collect(),
        }
    }

    /// Encodes a text without special tokens, and passes on its tokens in order.
    ///
    /// # Errors
    /// The vocabulary has neither a token for a part of the text nor an unknown token, or `take`
    /// fails.
    pub fn encode(&mut self, text: &str, take: &mut TakeTokens) -> Result<(), DatasetError> {
        let mut rest = text;
        while !rest.is_empty() {
            let mut strips = Vec::with_capacity(self.caches.len());
            while strips.len() < self.caches.len() && !rest.is_empty() {
                let (strip, after) = rest.split_at(self.strip_end(rest));
                strips.push(strip);
                rest = after;
            }
            for (strip, tokens) in strips.iter().zip(self.encode_strips(&strips)?) {
                take(&tokens, strip.len())?;
            }
        }
        Ok(())
    }

    /// Encodes a text with the special tokens around it, such as `[CLS]` and `[SEP]`.
    ///
    /// # Errors
    /// See [`TextEncoder::encode`].
    pub fn encode_framed(&mut self, text: &str) -> Result<Vec<u32>, DatasetError> {
        if self.tokenizer.frames_texts() {
            return self.tokenizer.encode_framed(text);
        }
        let mut all = Vec::new();
        self.encode(text, &mut |tokens, _| {
            all.extend_from_slice(tokens);
            Ok(())
        })?;
        Ok(all)
    }

    /// The end of the first strip of a text that is not empty. A vocabulary that does not encode
    /// words separately gets whole lines, as far as they are not too long.
    fn strip_end(&self, text: &str) -> usize {
        if text.len() <= STRIP_BYTES {
            return text.len();
        }
        let end = text.floor_char_boundary(STRIP_BYTES);
        let line_end = text[..end].rfind('\n').map(|at| at + 1);
        let line_end = line_end.filter(|_| !self.caches[0].uses_words);
        line_end.unwrap_or_else(|| word_end(text, end))
    }

    /// The tokens of each strip. There are at most as many strips as caches, and at least one.
    fn encode_strips(&mut self, strips: &[&str]) -> Result<Vec<Vec<u32>>, DatasetError> {
        let tokenizer = self.tokenizer;
        if let [strip] = strips {
            return Ok(vec![self.caches[0].encode(tokenizer, strip)?]);
        }
        std::thread::scope(|scope| {
            let mut started = Vec::with_capacity(strips.len());
            for (strip, cache) in strips.iter().zip(&mut self.caches) {
                let thread = std::thread::Builder::new().name("tokens".to_owned());
                let thread = thread.spawn_scoped(scope, move || cache.encode(tokenizer, strip));
                started.push(thread.map_err(|error| DatasetError::Encode {
                    text: "a text".to_owned(),
                    reason: format!("no thread could be started: {error}"),
                })?);
            }
            let outcomes = started.into_iter();
            let outcomes = outcomes.map(|thread| match thread.join() {
                Ok(tokens) => tokens,
                Err(_) => Err(DatasetError::Encode {
                    text: "a text".to_owned(),
                    reason: "Ebb failed on this text; please report this fault".to_owned(),
                }),
            });
            outcomes.collect()
        })
    }
}

/// The tokens of words that have occurred.
#[derive(Debug, Default)]
struct WordCache {
    /// Whether the vocabulary encodes each word as if it were alone.
    uses_words: bool,
    /// Start and number of the tokens of each word.
    places: HashMap<Box<str>, (u32, u32)>,
    tokens: Vec<u32>,
}

impl WordCache {
    fn encode(&mut self, tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, DatasetError> {
        if !self.uses_words {
            return tokenizer.encode_whole(text);
        }
        let mut encoded = Vec::with_capacity(text.len() / 3);
        for word in words(text) {
            let is_short = word.len() <= CACHED_WORD_BYTES;
            let known = is_short.then(|| self.places.get(word)).flatten();
            if let Some(&(start, count)) = known {
                let tokens = &self.tokens[start as usize..][..count as usize];
                encoded.extend_from_slice(tokens);
                continue;
            }
            let tokens = tokenizer.encode_whole(word)?;
            encoded.extend_from_slice(&tokens);
            if is_short && self.places.len() < CACHED_WORDS {
                let place = (self.tokens.len() as u32, tokens.len() as u32);
                self.tokens.extend_from_slice(&tokens);
                self.places.insert(word.into(), place);
            }
        }
        Ok(encoded)
    }
}
