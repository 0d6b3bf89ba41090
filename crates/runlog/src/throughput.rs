//! Training speed: samples per second over the last seconds, and the remaining time at the speed of
//! the last minute. The only clock is that of the events.

use std::collections::VecDeque;

/// Steps of the last 10 s determine the samples per second.
const SPEED_MS: u64 = 10_000;
/// Steps of the last minute determine the remaining time.
const STEP_TIME_MS: u64 = 60_000;
/// At least this many steps are used, however old they are.
const MIN_STEPS: usize = 3;

#[derive(Debug, Clone, Default)]
pub(crate) struct Throughput {
    steps: VecDeque<StepTime>,
}

#[derive(Debug, Clone, Copy)]
struct StepTime {
    at_ms: u64,
    samples: f64,
    seconds: f64,
}

impl Throughput {
    /// Adds a step of `samples` samples that finished at `at_ms`. A speed that is not a positive
    /// number is ignored.
    pub fn add_step(&mut self, at_ms: u64, samples: f64, samples_per_second: f64) {
        let seconds = samples / samples_per_second;
        if seconds.is_finite() && seconds > 0.0 {
            self.steps.push_back(StepTime {
                at_ms,
                samples,
                seconds,
            });
        }
        while self.steps.len() > MIN_STEPS
            && self
                .steps
                .front()
                .is_some_and(|first| first.at_ms + STEP_TIME_MS < at_ms)
        {
            self.steps.pop_front();
        }
    }

    /// Forgets all steps: the training was interrupted, and its speed may be different afterwards.
    pub fn reset(&mut self) {
        self.steps.clear();
    }

    /// Samples per second of training time, without pauses and evaluations.
    pub fn samples_per_second(&self) -> Option<f64> {
        let newest = self.steps.back()?.at_ms;
        let recent = self
            .steps
            .iter()
            .rev()
            .take_while(|step| step.at_ms + SPEED_MS >= newest);
        let (samples, seconds) = recent.fold((0.0, 0.0), |(samples, seconds), step| {
            (samples + step.samples, seconds + step.seconds)
        });
        Some(samples / seconds)
    }

    /// Estimated seconds for `steps` more steps, including evaluations and checkpoints at the
    /// frequency of the last minute.
    pub fn seconds_for(&self, steps: u64) -> Option<f64> {
        let (first, last) = (self.steps.front()?, self.steps.back()?);
        let intervals = self.steps.len() - 1;
        let seconds_per_step = match last.at_ms.saturating_sub(first.at_ms) {
            0 => last.seconds,
            ms => ms as f64 / 1000.0 / intervals as f64,
        };
        Some(steps as f64 * seconds_per_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_covers_the_last_seconds() {
        let mut throughput = Throughput::default();
        assert_eq!(throughput.samples_per_second(), None);
        throughput.add_step(1_000, 64.0, 8.0);
        throughput.add_step(30_000, 64.0, 32.0);
        throughput.add_step(34_000, 64.0, 16.0);
        // 128 samples in 2 + 4 s; the step at 1 s is too old, the time between the steps does not
        // count.
        assert_eq!(throughput.samples_per_second(), Some(128.0 / 6.0));
    }

    #[test]
    fn remaining_time_includes_the_gaps_between_steps() {
        let mut throughput = Throughput::default();
        throughput.add_step(2_000, 64.0, 32.0);
        assert_eq!(throughput.seconds_for(10), Some(20.0));
        throughput.add_step(6_000, 64.0, 32.0);
        assert_eq!(throughput.seconds_for(10), Some(40.0));
        throughput.reset();
        assert_eq!(throughput.seconds_for(10), None);
    }

    #[test]
    fn remaining_time_uses_the_last_minute() {
        let mut throughput = Throughput::default();
        (0..10).for_each(|i| throughput.add_step(i * 20_000, 64.0, 3.2));
        (1..=70).for_each(|i| throughput.add_step(180_000 + i * 1_000, 64.0, 64.0));
        assert_eq!(throughput.seconds_for(100), Some(100.0));
    }

    #[test]
    fn a_step_without_a_speed_is_ignored() {
        let mut throughput = Throughput::default();
        throughput.add_step(1_000, 64.0, 32.0);
        throughput.add_step(2_000, 64.0, f64::NAN);
        throughput.add_step(3_000, 0.0, 0.0);
        assert_eq!(throughput.samples_per_second(), Some(32.0));
    }
}
