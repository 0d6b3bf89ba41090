//! The entropy of the bytes of a text. A language model that has learned something needs fewer bits
//! per byte.

use super::Results;
use super::evaluated_texts::split_of_run;
use crate::error::Result;
use dataset::read_texts;
use runlog::RunFolder;

/// Bytes of the evaluated texts that are counted.
const MOST_COUNTED_BYTES: u64 = 64 << 20;

impl Results {
    /// The bits per byte that a model of single bytes needs for the evaluated texts of the run, or
    /// for the first 64 MiB of them, if it knows their frequencies; `None` without texts.
    ///
    /// # Errors
    /// The run has no texts, or its files have moved or changed.
    pub fn byte_entropy(&self, run: &RunFolder) -> Result<Option<f64>> {
        let mut counts = [0u64; 256];
        let (found, split) = split_of_run(run, &self.report.part)?;
        let mut done = 0;
        read_texts(&found, split, &mut |text| {
            let bytes = text.as_bytes();
            let count = bytes.len().min((MOST_COUNTED_BYTES - done) as usize);
            for byte in &bytes[..count] {
                counts[usize::from(*byte)] += 1;
            }
            done += count as u64;
            done < MOST_COUNTED_BYTES
        })?;
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
