//! Class scores of one sample: the rank of the correct class, and probabilities.

/// The rank of the correct class among the scores of one sample.
pub(super) struct Ranking {
    /// Classes with a higher score than the correct one.
    pub better: usize,
    /// The class with the highest score.
    pub best: u32,
}

impl Ranking {
    /// Ranks the correct class `label` among `scores`.
    pub fn new(scores: &[f64], label: u32) -> Self {
        let own = scores[label as usize];
        // Nothing compares as greater than NaN, but a NaN score is not a correct answer.
        let better = if own.is_finite() {
            let better = |score: &&f64| **score > own || score.is_nan();
            scores.iter().filter(better).count()
        } else {
            scores.len()
        };
        let best = (0..scores.len()).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        Ranking {
            better,
            best: best.unwrap_or(0) as u32,
        }
    }
}

/// The cross-entropy of the class `label`, in nats.
pub(super) fn cross_entropy(scores: &[f64], label: u32) -> f64 {
    log_sum_of_exponentials(scores) - scores[label as usize]
}

/// The weighted mean of the log-probabilities of two models. `share` is the weight of the baseline,
/// from 0 to 1.
pub(super) fn mixed(network: &[f64], baseline: &[f32], share: f64) -> Vec<f64> {
    let baseline: Vec<f64> = baseline.iter().map(|score| f64::from(*score)).collect();
    if share >= 1.0 {
        // Scores of the network that are not finite have no part in the result.
        return baseline;
    }
    let (of_network, of_baseline) = (
        log_sum_of_exponentials(network),
        log_sum_of_exponentials(&baseline),
    );
    let pairs = network.iter().zip(&baseline);
    let mean = pairs.map(|(network, baseline)| {
        (1.0 - share) * (network - of_network) + share * (baseline - of_baseline)
    });
    mean.collect()
}

fn log_sum_of_exponentials(scores: &[f64]) -> f64 {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
    highest + total.ln()
}

/// The probability of one class: its softmax among `scores`; 0 if that is not finite.
pub(super) fn confidence(scores: &[f64], label: u32) -> f64 {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
    let probability = (scores[label as usize] - highest).exp() / total;
    if probability.is_finite() {
        probability
    } else {
        0.0
    }
}

/// The softmax of one row of scores: labels and probabilities, the most probable first.
pub(super) fn class_probabilities(scores: &[f64]) -> Vec<(u32, f64)> {
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    let mut classes: Vec<(u32, f64)> = exponentials
        .iter()
        .enumerate()
        .map(|(i, e)| (i as u32, e / total))
        .collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_is_the_weighted_mean_of_log_probabilities() {
        let half = 0.5f64.ln();
        // Both models also have a constant on all scores, which must not count.
        let network = [0.9f64.ln() + 3.0, 0.1f64.ln() + 3.0];
        let baseline = [0.5f32, 0.5];
        let mixture = mixed(&network, &baseline, 0.25);
        let expected = [
            0.75 * 0.9f64.ln() + 0.25 * half,
            0.75 * 0.1f64.ln() + 0.25 * half,
        ];
        for (found, expected) in mixture.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{mixture:?}");
        }
        assert_eq!(mixed(&[f64::NAN, 0.0], &baseline, 1.0), [0.5, 0.5]);
    }

    #[test]
    fn the_cross_entropy_does_not_depend_on_a_constant() {
        let scores = [1.0, 3.0, -2.0];
        let shifted = scores.map(|score| score + 700.0);
        let expected = -confidence(&scores, 1).ln();
        assert!((cross_entropy(&scores, 1) - expected).abs() < 1e-12);
        assert!((cross_entropy(&shifted, 1) - expected).abs() < 1e-9);
    }
}
