//! What a piece of the trainer really needs and takes. It knows nothing of other apps.

use super::random::Random;

/// The truth that the controller has to find out.
pub struct Truth {
    pub state: f64,
    sample: f64,
    fixed_s: f64,
    sample_s: f64,
    knee: f64,
}

impl Truth {
    pub fn of(seed: u64) -> Self {
        let mut r = Random(77 + seed);
        match seed {
            0 => Self {
                state: 6.0,
                sample: 0.34,
                fixed_s: 0.020,
                sample_s: 0.012,
                knee: 6.0,
            },
            _ => Self {
                state: r.between(3.0, 8.0),
                sample: r.between(0.12, 0.6),
                fixed_s: r.between(0.01, 0.05),
                sample_s: r.between(0.004, 0.02),
                knee: r.between(3.0, 14.0),
            },
        }
    }
    pub fn need(&self, samples: f64) -> f64 {
        self.state + self.sample * samples
    }
    pub fn seconds(&self, samples: f64) -> f64 {
        self.fixed_s + self.sample_s * (samples.powi(4) + self.knee.powi(4)).powf(0.25)
    }
}
