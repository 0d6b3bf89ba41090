//! How much memory Ebb allows itself now: what is available, less the reserve, less what other apps
//! may take while a micro-batch runs.

use crate::forecast_other_apps::History;
use crate::memory_sample::{Component, MemorySample};
use crate::policy::Policy;

/// Limits on Ebb's footprint, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// What a micro-batch may reach.
    pub bytes: u64,
    /// What the machine alone would allow, without cap and device.
    pub machine_bytes: u64,
    /// What a single sample may reach before the controller pauses. Only the machine counts here,
    /// neither cap nor device, because waiting would not raise those.
    pub pause_bytes: u64,
    /// What `pause_bytes` leaves for sudden growth beyond the forecast. A pause can still answer
    /// that, so a single sample may use it.
    pub pause_margin_bytes: u64,
    /// What limits `bytes`: the machine or the device; `None` for the user's cap.
    pub cause: Option<Component>,
}

impl Budget {
    /// The budget over the next `horizon_ms`.
    pub(crate) fn new(
        policy: &Policy,
        history: &History,
        sample: &MemorySample,
        horizon_ms: u64,
    ) -> Self {
        let ram = sample.total_bytes as f64;
        let now = sample.others_and_system_bytes() as f64;
        let growth = (history.forecast_bytes(policy, now, horizon_ms) - now).max(0.0);
        let margin = history.margin_bytes(policy, sample) as f64;
        // Forecast and margin cover the same moments, so the larger one covers both.
        let free = sample.available_bytes as f64 - growth.max(margin);
        let own = sample.own_bytes as f64;
        let machine = own + free - reserve_bytes(policy, sample) as f64;
        let device = match sample.device_limit_bytes {
            0 => f64::INFINITY,
            limit => policy.device_fraction * limit as f64,
        };
        let cap = policy
            .cap_bytes(sample.total_bytes)
            .map_or(f64::INFINITY, |cap| cap as f64);
        let bytes = machine.min(device).min(cap);
        let pause_line = policy.pause_fraction.max(policy.max_system_fraction);
        Self {
            bytes: bytes.max(0.0) as u64,
            machine_bytes: machine.max(0.0) as u64,
            pause_bytes: (own + free - (1.0 - pause_line) * ram).max(0.0) as u64,
            pause_margin_bytes: (margin - growth).max(0.0) as u64,
            cause: match bytes {
                b if b == machine => Some(Component::Headroom),
                b if b == device => Some(Component::Device),
                _ => None,
            },
        }
    }

    /// The budget that is left for micro-batches if `bytes` of the footprint are in use otherwise.
    pub(crate) fn less(self, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(bytes),
            machine_bytes: self.machine_bytes.saturating_sub(bytes),
            pause_bytes: self.pause_bytes.saturating_sub(bytes),
            pause_margin_bytes: self.pause_margin_bytes,
            cause: self.cause,
        }
    }
}

/// Bytes that are left to other apps and the system in any case.
pub(crate) fn reserve_bytes(policy: &Policy, sample: &MemorySample) -> u64 {
    let by_fraction = (1.0 - policy.max_system_fraction) * sample.total_bytes as f64;
    (by_fraction as u64).max(policy.min_reserve_bytes(sample.total_bytes))
}

impl Policy {
    /// Bytes that all processes together may use while Ebb trains.
    pub fn limit_bytes(&self, sample: &MemorySample) -> u64 {
        sample
            .total_bytes
            .saturating_sub(reserve_bytes(self, sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::GB;

    /// A machine of 40 GB: Ebb uses 10 GB, others use `others` GB.
    fn sample(at_ms: u64, others: f64) -> MemorySample {
        MemorySample {
            at_ms,
            total_bytes: 40 * GB,
            own_bytes: 10 * GB,
            available_bytes: ((30.0 - others) * GB as f64) as u64,
            ..MemorySample::default()
        }
    }

    /// A minute of samples.
    fn recorded(policy: &Policy, others: impl Fn(u64) -> f64) -> History {
        let mut history = History::default();
        for i in 0..600 {
            history.record(policy, &sample(i * 100, others(i)));
        }
        history
    }

    fn check(
        policy: &Policy,
        history: &History,
        sample: &MemorySample,
        horizon_ms: u64,
        expected: f64,
    ) {
        let budget = Budget::new(policy, history, sample, horizon_ms).bytes as f64 / GB as f64;
        assert!(
            (budget - expected).abs() < 0.02,
            "{budget} GB, not {expected}"
        );
    }

    #[test]
    fn without_a_history_reserve_and_initial_margin_are_left_free() {
        let policy = Policy::default();
        // 10 own + 20 free - 4 reserve - 3 % of 40
        check(&policy, &History::default(), &sample(0, 10.0), 1_000, 24.8);
    }

    #[test]
    fn the_smallest_limit_is_used() {
        let history = History::default();
        let device = MemorySample {
            device_limit_bytes: 20 * GB,
            ..sample(0, 10.0)
        };
        check(&Policy::default(), &history, &device, 1_000, 19.0);
        let capped = Policy {
            memory_cap_bytes: Some(8 * GB),
            ..Policy::default()
        };
        check(&capped, &history, &device, 1_000, 8.0);
        let a_third = Policy {
            memory_cap_fraction: Some(Policy::TARGET_FRACTION / 2.0),
            ..Policy::default()
        };
        check(&a_third, &history, &device, 1_000, 40.0 / 3.0);
        let considerate = Policy {
            max_system_fraction: 0.5,
            ..Policy::default()
        };
        check(&considerate, &history, &sample(0, 10.0), 1_000, 8.8);
    }

    #[test]
    fn a_small_machine_keeps_the_floor_but_at_most_a_fifth() {
        for (total, floor) in [(5 * GB, 0.75), (2 * GB, 0.4)] {
            let sample = MemorySample {
                total_bytes: total,
                available_bytes: total,
                ..MemorySample::default()
            };
            let expected = total as f64 / GB as f64 * 0.97 - floor;
            check(
                &Policy::default(),
                &History::default(),
                &sample,
                1_000,
                expected,
            );
        }
    }

    #[test]
    fn steady_others_give_the_smallest_margin() {
        let policy = Policy::default();
        check(
            &policy,
            &recorded(&policy, |_| 10.0),
            &sample(59_900, 10.0),
            1_000,
            25.6,
        );
    }

    #[test]
    fn a_rising_slope_counts_if_it_exceeds_the_margin() {
        let policy = Policy::default();
        // 0.1 GB per second: 0.06 within `sudden_ms`, below the smallest margin of 0.4.
        let history = recorded(&policy, |i| 4.0 + i as f64 / 100.0);
        let now = sample(59_900, 9.99);
        check(&policy, &history, &now, 0, 25.61);
        check(&policy, &history, &now, 10_000, 25.01);
    }

    #[test]
    fn a_falling_slope_adds_nothing() {
        let policy = Policy::default();
        let history = recorded(&policy, |i| 16.0 - i as f64 / 100.0);
        check(&policy, &history, &sample(59_900, 10.01), 10_000, 25.59);
    }

    #[test]
    fn sudden_growth_raises_the_margin_for_a_minute() {
        let policy = Policy::default();
        // Every ten seconds others take 2 GB within 0.1 s and free them again.
        let history = recorded(&policy, |i| if i % 100 < 5 { 12.0 } else { 10.0 });
        check(&policy, &history, &sample(59_900, 10.0), 0, 24.0);
    }
}
