//! Which micro-batches are useful, how fast each has been, and the largest that fits.
//!
//! A batch of B samples in n micro-batches needs m = ceil(B / n) samples in each: sizes between
//! those save no micro-batch and cost memory.

use crate::decision::{MicroBatchKind, SampleCost};
use crate::memory_model::MemoryModel;
use crate::policy::{
    COMPARED_COST_FRACTION, COST_WEIGHT, PROBE, Policy, SPEED_MIN_MICRO_BATCHES, SPEED_WEIGHT,
};
use crate::speed_comparison::SpeedComparison;
use serde::{Deserialize, Serialize};

/// Useful sizes of a batch, largest first: ceil(batch / n) for n = 1, 2, …
pub(crate) fn sizes(batch: u32) -> impl Iterator<Item = u32> {
    let below = move |m: &u32| (*m > 1).then(|| batch.div_ceil(batch.div_ceil(m - 1)));
    std::iter::successors(Some(batch.max(1)), below)
}

/// The largest useful size up to `limit`; at least 1.
pub(crate) fn largest_up_to(batch: u32, limit: u32) -> u32 {
    sizes(batch).find(|&m| m <= limit).unwrap_or(1)
}

/// The size of one kind of micro-batch, and its measurements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Track {
    /// The micro-batch; 0 before the first decision.
    pub(crate) size: u32,
    /// The micro-batch before the run was interrupted, to start with; 0 if there was none.
    pub(crate) earlier_size: u32,
    /// The most samples that were ever asked for at once, also before the run was interrupted: the
    /// effective batch, or the held-out samples.
    pub(crate) batch: u32,
    /// Whether this is still the slow start, in which growth waits only for measurements.
    pub(crate) starting: bool,
    /// Since when a larger size has fitted.
    pub(crate) calm_since_ms: Option<u64>,
    /// Speed by size.
    pub(crate) speeds: Vec<Speed>,
    /// Which sizes are faster.
    pub(crate) compared: SpeedComparison,
    /// The size that was chosen because no larger one is faster.
    pub(crate) settled: Option<u32>,
    /// The size before the machine's memory became short; 0 once that size has returned.
    pub(crate) short_of: u32,
    /// A size that the device refused or ended, and when.
    pub(crate) refused: Option<(u32, u64)>,
    /// Cost of an ordinary sample, averaged over batches that were nearly complete.
    pub(crate) sample_cost: f64,
    /// Number of confirmed micro-batches, measured or not.
    pub(crate) micro_batches: u32,
    /// The highest recent peak in bytes, and when it was.
    pub(crate) recent_peak: Option<(u64, u64)>,
}

/// The speed of a size, over micro-batches that the system did not slow down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed {
    pub(crate) size: u32,
    pub(crate) ms_per_cost: f64,
    #[serde(alias = "pieces")]
    pub(crate) micro_batches: u32,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            size: 0,
            earlier_size: 0,
            batch: 0,
            starting: true,
            calm_since_ms: None,
            speeds: Vec::new(),
            compared: SpeedComparison::default(),
            settled: None,
            short_of: 0,
            refused: None,
            sample_cost: 0.0,
            micro_batches: 0,
            recent_peak: None,
        }
    }
}

impl Track {
    /// Cost of `micro_batch` ordinary samples.
    pub(crate) fn cost(&self, micro_batch: u32) -> u64 {
        (f64::from(micro_batch) * self.sample_cost).round() as u64
    }

    /// Takes the samples of a question into the batch size and the cost of an ordinary sample.
    pub(crate) fn record_asked(&mut self, samples: &[SampleCost]) {
        let count = samples.len().max(1) as u32;
        self.batch = self.batch.max(count);
        let is_short = 2 * count < self.batch && self.sample_cost > 0.0;
        if is_short || samples.is_empty() {
            return;
        }
        let total: u64 = samples.iter().map(|cost| cost.0).sum();
        let cost = total as f64 / f64::from(count);
        self.sample_cost = if self.sample_cost == 0.0 || self.micro_batches == 0 {
            cost
        } else {
            self.sample_cost + COST_WEIGHT * (cost - self.sample_cost)
        };
    }

    /// Takes the time of a micro-batch of `size` samples.
    pub(crate) fn record_time(&mut self, size: u32, cost: u64, ms: f64) {
        let ms_per_cost = ms / cost as f64;
        self.record_speed(size, ms_per_cost);
        // Long and short samples: the ordinary samples of the same cost.
        let ordinary = cost as f64 / self.sample_cost.max(1.0);
        let useful = largest_up_to(self.batch, (ordinary + 0.5) as u32);
        let off = (ordinary / f64::from(useful) - 1.0).abs();
        if off <= COMPARED_COST_FRACTION {
            self.compared.record(useful, ms_per_cost);
        }
    }

    /// Takes the speed of a micro-batch. The first one of a size touches new memory, so the second
    /// replaces it.
    fn record_speed(&mut self, size: u32, ms_per_cost: f64) {
        let Some(speed) = self.speeds.iter_mut().find(|speed| speed.size == size) else {
            self.speeds.push(Speed {
                size,
                ms_per_cost,
                micro_batches: 1,
            });
            return;
        };
        let weight = if speed.micro_batches == 1 {
            1.0
        } else {
            SPEED_WEIGHT.max(1.0 / f64::from(speed.micro_batches))
        };
        speed.ms_per_cost += weight * (ms_per_cost - speed.ms_per_cost);
        speed.micro_batches += 1;
    }

    /// Duration of a micro-batch of this cost, by the nearest size that was measured, in
    /// milliseconds.
    pub(crate) fn duration_ms(&self, cost: u64) -> Option<f64> {
        let distance = |speed: &&Speed| speed.size.abs_diff(self.size);
        let nearest = self.speeds.iter().min_by_key(distance)?;
        Some(nearest.ms_per_cost * cost as f64)
    }

    /// Milliseconds per cost at `size`, once that is known.
    pub(crate) fn known_ms_per_cost(&self, size: u32) -> Option<f64> {
        let mut known = self.known_speeds();
        Some(known.find(|speed| speed.size == size)?.ms_per_cost)
    }

    /// The speeds that were measured often enough.
    fn known_speeds(&self) -> impl Iterator<Item = &Speed> {
        let is_known = |speed: &&Speed| speed.micro_batches >= SPEED_MIN_MICRO_BATCHES;
        self.speeds.iter().filter(is_known)
    }

    /// The throughput plateau: the smallest size of which it is certain that no larger one is
    /// faster by more than `tolerance`. A size that was chosen for this stays the plateau until it
    /// is certain that a larger one is faster.
    pub(crate) fn plateau(&self, tolerance: f64) -> Option<u32> {
        let stays = |size: &u32| !self.compared.is_larger_faster(*size, tolerance);
        let settled = self.settled.filter(stays);
        settled.or_else(|| self.compared.plateau(tolerance))
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tracks(Vec<(MicroBatchKind, Track)>);

impl Tracks {
    pub(crate) fn get(&self, kind: MicroBatchKind) -> Option<&Track> {
        let found = self.0.iter().find(|(k, _)| *k == kind);
        found.map(|(_, track)| track)
    }

    /// The track of a kind, which is created if it is new.
    pub(crate) fn get_mut(&mut self, kind: MicroBatchKind) -> &mut Track {
        let found = self.0.iter().position(|(k, _)| *k == kind);
        let index = found.unwrap_or_else(|| {
            self.0.push((kind, Track::default()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(MicroBatchKind, Track)> {
        self.0.iter()
    }

    /// Starts the calm of every kind again.
    pub(crate) fn end_calm(&mut self) {
        for (_, track) in &mut self.0 {
            track.calm_since_ms = None;
        }
    }

    /// Micro-batches of kind `to` replace those of kind `from`: sizes carry over, each kind keeps
    /// its own speeds.
    pub(crate) fn switch(&mut self, from: MicroBatchKind, to: MicroBatchKind, size: u32) {
        let before = self.get_mut(from).clone();
        let track = self.get_mut(to);
        *track = Track {
            size,
            starting: false,
            calm_since_ms: None,
            speeds: std::mem::take(&mut track.speeds),
            compared: std::mem::take(&mut track.compared),
            settled: track.settled,
            refused: track.refused,
            ..before
        };
    }
}

impl FromIterator<(MicroBatchKind, Track)> for Tracks {
    fn from_iter<I: IntoIterator<Item = (MicroBatchKind, Track)>>(tracks: I) -> Self {
        Self(tracks.into_iter().collect())
    }
}

/// The largest useful size whose predicted peak is within `limit_bytes`; 0 if not even one sample
/// fits. Without a prediction only the probes are allowed.
pub(crate) fn largest_within(
    model: &MemoryModel,
    kind: MicroBatchKind,
    track: &Track,
    limit_bytes: u64,
) -> u32 {
    let probe = if track.micro_batches == 0 { 1 } else { PROBE };
    let fits = |m: &u32| match model.upper_bytes(kind, track.cost(*m)) {
        Some(upper) => upper <= limit_bytes,
        None => *m <= probe,
    };
    sizes(track.batch).find(fits).unwrap_or(0)
}

/// A limit on growth other than memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrowthLimit {
    /// The memory model has not seen sizes large enough.
    Extrapolation,
    /// A larger size was refused recently.
    Refused,
    /// A larger size is no faster.
    Plateau,
}

/// The largest size that growth may reach if memory allows it, and what limits it.
pub(crate) fn growth_limit(
    policy: &Policy,
    model: &MemoryModel,
    kind: MicroBatchKind,
    track: &Track,
    at_ms: u64,
) -> (u32, GrowthLimit) {
    let extrapolation = match model.largest(kind) {
        0 => PROBE,
        largest => largest.saturating_mul(policy.grow_factor),
    };
    let refused = track
        .refused
        .filter(|(_, when)| at_ms < when + policy.retry_refused_after_ms);
    let below_refused = refused.map_or(u32::MAX, |(size, _)| size.saturating_sub(1).max(1));
    let plateau = track.plateau(policy.plateau_fraction).unwrap_or(u32::MAX);
    let (mut size, mut limit) = (extrapolation, GrowthLimit::Extrapolation);
    if below_refused < size {
        (size, limit) = (below_refused, GrowthLimit::Refused);
    }
    if plateau < size {
        (size, limit) = (plateau, GrowthLimit::Plateau);
    }
    (largest_up_to(track.batch, size), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useful_sizes_are_the_splits_that_save_a_micro_batch() {
        let all = |batch| sizes(batch).collect::<Vec<_>>();
        assert_eq!(
            all(64),
            [64, 32, 22, 16, 13, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1]
        );
        assert_eq!(all(7), [7, 4, 3, 2, 1]);
        assert_eq!(all(1), [1]);
        assert_eq!(all(0), [1]);
        for batch in 1u32..300 {
            let mut expected: Vec<u32> = (1..=batch).map(|n| batch.div_ceil(n)).collect();
            expected.dedup();
            assert_eq!(all(batch), expected, "{batch}");
        }
    }
}
