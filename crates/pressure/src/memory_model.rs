//! What a piece will need, learnt from what pieces needed: peak = a + b·φ(cost), where φ is the allocator's rounding.
//! On the CPU and on unified memory a peak is the whole footprint of the process. Knows no budget and no time.

mod kin;
mod line;
mod stair;

use crate::decision::{Outcome, Piece, PieceKind};
use line::Line;
use serde::{Deserialize, Serialize};
use stair::Stair;

/// The upper bound is at least this share above the estimate.
const LEAST_MARGIN: f64 = 0.02;
/// And this many times the largest recent underestimate.
const RESIDUAL_MARGIN: f64 = 1.5;
/// What is left of the largest underestimate after another piece.
const RESIDUAL_DECAY: f64 = 0.98;
/// What is left of a peak that was seen, after another piece.
const SEEN_DECAY: f64 = 0.999;
/// Where an allocator rounds, peaks this close in size are remembered as one: share of the size.
const SAME_CLASS: f64 = 0.02;

/// How the device's allocator rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    /// Sizes are taken as they are (CPU, CUDA).
    #[default]
    Exact,
    /// Buffers are rounded up to powers of two (candle's Metal pool), but for an unknown share in classes so fine that they are none
    /// (the outputs of kernels): peaks are a staircase that may lean.
    PowerOfTwo,
}

/// Peaks of pieces, learnt apart for each kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryModel {
    allocator: Allocator,
    fits: Vec<(PieceKind, Fit)>,
}

/// What is known of one kind. Recursive least squares in samples and bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fit {
    /// Cost of one sample of the first piece: the unit of the horizontal axis.
    unit_cost: f64,
    /// Peak over samples, as an exact allocator has it.
    line: Line,
    /// The same over rounded samples, for an allocator that rounds; else empty.
    #[serde(default)]
    stairs: Vec<Stair>,
    /// Largest recent underestimate: bytes, or where an allocator rounds a share of the estimate.
    residual: f64,
    /// `(samples, highest peak in bytes)`, by size.
    seen: Vec<(f64, f64)>,
    /// Confirmed pieces with a measured peak.
    pieces: u32,
    /// The largest confirmed micro-batch.
    largest: u32,
}

impl MemoryModel {
    /// A model that has seen nothing.
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            ..Self::default()
        }
    }

    /// Learns from a piece. Without a measured peak there is nothing to learn; a cancelled or refused piece says only that
    /// at least so much is needed.
    pub fn learn(&mut self, piece: &Piece) {
        if piece.peak_bytes == 0 || piece.cost == 0 || piece.micro_batch == 0 {
            return;
        }
        let index = self
            .fits
            .iter()
            .position(|(kind, _)| *kind == piece.kind)
            .unwrap_or_else(|| self.begin(piece));
        let fit = &mut self.fits[index].1;
        let samples = piece.cost as f64 / fit.unit_cost;
        fit.see(samples, piece.peak_bytes as f64);
        if piece.outcome == Outcome::Ok {
            fit.learn(samples, piece.peak_bytes as f64);
            fit.pieces += 1;
            fit.largest = fit.largest.max(piece.micro_batch);
        }
    }

    /// Upper bound of the footprint that a piece of this cost reaches, in bytes; never below a peak already seen at a smaller
    /// cost. `None` where nothing is known: before two sizes were measured, only what is no larger than a measured one.
    pub fn upper_bytes(&self, kind: PieceKind, cost: u64) -> Option<u64> {
        let fit = self.fit(kind)?;
        let samples = cost as f64 / fit.unit_cost;
        let seen = fit
            .seen
            .iter()
            .filter(|(at, _)| *at <= samples)
            .map(|(_, peak)| *peak);
        let seen = seen.fold(0.0, f64::max);
        let upper = if fit.knows_slope() {
            let estimate = fit.estimate(samples);
            estimate + (LEAST_MARGIN * estimate).max(RESIDUAL_MARGIN * fit.residual_bytes(estimate))
        } else {
            let larger = fit
                .seen
                .iter()
                .filter(|(at, _)| *at >= samples)
                .map(|(_, peak)| *peak);
            (1.0 + LEAST_MARGIN) * larger.reduce(f64::min)?
        };
        Some(upper.max(seen) as u64)
    }

    /// How far the prediction for this piece was off, as a share of its measured peak: +0.04 is 4 % too high. Ask before
    /// `learn` takes the piece in. `None` where nothing was predicted or measured, or the piece did not end well.
    pub fn error_fraction(&self, piece: &Piece) -> Option<f64> {
        let whole = piece.outcome == Outcome::Ok && piece.peak_bytes > 0;
        let predicted = self.upper_bytes(piece.kind, piece.cost).filter(|_| whole)?;
        Some(predicted as f64 / piece.peak_bytes as f64 - 1.0)
    }

    /// Footprint that stays when no piece is at work, in bytes: weights, gradients, optimizer state and the program.
    pub fn state_bytes(&self, kind: PieceKind) -> Option<u64> {
        let fit = self.fit(kind).filter(|fit| fit.knows_slope())?;
        Some(fit.state_bytes() as u64)
    }

    /// Two sizes of this kind were measured: the model can answer for sizes that it has not seen.
    pub fn is_ready(&self, kind: PieceKind) -> bool {
        self.fit(kind).is_some_and(Fit::knows_slope)
    }

    /// The largest micro-batch of this kind that was measured; 0 before the first.
    pub fn largest(&self, kind: PieceKind) -> u32 {
        self.fit(kind).map_or(0, |fit| fit.largest)
    }

    fn fit(&self, kind: PieceKind) -> Option<&Fit> {
        self.nearest(kind).map(|(_, fit)| fit)
    }
}

impl Fit {
    fn new(allocator: Allocator, unit_cost: f64) -> Self {
        Self {
            unit_cost,
            line: Line::default(),
            stairs: match allocator {
                Allocator::Exact => Vec::new(),
                Allocator::PowerOfTwo => Stair::all(),
            },
            residual: 0.0,
            seen: Vec::new(),
            pieces: 0,
            largest: 0,
        }
    }

    fn knows_slope(&self) -> bool {
        self.pieces >= 2 && self.seen.len() >= 2
    }

    fn state_bytes(&self) -> f64 {
        stair::state_bytes(&self.stairs).unwrap_or(self.line.state_bytes)
    }

    /// Bytes at `samples`; where the edges of the allocator's classes are not known yet, the most that is possible.
    fn estimate(&self, samples: f64) -> f64 {
        stair::estimate(&self.stairs, samples).unwrap_or_else(|| self.line.estimate(samples))
    }

    /// What is off in bytes is so at every size where another process holds more; between two classes of an allocator that rounds,
    /// what is off at a large piece is less at a small one.
    fn unit_of_residual(&self, estimate: f64) -> f64 {
        match self.stairs.is_empty() {
            true => 1.0,
            false => estimate.max(1.0),
        }
    }

    fn residual_bytes(&self, estimate: f64) -> f64 {
        self.residual * self.unit_of_residual(estimate)
    }

    fn see(&mut self, samples: f64, peak: f64) {
        for (_, seen) in &mut self.seen {
            *seen *= SEEN_DECAY;
        }
        let near = match self.stairs.is_empty() {
            true => 0.5,
            false => SAME_CLASS * samples,
        };
        match self
            .seen
            .iter_mut()
            .find(|(at, _)| (*at - samples).abs() < near)
        {
            Some((_, seen)) => *seen = seen.max(peak),
            None => self.seen.push((samples, peak)),
        }
    }

    fn learn(&mut self, x: f64, y: f64) {
        let known = self.knows_slope();
        if known {
            let estimate = self.estimate(x);
            let error = (y - estimate) / self.unit_of_residual(estimate);
            self.residual = error.max(self.residual * RESIDUAL_DECAY);
        }
        self.line.learn(x, y, self.pieces);
        for stair in &mut self.stairs {
            stair.learn(x, y);
        }
    }
}

#[cfg(test)]
#[path = "memory_model/tests.rs"]
mod tests;
