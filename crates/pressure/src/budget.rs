//! How much Ebb allows itself now: what is there, less what is promised to others, less what they may take while a piece
//! runs. Knows no batch and no model.

use crate::policy::Policy;
use crate::sample::{Component, MemorySample};
use crate::state::State;

/// Others must be seen growing at least this often before a quantile means anything.
const PAIRS_LEAST: usize = 10;
/// Fewest points of a slope. Where samples are far apart the newest ones count, however old.
const SLOPE_POINTS: usize = 3;
/// Samples further apart than this tell no slope, milliseconds.
const SLOPE_STALE_MS: u64 = 10_000;

/// Footprints in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// What a piece may reach.
    pub bytes: u64,
    /// What the machine alone would allow, without cap and device.
    pub machine_bytes: u64,
    /// What a single sample may reach before the pilot pauses: the machine alone counts here, neither cap nor device,
    /// because waiting would not raise those.
    pub pause_bytes: u64,
    /// What holds `bytes` down: the machine, or the device. The user's cap speaks as `None`.
    pub cause: Option<Component>,
}

/// Footprint that Ebb allows itself over the next `horizon_ms`, in bytes.
pub fn budget_bytes(policy: &Policy, state: &State, sample: &MemorySample, horizon_ms: u64) -> u64 {
    budget(policy, state, sample, horizon_ms).bytes
}

/// The same with what the controller needs beside it.
pub(crate) fn budget(
    policy: &Policy,
    state: &State,
    sample: &MemorySample,
    horizon_ms: u64,
) -> Budget {
    let ram = sample.total_bytes as f64;
    let now = now_bytes(sample);
    let ahead = (others_ahead(policy, state, now, horizon_ms) - now).max(0.0);
    let margin = margin_bytes(policy, state, sample) as f64;
    // Both are about the same moments to come: what is forecast, and what no slope announces. The larger one covers both.
    let reserved = ahead.max(margin);
    let free = sample.available_bytes as f64 - reserved;
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
    Budget {
        bytes: bytes.max(0.0) as u64,
        machine_bytes: machine.max(0.0) as u64,
        pause_bytes: (own + free - (1.0 - pause_line) * ram).max(0.0) as u64,
        cause: match bytes {
            b if b == machine => Some(Component::Headroom),
            b if b == device => Some(Component::Device),
            _ => None,
        },
    }
}

impl Budget {
    /// What of it is left to pieces where `bytes` of the footprint are spoken for.
    pub(crate) fn less(self, bytes: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(bytes),
            machine_bytes: self.machine_bytes.saturating_sub(bytes),
            pause_bytes: self.pause_bytes.saturating_sub(bytes),
            cause: self.cause,
        }
    }
}

/// What is left to others and the system whatever happens, in bytes.
pub(crate) fn reserve_bytes(policy: &Policy, sample: &MemorySample) -> u64 {
    let by_share = (1.0 - policy.max_system_fraction) * sample.total_bytes as f64;
    (by_share as u64).max(policy.reserve_least_bytes(sample.total_bytes))
}

/// Bytes that others and the system are forecast to use in `horizon_ms`: the slope of the last seconds where it rises,
/// plus the scatter around it.
pub(crate) fn others_ahead(policy: &Policy, state: &State, now: f64, horizon_ms: u64) -> f64 {
    let Some(&(newest, _)) = state.others.back() else {
        return now;
    };
    let recent = state
        .others
        .iter()
        .rev()
        .enumerate()
        .take_while(|(index, (at, _))| {
            let age = newest - at;
            age <= policy.slope_ms || (*index < SLOPE_POINTS && age <= SLOPE_STALE_MS)
        });
    // Seconds before now, and GB-sized floats: no cancellation worth mentioning.
    let points: Vec<(f64, f64)> = recent
        .map(|(_, (at, bytes))| (-((newest - at) as f64) / 1000.0, *bytes as f64))
        .collect();
    if points.len() < SLOPE_POINTS {
        return now;
    }
    let count = points.len() as f64;
    let mean_t = points.iter().map(|p| p.0).sum::<f64>() / count;
    let mean = points.iter().map(|p| p.1).sum::<f64>() / count;
    let spread = points.iter().map(|p| (p.0 - mean_t).powi(2)).sum::<f64>();
    let slope = points
        .iter()
        .map(|p| (p.0 - mean_t) * (p.1 - mean))
        .sum::<f64>()
        / spread.max(1e-9);
    let off = points
        .iter()
        .map(|p| (p.1 - mean - slope * (p.0 - mean_t)).powi(2))
        .sum::<f64>();
    let scatter = (2.0 * (off / count).sqrt()).min(policy.scatter_most_bytes as f64);
    now.max(mean - slope * mean_t) + slope.max(0.0) * horizon_ms as f64 / 1000.0 + scatter
}

/// What others take in `ms` at their pace of the last moments, bytes; 0 where they give back. A straight line through seconds
/// would hear of a sudden taker too late.
pub(crate) fn rise_bytes(policy: &Policy, state: &State, ms: u64) -> f64 {
    let Some(&(newest, now)) = state.others.back() else {
        return 0.0;
    };
    let recent = state.others.iter().rev();
    let before = recent
        .take_while(|(at, _)| newest - at <= policy.sudden_ms)
        .last();
    match before {
        Some(&(at, bytes)) if newest >= at + policy.sudden_ms / 3 => {
            now.saturating_sub(bytes) as f64 * ms as f64 / (newest - at) as f64
        }
        _ => 0.0,
    }
}

/// Margin for growth that no slope announces: the 99 % quantile of what others took within `sudden_ms`, over a minute.
fn margin_bytes(policy: &Policy, state: &State, sample: &MemorySample) -> u64 {
    let share = |fraction: f64| (fraction * sample.total_bytes as f64) as u64;
    match state.margin {
        Some((bytes, _)) => bytes.clamp(share(policy.margin_least), share(policy.margin_most)),
        None => share(policy.margin_start),
    }
}

/// Works the margin out anew, once a second: it sorts a minute of history.
pub(crate) fn refresh_margin(policy: &Policy, state: &mut State, at_ms: u64) {
    if state
        .margin
        .is_some_and(|(_, worked_out)| at_ms < worked_out + 1_000)
    {
        return;
    }
    let history = &state.others;
    let mut later = 0;
    let mut growths = Vec::with_capacity(history.len());
    for (from, bytes) in history {
        while later < history.len() && history[later].0 < from + policy.sudden_ms {
            later += 1;
        }
        let Some((at, then)) = history.get(later) else {
            break;
        };
        if *at <= from + 2 * policy.sudden_ms {
            growths.push(then.saturating_sub(*bytes));
        }
    }
    if growths.len() >= PAIRS_LEAST {
        let index = (growths.len() - 1) * 99 / 100;
        state.margin = Some((*growths.select_nth_unstable(index).1, at_ms));
    }
}

fn now_bytes(sample: &MemorySample) -> f64 {
    sample
        .total_bytes
        .saturating_sub(sample.available_bytes)
        .saturating_sub(sample.own_bytes) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::notice;
    use crate::policy::GB;

    /// 40 GB, 10 of Ebb's own; others use `others` GB.
    fn sample(at_ms: u64, others: f64) -> MemorySample {
        MemorySample {
            at_ms,
            total_bytes: 40 * GB,
            own_bytes: 10 * GB,
            available_bytes: ((30.0 - others) * GB as f64) as u64,
            ..MemorySample::default()
        }
    }

    fn seen(policy: &Policy, others: impl Fn(u64) -> f64) -> State {
        (0..600).fold(State::default(), |state, i| {
            notice(policy, state, &sample(i * 100, others(i)))
        })
    }

    fn check(
        policy: &Policy,
        state: &State,
        sample: &MemorySample,
        horizon_ms: u64,
        expected: f64,
    ) {
        let budget = budget_bytes(policy, state, sample, horizon_ms) as f64 / GB as f64;
        assert!(
            (budget - expected).abs() < 0.02,
            "{budget} GB, not {expected}"
        );
    }

    #[test]
    fn before_there_is_a_history_reserve_and_first_margin_are_kept() {
        let policy = Policy::default();
        // 10 own + 20 free - 4 reserve - 3 % of 40
        check(&policy, &State::default(), &sample(0, 10.0), 1_000, 24.8);
    }

    #[test]
    fn the_smallest_ceiling_counts() {
        let state = State::default();
        let device = MemorySample {
            device_limit_bytes: 20 * GB,
            ..sample(0, 10.0)
        };
        check(&Policy::default(), &state, &device, 1_000, 19.0);
        let capped = Policy {
            memory_cap_bytes: Some(8 * GB),
            ..Policy::default()
        };
        check(&capped, &state, &device, 1_000, 8.0);
        let a_third = Policy {
            memory_cap_fraction: Some(Policy::TARGET_FRACTION / 2.0),
            ..Policy::default()
        };
        check(&a_third, &state, &device, 1_000, 40.0 / 3.0);
        let polite = Policy {
            max_system_fraction: 0.5,
            ..Policy::default()
        };
        check(&polite, &state, &sample(0, 10.0), 1_000, 8.8);
    }

    #[test]
    fn a_small_machine_keeps_a_floor_but_no_more_than_a_fifth() {
        for (total, floor) in [(10 * GB, 1.5), (4 * GB, 0.8)] {
            let sample = MemorySample {
                total_bytes: total,
                available_bytes: total,
                ..MemorySample::default()
            };
            let expected = total as f64 / GB as f64 * 0.97 - floor;
            check(
                &Policy::default(),
                &State::default(),
                &sample,
                1_000,
                expected,
            );
        }
    }

    #[test]
    fn steady_others_leave_the_least_margin() {
        let policy = Policy::default();
        check(
            &policy,
            &seen(&policy, |_| 10.0),
            &sample(59_900, 10.0),
            1_000,
            25.6,
        );
    }

    #[test]
    fn a_rising_slope_is_extended_over_the_horizon_where_that_is_more_than_the_margin() {
        let policy = Policy::default();
        // 0.1 GB a second: 0.06 in the sudden time, below the least margin of 0.4.
        let state = seen(&policy, |i| 4.0 + i as f64 / 100.0);
        let now = sample(59_900, 9.99);
        check(&policy, &state, &now, 0, 25.61);
        check(&policy, &state, &now, 10_000, 25.01);
    }

    #[test]
    fn a_falling_slope_promises_nothing() {
        let policy = Policy::default();
        let state = seen(&policy, |i| 16.0 - i as f64 / 100.0);
        check(&policy, &state, &sample(59_900, 10.01), 10_000, 25.59);
    }

    #[test]
    fn sudden_growth_is_remembered_for_a_minute_as_margin() {
        let policy = Policy::default();
        // Every ten seconds 2 GB come within a tenth of a second and go again.
        let state = seen(&policy, |i| if i % 100 < 5 { 12.0 } else { 10.0 });
        check(&policy, &state, &sample(59_900, 10.0), 0, 24.0);
    }
}
