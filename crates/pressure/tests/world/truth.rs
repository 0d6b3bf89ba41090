//! What a piece of the trainer really needs and takes. It knows nothing of other apps.

use super::random::Random;
use pressure::Allocator;

/// How the machine's allocators round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rounding {
    Exact,
    PowerOfTwo,
    /// Half of a sample's memory in powers of two, half in finer classes.
    Mixed,
}

impl Rounding {
    /// What the controller is told of it.
    pub fn told(self) -> Allocator {
        match self {
            Rounding::Exact => Allocator::Exact,
            Rounding::PowerOfTwo | Rounding::Mixed => Allocator::PowerOfTwo,
        }
    }
}

/// The truth that the controller has to find out: GB and seconds.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    pub state: f64,
    sample: f64,
    fixed_s: f64,
    sample_s: f64,
    knee: f64,
    rounding: Rounding,
}

impl Truth {
    /// Machine 0 is given; the others are drawn.
    pub fn of(seed: u32, rounding: Rounding) -> Self {
        let mut r = Random::new(77 + seed);
        match seed {
            0 => Self {
                state: 6.0,
                sample: 0.34,
                fixed_s: 0.020,
                sample_s: 0.012,
                knee: 6.0,
                rounding,
            },
            _ => Self {
                state: r.between(3.0, 8.0),
                sample: r.between(0.12, 0.6),
                fixed_s: r.between(0.01, 0.05),
                sample_s: r.between(0.004, 0.02),
                knee: r.between(3.0, 14.0),
                rounding,
            },
        }
    }

    pub fn need(&self, samples: f64) -> f64 {
        let room = samples.log2().ceil().exp2();
        let samples = match self.rounding {
            Rounding::Exact => samples,
            Rounding::PowerOfTwo => room,
            Rounding::Mixed => 0.5 * room + 0.5 * (16.0 * samples / room).ceil() / 16.0 * room,
        };
        self.state + self.sample * samples
    }

    /// What one sample needs while those at work have this length. Where an allocator rounds, one that is a little longer than most
    /// takes twice the room of one that is a little shorter; elsewhere all are taken to be of ordinary length.
    pub fn one(&self, length: Option<f64>) -> f64 {
        match self.rounding {
            Rounding::Exact => self.need(1.0),
            Rounding::PowerOfTwo | Rounding::Mixed => self.need(length.unwrap_or(1.0)),
        }
    }

    pub fn seconds(&self, samples: f64) -> f64 {
        self.fixed_s + self.sample_s * (samples.powi(4) + self.knee.powi(4)).powf(0.25)
    }

    /// Samples a second at this size; 0 where nothing is at work.
    pub fn speed(&self, samples: f64) -> f64 {
        if samples == 0.0 {
            0.0
        } else {
            samples / self.seconds(samples)
        }
    }
}
