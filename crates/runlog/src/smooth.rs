//! The smoothed loss: an exponential moving average without the pull of its start. Knows one number at a time.

/// Weight of what was; a new loss counts 0.1, so the average looks back about ten steps.
const KEEP: f64 = 0.9;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Smooth {
    sum: f64,
    weight: f64,
}

impl Smooth {
    /// Adds a loss. One that is not finite is left out; `None` before the first that is.
    pub fn next(&mut self, loss: f64) -> Option<f64> {
        if loss.is_finite() {
            self.sum = KEEP * self.sum + (1.0 - KEEP) * loss;
            self.weight = KEEP * self.weight + (1.0 - KEEP);
        }
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_not_pulled_towards_zero() {
        let mut smooth = Smooth::default();
        assert_eq!(smooth.next(f64::NAN), None);
        for _ in 0..50 {
            let value = smooth.next(3.0).expect("a finite loss was added");
            assert!((value - 3.0).abs() < 1e-12, "{value}");
        }
    }

    #[test]
    fn a_loss_that_is_not_finite_leaves_the_average_alone() {
        let mut smooth = Smooth::default();
        smooth.next(2.0);
        assert_eq!(smooth.next(f64::INFINITY), Some(2.0));
        assert!(
            smooth
                .next(1.0)
                .is_some_and(|value| value < 2.0 && value > 1.0)
        );
    }
}
