//! How much of the training time saving takes, measured over the last checkpoints, and whether the
//! next one is affordable.

use std::collections::VecDeque;

/// Saving takes at most this fraction of the training time.
const MAX_COST_FRACTION: f64 = 0.03;
/// Less time than this in a session is not worth saving, in milliseconds: a run of a small model
/// has many best evaluations in its first minute.
const NEGLIGIBLE_MS: f64 = 2_000.0;
/// Number of checkpoints over which the cost is measured.
const MEASURED: usize = 4;

/// A checkpoint that was written.
#[derive(Debug, Clone, Copy)]
struct Save {
    /// Training time when it was complete.
    ended_at_ms: u64,
    duration_ms: f64,
}

/// The last checkpoints of a session, whatever they were written for.
#[derive(Debug, Default)]
pub struct SavingCost {
    saves: VecDeque<Save>,
    /// Time that all checkpoints of the session took.
    session_ms: f64,
}

impl SavingCost {
    /// A checkpoint is complete. Writing it took `duration_ms`.
    pub fn record(&mut self, ended_at_ms: u64, duration_ms: f64) {
        self.session_ms += duration_ms;
        if self.saves.len() == MEASURED {
            self.saves.pop_front();
        }
        self.saves.push_back(Save {
            ended_at_ms,
            duration_ms,
        });
    }

    /// Whether another checkpoint now keeps the cost within its limit. It is expected to take as
    /// long as the last ones on average. Without measurements the answer is yes.
    pub fn is_affordable(&self, now_ms: u64) -> bool {
        let Some(first) = self.saves.front() else {
            return true;
        };
        // The time since the end of the first one pays for those after it and for the next one.
        let spent_ms = self.total_ms() - first.duration_ms + self.expected_ms();
        let elapsed_ms = now_ms.saturating_sub(first.ended_at_ms) as f64;
        spent_ms <= MAX_COST_FRACTION * elapsed_ms
    }

    /// Whether all checkpoints of the session, another one included, take so little time that their
    /// fraction of the training time does not matter.
    pub fn is_negligible(&self) -> bool {
        self.session_ms + self.expected_ms() <= NEGLIGIBLE_MS
    }

    fn total_ms(&self) -> f64 {
        self.saves.iter().map(|save| save.duration_ms).sum()
    }

    /// How long the next one takes; 0 without measurements.
    fn expected_ms(&self) -> f64 {
        self.total_ms() / self.saves.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saves whenever it is affordable, and also every `extra_ms`, for ten hours. Returns the
    /// number of saves and their part of the time.
    fn train(duration_ms: u64, extra_ms: Option<u64>) -> (u64, f64) {
        let (mut cost, mut now_ms, mut saves, mut saved_at_ms) =
            (SavingCost::default(), 0, 0, None);
        while now_ms < 36_000_000 {
            now_ms += 1000;
            let is_extra = extra_ms.is_some_and(|extra| now_ms >= saved_at_ms.unwrap_or(0) + extra);
            if cost.is_affordable(now_ms) || is_extra {
                now_ms += duration_ms;
                cost.record(now_ms, duration_ms as f64);
                saved_at_ms = Some(now_ms);
                saves += 1;
            }
        }
        (saves, (saves * duration_ms) as f64 / now_ms as f64)
    }

    #[test]
    fn saving_costs_at_most_three_percent() {
        for duration_ms in [50, 300, 2_000, 18_000, 120_000] {
            let (saves, fraction) = train(duration_ms, None);
            // The first one has no measurement.
            let first = duration_ms as f64 / 36_000_000.0;
            assert!(
                fraction <= MAX_COST_FRACTION + first,
                "{duration_ms}: {fraction}"
            );
            // It is asked once per second.
            let possible = (36_000_000 * 3 / 100 / duration_ms).min(36_000);
            assert!(saves >= possible / 2, "{duration_ms}: only {saves} saves");
        }
    }

    /// A checkpoint that the user asks for is written anyway. Others then wait for longer.
    #[test]
    fn other_saves_count() {
        let mut cost = SavingCost::default();
        assert!(cost.is_affordable(0));
        cost.record(10_000, 3_000.0);
        assert!(!cost.is_affordable(109_000));
        assert!(cost.is_affordable(110_000));
        cost.record(60_000, 3_000.0);
        assert!(!cost.is_affordable(209_000));
        assert!(cost.is_affordable(210_000));
        // Others alone cost 20 %: after the first, none is added.
        let (saves, _) = train(10_000, Some(40_000));
        assert!(saves <= 36_000_000 / 50_000 + 2, "{saves}");
    }

    /// A disk that becomes slow is noticed, and forgotten once it is fast again.
    #[test]
    fn only_the_last_checkpoints_count() {
        let mut cost = SavingCost::default();
        let mut now_ms = 0;
        for _ in 0..MEASURED {
            now_ms += 100_000;
            cost.record(now_ms, 60_000.0);
        }
        assert!(!cost.is_affordable(now_ms + 1_000_000));
        for _ in 0..MEASURED {
            now_ms += 1_000_000;
            cost.record(now_ms, 10.0);
        }
        assert!(cost.is_affordable(now_ms + 1_000));
    }
}
