//! The n-grams of a text as hashes: words and pairs of words, and one to four characters inside
//! words. An exported baseline computes the same hashes in Python (`ngram_baseline.py`).

/// Longest n-gram of words.
const WORDS: usize = 2;
/// Longest n-gram of characters.
const CHARACTERS: usize = 4;
/// A text is read up to this many bytes.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Marks the n-grams of characters, so that "a" as a letter and "a" as a word differ.
const CHARACTER_KIND: u64 = 0;

/// The n-grams of one text, each once, with the weight `1 + ln(count)`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ngrams {
    /// N-grams of words, by hash.
    pub words: Vec<(u32, f32)>,
    /// N-grams of characters, by hash.
    pub characters: Vec<(u32, f32)>,
}

impl Ngrams {
    pub fn from_text(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let words = split_words(&text.to_lowercase());
        let (mut word_hashes, mut character_hashes) = (Vec::new(), Vec::new());
        for start in 0..words.len() {
            for length in 1..=WORDS.min(words.len() - start) {
                let ngram = words[start..start + length].join(" ");
                word_hashes.push(hash(length as u64, &ngram));
            }
        }
        for word in &words {
            let padded = format!(" {word} ");
            let ends = padded.char_indices().map(|(at, _)| at);
            let ends: Vec<usize> = ends.chain([padded.len()]).collect();
            for start in 0..ends.len() - 1 {
                for length in 1..=CHARACTERS.min(ends.len() - 1 - start) {
                    let ngram = &padded[ends[start]..ends[start + length]];
                    character_hashes.push(hash(CHARACTER_KIND, ngram));
                }
            }
        }
        Ngrams {
            words: counted(word_hashes),
            characters: counted(character_hashes),
        }
    }
}

/// The features of a text: the n-grams that `row` knows, each kind with the same norm, all with
/// norm 1.
pub(super) fn normalized(ngrams: &Ngrams, row: impl Fn(u32) -> Option<u32>) -> Vec<(u32, f32)> {
    let known = |ngrams: &[(u32, f32)]| -> Vec<(u32, f32)> {
        let known = ngrams
            .iter()
            .filter_map(|(hash, value)| Some((row(*hash)?, *value)));
        with_norm_one(known.collect())
    };
    let (mut words, characters) = (known(&ngrams.words), known(&ngrams.characters));
    words.extend(characters);
    with_norm_one(words)
}

fn with_norm_one(mut values: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    let squares: f32 = values.iter().map(|(_, value)| value * value).sum();
    let scale = 1.0 / squares.sqrt().max(f32::MIN_POSITIVE);
    for (_, value) in &mut values {
        *value *= scale;
    }
    values
}

/// Each hash once, in ascending order, with its weight.
fn counted(mut hashes: Vec<u32>) -> Vec<(u32, f32)> {
    hashes.sort_unstable();
    let same = hashes.chunk_by(|a, b| a == b);
    same.map(|same| (same[0], 1.0 + (same.len() as f32).ln()))
        .collect()
}

/// Words of letters, digits, apostrophes and underscores; every other visible character is a word
/// of its own.
fn split_words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in text.chars() {
        if character.is_alphanumeric() || character == '\'' || character == '_' {
            if let Some(word) = words.last_mut() {
                word.push(character);
            }
            continue;
        }
        if !character.is_whitespace() {
            words.push(character.to_string());
        }
        words.push(String::new());
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The upper half of FNV-1a, mixed (SplitMix64).
fn hash(kind: u64, ngram: &str) -> u32 {
    let start = 0xCBF2_9CE4_8422_2325 ^ kind.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    (mix(ngram.bytes().fold(start, fnv)) >> 32) as u32
}

/// The finalizer of SplitMix64.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_pairs_and_characters_are_counted() {
        let words = split_words("don't stop, stop");
        assert_eq!(words, ["don't", "stop", ",", "stop"]);
        let ngrams = Ngrams::from_text("A a B");
        let weight = |of: &[(u32, f32)], hash: u32| {
            let found = of.iter().find(|(other, _)| *other == hash);
            found.map(|(_, weight)| *weight)
        };
        let twice = 1.0 + 2f32.ln();
        assert_eq!(weight(&ngrams.words, hash(1, "a")), Some(twice));
        assert_eq!(weight(&ngrams.words, hash(2, "a a")), Some(1.0));
        assert_eq!(weight(&ngrams.words, hash(2, "a b")), Some(1.0));
        assert_eq!(ngrams.words.len(), 4);
        assert_eq!(weight(&ngrams.characters, hash(0, " a ")), Some(twice));
        // " ", "a", "b", " a", "a ", " b", "b ", " a ", " b ".
        assert_eq!(ngrams.characters.len(), 9);
    }

    #[test]
    fn a_hash_is_the_same_in_every_version() {
        // Recorded once; saved baselines and their Python file depend on it.
        assert_eq!(
            [hash(0, "é"), hash(2, "not good")],
            [590_611_297, 762_040_105]
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_TEXT_BYTES);
        let one_more = format!("{long}é");
        assert_eq!(Ngrams::from_text(&long), Ngrams::from_text(&one_more));
        assert_eq!(Ngrams::from_text(""), Ngrams::default());
    }

    #[test]
    fn both_kinds_of_ngrams_have_the_same_norm() {
        let ngrams = Ngrams::from_text("one two three");
        let features = normalized(&ngrams, Some);
        let norm = |of: &[(u32, f32)]| of.iter().map(|(_, value)| value * value).sum::<f32>();
        let (words, characters) = features.split_at(ngrams.words.len());
        assert!((norm(words) - 0.5).abs() < 1e-5 && (norm(characters) - 0.5).abs() < 1e-5);
        assert!(normalized(&ngrams, |_| None).is_empty());
    }
}
