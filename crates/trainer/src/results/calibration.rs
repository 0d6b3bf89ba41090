//! Calibration: whether samples that a network is 80 % sure of are right 80 % of the time.

use crate::task::ClassPrediction;
use serde::{Deserialize, Serialize};

/// Number of bins of equal width.
const BINS: usize = 10;

/// Confidence beside accuracy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Bins of confidence from 0 to 1, of equal width.
    pub bins: Vec<CalibrationBin>,
    /// Expected calibration error (Guo et al. 2017): the mean distance between confidence and
    /// accuracy over all samples, from 0 to 1.
    pub expected_error: f64,
    /// Mean confidence minus accuracy; above 0 the network is too sure.
    pub overconfidence: f64,
}

/// The samples whose predicted class has a probability within one range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Number of samples.
    pub samples: u64,
    /// Mean probability of the predicted class; 0 without samples.
    pub confidence: f64,
    /// Fraction that is classified correctly; 0 without samples.
    pub accuracy: f64,
}

impl Calibration {
    /// `None` without predictions.
    pub(super) fn new(predictions: impl Iterator<Item = ClassPrediction>) -> Option<Self> {
        // For each bin: samples, summed confidence, correct predictions.
        let mut sums = [(0u64, 0.0, 0u64); BINS];
        for prediction in predictions {
            let bin = ((prediction.probability * BINS as f64) as usize).min(BINS - 1);
            sums[bin].0 += 1;
            sums[bin].1 += prediction.probability;
            sums[bin].2 += u64::from(prediction.class == prediction.predicted);
        }
        let samples: u64 = sums.iter().map(|sum| sum.0).sum();
        if samples == 0 {
            return None;
        }
        let all = samples as f64;
        let excess = |&(_, confidence, correct): &(u64, f64, u64)| confidence - correct as f64;
        let bin = |&(samples, confidence, correct): &(u64, f64, u64)| CalibrationBin {
            samples,
            confidence: confidence / samples.max(1) as f64,
            accuracy: correct as f64 / samples.max(1) as f64,
        };
        Some(Calibration {
            expected_error: sums.iter().map(|sum| excess(sum).abs()).sum::<f64>() / all,
            overconfidence: sums.iter().map(excess).sum::<f64>() / all,
            bins: sums.iter().map(bin).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_the_mean_distance_of_confidence_and_accuracy() {
        let prediction = |probability: f64, correct: bool| ClassPrediction {
            class: 0,
            predicted: u32::from(!correct),
            probability,
            class_probability: 0.0,
        };
        // Two of four are right at 0.95; one of one at 0.55; 1.0 belongs to the last bin.
        let predictions = [
            prediction(0.95, true),
            prediction(0.95, false),
            prediction(0.9, true),
            prediction(1.0, false),
            prediction(0.55, true),
        ];
        let found = Calibration::new(predictions.into_iter()).expect("there are samples");
        assert_eq!(found.bins.len(), 10);
        assert_eq!((found.bins[9].samples, found.bins[5].samples), (4, 1));
        assert!((found.bins[9].accuracy - 0.5).abs() < 1e-12);
        assert!((found.bins[9].confidence - 0.95).abs() < 1e-12);
        // (4 * 0.45 + 1 * 0.45) / 5.
        assert!((found.expected_error - 0.45).abs() < 1e-12, "{found:?}");
        // (4 * 0.45 - 1 * 0.45) / 5.
        assert!((found.overconfidence - 0.27).abs() < 1e-12, "{found:?}");
        assert_eq!(Calibration::new(std::iter::empty()), None);
    }
}
