//! Losses that compare each output with one target: masks, sums per sample, and the gradient
//! computed in the forward pass. Saved: the gradient, as large as the outputs.

use super::regression_targets::{AllowedTargets, RegressionTargets};
use super::{Loss, expect_filled, misfit, record_loss};
use crate::convert_dtype::{host_tensor, widened};
use crate::cpu::{Float, View, buffer, to_tensor, vectorized_rows, wide, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

/// A loss of one output, as the body of a loop and composed of tensor primitives.
pub(super) trait ElementLoss: Sync {
    const OP: &'static str;
    const ALLOWED: AllowedTargets;
    /// The loss and slope of one output.
    fn of<T: Float>(&self, x: T, target: T) -> (T, T);
    /// The losses and slopes of all outputs.
    fn composed(&self, x: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)>;
}

pub(super) const FINITE: AllowedTargets = AllowedTargets {
    test: f32::is_finite,
    words: "a finite number",
};

impl Tape<'_> {
    /// The sum of `rule` over the outputs `x` [samples, ..] whose targets are present.
    pub(super) fn element_loss<L: ElementLoss>(
        &self,
        x: &Value,
        targets: RegressionTargets,
        rule: &L,
    ) -> Result<Loss> {
        self.poll()?;
        expect_filled(L::OP, "x", x)?;
        if x.dims().is_empty() || x.tensor().elem_count() != targets.values.len() {
            let expected = format!("[samples, ..] for {} targets", targets.values.len());
            return Err(misfit(L::OP, "x", expected, x));
        }
        let input = contiguous(&widened(x.tensor())?)?;
        targets.expect_valid(L::OP, input.elem_count() / input.dim(0)?, L::ALLOWED)?;
        let (per_sample, dx) = if self.fuses(&input) {
            with_float!("element_loss", input, T => fused::<T, L>(&input, targets, rule))?
        } else {
            composed(&input, targets, rule)?
        };
        record_loss::record_loss(self, x, per_sample, dx)
    }
}

fn fused<T: Float, L: ElementLoss>(
    x: &Tensor,
    targets: RegressionTargets,
    rule: &L,
) -> Result<(Tensor, Tensor)> {
    let xs = View::<T>::new(L::OP, x)?;
    let (samples, each) = (x.dim(0)?, x.elem_count() / x.dim(0)?);
    let (mut losses, mut dx) = (buffer::<T>(samples), buffer::<T>(xs.len()));
    let rows = dx.par_chunks_mut(each).zip(xs.par_chunks(each));
    losses.par_iter_mut().zip(rows).enumerate().for_each_init(
        || buffer::<T>(each),
        |scratch, (sample, (loss, (dx, x)))| {
            wide(
                #[inline(always)]
                || {
                    let outputs = dx.iter_mut().zip(x).zip(scratch.iter_mut());
                    for (i, ((dx, &x), loss)) in outputs.enumerate() {
                        (*loss, *dx) = match targets.at(sample * each + i) {
                            Some(target) => rule.of(x, T::from_constant(f64::from(target))),
                            None => (T::zero(), T::zero()),
                        };
                    }
                },
            );
            *loss = vectorized_rows::sum(scratch, |v| v);
        },
    );
    Ok((to_tensor(losses, &[samples])?, to_tensor(dx, x.dims())?))
}

fn composed<L: ElementLoss>(
    x: &Tensor,
    targets: RegressionTargets,
    rule: &L,
) -> Result<(Tensor, Tensor)> {
    let count = x.elem_count();
    let values = (0..count).map(|i| f64::from(targets.at(i).unwrap_or(0.0)));
    let values = host_tensor(values.collect(), x.dims(), x.dtype(), x.device())?;
    let there: Vec<u8> = (0..count)
        .map(|i| u8::from(targets.at(i).is_some()))
        .collect();
    let there = Tensor::from_vec(there, x.dims(), x.device())?;
    let (losses, dx) = rule.composed(x, &values)?;
    // Selected, not multiplied: an output without a target may be infinite.
    let zeros = x.zeros_like()?;
    let losses = there.where_cond(&losses, &zeros)?;
    let per_sample = losses.reshape((x.dim(0)?, ()))?.sum(1)?;
    Ok((per_sample, there.where_cond(&dx, &zeros)?))
}
