//! A straight line through noisy points: recursive least squares with exponential forgetting (Ljung
//! and Söderström, "Theory and Practice of Recursive Identification").

use crate::policy::{LINE_FORGETTING, LINE_INITIAL_UNCERTAINTY, LINE_MAX_UNCERTAINTY};
use serde::{Deserialize, Serialize};

/// Bytes over samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Bytes at zero samples.
    pub(super) state_bytes: f64,
    pub(super) sample_bytes: f64,
    /// Covariance: `[aa, ab, bb]`.
    covariance: [f64; 3],
}

impl Default for Line {
    fn default() -> Self {
        Self {
            state_bytes: 0.0,
            sample_bytes: 0.0,
            covariance: [LINE_INITIAL_UNCERTAINTY, 0.0, LINE_INITIAL_UNCERTAINTY],
        }
    }
}

impl Line {
    pub(super) fn estimate(&self, samples: f64) -> f64 {
        self.state_bytes + self.sample_bytes * samples
    }

    /// Takes the point `(x, y)`, which follows `points` others.
    pub(super) fn learn(&mut self, x: f64, y: f64, points: u32) {
        let error = y - self.estimate(x);
        let [aa, ab, bb] = self.covariance;
        let lambda = if aa + bb > LINE_MAX_UNCERTAINTY && points >= 2 {
            1.0
        } else {
            LINE_FORGETTING
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
        self.clamp_to_possible(x);
    }

    /// Neither state nor sample can be negative: noise must not make a larger micro-batch look
    /// cheaper. The estimate at `x` stays.
    fn clamp_to_possible(&mut self, x: f64) {
        let here = self.estimate(x).max(0.0);
        if self.sample_bytes < 0.0 {
            (self.state_bytes, self.sample_bytes) = (here, 0.0);
        } else if self.state_bytes < 0.0 {
            (self.state_bytes, self.sample_bytes) = (0.0, here / x);
        }
    }
}
