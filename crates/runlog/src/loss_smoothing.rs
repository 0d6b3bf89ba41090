//! The smoothed loss: a bias-corrected exponential moving average, as in Adam (Kingma & Ba 2015).

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
}
