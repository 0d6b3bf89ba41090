//! A straight line through noisy points: recursive least squares with forgetting. Knows neither pieces nor allocators.

use serde::{Deserialize, Serialize};

/// How fast old points are forgotten: the weight of one falls to a half after 46 more.
const FORGETTING: f64 = 0.985;
/// Uncertainty before the first point; so large that the start values have no weight.
const UNCERTAIN: f64 = 1e6;
/// No forgetting beyond this uncertainty: while the size never changes there is nothing to relearn a slope from.
const FORGETTING_ENDS: f64 = 10.0;

/// Bytes over samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Bytes at zero samples.
    pub(super) state_bytes: f64,
    /// Bytes for each further sample.
    pub(super) sample_bytes: f64,
    /// Covariance: `[aa, ab, bb]`.
    covariance: [f64; 3],
}

impl Default for Line {
    fn default() -> Self {
        Self {
            state_bytes: 0.0,
            sample_bytes: 0.0,
            covariance: [UNCERTAIN, 0.0, UNCERTAIN],
        }
    }
}

impl Line {
    pub(super) fn estimate(&self, samples: f64) -> f64 {
        self.state_bytes + self.sample_bytes * samples
    }

    /// One step for the point `(x, y)`, after `points` before it.
    pub(super) fn learn(&mut self, x: f64, y: f64, points: u32) {
        let error = y - self.estimate(x);
        let [aa, ab, bb] = self.covariance;
        let lambda = if aa + bb > FORGETTING_ENDS && points >= 2 {
            1.0
        } else {
            FORGETTING
        };
        let (ka, kb) = (aa + ab * x, ab + bb * x);
        let scale = lambda + ka + kb * x;
        self.state_bytes += ka / scale * error;
        self.sample_bytes += kb / scale * error;
        self.covariance = [
            (aa - ka * ka / scale) / lambda,
            (ab - ka * kb / scale) / lambda,
            (bb - kb * kb / scale) / lambda,
        ];
        self.keep_possible(x);
    }

    /// Neither the state nor a sample takes less than nothing: noise must not make a larger piece look cheaper. The
    /// estimate at `x` stays.
    fn keep_possible(&mut self, x: f64) {
        let here = self.estimate(x).max(0.0);
        if self.sample_bytes < 0.0 {
            (self.state_bytes, self.sample_bytes) = (here, 0.0);
        } else if self.state_bytes < 0.0 {
            (self.state_bytes, self.sample_bytes) = (0.0, here / x);
        }
    }
}
