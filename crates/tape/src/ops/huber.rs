//! Huber loss (Huber 1964), summed over the outputs whose targets are present, never averaged. For
//! an error `e = x - t`: `e² / 2` within `delta`, `delta (|e| - delta / 2)` beyond; `dx = e`,
//! clamped to `-delta..delta`. The forward pass computes the gradient. Saved: `dx`, as large as the
//! outputs.

use super::Loss;
use super::element_loss::{ElementLoss, FINITE};
use super::regression_targets::AllowedTargets;
use super::regression_targets::RegressionTargets;
use crate::cpu::Float;
use crate::error::{Result, TapeError};
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct Huber {
    delta: f64,
}

impl Tape<'_> {
    /// Huber loss of `x` [samples, ..]: quadratic up to `delta`, linear beyond.
    pub fn huber(&self, x: &Value, targets: RegressionTargets, delta: f64) -> Result<Loss> {
        if delta > 0.0 && delta.is_finite() {
            return self.element_loss(x, targets, &Huber { delta });
        }
        Err(TapeError::Number {
            op: "huber",
            what: "delta".to_owned(),
            expected: "a finite number above 0",
            found: delta,
        })
    }
}

impl ElementLoss for Huber {
    const OP: &'static str = "huber";
    const ALLOWED: AllowedTargets = FINITE;

    #[inline(always)]
    fn of<T: Float>(&self, x: T, t: T) -> (T, T) {
        let (error, delta) = (x - t, T::from_constant(self.delta));
        // NaN passes: any comparison with it is false.
        let cut = if error > delta { delta } else { error };
        let cut = if cut < -delta { -delta } else { cut };
        (cut * (error - T::from_constant(0.5) * cut), cut)
    }

    fn composed(&self, x: &Tensor, t: &Tensor) -> Result<(Tensor, Tensor)> {
        let error = (x - t)?;
        let cut = error.clamp(-self.delta, self.delta)?;
        Ok(((&cut * (&error - (&cut * 0.5)?)?)?, cut))
    }
}
