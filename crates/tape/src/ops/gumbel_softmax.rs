//! A differentiable choice (Jang et al. 2016; Maddison et al. 2016): `p = softmax((x + g) /
//! temperature)` over the last axis, with `g = -ln(-ln u)` and `u` uniform, one number per
//! coordinate. The hard form is straight-through: the output is the one-hot vector of the largest
//! `p` (the first one in a tie), and the gradient is that of `p`.
//!
//! Backward: `dx = p (dy - sum dy p) / temperature`. Saved: `p`, which is the soft output itself.

use super::noise_key::{Noise, NoiseKey};
use super::softmax::{composed_gradient, softmax_row, softmax_row_gradient};
use super::{expect_filled, misfit};
use crate::convert_dtype::{host_tensor, in_full};
use crate::cpu::{Float, View, buffer, row_chunks, to_tensor, wide, with_float};
use crate::error::{Result, TapeError};
use crate::kernels::copies::contiguous;
use crate::rng::Rng;
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

/// The output of a choice. The gradient is the same for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Probabilities that add up to 1.
    Soft,
    /// 1 for the chosen ones, 0 for the others.
    Hard,
}

impl Tape<'_> {
    /// Chooses over the last axis of `logits` [samples, .., classes], with noise determined by
    /// `key` and the coordinates.
    pub fn gumbel_softmax(
        &self,
        logits: &Value,
        temperature: f64,
        choice: Choice,
        key: &NoiseKey,
    ) -> Result<Value> {
        self.poll()?;
        if logits.dims().len() < 2 {
            return Err(misfit(
                "gumbel_softmax",
                "logits",
                "at least the axes [samples, classes]",
                logits,
            ));
        }
        expect_filled("gumbel_softmax", "logits", logits)?;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(TapeError::Number {
                op: "gumbel_softmax",
                what: "the temperature".to_owned(),
                expected: "a finite number above 0",
                found: temperature,
            });
        }
        let noise = Noise::new("gumbel_softmax", logits, key)?;
        let (fused, input) = (self.fuses(logits.tensor()), contiguous(logits.tensor())?);
        let streams = noise.by_row(input.dims());
        let p = if fused {
            with_float!("gumbel_softmax", input, T => soft::<T>(&input, &streams, temperature))?
        } else {
            in_full([&input], |[x]| composed_soft(&x, &streams, temperature))?
        };
        let y = match choice {
            Choice::Soft => p.clone(),
            Choice::Hard => one_hot(&p)?,
        };
        self.unary(logits, y, &[&p.clone()], move |dy| {
            if fused {
                let dy = contiguous(&dy)?;
                with_float!("gumbel_softmax", p, T => gradient::<T>(&p, &dy, temperature))
            } else {
                in_full([&p, &dy], |[p, dy]| {
                    Ok((composed_gradient(&p, &dy)? / temperature)?)
                })
            }
        })
    }
}

/// Standard Gumbel noise. The uniform number is shifted by half a step, so that neither logarithm
/// is infinite.
fn gumbel(stream: &Rng, index: usize) -> f64 {
    let uniform = stream.uniform(index as u64) + 0.5 / (1u64 << 53) as f64;
    // Above 1 - 2^-53 the sum rounds to 1.
    -(-uniform.min(1.0 - f64::EPSILON / 2.0).ln()).ln()
}

fn soft<T: Float>(x: &Tensor, streams: &[Rng], temperature: f64) -> Result<Tensor> {
    let (xs, width) = (View::<T>::new("gumbel_softmax", x)?, x.dim(D::Minus1)?);
    let (mut p, rows) = (buffer::<T>(xs.len()), row_chunks(width));
    let divisor = T::from_constant(temperature);
    p.par_chunks_mut(rows * width)
        .zip(xs.par_chunks(rows * width))
        .zip(streams.par_chunks(rows))
        .for_each(|((p, x), streams)| {
            let rows = p.chunks_exact_mut(width).zip(x.chunks_exact(width));
            for ((p, x), stream) in rows.zip(streams) {
                for (i, (p, &x)) in p.iter_mut().zip(x).enumerate() {
                    *p = (x + T::from_constant(gumbel(stream, i))) / divisor;
                }
                wide(
                    #[inline(always)]
                    || softmax_row(p),
                );
            }
        });
    to_tensor(p, x.dims())
}

fn composed_soft(x: &Tensor, streams: &[Rng], temperature: f64) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    let noise = streams
        .iter()
        .flat_map(|stream| (0..width).map(move |i| gumbel(stream, i)));
    let noise = host_tensor(noise.collect(), x.dims(), x.dtype(), x.device())?;
    let scores = ((x + noise)? / temperature)?;
    let exponentials = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    Ok(exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?)
}

fn one_hot(p: &Tensor) -> Result<Tensor> {
    let classes = Tensor::arange(0, p.dim(D::Minus1)? as u32, p.device())?;
    let chosen = p.argmax_keepdim(D::Minus1)?;
    Ok(classes
        .broadcast_as(p.shape())?
        .eq(&chosen.broadcast_as(p.shape())?)?
        .to_dtype(p.dtype())?)
}

fn gradient<T: Float>(p: &Tensor, dy: &Tensor, temperature: f64) -> Result<Tensor> {
    let width = p.dim(D::Minus1)?;
    let (ps, dys) = (
        View::<T>::new("gumbel_softmax", p)?,
        View::<T>::new("gumbel_softmax", dy)?,
    );
    let mut dx = buffer::<T>(ps.len());
    let chunk = row_chunks(width) * width;
    dx.par_chunks_mut(chunk)
        .zip(ps.par_chunks(chunk).zip(dys.par_chunks(chunk)))
        .for_each(|(dx, (p, dy))| {
            let rows = p.chunks_exact(width).zip(dy.chunks_exact(width));
            let factor = T::from_constant(1.0 / temperature);
            wide(
                #[inline(always)]
                || {
                    for (dx, (p, dy)) in dx.chunks_exact_mut(width).zip(rows) {
                        softmax_row_gradient(dx, p, dy, factor);
                    }
                },
            );
        });
    to_tensor(dx, p.dims())
}
