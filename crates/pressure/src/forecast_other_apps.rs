//! How much memory other apps and the system use, over the last minute, and how much they may use
//! soon.

use crate::memory_sample::MemorySample;
use crate::policy::{
    HISTORY_STEP_MS, MARGIN_INTERVAL_MS, MARGIN_MIN_OBSERVATIONS, MARGIN_PERCENTILE,
    MAX_REACTION_MS, MENTIONED_GROWTH_BYTES, MIN_REACTION_MS, Policy, SLOPE_MAX_AGE_MS,
    SLOPE_MIN_POINTS,
};
use format::format_bytes;
use std::collections::VecDeque;

/// The use of other apps over the last minute.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct History {
    /// Oldest first.
    points: VecDeque<Point>,
    /// Growth to allow for, and when it was computed.
    margin: Option<Point>,
    /// Time within which Ebb can react, in milliseconds; 0 if it is not known yet.
    reaction_ms: u64,
}

/// Bytes at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    at_ms: u64,
    bytes: u64,
}

impl History {
    /// Takes a sample. A sample that is no newer than the last one changes nothing.
    pub(crate) fn record(&mut self, policy: &Policy, sample: &MemorySample) {
        self.push(policy, sample.at_ms, sample.others_and_system_bytes());
        self.refresh_margin(policy, sample.at_ms, sample.total_bytes);
    }

    /// Sets the time within which Ebb can react to growth: until the running micro-batch ends and
    /// its memory is free.
    pub(crate) fn set_reaction_ms(&mut self, ms: u64) {
        self.reaction_ms = ms;
    }

    fn push(&mut self, policy: &Policy, at_ms: u64, bytes: u64) {
        let newest = self.points.back().map(|point| point.at_ms);
        if newest.is_some_and(|newest| at_ms < newest + HISTORY_STEP_MS) {
            return;
        }
        self.points.push_back(Point { at_ms, bytes });
        let is_old = |point: &Point| point.at_ms + policy.history_ms < at_ms;
        while self.points.front().is_some_and(is_old) {
            self.points.pop_front();
        }
    }

    /// Forecast of the bytes that others use after `horizon_ms`, given the bytes they use now: a
    /// rising slope of the last seconds is extended, and the scatter around it added.
    pub(crate) fn forecast_bytes(&self, policy: &Policy, now: f64, horizon_ms: u64) -> f64 {
        let Some(newest) = self.points.back().map(|point| point.at_ms) else {
            return now;
        };
        let recent = self.points.iter().rev().enumerate();
        let recent = recent.take_while(|(index, point)| {
            let age = newest - point.at_ms;
            age <= policy.slope_ms || (*index < SLOPE_MIN_POINTS && age <= SLOPE_MAX_AGE_MS)
        });
        // Seconds before now, and values around a GB as f64: cancellation is negligible.
        let points: Vec<(f64, f64)> = recent
            .map(|(_, point)| {
                let seconds = -((newest - point.at_ms) as f64) / 1000.0;
                (seconds, point.bytes as f64)
            })
            .collect();
        if points.len() < SLOPE_MIN_POINTS {
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
        let squared_error = points
            .iter()
            .map(|p| (p.1 - mean - slope * (p.0 - mean_t)).powi(2))
            .sum::<f64>();
        let scatter = (2.0 * (squared_error / count).sqrt()).min(policy.max_scatter_bytes as f64);
        now.max(mean - slope * mean_t) + slope.max(0.0) * horizon_ms as f64 / 1000.0 + scatter
    }

    /// Bytes that others take in `ms` if they keep the rate of the last moments; 0 if they are
    /// freeing memory. A line through seconds would react too late to sudden growth.
    pub(crate) fn sudden_growth_bytes(&self, policy: &Policy, ms: u64) -> f64 {
        let Some(newest) = self.points.back() else {
            return 0.0;
        };
        let recent = self.points.iter().rev();
        let before = recent
            .take_while(|point| newest.at_ms - point.at_ms <= policy.sudden_ms)
            .last();
        match before {
            Some(before) if newest.at_ms >= before.at_ms + policy.sudden_ms / 3 => {
                let grown = newest.bytes.saturating_sub(before.bytes) as f64;
                grown * ms as f64 / (newest.at_ms - before.at_ms) as f64
            }
            _ => 0.0,
        }
    }

    /// Bytes to leave for growth that no slope announces, within the limits of the policy.
    pub(crate) fn margin_bytes(&self, policy: &Policy, sample: &MemorySample) -> u64 {
        let share = |fraction: f64| (fraction * sample.total_bytes as f64) as u64;
        let (min, max) = (policy.min_margin_fraction, policy.max_margin_fraction);
        match self.margin {
            Some(margin) => margin.bytes.clamp(share(min), share(max)),
            None => share(policy.initial_margin_fraction),
        }
    }

    /// Recomputes the margin once a second: the 99 % quantile of what others took within the time
    /// of a reaction, over a minute.
    fn refresh_margin(&mut self, policy: &Policy, at_ms: u64, total_bytes: u64) {
        let is_fresh = |margin: Point| at_ms < margin.at_ms + MARGIN_INTERVAL_MS;
        if self.margin.is_some_and(is_fresh) {
            return;
        }
        let points = &self.points;
        let reaction_ms = match self.reaction_ms {
            0 => policy.sudden_ms,
            ms => ms.clamp(MIN_REACTION_MS, MAX_REACTION_MS),
        };
        // No margin covers larger jumps: a cancelled micro-batch answers those. Their beginnings
        // and ends are not counted either.
        let most = (policy.max_margin_fraction * total_bytes as f64) as u64;
        let (mut later, mut jump_ended_ms) = (0, 0);
        // What others took, and until when.
        let mut growths: Vec<Point> = Vec::with_capacity(points.len());
        for from in points {
            while later < points.len() && points[later].at_ms < from.at_ms + reaction_ms {
                later += 1;
            }
            let Some(then) = points.get(later) else {
                break;
            };
            let bytes = then.bytes.saturating_sub(from.bytes);
            if bytes > most {
                let overlaps = |growth: &Point| growth.at_ms > from.at_ms;
                growths.truncate(growths.partition_point(|growth| !overlaps(growth)));
                jump_ended_ms = then.at_ms;
            } else if then.at_ms <= from.at_ms + 2 * reaction_ms && from.at_ms >= jump_ended_ms {
                let at_ms = then.at_ms;
                growths.push(Point { at_ms, bytes });
            }
        }
        if growths.len() >= MARGIN_MIN_OBSERVATIONS {
            let index = (growths.len() - 1) * MARGIN_PERCENTILE / 100;
            let (_, growth, _) = growths.select_nth_unstable_by_key(index, |growth| growth.bytes);
            let bytes = growth.bytes;
            self.margin = Some(Point { at_ms, bytes });
        }
    }

    /// "another app took 6.1 GB in 20 s": the growth from the last low of the history to now.
    /// `None` if it is small, or less than `missing_bytes`: then it is not why these are missing.
    pub(crate) fn describe_growth(&self, missing_bytes: u64) -> Option<String> {
        let now = self.points.back()?;
        let low = self.points.iter().map(|point| point.bytes).min()?;
        let taken = now.bytes.saturating_sub(low);
        if taken < MENTIONED_GROWTH_BYTES.max(missing_bytes) {
            return None;
        }
        let mut newest_first = self.points.iter().rev();
        let since = newest_first.find(|point| point.bytes <= low + taken / 10)?;
        let seconds = (now.at_ms - since.at_ms).div_ceil(1_000).max(1);
        let taken = format_bytes(taken);
        Some(format!("another app took {taken} in {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::GB;

    /// The margin after a minute on a machine of 100 GB where others take `jump` GB within
    /// `rise_ms` and free them again every 10 s, if a reaction takes `reaction_ms`.
    fn margin_gb(jump: u64, rise_ms: u64, reaction_ms: u64) -> u64 {
        let policy = Policy::default();
        let mut history = History::default();
        history.set_reaction_ms(reaction_ms);
        let mut sample = MemorySample::default();
        for i in 0..600u64 {
            let others = if i % 100 < 50 {
                20 * GB + jump * GB * (100 * (i % 100)).min(rise_ms) / rise_ms
            } else {
                20 * GB
            };
            sample = MemorySample {
                at_ms: 100 * i,
                total_bytes: 100 * GB,
                available_bytes: 100 * GB - others,
                ..MemorySample::default()
            };
            history.record(&policy, &sample);
        }
        history.margin_bytes(&policy, &sample) / GB
    }

    #[test]
    fn jumps_that_no_margin_covers_do_not_count() {
        assert_eq!(margin_gb(5, 100, 600), 5);
        assert_eq!(margin_gb(30, 100, 600), 1, "the smallest margin");
    }

    #[test]
    fn the_beginning_and_the_end_of_such_a_jump_do_not_count_either() {
        assert_eq!(margin_gb(5, 1_000, 600), 3);
        assert_eq!(margin_gb(30, 1_000, 600), 1, "the smallest margin");
    }

    #[test]
    fn growth_is_described_from_the_last_low() {
        let mut history = History::default();
        assert_eq!(history.describe_growth(0), None);
        for second in 0..=40u64 {
            let taken = u64::from(second > 20) * (second.saturating_sub(20)) * GB * 3 / 10;
            history.push(&Policy::default(), second * 1_000, 7 * GB + taken);
        }
        assert_eq!(
            history.describe_growth(5 * GB).as_deref(),
            Some("another app took 6.0 GB in 18 s")
        );
        assert_eq!(history.describe_growth(7 * GB), None, "7 GB are missing");
    }
}
