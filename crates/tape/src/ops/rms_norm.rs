//! Norm by the root mean square of the last axis (Zhang and Sennrich 2019): `y = x r (w + o)`, `r =
//! 1 / sqrt(mean(x²) + epsilon)`, with a constant `o` that is 0, or 1 for weights around 0.
//!
//! Backward with `g = dy (w + o)`, `n = x r`: `dx = r (g - n mean(g n))`, and `dw = sum dy n` if
//! `w` is trained. If `x` already has a gradient, such as that of a residual sum, `dx` is added to
//! it in the same pass. Saved: `x`. `r` is recomputed, and operations that need `y` recompute it
//! too.

use super::{Form, expect_shape};
use crate::convert_dtype::widened;
use crate::cpu::{
    Float, View, add_in_order, buffer, row_chunks, to_tensor, vectorized_rows, wide, with_float,
};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::row_kernels::{self, RmsNormInputs};
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

/// Rows of `dx`, `x` and `dy`.
type Chunk<'a, T> = (&'a mut [T], (&'a [T], &'a [T]));

pub use crate::kernels::row_kernels::RmsNormShape;

const OP: &str = "rms_norm";

impl Tape<'_> {
    /// Divides each row of `x` [.., width] by its root mean square and multiplies it by `weight`
    /// [width] plus an offset.
    pub fn rms_norm(&self, x: &Value, weight: &Value, shape: RmsNormShape) -> Result<Value> {
        self.poll()?;
        let width = *x.dims().last().unwrap_or(&0);
        expect_shape(OP, "weight", weight, &[width])?;
        let form = self.form(KernelGroup::RmsNorm, x.tensor());
        let y = forward(&contiguous(x.tensor())?, weight.tensor(), shape, form)?;
        if !self.records(&[x, weight]) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id) = (x.id(), weight.id());
        let (kept, w) = (x.saved_input(), weight.tensor().clone());
        let again = {
            let w = w.clone();
            Recompute::new(kept.clone(), &[&w.clone()], move |x| {
                forward(x, &w, shape, form)
            })
        };
        let counted = kept.clone();
        let y = self.push(y, &counted.counted(), move |dy, sink| {
            let held = sink.take_to_add(x_id);
            let (x, dy) = (kept.get()?, contiguous(&dy)?);
            let past = Past {
                x: &x,
                weight: &w,
                dy: &dy,
                held: held.as_ref(),
                is_weight_trained: w_id.is_some(),
                shape,
            };
            let (dx, dw) = past.backward(form)?;
            sink.add_owned(x_id, dx)?;
            match dw {
                Some(dw) => sink.add_owned(w_id, dw),
                None => Ok(()),
            }
        });
        Ok(y.with_recompute(again))
    }
}

fn forward(x: &Tensor, weight: &Tensor, shape: RmsNormShape, form: Form) -> Result<Tensor> {
    if form == Form::Device {
        return row_kernels::rms_norm(x, weight, shape);
    }
    if form == Form::Composed {
        let (normal, _) = normalise(&widened(x)?, shape.epsilon)?;
        let y = normal.broadcast_mul(&(widened(weight)? + shape.offset)?)?;
        return Ok(y.to_dtype(x.dtype())?);
    }
    let width = weight.dim(0)?.max(1);
    with_float!("rms_norm", x, T => {
        let (xs, w) = (View::<T>::new(OP, x)?, View::<T>::new(OP, weight)?);
        let offset = T::from_constant(shape.offset);
        let mut y = buffer::<T>(xs.len());
        let chunk = row_chunks(width) * width;
        y.par_chunks_mut(chunk).zip(xs.par_chunks(chunk)).for_each(|(y, x)| {
            wide(#[inline(always)] || {
                for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                    let r = reciprocal_root(x, shape.epsilon);
                    let inputs = x.iter().zip(w.iter());
                    y.iter_mut().zip(inputs).for_each(|(y, (&x, &w))| *y = x * r * (w + offset));
                }
            });
        });
        to_tensor(y, x.dims())
    })
}

/// `1 / sqrt(mean(x²) + epsilon)` of a row.
#[inline(always)]
fn reciprocal_root<T: Float>(x: &[T], epsilon: f64) -> T {
    let mean = vectorized_rows::sum(x, |v| v * v) / T::from_constant(x.len() as f64);
    T::one() / (mean + T::from_constant(epsilon)).sqrt()
}

/// The composed form: normalized rows and `r`.
fn normalise(x: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let r = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?
        .sqrt()?
        .recip()?;
    Ok((x.broadcast_mul(&r)?, r))
}

/// What the backward pass reads.
struct Past<'a> {
    x: &'a Tensor,
    weight: &'a Tensor,
    dy: &'a Tensor,
    /// The gradient that `x` already has.
    held: Option<&'a Tensor>,
    /// If the weight is frozen, its gradient is not computed.
    is_weight_trained: bool,
    shape: RmsNormShape,
}

impl Past<'_> {
    /// `dx` added to `held`, and `dw`.
    fn backward(&self, form: Form) -> Result<(Tensor, Option<Tensor>)> {
        match form {
            Form::Device => {
                let inputs = RmsNormInputs {
                    x: self.x,
                    weight: self.weight,
                    dy: self.dy,
                    held: self.held,
                };
                row_kernels::rms_norm_backward(&inputs, self.shape, self.is_weight_trained)
            }
            Form::Composed => self.composed_backward(),
            Form::Cpu => {
                with_float!("rms_norm", self.x, T => self.cpu_backward::<T>())
            }
        }
    }

    fn composed_backward(&self) -> Result<(Tensor, Option<Tensor>)> {
        let (x, dy) = (self.x, &widened(self.dy)?);
        let (n, r) = normalise(&widened(x)?, self.shape.epsilon)?;
        let g = dy.broadcast_mul(&(widened(self.weight)? + self.shape.offset)?)?;
        let along = (&g * &n)?.mean_keepdim(D::Minus1)?;
        let inner = (g - n.broadcast_mul(&along)?)?;
        let mut dx = inner.broadcast_mul(&r)?.to_dtype(x.dtype())?;
        if let Some(held) = self.held {
            dx = (held + dx.to_dtype(held.dtype())?)?;
        }
        if !self.is_weight_trained {
            return Ok((dx, None));
        }
        let width = self.weight.dim(0)?.max(1);
        let rows = dy.elem_count() / width;
        let dw = (dy * &n)?.reshape((rows, width))?.sum(0)?;
        Ok((dx, Some(dw)))
    }

    fn cpu_backward<T: Float>(&self) -> Result<(Tensor, Option<Tensor>)> {
        let held = self.held.map(contiguous).transpose()?;
        let (epsilon, width) = (self.shape.epsilon, self.weight.dim(0)?.max(1));
        let view = |tensor| View::<T>::new(OP, tensor);
        let held = held.as_ref().map(view).transpose()?;
        let (xs, w, dys) = (view(self.x)?, view(self.weight)?, view(self.dy)?);
        let (count, offset) = (
            T::from_constant(width as f64),
            T::from_constant(self.shape.offset),
        );
        let mut dx = buffer::<T>(xs.len());
        let chunk = row_chunks(width) * width;
        let inputs = xs.par_chunks(chunk).zip(dys.par_chunks(chunk));
        let chunks = dx.par_chunks_mut(chunk).zip(inputs).enumerate();
        let of_chunk = |(i, (dx, (x, dy))): (usize, Chunk<T>)| {
            let held = held.as_deref().map(|held| &held[i * chunk..]);
            let columns = if self.is_weight_trained { width } else { 0 };
            let mut dw = vec![T::from_constant(0.0); columns];
            wide(
                #[inline(always)]
                || {
                    let inputs = x.chunks_exact(width).zip(dy.chunks_exact(width));
                    let rows = dx.chunks_exact_mut(width).zip(inputs);
                    for (row, (dx, (x, dy))) in rows.enumerate() {
                        let r = reciprocal_root(x, epsilon);
                        dx.iter_mut().zip(x).for_each(|(n, &x)| *n = x * r);
                        // Empty if the weight is frozen.
                        let slopes = dw.iter_mut().zip(dy.iter().zip(dx.iter()));
                        slopes.for_each(|(dw, (&dy, &n))| *dw += dy * n);
                        let along =
                            vectorized_rows::sum3(dy, &w, dx, |d, w, n| d * (w + offset) * n)
                                / count;
                        let g = dy.iter().zip(w.iter());
                        dx.iter_mut().zip(g).for_each(|(n, (&dy, &w))| {
                            *n = r * (dy * (w + offset) - *n * along);
                        });
                        if let Some(held) = held {
                            let held = &held[row * width..][..width];
                            dx.iter_mut().zip(held).for_each(|(dx, &h)| *dx += h);
                        }
                    }
                },
            );
            dw
        };
        let partial: Vec<Vec<T>> = chunks.map(of_chunk).collect();
        let dx = to_tensor(dx, self.x.dims())?;
        if !self.is_weight_trained {
            return Ok((dx, None));
        }
        let dw = to_tensor(add_in_order(partial, width), &[width])?;
        Ok((dx, Some(dw)))
    }
}
