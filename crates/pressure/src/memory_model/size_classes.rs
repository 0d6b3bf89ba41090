//! Where the edges of an allocator's power-of-two size classes lie.
//!
//! The edges are powers of two in bytes, so in samples they may lie anywhere: for one common model
//! at 5.3, 10.7 and 21.3. One candidate is fitted for every possible position, and the measurements
//! show which is right. A candidate sums over all of its points and forgets none: a wrong one
//! misses a whole class somewhere, and while micro-batches stay within one class for an hour
//! nothing else shows that. A position is a small interval that overlaps with the next; a size
//! inside it may belong to the class below or above.
//!
//! The fraction of a sample's memory that is rounded is unknown too. Models are fitted for all, two
//! thirds, a third and none of it.

use crate::policy::{
    EDGE_DOUBT, EDGE_OVERLAP, EDGE_TOLERANCE, EDGES_PER_OCTAVE, EXACT_FRACTIONS,
    MIN_CAPACITY_SPREAD, PEAK_NOISE,
};
use serde::{Deserialize, Serialize};

/// One candidate: a position of the edges, and the sums for the straight line through its points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SizeClasses {
    /// Fraction of a sample's memory that is exact; the rest is rounded up.
    #[serde(default, alias = "fine")]
    exact_fraction: f64,
    /// One edge, in samples; the others are at twice, four times, half of it, and so on.
    edge: f64,
    /// Up to where in the interval of an edge, `0.0..=1.0`, sizes were observed to belong to the
    /// class below.
    #[serde(default)]
    below: f64,
    /// Sums over points of capacity `r` and `y` bytes, each with the weight 1/y², so that errors
    /// are relative.
    #[serde(default)]
    sums: Sums,
}

/// Weighted sums of 1, r, r², y, r·y and y², and the number of points.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Sums {
    one: f64,
    r: f64,
    rr: f64,
    y: f64,
    ry: f64,
    yy: f64,
    points: f64,
}

/// The line through the points: bytes at capacity 0, and per unit of capacity (one sample).
struct Fitted {
    state_bytes: f64,
    unit_bytes: f64,
}

impl Fitted {
    fn at(&self, capacity: f64) -> f64 {
        self.state_bytes + self.unit_bytes * capacity
    }
}

/// Where a size lies relative to a candidate's edges.
#[derive(Clone, Copy)]
enum Position {
    /// Certainly in one class.
    InClass,
    /// This far, `0.0..=1.0`, into the interval of an edge.
    AtEdge(f64),
}

impl Sums {
    /// Squared relative spread of the capacities.
    fn spread(&self) -> f64 {
        (self.one * self.rr / (self.r * self.r).max(f64::MIN_POSITIVE) - 1.0).max(0.0)
    }

    /// Least squares, without negative coefficients. `None` if all points have one capacity.
    fn line(&self) -> Option<Fitted> {
        if self.spread() < MIN_CAPACITY_SPREAD {
            return None;
        }
        let unit_bytes =
            (self.one * self.ry - self.r * self.y) / (self.one * self.rr - self.r * self.r);
        let state_bytes = (self.y - unit_bytes * self.r) / self.one;
        Some(if unit_bytes < 0.0 {
            self.mean()
        } else if state_bytes < 0.0 {
            Fitted {
                state_bytes: 0.0,
                unit_bytes: self.ry / self.rr,
            }
        } else {
            Fitted {
                state_bytes,
                unit_bytes,
            }
        })
    }

    /// The horizontal line through the mean.
    fn mean(&self) -> Fitted {
        Fitted {
            state_bytes: self.y / self.one,
            unit_bytes: 0.0,
        }
    }

    /// Sum of the squared relative errors.
    fn squared_error(&self) -> f64 {
        let Fitted {
            state_bytes: a,
            unit_bytes: b,
        } = self.line().unwrap_or_else(|| self.mean());
        let fitted = a * a * self.one + 2.0 * a * b * self.r + b * b * self.rr;
        (self.yy - 2.0 * a * self.y - 2.0 * b * self.ry + fitted).max(0.0)
    }
}

impl SizeClasses {
    /// Every candidate.
    pub(super) fn candidates() -> Vec<Self> {
        let candidate = |exact_fraction, position| Self {
            exact_fraction,
            edge: (f64::from(position) / f64::from(EDGES_PER_OCTAVE)).exp2(),
            below: 0.0,
            sums: Sums::default(),
        };
        let rounded = EXACT_FRACTIONS.iter().flat_map(|&exact_fraction| {
            (0..EDGES_PER_OCTAVE).map(move |position| candidate(exact_fraction, position))
        });
        // If nothing is rounded, there are no edges.
        rounded.chain([candidate(1.0, 0)]).collect()
    }

    /// The memory of a micro-batch, in samples, if its rounded part has the capacity `class`.
    fn capacity(&self, samples: f64, class: f64) -> f64 {
        self.exact_fraction * samples + (1.0 - self.exact_fraction) * class
    }

    /// Capacity of the class below the next edge, in samples, and the position of `samples`. At an
    /// edge the class may be the next one, of twice the capacity.
    fn class(&self, samples: f64) -> (f64, Position) {
        if samples <= 0.0 {
            return (0.0, Position::InClass);
        }
        let octaves = (samples / self.edge).log2();
        let class = (octaves - EDGE_OVERLAP / f64::from(EDGES_PER_OCTAVE)).ceil();
        let before = (class - octaves) * f64::from(EDGES_PER_OCTAVE);
        let position = if before < 1.0 + EDGE_OVERLAP {
            Position::AtEdge(1.0 - (before + EDGE_OVERLAP) / (1.0 + 2.0 * EDGE_OVERLAP))
        } else {
            Position::InClass
        };
        (self.edge * class.exp2(), position)
    }

    /// Bytes at `samples`. At an edge the class above is assumed, unless sizes this large were
    /// observed to belong below. If all points have one capacity, larger ones are assumed to need
    /// in proportion, the most that is possible.
    fn estimate(&self, samples: f64) -> f64 {
        let class = match self.class(samples) {
            (class, Position::AtEdge(into)) if into > self.below => 2.0 * class,
            (class, _) => class,
        };
        let capacity = self.capacity(samples, class);
        match self.sums.line() {
            Some(line) => line.at(capacity),
            None => {
                let mean = self.sums.y / self.sums.one;
                mean * (capacity * self.sums.one / self.sums.r).max(1.0)
            }
        }
    }

    /// Learns a peak of `bytes` at `samples`.
    pub(super) fn learn(&mut self, samples: f64, bytes: f64) {
        let (below, position) = self.class(samples);
        let y = bytes.max(1.0);
        let mut class = below;
        if let Position::AtEdge(into) = position {
            // Without a line the size class is unknown, so nothing can be learned.
            let Some(line) = self.sums.line() else {
                return;
            };
            let error = |class: f64| (line.at(self.capacity(samples, class)) - y).abs();
            if error(2.0 * below) < error(below) {
                class = 2.0 * below;
                self.below = self.below.min(into - EDGE_TOLERANCE).max(0.0);
            } else {
                self.below = self.below.max(into + EDGE_TOLERANCE);
            }
        }
        let (r, weight) = (self.capacity(samples, class), 1.0 / (y * y));
        let sums = &mut self.sums;
        sums.one += weight;
        sums.r += weight * r;
        sums.rr += weight * r * r;
        sums.y += weight * y;
        sums.ry += weight * r * y;
        sums.yy += weight * y * y;
        sums.points += 1.0;
    }

    /// Raises every peak by `bytes`, or lowers it if they are negative.
    pub(super) fn move_state(&mut self, bytes: f64) {
        let sums = &mut self.sums;
        sums.yy += 2.0 * bytes * sums.y + bytes * bytes * sums.one;
        sums.ry += bytes * sums.r;
        sums.y += bytes * sums.one;
    }
}

/// The training state by the most likely candidate, in bytes; `None` before a slope is known.
pub(super) fn state_bytes(candidates: &[SizeClasses]) -> Option<f64> {
    let known = candidates
        .iter()
        .filter_map(|candidate| Some((candidate.sums.squared_error(), candidate.sums.line()?)));
    let best = known.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(best.1.state_bytes)
}

/// The highest estimate of all possible candidates at `samples`, in bytes; `None` before the first
/// point.
pub(super) fn estimate(candidates: &[SizeClasses], samples: f64) -> Option<f64> {
    let known: Vec<(&SizeClasses, f64)> = candidates
        .iter()
        .filter(|candidate| candidate.sums.points > 0.0)
        .map(|candidate| (candidate, candidate.sums.squared_error()))
        .collect();
    let (best, least) = known.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    // If even the best candidate is off by more than noise, none is exact, and more of them count
    // as possible.
    let noise = (PEAK_NOISE * PEAK_NOISE).max(least / best.sums.points);
    let possible = known
        .iter()
        .filter(|(_, error)| *error <= least + EDGE_DOUBT * noise);
    possible
        .map(|(candidate, _)| candidate.estimate(samples))
        .reduce(f64::max)
}
