//! Squared error, summed over the outputs whose targets are present, never averaged: loss `= (x -
//! t)²`, `dx = 2 (x - t)`. The forward pass computes the gradient. Saved: `dx`, as large as the
//! outputs.

use super::Loss;
use super::element_loss::{ElementLoss, FINITE};
use super::regression_targets::AllowedTargets;
use super::regression_targets::RegressionTargets;
use crate::cpu::Float;
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct SquaredError;

impl Tape<'_> {
    /// Squared error of `x` [samples, ..]. Divided by [`RegressionTargets::weight`], it is the mean
    /// squared error.
    pub fn squared_error(&self, x: &Value, targets: RegressionTargets) -> Result<Loss> {
        self.element_loss(x, targets, &SquaredError)
    }
}

impl ElementLoss for SquaredError {
    const OP: &'static str = "squared_error";
    const ALLOWED: AllowedTargets = FINITE;

    #[inline(always)]
    fn of<T: Float>(&self, x: T, t: T) -> (T, T) {
        let error = x - t;
        (error * error, error + error)
    }

    fn composed(&self, x: &Tensor, t: &Tensor) -> Result<(Tensor, Tensor)> {
        let error = (x - t)?;
        Ok((error.sqr()?, (error * 2.0)?))
    }
}
