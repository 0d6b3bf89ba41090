//! The second half of a feed-forward branch: `y = r + gelu(x + a) Wᵀ + b`, with `x` [.., inputs] a
//! product whose bias `a` [inputs] has not been added yet, `W` [outputs, inputs], `b` [outputs] and
//! `r` shaped like `y`. Gelu is the tanh form.
//!
//! Backward with `h = gelu(x + a)`, `dh = dy W`: `dx = dh gelu'(x + a)`, `da` its sum over rows,
//! `dW = dyᵀ h`, `db` the sum of `dy` over rows, `dr = dy`. One pass computes `h`, `dx` and `da`,
//! with one tanh for both. Saved: `x`, and `W` (a parameter: free). On a GPU `h` overwrites `dh`,
//! and `dx` overwrites `x` if nothing else reads it.

use super::activation::gelu_and_slope;
use super::linear::{Added, add_weight_gradient, expect_fit, forward, inner, row_sum};
use super::{Form, activation::gelu, expect_shape};
use crate::cpu::{Float, View, add_in_order, buffer, row_chunks, to_tensor, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::KernelGroup;
use crate::kernels::copies::{contiguous, copy};
use crate::kernels::elementwise;
use crate::optim::Element;
use crate::saved_input::SavedInput;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

/// Operands of [`Tape::gelu_linear`].
#[derive(Debug, Clone)]
pub struct GeluLinear {
    /// [.., inputs]: a product without its bias.
    pub x: Value,
    /// Nothing else reads `x`: the backward pass may overwrite it with its gradient.
    pub x_is_spent: bool,
    /// [inputs]: the bias of `x`.
    pub x_bias: Value,
    /// [outputs, inputs].
    pub weight: Value,
    /// [outputs].
    pub bias: Value,
    /// [.., outputs]: added to the result.
    pub residual: Value,
}

impl Tape<'_> {
    /// `residual + gelu(x + x_bias) Wᵀ + bias` over the last axis of `x`.
    pub fn gelu_linear(&self, operands: &GeluLinear) -> Result<Value> {
        self.poll()?;
        let GeluLinear {
            x,
            x_is_spent: _,
            x_bias,
            weight,
            bias,
            residual,
        } = operands;
        operands.expect_fit()?;
        let form = self.form(KernelGroup::GeluLinear, x.tensor());
        if form == Form::Composed {
            let h = self.gelu(&self.broadcast_add(x, x_bias)?)?;
            return self.linear_add(&h, weight, bias, residual);
        }
        let (rows, inputs) = operands.sizes();
        let flat = contiguous(x.tensor())?.reshape((rows, inputs))?;
        let h = match form {
            Form::Device => elementwise::bias_gelu(&flat, x_bias.tensor())?,
            _ => with_float!("gelu_linear", flat, T => activated::<T>(&flat, x_bias.tensor()))?,
        };
        let added = Added {
            bias: Some(bias.tensor()),
            residual: Some(residual.tensor()),
        };
        let y = forward(&h, weight.tensor(), added, form)?;
        self.record_gelu_linear(operands, y.reshape(residual.dims())?)
    }

    /// Records [`Tape::gelu_linear`] without computing the result, whose values nothing reads.
    pub(crate) fn gelu_linear_shape_only(&self, operands: &GeluLinear) -> Result<Value> {
        self.poll()?;
        operands.expect_fit()?;
        if self.form(KernelGroup::GeluLinear, operands.x.tensor()) == Form::Composed {
            return self.gelu_linear(operands);
        }
        let y = super::shape_only(operands.x.tensor(), operands.residual.dims())?;
        self.record_gelu_linear(operands, y)
    }

    fn record_gelu_linear(&self, operands: &GeluLinear, y: Tensor) -> Result<Value> {
        let GeluLinear {
            x,
            x_is_spent,
            x_bias,
            weight,
            bias,
            residual,
        } = operands;
        if !self.records(&[x, x_bias, weight, bias, residual]) {
            return Ok(Value::constant(y));
        }
        let [x_id, a_id, w_id, b_id, r_id] = [x, x_bias, weight, bias, residual].map(Value::id);
        let inner_ids = [x_id, a_id, w_id];
        let kept = inner_ids.iter().any(Option::is_some).then(|| {
            let (w, a) = (weight.tensor().clone(), x_bias.tensor().clone());
            (x.saved_input(), w, a)
        });
        let counted = kept.clone();
        let counted = counted
            .iter()
            .flat_map(|(x, w, a)| [x.counted(), vec![w, a]].concat());
        let ((rows, inputs), shape) = (operands.sizes(), x.tensor().shape().clone());
        let form = self.form(KernelGroup::GeluLinear, x.tensor());
        let spent = *x_is_spent || matches!(x.saved_input(), SavedInput::Recomputed(_));
        Ok(self.push(y, &counted.collect::<Vec<_>>(), move |dy, sink| {
            let flat = contiguous(&dy)?.reshape((rows, dy.elem_count() / rows.max(1)))?;
            if b_id.is_some() {
                sink.add_owned(b_id, row_sum(&flat, form)?)?;
            }
            if let Some((x, w, a)) = kept {
                let x = x.get()?.reshape((rows, inputs))?;
                let dh = inner(&flat, &w, form)?;
                let (h, dx, da) = match form {
                    Form::Device => {
                        let x = if spent { x } else { copy(&x)? };
                        elementwise::bias_gelu_backward(&x, &a, &dh)?;
                        let da = row_sum(&x, form)?;
                        (dh, x, da)
                    }
                    _ => with_float!("gelu_linear", x, T => {
                        let (h, da) = backward::<T>(&x, &a, &dh)?;
                        Ok((h, dh, da))
                    })?,
                };
                sink.add_owned(a_id, da)?;
                if w_id.is_some() {
                    add_weight_gradient(sink, w_id, &flat, &h, form)?;
                }
                drop(h);
                sink.add_owned(x_id, dx.reshape(shape)?)?;
            }
            sink.add_shared(r_id, dy)
        }))
    }
}

impl GeluLinear {
    /// Fails if the operands do not fit, with both shapes.
    pub(crate) fn expect_fit(&self) -> Result<()> {
        expect_fit(
            "linear",
            &self.x,
            &self.weight,
            Some(&self.bias),
            Some(&self.residual),
        )?;
        expect_shape("gelu_linear", "x_bias", &self.x_bias, &[self.sizes().1])
    }

    /// The rows of `x` and their width.
    fn sizes(&self) -> (usize, usize) {
        let inputs = *self.x.dims().last().unwrap_or(&0);
        (self.x.tensor().elem_count() / inputs.max(1), inputs)
    }
}

/// `gelu(x + a)`.
fn activated<T: Float>(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (xs, a) = (
        View::<T>::new("gelu_linear", x)?,
        View::<T>::new("gelu_linear", bias)?,
    );
    let chunk = (row_chunks(a.len()) * a.len()).max(1);
    let mut h = buffer::<T>(xs.len());
    let chunks = h.par_chunks_mut(chunk).zip(xs.par_chunks(chunk));
    chunks.for_each(|(h, x)| {
        wide(
            #[inline(always)]
            || {
                for (h, x) in h.chunks_exact_mut(a.len()).zip(x.chunks_exact(a.len())) {
                    let sums = x.iter().zip(a.iter()).map(|(&x, &a)| x + a);
                    h.iter_mut().zip(sums).for_each(|(h, x)| *h = gelu(x));
                }
            },
        );
    });
    to_tensor(h, x.dims())
}

/// Turns `dh` into `dx` in place and returns `h` and `da`.
fn backward<T: Element>(x: &Tensor, bias: &Tensor, dh: &Tensor) -> Result<(Tensor, Tensor)> {
    let (xs, a) = (
        View::<T>::new("gelu_linear", x)?,
        View::<T>::new("gelu_linear", bias)?,
    );
    let width = a.len();
    let chunk = (row_chunks(width) * width).max(1);
    let mut h = buffer::<T>(xs.len());
    let mut partial: Vec<Vec<T>> = Vec::new();
    with_slice_mut(dh, |dh| {
        let chunks = T::borrowed(dh)?
            .par_chunks_mut(chunk)
            .zip(h.par_chunks_mut(chunk));
        let sums = chunks.zip(xs.par_chunks(chunk)).map(|((dh, h), x)| {
            let mut sums = vec![T::zero(); width];
            wide(
                #[inline(always)]
                || {
                    let rows = dh.chunks_exact_mut(width).zip(h.chunks_exact_mut(width));
                    for ((dh, h), x) in rows.zip(x.chunks_exact(width)) {
                        for (((dh, h), (&x, &a)), sum) in dh
                            .iter_mut()
                            .zip(h)
                            .zip(x.iter().zip(a.iter()))
                            .zip(&mut sums)
                        {
                            let (value, slope) = gelu_and_slope(x + a);
                            *h = value;
                            *dh *= slope;
                            *sum += *dh;
                        }
                    }
                },
            );
            sums
        });
        partial = sums.collect();
        Ok(())
    })?;
    Ok((
        to_tensor(h, x.dims())?,
        to_tensor(add_in_order(partial, width), &[width])?,
    ))
}
