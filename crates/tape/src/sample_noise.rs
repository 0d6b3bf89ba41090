//! What the random numbers of a training micro-batch are computed from.

use std::ops::Range;
use std::sync::Arc;

/// The keys of the random numbers of one training micro-batch, which a tape holds for operations
/// such as [`Tape::sample_dropout`](crate::Tape::sample_dropout).
#[derive(Debug, Clone)]
pub struct SampleNoise {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step.
    pub step: u64,
    /// The index of each sample in the dataset.
    pub samples: Arc<[u64]>,
}

impl SampleNoise {
    /// The noise of a range of the samples. If the range is outside of the samples, the result has
    /// no samples, and an operation that draws from it fails.
    pub(crate) fn for_samples(&self, range: &Range<usize>) -> Self {
        SampleNoise {
            samples: self.samples.get(range.clone()).unwrap_or(&[]).into(),
            ..*self
        }
    }
}
