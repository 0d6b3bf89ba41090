//! The true memory and time of a micro-batch.

use super::first_touch;
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

/// The machine whose speeds are known.
const RAM: f64 = 36.0;

/// What the controller has to learn, in GB and seconds.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    /// Memory of the machine.
    pub ram: f64,
    /// What the device may allocate.
    pub device: f64,
    pub state: f64,
    sample: f64,
    fixed_s: f64,
    sample_s: f64,
    plateau: f64,
    pub rounding: Rounding,
}

impl Truth {
    /// A machine of 36 GB. Machine 0 is fixed; the others are drawn.
    pub fn new(seed: u32, rounding: Rounding) -> Self {
        let (ram, device) = (36.0, 28.08);
        let mut r = Random::new(77 + seed);
        match seed {
            0 => Self {
                ram,
                device,
                state: 6.0,
                sample: 0.34,
                fixed_s: 0.020,
                sample_s: 0.012,
                plateau: 6.0,
                rounding,
            },
            _ => Self {
                ram,
                device,
                state: r.between(3.0, 8.0),
                sample: r.between(0.12, 0.6),
                fixed_s: r.between(0.01, 0.05),
                sample_s: r.between(0.004, 0.02),
                plateau: r.between(3.0, 14.0),
                rounding,
            },
        }
    }

    /// A machine with `ram` GB, and a training that takes 3 to 60 % of them at some size between 4
    /// samples and the whole batch. The device's limits are those that macOS sets.
    pub fn with_ram(ram: f64, seed: u32) -> Self {
        let mut r = Random::new(7_000 + 100 * ram as u32 + seed);
        let device = match ram {
            ram if ram < 16.0 => 0.67,
            ram if ram < 36.0 => 0.74,
            ram if ram < 64.0 => 0.78,
            _ => 0.81,
        };
        let state = ram * r.between(0.015, 0.22);
        let at_size = 4.0 * r.between(0.0, 4.0).exp2();
        let peak = r.between(2.0 * state, 0.60 * ram);
        Self {
            ram,
            device: device * ram,
            state,
            sample: (peak - state) / at_size,
            fixed_s: r.between(0.01, 0.05),
            // A sample that needs more memory takes longer. Larger machines are also faster.
            sample_s: r.between(0.004, 0.02) * (ram / RAM).sqrt(),
            plateau: r.between(3.0, 14.0),
            rounding: Rounding::Exact,
        }
    }

    /// GB/s at which new memory is first touched: more on a larger machine.
    pub fn first_touch(&self) -> f64 {
        first_touch(self.ram)
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
