//! Sums and products of rows of numbers, always in the same order.

/// Values that a sum adds side by side, so that the compiler uses vector instructions.
const LANES: usize = 16;

/// Adds `factor` times `values` to `sum`.
pub(super) fn add_scaled(sum: &mut [f32], values: &[f32], factor: f32) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// The sum of the products of two rows of equal length.
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (left, right) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = left.remainder().iter().zip(right.remainder());
    let rest: f32 = rest.map(|(left, right)| left * right).sum();
    for (left, right) in left.zip(right) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The logarithm of the probability of one class: of its softmax among `scores`.
pub(super) fn log_softmax(scores: &[f32], label: usize) -> f32 {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = scores.iter().map(|score| (score - highest).exp()).sum();
    scores[label] - highest - total.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_products_includes_the_last_values() {
        let values: Vec<f32> = (1..=19).map(|value| value as f32).collect();
        assert_eq!(dot(&values, &values), 2470.0);
    }

    #[test]
    fn probabilities_add_up_to_one() {
        let scores = [3.0, -1.0, 200.0];
        let total: f32 = (0..3).map(|label| log_softmax(&scores, label).exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
    }
}
