//! A MinHash signature of a text (Broder, "On the resemblance and containment of documents", 1997):
//! the fraction of equal values of two signatures estimates the fraction of the runs of three words
//! that two texts share. Case, punctuation and white space do not count.

use crate::rng;

/// Values of a signature. The estimate has a standard error of at most 6 %.
const VALUES: usize = 64;
/// Words of a run.
const RUN: usize = 3;
/// Fewest equal values of texts that are nearly the same.
const MIN_EQUAL: usize = 52;
/// Texts are compared if all values of one of so many bands are equal: of texts that share 80 % of
/// their runs, 99.98 %.
pub(super) const BANDS: usize = 16;

/// A signature of a text.
#[derive(Debug, Clone)]
pub(super) struct TextSignature {
    // 16 bits of each value are enough, and need a quarter of the memory.
    values: [u16; VALUES],
}

impl TextSignature {
    /// The signature of a text; `None` if it has no letter and no digit.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let words: Vec<u64> = lower
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(rng::hash_text)
            .collect();
        if words.is_empty() {
            return None;
        }
        let mut least = [u64::MAX; VALUES];
        for run in words.windows(RUN.min(words.len())) {
            let run = run.iter().fold(0, |hash, word| rng::combine(hash, *word));
            for (key, least) in least.iter_mut().enumerate() {
                *least = (*least).min(rng::combine(run, key as u64));
            }
        }
        Some(TextSignature {
            values: least.map(|value| value as u16),
        })
    }

    /// A key of each band.
    pub(super) fn bands(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let bands = self.values.chunks_exact(VALUES / BANDS).enumerate();
        bands.map(|(band, values)| {
            let key = values
                .iter()
                .fold(0, |key, value| (key << 16) | u64::from(*value));
            (band, key)
        })
    }

    /// Whether the other text is nearly the same.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let pairs = self.values.iter().zip(&other.values);
        pairs.filter(|(a, b)| a == b).count() >= MIN_EQUAL
    }
}
