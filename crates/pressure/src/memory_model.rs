//! The memory that a micro-batch will need, learned from earlier ones: peak = a + b·φ(cost), where
//! φ is the allocator's rounding. On the CPU and on unified memory a peak is the whole footprint of
//! the process.
//!
//! Kinds share what they have in common: the training state is the same for all, and more
//! checkpointed blocks never need more memory.

mod linear_fit;
mod size_classes;

use crate::decision::{MicroBatchKind, MicroBatchRecord, Outcome};
use crate::policy::{
    MIN_BOUND_MARGIN, OBSERVED_DECAY, RESIDUAL_DECAY, RESIDUAL_MARGIN, SAME_SIZE_FRACTION,
    SAME_SIZE_SAMPLES,
};
use linear_fit::Line;
use serde::{Deserialize, Serialize};
use size_classes::SizeClasses;

/// How the device's allocator rounds sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    /// Sizes are not rounded (CPU, CUDA).
    #[default]
    Exact,
    /// Buffers are rounded up to powers of two (candle's Metal pool), except for an unknown
    /// fraction in classes so fine that they count as exact (the outputs of kernels). Peaks are a
    /// staircase whose treads may slope.
    PowerOfTwo,
}

/// Peaks of micro-batches, learned separately for each kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryModel {
    allocator: Allocator,
    fits: Vec<(MicroBatchKind, Fit)>,
}

/// What is known of one kind, in samples and bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fit {
    /// Cost of one sample of the first micro-batch: the unit of the horizontal axis.
    unit_cost: f64,
    /// Peak over samples, for an exact allocator.
    line: Line,
    /// Peak over rounded samples, one candidate per position of the class edges; empty for an exact
    /// allocator.
    #[serde(default, alias = "stairs")]
    size_classes: Vec<SizeClasses>,
    /// Largest recent underestimate: in bytes, or as a fraction of the estimate if the allocator
    /// rounds.
    residual: f64,
    /// `(samples, highest peak in bytes)`, by size.
    #[serde(alias = "seen")]
    observed: Vec<(f64, f64)>,
    /// Number of confirmed micro-batches with a measured peak.
    #[serde(alias = "pieces")]
    micro_batches: u32,
    /// The largest confirmed micro-batch.
    largest: u32,
}

impl MemoryModel {
    /// A model without any measurement.
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            ..Self::default()
        }
    }

    /// Learns from a micro-batch with a measured peak. A refused one only gives a lower bound on
    /// its need. A cancelled one gives nothing: its footprint may consist mostly of caches, which
    /// are released before the retry.
    pub fn learn(&mut self, record: &MicroBatchRecord) {
        let is_measured = record.peak_bytes > 0 && record.cost > 0 && record.micro_batch > 0;
        if !is_measured || record.outcome == Outcome::Cancelled {
            return;
        }
        let index = self
            .fits
            .iter()
            .position(|(kind, _)| *kind == record.kind)
            .unwrap_or_else(|| self.add_kind(record));
        let fit = &mut self.fits[index].1;
        let samples = record.cost as f64 / fit.unit_cost;
        fit.observe(samples, record.peak_bytes as f64);
        if record.outcome == Outcome::Ok {
            fit.learn(samples, record.peak_bytes as f64);
            fit.micro_batches += 1;
            fit.largest = fit.largest.max(record.micro_batch);
        }
    }

    /// Upper bound of the footprint that a micro-batch of this cost reaches, in bytes; never below
    /// a peak observed at a smaller cost. `None` if it is unknown: before two sizes were measured,
    /// only costs up to a measured one are known.
    pub fn upper_bytes(&self, kind: MicroBatchKind, cost: u64) -> Option<u64> {
        let fit = self.fit(kind)?;
        let samples = cost as f64 / fit.unit_cost;
        let smaller = fit.observed.iter().filter(|(at, _)| *at <= samples);
        let observed = smaller.map(|(_, peak)| *peak).fold(0.0, f64::max);
        let upper = if fit.knows_slope() {
            let estimate = fit.estimate(samples);
            estimate
                + (MIN_BOUND_MARGIN * estimate).max(RESIDUAL_MARGIN * fit.residual_bytes(estimate))
        } else {
            let larger = fit.observed.iter().filter(|(at, _)| *at >= samples);
            let least = larger.map(|(_, peak)| *peak).reduce(f64::min)?;
            (1.0 + MIN_BOUND_MARGIN) * least
        };
        Some(upper.max(observed) as u64)
    }

    /// Error of the prediction for this micro-batch, as a fraction of its measured peak: +0.04 is 4
    /// % too high. Call it before `learn`. `None` if nothing was predicted or measured, or if the
    /// micro-batch failed.
    pub fn error_fraction(&self, record: &MicroBatchRecord) -> Option<f64> {
        if record.outcome != Outcome::Ok || record.peak_bytes == 0 {
            return None;
        }
        let predicted = self.upper_bytes(record.kind, record.cost)?;
        Some(predicted as f64 / record.peak_bytes as f64 - 1.0)
    }

    /// Footprint between micro-batches, in bytes: weights, gradients, optimizer state and the
    /// program. `None` before two sizes were measured.
    pub fn state_bytes(&self, kind: MicroBatchKind) -> Option<u64> {
        let fit = self.fit(kind).filter(|fit| fit.knows_slope())?;
        Some(fit.state_bytes() as u64)
    }

    /// Whether two sizes of this kind were measured, so that the model can answer for others.
    pub fn is_ready(&self, kind: MicroBatchKind) -> bool {
        self.fit(kind).is_some_and(Fit::knows_slope)
    }

    /// The largest micro-batch of this kind that was measured; 0 before the first.
    pub fn largest(&self, kind: MicroBatchKind) -> u32 {
        self.fit(kind).map_or(0, |fit| fit.largest)
    }

    fn fit(&self, kind: MicroBatchKind) -> Option<&Fit> {
        self.nearest(kind).map(|(_, fit)| fit)
    }

    /// The kind whose measurements are used for `kind`: itself once measured, otherwise the
    /// measured one with the most checkpointed blocks up to its own, whose peaks are an upper
    /// bound.
    pub(crate) fn nearest_measured(&self, kind: MicroBatchKind) -> Option<MicroBatchKind> {
        self.nearest(kind).map(|(kind, _)| kind)
    }

    fn nearest(&self, kind: MicroBatchKind) -> Option<(MicroBatchKind, &Fit)> {
        let related = self.fits.iter().filter(|(other, fit)| {
            let same = MicroBatchKind {
                checkpoint_blocks: kind.checkpoint_blocks,
                ..*other
            } == kind;
            same && other.checkpoint_blocks <= kind.checkpoint_blocks && fit.largest > 0
        });
        let nearest = related.max_by_key(|(other, _)| other.checkpoint_blocks)?;
        Some((nearest.0, &nearest.1))
    }

    /// Adds the kind of this record and returns its index. If the state is known from another kind,
    /// one micro-batch is enough to learn what a sample needs.
    fn add_kind(&mut self, record: &MicroBatchRecord) -> usize {
        let unit_cost = record.cost as f64 / f64::from(record.micro_batch);
        let mut fit = Fit::new(self.allocator, unit_cost);
        if let Some(state) = self.state_bytes(record.kind) {
            fit.observe(0.0, state as f64);
            fit.learn(0.0, state as f64);
            fit.micro_batches = 1;
        }
        self.fits.push((record.kind, fit));
        self.fits.len() - 1
    }

    /// The training state is smaller by `bytes`, and so is every peak.
    pub fn state_shrank(&mut self, bytes: u64) {
        self.move_state(-(bytes as f64));
    }

    /// The training state is larger by `bytes`, and so is every peak.
    pub fn state_grew(&mut self, bytes: u64) {
        self.move_state(bytes as f64);
    }

    fn move_state(&mut self, bytes: f64) {
        for (_, fit) in &mut self.fits {
            fit.line.state_bytes = (fit.line.state_bytes + bytes).max(0.0);
            for candidate in &mut fit.size_classes {
                candidate.move_state(bytes);
            }
            for (_, peak) in &mut fit.observed {
                *peak = (*peak + bytes).max(0.0);
            }
        }
    }
}

impl Fit {
    fn new(allocator: Allocator, unit_cost: f64) -> Self {
        Self {
            unit_cost,
            line: Line::default(),
            size_classes: match allocator {
                Allocator::Exact => Vec::new(),
                Allocator::PowerOfTwo => SizeClasses::candidates(),
            },
            residual: 0.0,
            observed: Vec::new(),
            micro_batches: 0,
            largest: 0,
        }
    }

    fn knows_slope(&self) -> bool {
        self.micro_batches >= 2 && self.observed.len() >= 2
    }

    fn state_bytes(&self) -> f64 {
        size_classes::state_bytes(&self.size_classes).unwrap_or(self.line.state_bytes)
    }

    /// Bytes at `samples`; the most that is possible while the class edges are not known yet.
    fn estimate(&self, samples: f64) -> f64 {
        size_classes::estimate(&self.size_classes, samples)
            .unwrap_or_else(|| self.line.estimate(samples))
    }

    /// The unit of `residual`. With an exact allocator an error is caused by a larger state, so it
    /// is the same number of bytes at every size; between two size classes it is smaller at a
    /// smaller size.
    fn residual_unit(&self, estimate: f64) -> f64 {
        if self.size_classes.is_empty() {
            1.0
        } else {
            estimate.max(1.0)
        }
    }

    fn residual_bytes(&self, estimate: f64) -> f64 {
        self.residual * self.residual_unit(estimate)
    }

    fn observe(&mut self, samples: f64, peak: f64) {
        for (_, observed) in &mut self.observed {
            *observed *= OBSERVED_DECAY;
        }
        let near = if self.size_classes.is_empty() {
            SAME_SIZE_SAMPLES
        } else {
            SAME_SIZE_FRACTION * samples
        };
        let mut known = self.observed.iter_mut();
        match known.find(|(at, _)| (*at - samples).abs() < near) {
            Some((_, observed)) => *observed = observed.max(peak),
            None => self.observed.push((samples, peak)),
        }
    }

    fn learn(&mut self, x: f64, y: f64) {
        if self.knows_slope() {
            let estimate = self.estimate(x);
            let error = (y - estimate) / self.residual_unit(estimate);
            self.residual = error.max(self.residual * RESIDUAL_DECAY);
        }
        self.line.learn(x, y, self.micro_batches);
        for candidate in &mut self.size_classes {
            candidate.learn(x, y);
        }
    }
}

#[cfg(test)]
mod tests;
