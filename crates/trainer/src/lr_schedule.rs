//! The learning rate as a function of the step.

use std::f64::consts::PI;

/// Fraction of the peak rate that remains at the end of a cosine schedule.
const FLOOR: f64 = 0.01;

/// Factor by which a rising rate grows over the run.
const RISE: f64 = 1e6;

/// The shape of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LrSchedule {
    /// Linear warm-up, then half a cosine down to a hundredth of the peak.
    Cosine,
    /// From a millionth of the peak to the peak, by the same factor every step: a range test (Smith
    /// 2017).
    Rising,
}

/// A learning rate schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Peak learning rate.
    pub peak: f64,
    /// Steps of warm-up.
    pub warmup: u64,
    /// All steps.
    pub steps: u64,
    /// The shape of the schedule.
    pub lr_schedule: LrSchedule,
}

impl Schedule {
    /// The rate of a step, counted from 0 (Loshchilov and Hutter 2017, without restarts).
    pub fn rate(&self, step: u64) -> f64 {
        if self.lr_schedule == LrSchedule::Rising {
            let last = self.steps.saturating_sub(1).max(1) as f64;
            let done = (step as f64 / last).min(1.0);
            return self.peak * RISE.powf(done - 1.0);
        }
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
            lr_schedule: LrSchedule::Cosine,
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

    #[test]
    fn a_rising_rate_grows_by_the_same_factor_every_step() {
        let schedule = Schedule {
            peak: 1.0,
            warmup: 5,
            steps: 61,
            lr_schedule: LrSchedule::Rising,
        };
        assert!((schedule.rate(0) - 1e-6).abs() < 1e-18);
        assert!((schedule.rate(60) - 1.0).abs() < 1e-12);
        for step in 0..60 {
            let factor = schedule.rate(step + 1) / schedule.rate(step);
            assert!(
                (factor - 10f64.powf(0.1)).abs() < 1e-9,
                "step {step}: {factor}"
            );
        }
    }
}
