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
