//! Counts the words of texts, from which a vocabulary of byte pairs is learned. Limits the memory
//! that counting and learning take: if a text has very many different words, rare ones are
//! forgotten.

use super::read_samples::read_samples;
use super::text_inspection::TextInspection;
use super::tokenizer_chunks::{MOST_LEARNED_BYTES, chunks};
use super::word_boundaries::words;
use crate::chat::plain_text;
use crate::error::DatasetError;
use crate::types::Split;
use ahash::AHashMap;
use compact_str::CompactString;
use std::collections::HashMap;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

/// Most different words while texts are read, and most bytes of all of them.
const MOST_WORDS: usize = 1 << 20;
const MOST_WORDS_BYTES: usize = 64 << 20;
/// Most bytes of a word. A longer one is cut.
const MOST_WORD_BYTES: usize = 256;
/// Most bytes of all words that a vocabulary is learned from. The library needs about sixty times
/// as much memory.
const MOST_LEARNED_WORDS_BYTES: usize = 4 << 20;

/// How often each word occurs.
#[derive(Debug, Clone, Default)]
pub struct WordCounts {
    counts: HashMap<Box<str>, u64>,
    /// Bytes of all words.
    bytes: usize,
}

impl WordCounts {
    /// Counts the words of a split, or of 64 MiB that are spread evenly over its texts. `goes_on`
    /// gets the number of bytes that are read, and returns false to stop.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection; [`DatasetError::Stopped`] after a
    /// stop.
    pub fn from_split(
        inspection: &TextInspection,
        split: Split,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Self, DatasetError> {
        let interval = inspection.split_bytes(split).div_ceil(MOST_LEARNED_BYTES);
        let (mut counted, mut number, mut done) = (Self::default(), 0u64, 0u64);
        let is_chat = inspection.has_conversations();
        read_samples(inspection, split, &mut |_, text| {
            let text = if is_chat {
                plain_text(text)
            } else {
                text.into()
            };
            for chunk in chunks(&text) {
                if number.is_multiple_of(interval.max(1)) {
                    counted.add(chunk);
                }
                number += 1;
                done += chunk.len() as u64;
                if !goes_on(done) {
                    return Err(DatasetError::Stopped);
                }
            }
            Ok(())
        })?;
        Ok(counted)
    }

    /// Counts the words of a text.
    pub(super) fn add(&mut self, text: &str) {
        for word in words(text) {
            let mut rest = word;
            while !rest.is_empty() {
                let end = rest.floor_char_boundary(MOST_WORD_BYTES.min(rest.len()));
                let (part, after) = rest.split_at(end);
                self.count(part);
                rest = after;
            }
        }
    }

    fn count(&mut self, word: &str) {
        if let Some(count) = self.counts.get_mut(word) {
            *count += 1;
            return;
        }
        if self.counts.len() >= MOST_WORDS || self.bytes >= MOST_WORDS_BYTES {
            self.forget_rare_words();
        }
        self.bytes += word.len();
        self.counts.insert(word.into(), 1);
    }

    /// Forgets at least half of the words, the rarest first. Depends only on the counts, so that
    /// the same texts give the same vocabulary.
    fn forget_rare_words(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable(middle);
        let median = *median;
        self.counts.retain(|_, count| *count > median);
        self.bytes = self.counts.keys().map(|word| word.len()).sum();
    }

    /// The most frequent words by GPT-2's rules, as the library wants them: each byte is a
    /// character.
    pub(super) fn most_frequent(self) -> tokenizers::Result<AHashMap<CompactString, u64>> {
        let rules = ByteLevel::new(false, true, true);
        let mut counts: AHashMap<CompactString, u64> = AHashMap::new();
        for (word, count) in self.counts {
            let mut split = PreTokenizedString::from(&*word);
            rules.pre_tokenize(&mut split)?;
            for (part, _, _) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
                *counts.entry(CompactString::from(part)).or_default() += count;
            }
        }
        let mut sorted: Vec<(CompactString, u64)> = counts.into_iter().collect();
        sorted.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut bytes = 0;
        let most_frequent = sorted.into_iter().take_while(|(word, _)| {
            bytes += word.len();
            bytes <= MOST_LEARNED_WORDS_BYTES
        });
        Ok(most_frequent.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_words_stay_when_there_are_too_many_different_ones() {
        let mut counts = WordCounts::default();
        for number in 0..MOST_WORDS {
            counts.add(&format!("{number:x}"));
            if number % 1000 == 0 {
                counts.add("frequent");
            }
        }
        counts.add("one more word");
        assert!(counts.counts.len() <= MOST_WORDS / 2);
        assert_eq!(counts.counts.get("frequent"), Some(&1049));
        let bytes: usize = counts.counts.keys().map(|word| word.len()).sum();
        assert_eq!(counts.bytes, bytes);
    }

    #[test]
    fn the_learned_words_are_limited_and_the_most_frequent() {
        let mut counts = WordCounts::default();
        let letter = |digit: u8| char::from(digit - b'0' + b'a');
        let long = |number: usize| {
            let name: String = number.to_string().bytes().map(letter).collect();
            format!(" {}{name}", "x".repeat(200))
        };
        for number in 0..MOST_LEARNED_WORDS_BYTES / 100 {
            counts.add(&long(number));
        }
        counts.add(&long(7));
        let words = counts.most_frequent().expect("the words can be split");
        let bytes: usize = words.keys().map(|word| word.len()).sum();
        assert!(bytes <= MOST_LEARNED_WORDS_BYTES && bytes > MOST_LEARNED_WORDS_BYTES / 2);
        assert!(words.values().any(|count| *count >= 2));
    }
}
