//! Linear map: `y = x Wᵀ + b`, `x` [.., inputs], `W` [outputs, inputs], `b` [outputs].
//!
//! Backward: `dx = dy W`, `dW = dyᵀ x`, `db = sum over rows of dy`. Saved: `x` if `W` needs a gradient and `x` is not cheap to
//! compute again, `W` (a parameter: free) if `x` does.

use super::expect_shape;
use crate::cpu::{self, Float, Matrix, View, buffer, product, row_chunks, tensor_of, with_float};
use crate::error::Result;
use crate::half::widened;
use crate::kept::Kept;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

impl Tape<'_> {
    /// `x Wᵀ + b` over the last axis of `x`.
    pub fn linear(&self, x: &Value, weight: &Value, bias: Option<&Value>) -> Result<Value> {
        self.poll()?;
        let inputs = *x.dims().last().unwrap_or(&0);
        let outputs = weight.dims().first().copied().unwrap_or(0);
        expect_shape("linear", "weight", weight, &[outputs, inputs])?;
        if let Some(bias) = bias {
            expect_shape("linear", "bias", bias, &[outputs])?;
        }
        let fused = self.fuses(x.tensor());
        let rows = x.tensor().elem_count() / inputs.max(1);
        let flat = x.tensor().contiguous()?.reshape((rows, inputs))?;
        let y = forward(&flat, weight.tensor(), bias.map(Value::tensor), fused)?;
        let y = y.reshape([&x.dims()[..x.dims().len() - 1], &[outputs]].concat())?;
        let mut needs: Vec<&Value> = vec![x, weight];
        needs.extend(bias);
        if !self.records(&needs) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id, b_id) = (x.id(), weight.id(), bias.and_then(Value::id));
        let shape = x.tensor().shape().clone();
        let saved_x = w_id.is_some().then(|| x.keep());
        let saved_w = x_id.is_some().then(|| weight.tensor().clone());
        let saved: Vec<Tensor> = saved_x
            .iter()
            .flat_map(Kept::tensors)
            .chain(&saved_w)
            .cloned()
            .collect();
        Ok(
            self.push(y, &saved.iter().collect::<Vec<_>>(), move |dy, sink| {
                let dy = dy.contiguous()?.reshape((rows, outputs))?;
                if b_id.is_some() {
                    sink.give(b_id, row_sum(&dy, fused)?)?;
                }
                if let Some(x) = saved_x {
                    let x = x.get()?.reshape((rows, inputs))?;
                    sink.give(w_id, inner(&dy.t()?, &x, fused)?)?;
                }
                if let Some(w) = saved_w {
                    sink.give(x_id, inner(&dy, &w, fused)?.reshape(shape)?)?;
                }
                Ok(())
            }),
        )
    }
}

fn forward(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, fused: bool) -> Result<Tensor> {
    if !fused {
        let y = x.matmul(&weight.t()?)?;
        return Ok(match bias {
            Some(bias) => y.broadcast_add(&bias.to_dtype(y.dtype())?)?,
            None => y,
        });
    }
    let ((rows, inputs), outputs) = (x.dims2()?, weight.dim(0)?);
    with_float!("linear", x, T => {
        let (x, w) = (View::<T>::of("linear", x)?, View::<T>::of("linear", weight)?);
        let mut y = buffer::<T>(rows * outputs);
        let keep = match bias {
            // The bias is laid down first and the product added to it: no pass of its own.
            Some(bias) => {
                let bias = View::<T>::of("linear", bias)?;
                y.par_chunks_mut((row_chunks(outputs) * outputs).max(1)).for_each(|rows| {
                    rows.chunks_exact_mut(outputs).for_each(|row| row.copy_from_slice(&bias));
                });
                T::of(1.0)
            }
            None => T::of(0.0),
        };
        product(&mut y, outputs, Matrix::rows(&x, rows, inputs), Matrix::rows(&w, outputs, inputs).transposed(), keep, T::of(1.0), true);
        tensor_of(y, &[rows, outputs])
    })
}

/// `a b` of two matrices, the first contiguous or the transpose of a contiguous one.
fn inner(a: &Tensor, b: &Tensor, fused: bool) -> Result<Tensor> {
    if !fused {
        return Ok(a.matmul(b)?);
    }
    let ((m, k), n) = (a.dims2()?, b.dim(1)?);
    with_float!("linear", a, T => {
        let plain = a.is_contiguous();
        let stored = if plain { a.clone() } else { a.t()? };
        let (left, right) = (View::<T>::of("linear", &stored)?, View::<T>::of("linear", b)?);
        let a = if plain { Matrix::rows(&left, m, k) } else { Matrix::rows(&left, k, m).transposed() };
        let mut out = buffer::<T>(m * n);
        product(&mut out, n, a, Matrix::rows(&right, k, n), T::of(0.0), T::of(1.0), true);
        tensor_of(out, &[m, n])
    })
}

pub(super) fn row_sum(dy: &Tensor, fused: bool) -> Result<Tensor> {
    if !fused {
        return Ok(widened(dy)?.sum(0)?);
    }
    let width = dy.dim(1)?;
    with_float!("linear", dy, T => {
        tensor_of(cpu::column_sums::<T>(&View::of("linear", dy)?, width), &[width])
    })
}
