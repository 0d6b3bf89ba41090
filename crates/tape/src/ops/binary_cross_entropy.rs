//! Binary cross-entropy with logits, summed over the outputs whose targets are present, never
//! averaged.
//!
//! For an output `z` and its target `t` in 0..1: loss `= max(z, 0) - z t + ln(1 + e^-|z|)`, `dz =
//! sigmoid(z) - t`. The forward pass computes the gradient. Saved: `dz`, as large as the outputs.

use super::Loss;
use super::activation::composed_relu;
use super::element_loss::ElementLoss;
use super::regression_targets::AllowedTargets;
use super::regression_targets::RegressionTargets;
use super::sigmoid::{composed_sigmoid, sigmoid};
use crate::cpu::Float;
use crate::error::Result;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

struct BinaryCrossEntropy;

impl Tape<'_> {
    /// Binary cross-entropy of `logits` [samples, ..] against probabilities in `0.0..=1.0`, one per
    /// logit.
    pub fn binary_cross_entropy(&self, logits: &Value, targets: RegressionTargets) -> Result<Loss> {
        self.element_loss(logits, targets, &BinaryCrossEntropy)
    }
}

impl ElementLoss for BinaryCrossEntropy {
    const OP: &'static str = "binary_cross_entropy";
    const ALLOWED: AllowedTargets = AllowedTargets {
        test: |t| (0.0..=1.0).contains(&t),
        words: "a number from 0 to 1",
    };

    #[inline(always)]
    fn of<T: Float>(&self, z: T, t: T) -> (T, T) {
        let soft = (-z.abs()).exponential().ln_1p();
        let above = if z > T::zero() { z } else { T::zero() };
        (above - z * t + soft, sigmoid(z) - t)
    }

    fn composed(&self, z: &Tensor, t: &Tensor) -> Result<(Tensor, Tensor)> {
        let soft = (z.abs()?.neg()?.exp()? + 1.0)?.log()?;
        let loss = ((composed_relu(z)? - (z * t)?)? + soft)?;
        Ok((loss, (composed_sigmoid(z)? - t)?))
    }
}
