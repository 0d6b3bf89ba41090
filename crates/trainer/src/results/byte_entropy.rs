//! The entropy of the bytes of a text. A language model that has learned something needs fewer bits
//! per byte.

use super::Results;
use super::evaluated_texts::texts_of_split;
use crate::error::Result;
use runlog::RunFolder;

impl Results {
    /// The bits per byte that a model of single bytes needs for the evaluated texts of the run, if
    /// it knows their frequencies; `None` without texts.
    ///
    /// # Errors
    /// The run has no texts, or its files have moved or changed.
    pub fn byte_entropy(&self, run: &RunFolder) -> Result<Option<f64>> {
        let mut counts = [0u64; 256];
        let texts = texts_of_split(run, &self.report.part)?;
        for byte in texts.texts().flat_map(str::bytes) {
            counts[usize::from(byte)] += 1;
        }
        Ok(entropy(&counts))
    }
}

/// The Shannon entropy of a distribution with these counts, in bits; `None` if all are 0.
fn entropy(counts: &[u64]) -> Option<f64> {
    let all = counts.iter().sum::<u64>() as f64;
    let used = counts.iter().filter(|count| **count > 0);
    let bits = used.map(|count| {
        let fraction = *count as f64 / all;
        -fraction * fraction.log2()
    });
    (all > 0.0).then(|| bits.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_that_of_shannon() {
        assert_eq!(entropy(&[0, 0]), None);
        assert_eq!(entropy(&[7, 0]), Some(0.0));
        assert_eq!(entropy(&[2, 2, 2, 2]), Some(2.0));
        assert_eq!(entropy(&[2, 1, 1]), Some(1.5));
    }
}
