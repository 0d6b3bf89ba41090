//! How an effective batch is split into micro-batches.

use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use tape::Rng;
use trainer::{Result, TrainError};

/// Sizes of the micro-batches of an effective batch, in order; each at least 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct BatchSplit(Vec<usize>);

/// A split of more micro-batches is abbreviated when it is printed.
const MOST_PRINTED: usize = 6;

impl BatchSplit {
    /// Micro-batches of `size`. The last one is smaller if `size` does not divide `samples`.
    pub fn even(samples: usize, size: usize) -> Self {
        let size = size.max(1);
        BatchSplit(
            (0..samples.div_ceil(size))
                .map(|i| size.min(samples - i * size))
                .collect(),
        )
    }

    /// All samples in one micro-batch.
    pub fn unsplit(samples: usize) -> Self {
        BatchSplit::even(samples, samples)
    }

    /// Micro-batches of random sizes.
    pub fn random(samples: usize, stream: Rng) -> Self {
        let (mut left, mut sizes) = (samples, Vec::new());
        while left > 0 {
            let size = 1 + (stream.uniform(sizes.len() as u64) * left as f64) as usize;
            sizes.push(size.min(left));
            left -= size.min(left);
        }
        BatchSplit(sizes)
    }

    /// Parses sizes such as `5+5+5+1`.
    pub fn parse(text: &str) -> Option<Self> {
        let sizes: Option<Vec<usize>> = text
            .split('+')
            .map(|size| size.trim().parse().ok())
            .collect();
        sizes
            .filter(|sizes| sizes.iter().all(|&size| size > 0))
            .map(BatchSplit)
    }

    /// Sum of all sizes.
    pub fn samples(&self) -> usize {
        self.0.iter().sum()
    }

    /// Sizes of the micro-batches, in order.
    pub fn sizes(&self) -> &[usize] {
        &self.0
    }

    /// The range of samples of each micro-batch.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().scan(0, |from, size| {
            let range = *from..*from + size;
            *from = range.end;
            Some(range)
        })
    }
}

impl Display for BatchSplit {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let (count, sizes) = (self.0.len(), &self.0);
        let (least, most) = (
            sizes.iter().min().unwrap_or(&0),
            sizes.iter().max().unwrap_or(&0),
        );
        if count <= MOST_PRINTED {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            write!(f, "{}", sizes.join("+"))
        } else if least == most {
            write!(f, "{count} x {most}")
        } else {
            write!(f, "{count} x {least} to {most}")
        }
    }
}

/// Which splits are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitSelection {
    /// The unsplit batch once more, halves, a size that does not divide the batch, single samples,
    /// and `random` random splits.
    Standard {
        /// Number of random splits.
        random: usize,
    },
    /// These splits, whose sizes must add up to the effective batch.
    Listed(Vec<BatchSplit>),
}

impl Default for SplitSelection {
    fn default() -> Self {
        SplitSelection::Standard { random: 4 }
    }
}

impl SplitSelection {
    /// Parses the number of random splits, or a list such as `5+5+5+1,8+8`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(random) = text.parse() {
            return Some(SplitSelection::Standard { random });
        }
        let splits: Option<Vec<BatchSplit>> = text.split(',').map(BatchSplit::parse).collect();
        splits.map(SplitSelection::Listed)
    }

    /// The different splits of an effective batch of `samples`. `stream` decides the random ones.
    ///
    /// # Errors
    /// The sizes of a listed split do not add up to `samples`.
    pub fn for_batch(&self, samples: usize, stream: Rng) -> Result<Vec<BatchSplit>> {
        match self {
            SplitSelection::Listed(splits) => {
                match splits.iter().find(|split| split.samples() != samples) {
                    None => Ok(splits.clone()),
                    Some(odd) => Err(TrainError::Setting {
                        key: "splits",
                        value: odd.to_string(),
                        allowed: format!(
                            "the sizes must add up to the {samples} samples of the effective batch"
                        ),
                    }),
                }
            }
            SplitSelection::Standard { random } => {
                let third = (samples / 3).max(2);
                let uneven = (third..samples).find(|size| !samples.is_multiple_of(*size));
                let mut splits = vec![
                    BatchSplit::unsplit(samples),
                    BatchSplit::even(samples, samples.div_ceil(2)),
                ];
                splits.extend(uneven.map(|size| BatchSplit::even(samples, size)));
                splits.push(BatchSplit::even(samples, 1));
                splits
                    .extend((0..*random as u64).map(|i| BatchSplit::random(samples, stream.at(i))));
                let mut unique: Vec<BatchSplit> = Vec::new();
                for split in splits {
                    if !unique.contains(&split) {
                        unique.push(split);
                    }
                }
                Ok(unique)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(samples: usize, random: usize) -> Vec<String> {
        let splits = SplitSelection::Standard { random }.for_batch(samples, Rng::new(1));
        splits.unwrap().iter().map(BatchSplit::to_string).collect()
    }

    #[test]
    fn one_standard_split_does_not_divide_the_batch() {
        assert_eq!(standard(16, 0), ["16", "8+8", "5+5+5+1", "16 x 1"]);
        assert_eq!(standard(12, 0), ["12", "6+6", "5+5+2", "12 x 1"]);
        assert_eq!(standard(7, 0), ["7", "4+3", "2+2+2+1", "7 x 1"]);
        assert_eq!(standard(3, 0), ["3", "2+1", "1+1+1"]);
        assert_eq!(standard(2, 3), ["2", "1+1"]);
        assert_eq!(standard(1, 3), ["1"]);
    }

    #[test]
    fn every_split_adds_up_to_the_batch() {
        for samples in 1..40 {
            let splits = SplitSelection::Standard { random: 20 };
            for split in splits.for_batch(samples, Rng::new(2)).unwrap() {
                assert_eq!(split.samples(), samples, "{split}");
                assert!(split.sizes().iter().all(|&size| size > 0), "{split}");
                let ranges: Vec<usize> = split.ranges().flatten().collect();
                assert_eq!(ranges, (0..samples).collect::<Vec<_>>(), "{split}");
            }
        }
    }

    #[test]
    fn splits_are_parsed() {
        let listed = |splits: &[&[usize]]| {
            Some(SplitSelection::Listed(
                splits
                    .iter()
                    .map(|sizes| BatchSplit(sizes.to_vec()))
                    .collect(),
            ))
        };
        assert_eq!(
            SplitSelection::parse("5+5+5+1,8+8"),
            listed(&[&[5, 5, 5, 1], &[8, 8]])
        );
        assert_eq!(
            SplitSelection::parse("12"),
            Some(SplitSelection::Standard { random: 12 })
        );
        for wrong in ["", "5+", "5+0", "a", "8+8,", "-1", "2.5"] {
            assert_eq!(SplitSelection::parse(wrong), None, "{wrong}");
        }
        let error = SplitSelection::parse("5+5")
            .unwrap()
            .for_batch(16, Rng::new(1))
            .unwrap_err();
        assert!(error.to_string().contains("5+5") && error.to_string().contains("16 samples"));
    }
}
