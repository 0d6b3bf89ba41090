//! The outputs of a baseline for the samples of one split, in memory.

/// Most bytes of outputs that a run holds. With more, the baseline is only compared.
const MAX_BYTES: usize = 64 << 20;

/// Outputs of a baseline: the class scores of each sample, then its regression targets.
#[derive(Debug, Clone, PartialEq)]
pub struct BaselineScores {
    /// Number of outputs per sample.
    width: usize,
    /// [samples, width].
    values: Vec<f32>,
}

impl BaselineScores {
    /// Whether a run holds the outputs of this many samples.
    pub(crate) fn fit_in_memory(samples: usize, width: usize) -> bool {
        samples.saturating_mul(width).saturating_mul(4) <= MAX_BYTES
    }

    /// The outputs `values`, [samples, width].
    pub(crate) fn new(width: usize, values: Vec<f32>) -> Self {
        BaselineScores { width, values }
    }

    /// The outputs for one sample: for each class the logarithm of its probability, plus a
    /// constant; then the regression targets. Empty if there is no such sample, or if it could not
    /// be read.
    pub(crate) fn for_sample(&self, index: u32) -> &[f32] {
        let start = index as usize * self.width;
        let scores = self.values.get(start..start + self.width);
        let scores = scores.filter(|scores| scores.iter().all(|score| score.is_finite()));
        scores.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_without_outputs_has_none() {
        let scores = BaselineScores::new(2, vec![1.0, 2.0, f32::NAN, f32::NAN]);
        assert_eq!(scores.for_sample(0), [1.0, 2.0]);
        assert!(scores.for_sample(1).is_empty() && scores.for_sample(2).is_empty());
        assert!(!BaselineScores::fit_in_memory(usize::MAX, 3));
    }
}
