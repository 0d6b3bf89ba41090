//! Where the edges of power-of-two classes lie. They are powers of two in bytes, so in samples they lie anywhere: for one
//! well-known model at 5.3, 10.7, 21.3. Every place that is possible is followed, and the pieces tell which one is true.

use super::line::Line;
use serde::{Deserialize, Serialize};

/// Places of the edges that are told apart within an octave.
const PLACES: u32 = 32;
/// Weight of the newest piece in how wrong a place is.
const NEWEST: f64 = 0.1;
/// A place may be wrong by this much more than the best one and still be the true one: the square of a relative error.
const DOUBT: f64 = 0.02 * 0.02;

/// One place of the edges, with the line that it leads to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stair {
    /// An edge, samples: the others lie at twice, four times, half of it, and so on.
    edge: f64,
    /// Peak over rounded samples.
    pub(super) line: Line,
    /// Mean square of the relative errors of late.
    wrong: f64,
}

impl Stair {
    pub(super) fn all() -> Vec<Self> {
        let edge = |place| (f64::from(place) / f64::from(PLACES)).exp2();
        (0..PLACES).map(|place| Self::at(edge(place))).collect()
    }

    fn at(edge: f64) -> Self {
        Self {
            edge,
            line: Line::default(),
            wrong: 0.0,
        }
    }

    /// Samples that there is room for where `samples` are asked for.
    fn room(&self, samples: f64) -> f64 {
        // An edge itself belongs to the class below it; a rounding error must not double it.
        let octaves = (samples.max(f64::MIN_POSITIVE) / self.edge).log2() - 1e-9;
        self.edge * octaves.ceil().exp2()
    }

    pub(super) fn estimate(&self, samples: f64) -> f64 {
        self.line.estimate(self.room(samples))
    }

    /// Learns the point `(x, y)`, after `points` before it; `known` when a line could be drawn already.
    pub(super) fn learn(&mut self, x: f64, y: f64, points: u32, known: bool) {
        if known {
            let error = y / self.estimate(x).max(1.0) - 1.0;
            self.wrong += NEWEST * (error * error - self.wrong);
        }
        self.line.learn(self.room(x), y, points);
    }
}

/// The place that has been wrong least.
pub(super) fn likeliest(stairs: &[Stair]) -> Option<&Stair> {
    stairs.iter().min_by(|a, b| a.wrong.total_cmp(&b.wrong))
}

/// All places that may be the true one.
pub(super) fn possible(stairs: &[Stair]) -> impl Iterator<Item = &Stair> {
    let least = likeliest(stairs).map_or(0.0, |stair| stair.wrong);
    stairs
        .iter()
        .filter(move |stair| stair.wrong <= least + DOUBT)
}
