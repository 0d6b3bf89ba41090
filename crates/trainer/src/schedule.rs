//! The learning rate as a pure function of the step: linear warm-up, then half a cosine down to a hundredth.

use std::f64::consts::PI;

/// Share of the peak rate that remains at the end.
const FLOOR: f64 = 0.01;

/// A learning-rate schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Peak learning rate.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// All steps.
    pub steps: u64,
}

impl Schedule {
    /// Rate of step `step`, counted from 0 (Loshchilov and Hutter 2017 without restarts).
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / self.warmup as f64;
        }
        let done =
            (step - self.warmup) as f64 / (self.steps.saturating_sub(self.warmup)).max(1) as f64;
        self.peak * (FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + (PI * done.min(1.0)).cos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_to_its_peak_and_falls_to_a_hundredth() {
        let schedule = Schedule {
            peak: 2.0,
            warmup: 4,
            steps: 104,
        };
        let check = |step, expected: f64| {
            let rate = schedule.rate(step);
            assert!(
                (rate - expected).abs() < 1e-12,
                "step {step}: {rate} instead of {expected}"
            );
        };
        check(0, 0.5);
        check(3, 2.0);
        check(4, 2.0);
        check(54, 2.0 * (FLOOR + (1.0 - FLOOR) * 0.5));
        check(104, 0.02);
        check(1000, 0.02);
    }
}
