//! How fast the training goes: samples per second over the last seconds, and the seconds that are left by the pace of
//! the last minute. The clock is the events' own.

use std::collections::VecDeque;

/// Steps younger than this make up samples per second.
const SPEED_MS: u64 = 10_000;
/// Steps younger than this make up the pace.
const PACE_MS: u64 = 60_000;
/// A slow training keeps this many steps, however old.
const FEWEST: usize = 3;

#[derive(Debug, Clone, Default)]
pub(crate) struct Pace {
    steps: VecDeque<Worked>,
}

#[derive(Debug, Clone, Copy)]
struct Worked {
    at_ms: u64,
    samples: f64,
    seconds: f64,
}

impl Pace {
    /// One step was done at `at_ms` with `samples` samples at a speed of its own.
    pub fn step(&mut self, at_ms: u64, samples: f64, samples_per_second: f64) {
        let seconds = samples / samples_per_second;
        if seconds.is_finite() && seconds > 0.0 {
            self.steps.push_back(Worked {
                at_ms,
                samples,
                seconds,
            });
        }
        while self.steps.len() > FEWEST
            && self
                .steps
                .front()
                .is_some_and(|first| first.at_ms + PACE_MS < at_ms)
        {
            self.steps.pop_front();
        }
    }

    /// Work stopped for a while: what was before says nothing of what comes.
    pub fn interrupt(&mut self) {
        self.steps.clear();
    }

    /// Samples per second of work, pauses and evaluations left out.
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

    /// Seconds that `steps` more steps take, evaluations and checkpoints included as they came in the last minute.
    pub fn seconds_for(&self, steps: u64) -> Option<f64> {
        let (first, last) = (self.steps.front()?, self.steps.back()?);
        let between = self.steps.len() - 1;
        let a_step = match last.at_ms.saturating_sub(first.at_ms) {
            0 => last.seconds,
            ms => ms as f64 / 1000.0 / between as f64,
        };
        Some(steps as f64 * a_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.samples_per_second(), None);
        pace.step(1_000, 64.0, 8.0);
        pace.step(30_000, 64.0, 32.0);
        pace.step(34_000, 64.0, 16.0);
        // 128 samples in 2 + 4 s; the step at 1 s is too old, the second without work does not count.
        assert_eq!(pace.samples_per_second(), Some(128.0 / 6.0));
    }

    #[test]
    fn the_time_left_counts_what_lies_between_the_steps() {
        let mut pace = Pace::default();
        pace.step(2_000, 64.0, 32.0);
        assert_eq!(pace.seconds_for(10), Some(20.0));
        pace.step(6_000, 64.0, 32.0);
        assert_eq!(pace.seconds_for(10), Some(40.0));
        pace.interrupt();
        assert_eq!(pace.seconds_for(10), None);
    }

    #[test]
    fn only_the_last_minute_sets_the_pace() {
        let mut pace = Pace::default();
        (0..10).for_each(|i| pace.step(i * 20_000, 64.0, 3.2));
        (1..=70).for_each(|i| pace.step(180_000 + i * 1_000, 64.0, 64.0));
        assert_eq!(pace.seconds_for(100), Some(100.0));
    }

    #[test]
    fn a_step_without_a_speed_does_not_spoil_it() {
        let mut pace = Pace::default();
        pace.step(1_000, 64.0, 32.0);
        pace.step(2_000, 64.0, f64::NAN);
        pace.step(3_000, 0.0, 0.0);
        assert_eq!(pace.samples_per_second(), Some(32.0));
    }
}
