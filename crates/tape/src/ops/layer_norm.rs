//! Layer norm over the last axis (Ba, Kiros, Hinton 2016): `y = (x - mean) r w + b`, `r = 1 /
//! sqrt(variance + epsilon)`.
//!
//! Backward with `g = dy w`, `n = (x - mean) r`: `dx = r (g - mean(g) - n mean(g n))`; and `dw =
//! sum dy n`, `db = sum dy` if `w` or `b` is trained. If `x` already has a gradient, such as that
//! of a residual sum, `dx` is added to it in the same pass. Saved: `x`. The mean and `r` are
//! recomputed, which costs less than saving them; operations that need `y` recompute it too.

use super::{Form, expect_shape};
use crate::convert_dtype::widened;
use crate::cpu::{
    Float, View, add_in_order, buffer, row_chunks, to_tensor, vectorized_rows, wide, with_float,
};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::row_kernels;
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

/// Rows of `dx`, `x` and `dy`.
type Chunk<'a, T> = (&'a mut [T], (&'a [T], &'a [T]));

impl Tape<'_> {
    /// Normalizes each row of `x` [.., width], then scales by `weight` [width] and shifts by `bias`
    /// [width].
    pub fn layer_norm(
        &self,
        x: &Value,
        weight: &Value,
        bias: &Value,
        epsilon: f64,
    ) -> Result<Value> {
        self.poll()?;
        let width = *x.dims().last().unwrap_or(&0);
        expect_shape("layer_norm", "weight", weight, &[width])?;
        expect_shape("layer_norm", "bias", bias, &[width])?;
        let form = self.form(KernelGroup::LayerNorm, x.tensor());
        let x_in = contiguous(x.tensor())?;
        let y = forward(&x_in, weight.tensor(), bias.tensor(), epsilon, form)?;
        if !self.records(&[x, weight, bias]) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id, b_id) = (x.id(), weight.id(), bias.id());
        let (kept, w, b) = (
            x.saved_input(),
            weight.tensor().clone(),
            bias.tensor().clone(),
        );
        let again = {
            let (w, b) = (w.clone(), b.clone());
            Recompute::new(kept.clone(), &[&w.clone(), &b.clone()], move |x| {
                forward(x, &w, &b, epsilon, form)
            })
        };
        let counted = kept.clone();
        let y = self.push(y, &counted.counted(), move |dy, sink| {
            let held = sink.take_to_add(x_id);
            let dy = contiguous(&dy)?;
            let is_trained = w_id.is_some() || b_id.is_some();
            let x = kept.get()?;
            let (dx, sums) = backward(&x, &w, &dy, held.as_ref(), epsilon, form, is_trained)?;
            sink.add_owned(x_id, dx)?;
            let Some([dw, db]) = sums else {
                return Ok(());
            };
            sink.add_owned(w_id, dw)?;
            sink.add_owned(b_id, db)
        });
        Ok(y.with_recompute(again))
    }
}

fn forward(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64, form: Form) -> Result<Tensor> {
    if form == Form::Device {
        return row_kernels::layer_norm(x, weight, bias, epsilon);
    }
    if form == Form::Composed {
        let (normal, _) = normalise(&widened(x)?, epsilon)?;
        let y = normal
            .broadcast_mul(&widened(weight)?)?
            .broadcast_add(&widened(bias)?)?;
        return Ok(y.to_dtype(x.dtype())?);
    }
    let width = weight.dim(0)?;
    with_float!("layer_norm", x, T => {
        let (xs, w, b) = (View::<T>::new("layer_norm", x)?, View::<T>::new("layer_norm", weight)?, View::<T>::new("layer_norm", bias)?);
        let mut y = buffer::<T>(xs.len());
        let chunk = row_chunks(width) * width;
        y.par_chunks_mut(chunk).zip(xs.par_chunks(chunk)).for_each(|(y, x)| {
            wide(#[inline(always)] || {
                for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                    let (mean, r) = vectorized_rows::moments(x, epsilon);
                    let inputs = x.iter().zip(w.iter().zip(b.iter()));
                    y.iter_mut().zip(inputs).for_each(|(y, (&x, (&w, &b)))| *y = (x - mean) * r * w + b);
                }
            });
        });
        to_tensor(y, x.dims())
    })
}

/// The composed form: normalized rows and `r`.
fn normalise(x: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let r = (centred.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?
        .sqrt()?
        .recip()?;
    Ok((centred.broadcast_mul(&r)?, r))
}

/// `dx` added to `held`, and `dw` and `db` if the weight or the bias is trained.
fn backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    held: Option<&Tensor>,
    epsilon: f64,
    form: Form,
    is_trained: bool,
) -> Result<(Tensor, Option<[Tensor; 2]>)> {
    let width = weight.dim(0)?;
    if form == Form::Device {
        return row_kernels::layer_norm_backward(x, weight, dy, held, epsilon, is_trained);
    }
    if form == Form::Composed {
        let dy = &widened(dy)?;
        let (n, r) = normalise(&widened(x)?, epsilon)?;
        let g = dy.broadcast_mul(&widened(weight)?)?;
        let inner = (g.broadcast_sub(&g.mean_keepdim(D::Minus1)?)?
            - n.broadcast_mul(&(&g * &n)?.mean_keepdim(D::Minus1)?)?)?;
        let mut dx = inner.broadcast_mul(&r)?.to_dtype(x.dtype())?;
        if let Some(held) = held {
            dx = (held + dx.to_dtype(held.dtype())?)?;
        }
        if !is_trained {
            return Ok((dx, None));
        }
        let rows = dy.elem_count() / width;
        let dw = (dy * &n)?.reshape((rows, width))?.sum(0)?;
        return Ok((dx, Some([dw, dy.reshape((rows, width))?.sum(0)?])));
    }
    let held = held.map(contiguous).transpose()?;
    with_float!("layer_norm", x, T => {
        cpu_backward::<T>([x, weight, dy], held.as_ref(), epsilon, is_trained)
    })
}

/// [`backward`] of `x`, the weight and `dy` on the CPU.
fn cpu_backward<T: Float>(
    read: [&Tensor; 3],
    held: Option<&Tensor>,
    epsilon: f64,
    is_trained: bool,
) -> Result<(Tensor, Option<[Tensor; 2]>)> {
    let view = |tensor| View::<T>::new("layer_norm", tensor);
    let held = held.map(view).transpose()?;
    let (x, width) = (read[0], read[1].dim(0)?);
    let (xs, w, dys) = (view(x)?, view(read[1])?, view(read[2])?);
    let mut dx = buffer::<T>(xs.len());
    let (chunk, count) = (row_chunks(width) * width, T::from_constant(width as f64));
    let inputs = xs.par_chunks(chunk).zip(dys.par_chunks(chunk));
    let chunks = dx.par_chunks_mut(chunk).zip(inputs).enumerate();
    let of_chunk = |(i, (dx, (x, dy))): (usize, Chunk<T>)| {
        let held = held.as_deref().map(|held| &held[i * chunk..]);
        // Empty if neither the weight nor the bias is trained.
        let columns = if is_trained { width } else { 0 };
        let mut sums = vec![T::from_constant(0.0); 2 * columns];
        let (dw, db) = sums.split_at_mut(columns);
        wide(
            #[inline(always)]
            || {
                let inputs = x.chunks_exact(width).zip(dy.chunks_exact(width));
                let rows = dx.chunks_exact_mut(width).zip(inputs);
                for (row, (dx, (x, dy))) in rows.enumerate() {
                    let (mean, r) = vectorized_rows::moments(x, epsilon);
                    dx.iter_mut().zip(x).for_each(|(n, &x)| *n = (x - mean) * r);
                    db.iter_mut().zip(dy).for_each(|(db, &dy)| *db += dy);
                    let slopes = dw.iter_mut().zip(dy.iter().zip(dx.iter()));
                    slopes.for_each(|(dw, (&dy, &n))| *dw += dy * n);
                    let mean_g = vectorized_rows::sum2(dy, &w, |d, w| d * w) / count;
                    let mean_gn = vectorized_rows::sum3(dy, &w, dx, |d, w, n| d * w * n) / count;
                    let g = dy.iter().zip(w.iter());
                    dx.iter_mut().zip(g).for_each(|(n, (&dy, &w))| {
                        *n = r * (dy * w - mean_g - *n * mean_gn);
                    });
                    if let Some(held) = held {
                        let held = &held[row * width..][..width];
                        dx.iter_mut().zip(held).for_each(|(dx, &h)| *dx += h);
                    }
                }
            },
        );
        sums
    };
    let partial: Vec<Vec<T>> = chunks.map(of_chunk).collect();
    let dx = to_tensor(dx, x.dims())?;
    if !is_trained {
        return Ok((dx, None));
    }
    let mut dw = add_in_order(partial, 2 * width);
    let db = dw.split_off(width);
    let sums = [to_tensor(dw, &[width])?, to_tensor(db, &[width])?];
    Ok((dx, Some(sums)))
}
