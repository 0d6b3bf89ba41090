//! The smoothed loss: a bias-corrected exponential moving average, as in Adam (Kingma & Ba 2015).

use std::ops::Range;

/// Decay per step: the average covers about ten steps.
const DECAY: f64 = 0.9;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LossSmoother {
    sum: f64,
    weight: f64,
}

impl LossSmoother {
    /// Adds a loss and returns the average. A loss that is not finite is ignored; before the first
    /// finite one the average is `None`.
    pub fn next(&mut self, loss: f64) -> Option<f64> {
        if loss.is_finite() {
            self.sum = DECAY * self.sum + (1.0 - DECAY) * loss;
            self.weight = DECAY * self.weight + (1.0 - DECAY);
        }
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// The average of `losses` at each index of `range`, over about `steps` steps; 0 elsewhere. Losses
/// more than eight times as far before the range have no weight.
pub(crate) fn smoothed(losses: &[f32], range: Range<usize>, steps: f64) -> Vec<f32> {
    let mut out = vec![0.0; losses.len()];
    let decay = 1.0 - 1.0 / steps.max(1.0);
    let before = (8.0 * steps.max(1.0)) as usize;
    let (mut sum, mut weight) = (0.0, 0.0);
    for index in range.start.saturating_sub(before)..range.end.min(losses.len()) {
        let loss = f64::from(losses[index]);
        if loss.is_finite() {
            sum = decay * sum + (1.0 - decay) * loss;
            weight = decay * weight + (1.0 - decay);
        }
        out[index] = if weight > 0.0 {
            (sum / weight) as f32
        } else {
            f32::NAN
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_not_biased_towards_zero() {
        let mut smoother = LossSmoother::default();
        assert_eq!(smoother.next(f64::NAN), None);
        for _ in 0..50 {
            let value = smoother.next(3.0).expect("a finite loss was added");
            assert!((value - 3.0).abs() < 1e-12, "{value}");
        }
    }

    #[test]
    fn a_non_finite_loss_is_ignored() {
        let mut smoother = LossSmoother::default();
        smoother.next(2.0);
        assert_eq!(smoother.next(f64::INFINITY), Some(2.0));
        assert!(
            smoother
                .next(1.0)
                .is_some_and(|value| value < 2.0 && value > 1.0)
        );
    }

    #[test]
    fn ten_steps_are_the_usual_average() {
        let losses: Vec<f32> = (0..400).map(|i| (i % 13) as f32).collect();
        let mut smoother = LossSmoother::default();
        let usual: Vec<_> = losses
            .iter()
            .map(|loss| smoother.next(f64::from(*loss)))
            .collect();
        for range in [0..400, 200..300] {
            let part = smoothed(&losses, range.clone(), 10.0);
            for index in range {
                let difference = usual[index].map(|usual| (usual - f64::from(part[index])).abs());
                assert!(
                    difference.is_some_and(|it| it < 0.01),
                    "{index}: {difference:?}"
                );
            }
        }
        assert_eq!(
            smoothed(&losses, 5..6, 1.0)[5],
            5.0,
            "one step is no average"
        );
    }
}
