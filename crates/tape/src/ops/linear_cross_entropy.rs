//! Head and loss in one: cross-entropy of `x Wᵀ` against targets, in chunks of rows, so that the
//! [rows, vocabulary] scores never exist as a whole. Summed over rows, never averaged.
//!
//! Per chunk: `z = x Wᵀ`, loss `= logsumexp(z) - z[target]`, `dz = softmax(z) - [target]`, `dx = dz
//! W`, `dW += dzᵀ x`. The forward pass computes the gradients. Saved: `dx` [rows, width] and `dW`
//! [vocabulary, width]. Half types are widened and everything is f32, because a loss scale is
//! applied only after the products. On a GPU bf16 needs no scale and enters the products as it is.

use super::loss::factor_of;
use super::{Form, Loss, axes, expect_filled, expect_shape};
use crate::convert_dtype::widened;
use crate::cpu::{
    Float, Matrix, Product, View, buffer, to_tensor, vectorized_rows, wide, with_float,
};
use crate::error::{Result, TapeError};
use crate::kernels::KernelGroup;
use crate::kernels::matmul::{add_product, product_f32};
use crate::kernels::multi_tensor;
use crate::ops::stock_product;
use crate::tape::{Tape, Value};
use candle_core::{D, DType, Tensor};
use rayon::prelude::*;

/// Elements of a chunk's scores: they stay in the processor's outer cache.
const CHUNK_ELEMENTS: usize = 1 << 20;
/// Elements of a chunk's scores on a GPU, whose products need many rows: 32 MiB in f32.
const DEVICE_ELEMENTS: usize = 1 << 23;
/// A target that does not count.
pub const IGNORED: u32 = u32::MAX;

/// The result of one call besides its value.
struct Outcome {
    per_row: Tensor,
    gradients: Option<(Tensor, Tensor)>,
}

impl Tape<'_> {
    /// Cross-entropy of the scores `x Wᵀ`, with `x` [rows, width] and `weight` [vocabulary, width].
    /// Rows with the target [`IGNORED`] have no loss and no gradient.
    pub fn linear_cross_entropy(&self, x: &Value, weight: &Value, targets: &[u32]) -> Result<Loss> {
        self.poll()?;
        expect_filled("linear_cross_entropy", "x", x)?;
        expect_filled("linear_cross_entropy", "weight", weight)?;
        let [rows, width] = axes("linear_cross_entropy", "x", x)?;
        let [vocabulary, _] = axes("linear_cross_entropy", "weight", weight)?;
        expect_shape(
            "linear_cross_entropy",
            "weight",
            weight,
            &[vocabulary, width],
        )?;
        expect_shape("linear_cross_entropy", "x", x, &[targets.len(), width])?;
        expect_labels(targets, vocabulary)?;
        let wanted = self.records(&[x, weight]);
        let dtype = x.tensor().dtype();
        let bf16 = |value: &Value| value.tensor().dtype() == DType::BF16;
        let in_bf16 = bf16(x)
            && bf16(weight)
            && self.form(KernelGroup::LinearCrossEntropy, x.tensor()) == Form::Device;
        let read = |value: &Value| {
            if in_bf16 {
                Ok(value.tensor().clone())
            } else {
                widened(value.tensor())
            }
        };
        let (input, weight_in) = (read(x)?.contiguous()?, read(weight)?.contiguous()?);
        let chunk = (CHUNK_ELEMENTS / vocabulary.max(1)).clamp(1, rows.max(1));
        let outcome = match self.form(KernelGroup::LinearCrossEntropy, &input) {
            Form::Device => {
                let chunk = (DEVICE_ELEMENTS / vocabulary.max(1)).clamp(1, rows.max(1));
                by_kernels(&input, &weight_in, targets, chunk, wanted)?
            }
            Form::Cpu => {
                with_float!("linear_cross_entropy", input, T => fused::<T>(&input, &weight_in, targets, chunk, wanted))?
            }
            Form::Composed => composed(&input, &weight_in, targets, chunk, wanted)?,
        };
        let total = outcome.per_row.sum_all()?;
        let Some((dx, dw)) = outcome.gradients else {
            return Ok(Loss {
                sum: Value::constant(total),
                per_sample: outcome.per_row,
            });
        };
        let (x_id, w_id) = (x.id(), weight.id());
        let sum = self.push(total, &[&dx.clone(), &dw.clone()], move |factor, sink| {
            let factor = factor_of(&factor, sink)?;
            let scaled =
                |t: Tensor| -> Result<Tensor> { Ok(if factor == 1.0 { t } else { (t * factor)? }) };
            sink.add_owned(x_id, scaled(dx)?.to_dtype(dtype)?)?;
            sink.add_owned(w_id, scaled(dw)?)
        });
        Ok(Loss {
            sum,
            per_sample: outcome.per_row,
        })
    }
}

/// Fails for a target outside the vocabulary.
fn expect_labels(targets: &[u32], vocabulary: usize) -> Result<()> {
    let outside = |&t: &u32| t != IGNORED && t as usize >= vocabulary;
    match targets.iter().position(outside) {
        Some(row) => Err(TapeError::Label {
            row,
            label: targets[row],
            classes: vocabulary,
        }),
        None => Ok(()),
    }
}

/// One pass over the rows on the CPU, a chunk at a time.
fn fused<T: Float>(
    x: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    chunk: usize,
    wanted: bool,
) -> Result<Outcome> {
    let ((rows, width), vocabulary) = (x.dims2()?, weight.dim(0)?);
    let (xs, w) = (
        View::<T>::new("linear_cross_entropy", x)?,
        View::<T>::new("linear_cross_entropy", weight)?,
    );
    let weights = Matrix::rows(&w, vocabulary, width);
    let product = Product::new().parallel(true);
    let (mut losses, mut scores) = (buffer::<T>(rows), buffer::<T>(chunk * vocabulary));
    let mut dx = buffer::<T>(if wanted { rows * width } else { 0 });
    let mut dw = buffer::<T>(if wanted { vocabulary * width } else { 0 });
    for begin in (0..rows).step_by(chunk) {
        let count = chunk.min(rows - begin);
        let x = Matrix::rows(&xs[begin * width..], count, width);
        let scores = &mut scores[..count * vocabulary];
        product.write(scores, vocabulary, x, weights.transposed());
        let span = begin..begin + count;
        let targets = &targets[span.clone()];
        fused_rows(scores, targets, &mut losses[span], vocabulary);
        if wanted {
            let dz = Matrix::rows(scores, count, vocabulary);
            product.write(&mut dx[begin * width..], width, dz, weights);
            let sum = product.adding(begin > 0);
            sum.write(&mut dw, width, dz.transposed(), x);
        }
    }
    let gradients = if wanted {
        Some((
            to_tensor(dx, &[rows, width])?,
            to_tensor(dw, &[vocabulary, width])?,
        ))
    } else {
        None
    };
    Ok(Outcome {
        per_row: to_tensor(losses, &[rows])?,
        gradients,
    })
}

/// The losses of a chunk's rows; turns their scores into their gradients.
fn fused_rows<T: Float>(scores: &mut [T], targets: &[u32], losses: &mut [T], vocabulary: usize) {
    let rows = losses.par_iter_mut().zip(targets);
    scores
        .par_chunks_mut(vocabulary)
        .zip(rows)
        .for_each(|(z, (loss, &target))| {
            *loss = wide(
                #[inline(always)]
                || row(z, target),
            )
        });
}

/// The loss of one row; turns its scores into their gradient.
#[inline(always)]
fn row<T: Float>(z: &mut [T], target: u32) -> T {
    if target == IGNORED {
        z.fill(T::zero());
        return T::zero();
    }
    let highest = vectorized_rows::max(z);
    let wanted = z[target as usize];
    let total = vectorized_rows::map_sum(z, |v| (v - highest).exponential());
    let share = T::one() / total;
    vectorized_rows::map(z, |v| v * share);
    z[target as usize] -= T::one();
    total.ln() + highest - wanted
}

/// Products of the device, and one kernel that turns scores into their gradient. Sums are f32. bf16
/// operands stay bf16, which has the range of f32, and so does the gradient of the scores that the
/// products read.
fn by_kernels(
    x: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    chunk: usize,
    wanted: bool,
) -> Result<Outcome> {
    let rows = x.dim(0)?;
    let (mut losses, mut dxs, mut dw) = (Vec::new(), Vec::new(), None::<Tensor>);
    for begin in (0..rows).step_by(chunk) {
        let targets = &targets[begin..(begin + chunk).min(rows)];
        let x = x.narrow(0, begin, targets.len())?;
        let mut z = product_f32(&x, &weight.t()?)?;
        losses.push(multi_tensor::cross_entropy(&z, targets, (1.0, 0.0))?);
        if wanted {
            z = z.to_dtype(x.dtype())?;
            dxs.push(product_f32(&z, weight)?);
            match &dw {
                Some(sum) => add_product(sum, &z.t()?, &x)?,
                None => dw = Some(product_f32(&z.t()?, &x)?),
            }
        }
    }
    let gradients = match dw {
        Some(dw) => Some((joined(dxs)?, dw)),
        None => None,
    };
    Ok(Outcome {
        per_row: joined(losses)?,
        gradients,
    })
}

/// Concatenates the chunks.
fn joined(mut chunks: Vec<Tensor>) -> Result<Tensor> {
    Ok(match chunks.len() {
        1 => chunks.swap_remove(0),
        _ => Tensor::cat(&chunks, 0)?,
    })
}

fn composed(
    x: &Tensor,
    weight: &Tensor,
    targets: &[u32],
    chunk: usize,
    wanted: bool,
) -> Result<Outcome> {
    let (rows, vocabulary) = (x.dim(0)?, weight.dim(0)?);
    let (mut losses, mut dxs, mut dw) = (Vec::new(), Vec::new(), None::<Tensor>);
    for begin in (0..rows).step_by(chunk) {
        let targets = &targets[begin..(begin + chunk).min(rows)];
        let x = x.narrow(0, begin, targets.len())?;
        let z = stock_product(&x, &weight.t()?)?;
        let host = |values: Vec<f64>, shape: &[usize]| {
            crate::convert_dtype::host_tensor(values, shape, z.dtype(), z.device())
        };
        let counts = targets
            .iter()
            .map(|&t| f64::from(u8::from(t != IGNORED)))
            .collect();
        let counts = host(counts, &[targets.len(), 1])?;
        let mut chosen = vec![0.0; targets.len() * vocabulary];
        targets
            .iter()
            .enumerate()
            .filter(|(_, t)| **t != IGNORED)
            .for_each(|(i, &t)| chosen[i * vocabulary + t as usize] = 1.0);
        let chosen = host(chosen, &[targets.len(), vocabulary])?;
        let highest = z.max_keepdim(D::Minus1)?;
        let exponentials = z.broadcast_sub(&highest)?.exp()?;
        let total = exponentials.sum_keepdim(D::Minus1)?;
        let loss = ((total.log()? + highest)? - (&z * &chosen)?.sum_keepdim(D::Minus1)?)?;
        losses.push((loss * &counts)?.squeeze(1)?);
        if wanted {
            let dz = (exponentials.broadcast_div(&total)?.broadcast_mul(&counts)? - chosen)?;
            dxs.push(stock_product(&dz, weight)?);
            let part = stock_product(&dz.t()?.contiguous()?, &x)?;
            dw = Some(match dw {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
    }
    let gradients = match dw {
        Some(dw) => Some((Tensor::cat(&dxs, 0)?, dw)),
        None => None,
    };
    Ok(Outcome {
        per_row: Tensor::cat(&losses, 0)?,
        gradients,
    })
}
