//! The true memory and time of a micro-batch.

use super::mersenne_twister::Random;
use pressure::Allocator;

/// How the machine's allocator rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rounding {
    Exact,
    PowerOfTwo,
    /// Half of a sample's memory in powers of two, half in finer classes.
    Mixed,
}

impl Rounding {
    /// The allocator as the controller knows it.
    pub fn allocator(self) -> Allocator {
        match self {
            Rounding::Exact => Allocator::Exact,
            Rounding::PowerOfTwo | Rounding::Mixed => Allocator::PowerOfTwo,
        }
    }
}

/// What the controller has to learn, in GB and seconds.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    pub state: f64,
    sample: f64,
    fixed_s: f64,
    sample_s: f64,
    plateau: f64,
    rounding: Rounding,
}

impl Truth {
    /// Machine 0 is fixed; the others are drawn.
    pub fn new(seed: u32, rounding: Rounding) -> Self {
        let mut r = Random::new(77 + seed);
        match seed {
            0 => Self {
                state: 6.0,
                sample: 0.34,
                fixed_s: 0.020,
                sample_s: 0.012,
                plateau: 6.0,
                rounding,
            },
            _ => Self {
                state: r.between(3.0, 8.0),
                sample: r.between(0.12, 0.6),
                fixed_s: r.between(0.01, 0.05),
                sample_s: r.between(0.004, 0.02),
                plateau: r.between(3.0, 14.0),
                rounding,
            },
        }
    }

    pub fn need(&self, samples: f64) -> f64 {
        let capacity = samples.log2().ceil().exp2();
        let samples = match self.rounding {
            Rounding::Exact => samples,
            Rounding::PowerOfTwo => capacity,
            Rounding::Mixed => {
                0.5 * capacity + 0.5 * (16.0 * samples / capacity).ceil() / 16.0 * capacity
            }
        };
        self.state + self.sample * samples
    }

    /// Memory of one sample while those running have this length. If the allocator rounds, a
    /// slightly longer sample may need twice as much as a slightly shorter one; otherwise all
    /// count as ordinary.
    pub fn one(&self, length: Option<f64>) -> f64 {
        match self.rounding {
            Rounding::Exact => self.need(1.0),
            Rounding::PowerOfTwo | Rounding::Mixed => self.need(length.unwrap_or(1.0)),
        }
    }

    pub fn seconds(&self, samples: f64) -> f64 {
        self.fixed_s + self.sample_s * (samples.powi(4) + self.plateau.powi(4)).powf(0.25)
    }

    /// Samples per second at this size; 0 if nothing runs.
    pub fn speed(&self, samples: f64) -> f64 {
        if samples == 0.0 {
            0.0
        } else {
            samples / self.seconds(samples)
        }
    }
}
