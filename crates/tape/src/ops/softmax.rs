//! Softmax and its logarithm over the last axis: `y = e^x / sum e^x`, `y = x - log sum e^x`.
//!
//! Backward: `dx = y (dy - sum dy y)`; of the logarithm `dx = dy - e^y sum dy`. Saved: `y`.

use super::{expect_an_axis, expect_filled};
use crate::convert_dtype::in_full;
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, vectorized_rows, wide, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

#[derive(Clone, Copy)]
enum Form {
    Shares,
    Logarithm,
}

impl Tape<'_> {
    /// Probabilities that add up to 1 over the last axis of `x` [.., width].
    pub fn softmax(&self, x: &Value) -> Result<Value> {
        self.shares("softmax", x, Form::Shares)
    }

    /// The logarithm of [`Tape::softmax`], exact even if a probability underflows.
    pub fn log_softmax(&self, x: &Value) -> Result<Value> {
        self.shares("log_softmax", x, Form::Logarithm)
    }

    fn shares(&self, op: &'static str, x: &Value, form: Form) -> Result<Value> {
        self.poll()?;
        expect_an_axis(op, "x", x)?;
        expect_filled(op, "x", x)?;
        let fused = self.fuses(x.tensor());
        let input = contiguous(x.tensor())?;
        let y = if fused {
            with_float!("softmax", input, T => forward::<T>(form, &input))?
        } else {
            in_full([&input], |[x]| composed_forward(form, &x))?
        };
        let kept = y.clone();
        self.unary(x, y, &[&kept.clone()], move |dy| {
            if fused {
                let dy = contiguous(&dy)?;
                with_float!("softmax", kept, T => backward::<T>(form, &kept, &dy))
            } else {
                in_full([&kept, &dy], |[y, dy]| composed_backward(form, &y, &dy))
            }
        })
    }
}

/// Softmax of one row, in place.
#[inline(always)]
pub(super) fn softmax_row<T: Float>(y: &mut [T]) {
    let highest = vectorized_rows::max(y);
    vectorized_rows::map(y, |v| (v - highest).exponential());
    let share = T::one() / vectorized_rows::sum(y, |v| v);
    vectorized_rows::map(y, |v| v * share);
}

/// `dx = factor y (dy - sum dy y)` of one row.
#[inline(always)]
pub(super) fn softmax_row_gradient<T: Float>(dx: &mut [T], y: &[T], dy: &[T], factor: T) {
    let inner = vectorized_rows::sum2(y, dy, |y, dy| y * dy);
    for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
        *dx = factor * y * (dy - inner);
    }
}

fn forward<T: Float>(form: Form, x: &Tensor) -> Result<Tensor> {
    let (xs, width) = (View::<T>::new("softmax", x)?, x.dim(D::Minus1)?);
    let mut y = buffer::<T>(xs.len());
    let chunk = row_chunks(width) * width;
    y.par_chunks_mut(chunk)
        .zip(xs.par_chunks(chunk))
        .for_each(|(y, x)| {
            wide(
                #[inline(always)]
                || {
                    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                        y.copy_from_slice(x);
                        match form {
                            Form::Shares => softmax_row(y),
                            Form::Logarithm => {
                                let highest = vectorized_rows::max(x);
                                let total =
                                    vectorized_rows::sum(x, |v| (v - highest).exponential()).ln();
                                vectorized_rows::map(y, |v| (v - highest) - total);
                            }
                        }
                    }
                },
            );
        });
    to_tensor(y, x.dims())
}

fn backward<T: Float>(form: Form, y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let width = y.dim(D::Minus1)?;
    let (ys, dys) = (
        View::<T>::new("softmax", y)?,
        View::<T>::new("softmax", dy)?,
    );
    let mut dx = buffer::<T>(ys.len());
    let chunk = row_chunks(width) * width;
    dx.par_chunks_mut(chunk)
        .zip(ys.par_chunks(chunk).zip(dys.par_chunks(chunk)))
        .for_each(|(dx, (y, dy))| {
            let rows = y.chunks_exact(width).zip(dy.chunks_exact(width));
            wide(
                #[inline(always)]
                || {
                    for (dx, (y, dy)) in dx.chunks_exact_mut(width).zip(rows) {
                        match form {
                            Form::Shares => softmax_row_gradient(dx, y, dy, T::one()),
                            Form::Logarithm => {
                                let total = vectorized_rows::sum(dy, |v| v);
                                for ((dx, &y), &dy) in dx.iter_mut().zip(y).zip(dy) {
                                    *dx = dy - y.exponential() * total;
                                }
                            }
                        }
                    }
                },
            );
        });
    to_tensor(dx, y.dims())
}

fn composed_forward(form: Form, x: &Tensor) -> Result<Tensor> {
    let shifted = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?;
    let exponentials = shifted.exp()?;
    let total = exponentials.sum_keepdim(D::Minus1)?;
    Ok(match form {
        Form::Shares => exponentials.broadcast_div(&total)?,
        Form::Logarithm => shifted.broadcast_sub(&total.log()?)?,
    })
}

fn composed_backward(form: Form, y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    Ok(match form {
        Form::Shares => composed_gradient(y, dy)?,
        Form::Logarithm => {
            let total = dy.sum_keepdim(D::Minus1)?;
            (dy - y.exp()?.broadcast_mul(&total)?)?
        }
    })
}

/// `y (dy - sum dy y)`, composed of tensor primitives.
pub(super) fn composed_gradient(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let inner = (y * dy)?.sum_keepdim(D::Minus1)?;
    Ok((y * dy.broadcast_sub(&inner)?)?)
}
