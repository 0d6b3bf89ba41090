//! Head and loss in one: cross-entropy of `x Wᵀ` against targets, in chunks of rows, so that the
//! [rows, vocabulary] scores never exist as a whole. Summed over rows, never averaged. A frozen `W`
//! may be quantized: each chunk decodes it in tiles of rows, so a chunk has more rows then.
//!
//! Per chunk: `z = x Wᵀ`, loss `= logsumexp(z) - z[target]`, `dz = softmax(z) - [target]`, `dx = dz
//! W`, `dW += dzᵀ x`. With a soft cap, `z` is `cap tanh(x Wᵀ / cap)` (Gemma Team 2024). The forward
//! pass computes the gradients. Saved: `dx` [rows, width] and `dW` [vocabulary, width], each only
//! if it is needed. Half types are widened and everything is f32, because a loss scale is applied
//! only after the products. On a GPU bf16 needs no scale and enters the products as it is.

use super::record_loss::factor_of;
use super::{Form, Loss, axes, expect_filled, expect_shape, misfit, quantized_linear};
use crate::convert_dtype::widened;
use crate::cpu::{
    Float, Matrix, Product, View, buffer, to_tensor, vectorized_rows, wide, with_float,
};
use crate::error::{Result, TapeError};
use crate::kernels::KernelGroup;
use crate::kernels::copies::{self, contiguous};
use crate::kernels::matmul::{add_product, product_f32};
use crate::kernels::multi_tensor;
use crate::ops::stock_product;
use crate::quantized::Quantized;
use crate::tape::{Tape, Value};
use candle_core::{D, DType, Tensor};
use rayon::prelude::*;

/// Elements of a chunk's scores: they stay in the processor's outer cache.
const CHUNK_ELEMENTS: usize = 1 << 20;
/// Elements of a chunk's scores on a GPU, whose products need many rows: 32 MiB in f32.
const DEVICE_ELEMENTS: usize = 1 << 23;
/// Minimum number of rows of a chunk on CUDA: each chunk reads all of `W` once or twice, and
/// products of few rows wait for that.
const CUDA_ROWS: usize = 256;
/// Minimum number of rows of a chunk that decodes a quantized `W` twice, on a GPU and on the CPU:
/// enough for decoding to take less time than the products.
const DEVICE_DECODED_ROWS: usize = 512;
const DECODED_ROWS: usize = 128;
/// A target that does not count.
pub const IGNORED: u32 = u32::MAX;

/// The output weights [vocabulary, width] of a loss.
#[derive(Debug, Clone, Copy)]
pub enum OutputWeights<'a> {
    /// In floating point, trained or frozen.
    Full(&'a Value),
    /// Frozen codes.
    Quantized(&'a Quantized),
}

impl<'a> From<&'a Value> for OutputWeights<'a> {
    fn from(weight: &'a Value) -> Self {
        OutputWeights::Full(weight)
    }
}

/// The output weights as the products of one call read them.
enum ReadWeights<'a> {
    Full(Tensor),
    Quantized(&'a Quantized),
}

/// The result of one call besides its value.
struct Outcome {
    per_row: Tensor,
    /// Of `x` and of `W`.
    gradients: [Option<Tensor>; 2],
}

/// What one call computes.
#[derive(Clone, Copy)]
struct Wanted {
    /// Whether the gradients of `x` and of `W` are needed.
    gradients: [bool; 2],
    /// Rows per chunk.
    chunk: usize,
    soft_cap: Option<f64>,
}

impl Wanted {
    fn any(self) -> bool {
        self.gradients.contains(&true)
    }
}

impl Tape<'_> {
    /// Cross-entropy of the scores `x Wᵀ`, with `x` [rows, width] and `weight` [vocabulary, width].
    /// Rows with the target [`IGNORED`] have no loss and no gradient.
    pub fn linear_cross_entropy<'w>(
        &self,
        x: &Value,
        weight: impl Into<OutputWeights<'w>>,
        targets: &[u32],
    ) -> Result<Loss> {
        self.linear_cross_entropy_capped(x, weight, targets, None)
    }

    /// [`Tape::linear_cross_entropy`] of scores that `soft_cap` bounds.
    pub fn linear_cross_entropy_capped<'w>(
        &self,
        x: &Value,
        weight: impl Into<OutputWeights<'w>>,
        targets: &[u32],
        soft_cap: Option<f64>,
    ) -> Result<Loss> {
        let weight = weight.into();
        let outcome = self.losses_of_rows(x, weight, targets, soft_cap)?;
        let trained = match weight {
            OutputWeights::Full(weight) => Some(weight),
            OutputWeights::Quantized(_) => None,
        };
        self.record_loss(x, trained, outcome)
    }

    /// The cross-entropy of each row, [rows], for losses that do not weigh all rows equally.
    /// Otherwise as [`Tape::linear_cross_entropy_capped`]. `weight` must be frozen, because its
    /// gradient depends on the gradient of each row.
    ///
    /// # Errors
    /// `weight` needs a gradient, or a shape or a target does not fit.
    pub fn linear_cross_entropy_rows<'w>(
        &self,
        x: &Value,
        weight: impl Into<OutputWeights<'w>>,
        targets: &[u32],
        soft_cap: Option<f64>,
    ) -> Result<Value> {
        let weight = weight.into();
        if let OutputWeights::Full(weight) = weight
            && self.records(&[weight])
        {
            let expected = "a constant";
            return Err(misfit(
                "linear_cross_entropy_rows",
                "weight",
                expected,
                weight,
            ));
        }
        let outcome = self.losses_of_rows(x, weight, targets, soft_cap)?;
        let [Some(dx), _] = outcome.gradients else {
            return Ok(Value::constant(outcome.per_row));
        };
        let (id, dtype) = (x.id(), x.tensor().dtype());
        let saved = dx.clone();
        Ok(self.push(outcome.per_row, &[&saved], move |dy, sink| {
            let dy = dy.to_dtype(dx.dtype())?.unsqueeze(1)?;
            sink.add_owned(id, dx.broadcast_mul(&dy)?.to_dtype(dtype)?)
        }))
    }

    /// The losses of all rows, and the gradients of their sum that are needed.
    fn losses_of_rows(
        &self,
        x: &Value,
        weight: OutputWeights,
        targets: &[u32],
        soft_cap: Option<f64>,
    ) -> Result<Outcome> {
        self.poll()?;
        expect_filled("linear_cross_entropy", "x", x)?;
        let [rows, _] = axes("linear_cross_entropy", "x", x)?;
        let [vocabulary, width] = expect_weights(weight)?;
        expect_shape("linear_cross_entropy", "x", x, &[targets.len(), width])?;
        expect_labels(targets, vocabulary)?;
        let is_bf16 = |value: &Value| value.tensor().dtype() == DType::BF16;
        let in_bf16 = is_bf16(x)
            && soft_cap.is_none()
            && self.form(KernelGroup::LinearCrossEntropy, x.tensor()) == Form::Device
            && match weight {
                OutputWeights::Full(weight) => is_bf16(weight),
                OutputWeights::Quantized(_) => true,
            };
        let read = |value: &Value| -> Result<Tensor> {
            if in_bf16 {
                contiguous(value.tensor())
            } else {
                contiguous(&widened(value.tensor())?)
            }
        };
        let input = read(x)?;
        let (weight_in, trains) = match weight {
            OutputWeights::Full(value) => (ReadWeights::Full(read(value)?), self.records(&[value])),
            OutputWeights::Quantized(weight) => (ReadWeights::Quantized(weight), false),
        };
        let form = self.form(KernelGroup::LinearCrossEntropy, &input);
        let wanted = Wanted {
            gradients: [self.records(&[x]), trains],
            chunk: weight_in.chunk(form, &input).clamp(1, rows.max(1)),
            soft_cap,
        };
        match form {
            Form::Device if soft_cap.is_none() => by_kernels(&input, &weight_in, targets, wanted),
            Form::Cpu => {
                with_float!("linear_cross_entropy", input, T => fused::<T>(&input, &weight_in, targets, wanted))
            }
            _ => composed(&input, &weight_in, targets, wanted),
        }
    }

    /// Records the loss with the gradients of `x` and `W`, which are known already.
    fn record_loss(&self, x: &Value, weight: Option<&Value>, outcome: Outcome) -> Result<Loss> {
        let total = outcome.per_row.sum_all()?;
        let inputs: Vec<&Value> = [Some(x), weight].into_iter().flatten().collect();
        if !self.records(&inputs) {
            return Ok(Loss {
                sum: Value::constant(total),
                per_sample: outcome.per_row,
            });
        }
        let (x_id, w_id, dtype) = (x.id(), weight.and_then(Value::id), x.tensor().dtype());
        let [dx, dw] = outcome.gradients;
        let saved: Vec<Tensor> = [&dx, &dw].into_iter().flatten().cloned().collect();
        let saved: Vec<&Tensor> = saved.iter().collect();
        let sum = self.push(total, &saved, move |factor, sink| {
            let factor = factor_of(&factor, sink)?;
            let scaled =
                |t: Tensor| -> Result<Tensor> { Ok(if factor == 1.0 { t } else { (t * factor)? }) };
            if let Some(dx) = dx {
                sink.add_owned(x_id, scaled(dx)?.to_dtype(dtype)?)?;
            }
            if let Some(dw) = dw {
                sink.add_owned(w_id, scaled(dw)?)?;
            }
            Ok(())
        });
        Ok(Loss {
            sum,
            per_sample: outcome.per_row,
        })
    }
}

/// The sizes of the output weights.
///
/// # Errors
/// They are no matrix, or are empty.
fn expect_weights(weight: OutputWeights) -> Result<[usize; 2]> {
    match weight {
        OutputWeights::Full(weight) => {
            expect_filled("linear_cross_entropy", "weight", weight)?;
            axes("linear_cross_entropy", "weight", weight)
        }
        OutputWeights::Quantized(weight) => Ok(weight.dims()),
    }
}

impl ReadWeights<'_> {
    /// Rows of `x` per chunk.
    fn chunk(&self, form: Form, x: &Tensor) -> usize {
        let ([vocabulary, _], decoded) = match self {
            ReadWeights::Full(weight) => ([weight.dims()[0], 0], [0; 2]),
            ReadWeights::Quantized(weight) => (weight.dims(), [DEVICE_DECODED_ROWS, DECODED_ROWS]),
        };
        let (elements, least_rows) = match form {
            Form::Device if x.device().is_cuda() => (DEVICE_ELEMENTS, CUDA_ROWS.max(decoded[0])),
            Form::Device => (DEVICE_ELEMENTS, decoded[0]),
            Form::Cpu | Form::Composed => (CHUNK_ELEMENTS, decoded[1]),
        };
        (elements / vocabulary.max(1)).max(least_rows)
    }

    fn dims(&self) -> Result<[usize; 2]> {
        match self {
            ReadWeights::Full(weight) => Ok(weight.dims2().map(|(rows, width)| [rows, width])?),
            ReadWeights::Quantized(weight) => Ok(weight.dims()),
        }
    }

    /// `x Wᵀ` on a GPU in f32.
    fn device_scores(&self, x: &Tensor) -> Result<Tensor> {
        let weight = match self {
            ReadWeights::Full(weight) => return product_f32(x, &weight.t()?),
            ReadWeights::Quantized(weight) => weight,
        };
        let shape = [x.dim(0)?, weight.dims()[0]];
        let mut scores = None;
        for (first, count) in weight.device_tiles() {
            let part = product_f32(x, &weight.device_tile(first, count, x.dtype())?.t()?)?;
            if part.dims() == shape {
                return Ok(part);
            }
            let whole = match scores.take() {
                Some(whole) => whole,
                None => Tensor::zeros(&shape, part.dtype(), part.device())?,
            };
            whole.slice_set(&part, 1, first)?;
            scores = Some(whole);
        }
        Ok(scores.expect("a quantized matrix has rows"))
    }

    /// `dz W` on a GPU in f32.
    fn device_input_gradient(&self, dz: &Tensor) -> Result<Tensor> {
        let weight = match self {
            ReadWeights::Full(weight) => return product_f32(dz, weight),
            ReadWeights::Quantized(weight) => weight,
        };
        let mut sum = None::<Tensor>;
        for (first, count) in weight.device_tiles() {
            let part = contiguous(&dz.narrow(1, first, count)?)?;
            let tile = weight.device_tile(first, count, dz.dtype())?;
            match &sum {
                Some(sum) => add_product(sum, &part, &tile)?,
                None => sum = Some(product_f32(&part, &tile)?),
            }
        }
        Ok(sum.expect("a quantized matrix has rows"))
    }

    /// `x Wᵀ` by tensor primitives.
    fn composed_scores(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            ReadWeights::Full(weight) => stock_product(x, &weight.t()?),
            ReadWeights::Quantized(weight) => quantized_linear::forward(x, weight, None, false),
        }
    }

    /// `dz W` by tensor primitives.
    fn composed_input_gradient(&self, dz: &Tensor) -> Result<Tensor> {
        match self {
            ReadWeights::Full(weight) => stock_product(dz, weight),
            ReadWeights::Quantized(weight) => quantized_linear::input_gradient(dz, weight, false),
        }
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
    weight: &ReadWeights,
    targets: &[u32],
    wanted: Wanted,
) -> Result<Outcome> {
    let Wanted {
        gradients: [wants_x, wants_weight],
        chunk,
        soft_cap,
    } = wanted;
    let ((rows, width), [vocabulary, _]) = (x.dims2()?, weight.dims()?);
    let xs = View::<T>::new("linear_cross_entropy", x)?;
    let w = match weight {
        ReadWeights::Full(weight) => Ok(View::<T>::new("linear_cross_entropy", weight)?),
        ReadWeights::Quantized(weight) => Err(*weight),
    };
    let weights = w.as_ref().map(|w| Matrix::rows(w, vocabulary, width));
    let product = Product::new().parallel(true);
    let (mut losses, mut scores) = (buffer::<T>(rows), buffer::<T>(chunk * vocabulary));
    let mut dx = wants_x.then(|| buffer::<T>(rows * width));
    let mut dw = wants_weight.then(|| buffer::<T>(vocabulary * width));
    for begin in (0..rows).step_by(chunk) {
        let count = chunk.min(rows - begin);
        let x = Matrix::rows(&xs[begin * width..], count, width);
        let scores = &mut scores[..count * vocabulary];
        match weights {
            Ok(weights) => product.write(scores, vocabulary, x, weights.transposed()),
            Err(weight) => quantized_linear::write_scores(scores, x, weight, false)?,
        }
        let span = begin..begin + count;
        let targets = &targets[span.clone()];
        fused_rows(scores, targets, &mut losses[span], soft_cap);
        let dz = Matrix::rows(scores, count, vocabulary);
        if let Some(dx) = &mut dx {
            let dx = &mut dx[begin * width..][..count * width];
            match weights {
                Ok(weights) => product.write(dx, width, dz, weights),
                Err(weight) => quantized_linear::write_input_gradient(dx, scores, weight)?,
            }
        }
        if let Some(dw) = &mut dw {
            let sum = product.adding(begin > 0);
            sum.write(dw, width, dz.transposed(), x);
        }
    }
    let dx = dx.map(|dx| to_tensor(dx, &[rows, width])).transpose()?;
    let dw = dw
        .map(|dw| to_tensor(dw, &[vocabulary, width]))
        .transpose()?;
    Ok(Outcome {
        per_row: to_tensor(losses, &[rows])?,
        gradients: [dx, dw],
    })
}

/// The losses of a chunk's rows; turns their scores into their gradients.
fn fused_rows<T: Float>(
    scores: &mut [T],
    targets: &[u32],
    losses: &mut [T],
    soft_cap: Option<f64>,
) {
    let vocabulary = scores.len() / targets.len().max(1);
    let cap = soft_cap.map(T::from_constant);
    let rows = losses.par_iter_mut().zip(targets);
    scores
        .par_chunks_mut(vocabulary)
        .zip(rows)
        .for_each(|(z, (loss, &target))| {
            *loss = wide(
                #[inline(always)]
                || match cap {
                    Some(cap) => capped_row(z, target, cap),
                    None => row(z, target),
                },
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

/// [`row`] with a soft cap on the scores.
#[inline(always)]
fn capped_row<T: Float>(z: &mut [T], target: u32, cap: T) -> T {
    let mut shares = z.to_vec();
    vectorized_rows::map(&mut shares, |v| (v / cap).hyperbolic_tangent());
    z.iter_mut().zip(&shares).for_each(|(z, &t)| *z = cap * t);
    let loss = row(z, target);
    let pairs = z.iter_mut().zip(&shares);
    pairs.for_each(|(z, &t)| *z *= T::one() - t * t);
    loss
}

/// Products of the device, and one kernel that turns scores into their gradient. Sums are f32. bf16
/// operands stay bf16, which has the range of f32, and so does the gradient of the scores that the
/// products read.
fn by_kernels(
    x: &Tensor,
    weight: &ReadWeights,
    targets: &[u32],
    wanted: Wanted,
) -> Result<Outcome> {
    let Wanted {
        gradients: [wants_x, wants_weight],
        chunk,
        soft_cap: _,
    } = wanted;
    let rows = x.dim(0)?;
    let (mut losses, mut dxs, mut dw) = (Vec::new(), Vec::new(), None::<Tensor>);
    for begin in (0..rows).step_by(chunk) {
        let targets = &targets[begin..(begin + chunk).min(rows)];
        let x = x.narrow(0, begin, targets.len())?;
        let mut z = weight.device_scores(&x)?;
        losses.push(multi_tensor::cross_entropy(&z, targets, (1.0, 0.0))?);
        if wanted.any() {
            z = z.to_dtype(x.dtype())?;
        }
        if wants_x {
            dxs.push(weight.device_input_gradient(&z)?);
        }
        if wants_weight {
            match &dw {
                Some(sum) => add_product(sum, &z.t()?, &x)?,
                None => dw = Some(product_f32(&z.t()?, &x)?),
            }
        }
    }
    let dx = wants_x.then(|| joined(dxs)).transpose()?;
    Ok(Outcome {
        per_row: joined(losses)?,
        gradients: [dx, dw],
    })
}

/// Concatenates the chunks.
fn joined(chunks: Vec<Tensor>) -> Result<Tensor> {
    copies::joined(&chunks.iter().collect::<Vec<_>>(), 0)
}

/// 1 for each row with a target, [rows, 1], and 1 at each row's target, [rows, vocabulary]; both
/// with the type and the device of the scores `z`.
fn one_hot(targets: &[u32], z: &Tensor) -> Result<(Tensor, Tensor)> {
    let vocabulary = z.dim(1)?;
    let host = |values: Vec<f64>, shape: &[usize]| {
        crate::convert_dtype::host_tensor(values, shape, z.dtype(), z.device())
    };
    let is_counted = |target: &u32| f64::from(u8::from(*target != IGNORED));
    let counts = targets.iter().map(is_counted).collect();
    let mut chosen = vec![0.0; targets.len() * vocabulary];
    let rows = targets.iter().enumerate();
    rows.filter(|(_, target)| **target != IGNORED)
        .for_each(|(i, &target)| chosen[i * vocabulary + target as usize] = 1.0);
    Ok((
        host(counts, &[targets.len(), 1])?,
        host(chosen, &[targets.len(), vocabulary])?,
    ))
}

fn composed(x: &Tensor, weight: &ReadWeights, targets: &[u32], wanted: Wanted) -> Result<Outcome> {
    let Wanted {
        gradients: [wants_x, wants_weight],
        chunk,
        soft_cap,
    } = wanted;
    let rows = x.dim(0)?;
    let (mut losses, mut dxs, mut dw) = (Vec::new(), Vec::new(), None::<Tensor>);
    for begin in (0..rows).step_by(chunk) {
        let targets = &targets[begin..(begin + chunk).min(rows)];
        let x = x.narrow(0, begin, targets.len())?;
        let mut z = weight.composed_scores(&x)?;
        let mut slope = None;
        if let Some(cap) = soft_cap {
            let t = (z / cap)?.tanh()?;
            slope = Some((t.sqr()?.neg()? + 1.0)?);
            z = (t * cap)?;
        }
        let (counts, chosen) = one_hot(targets, &z)?;
        let highest = z.max_keepdim(D::Minus1)?;
        let exponentials = z.broadcast_sub(&highest)?.exp()?;
        let total = exponentials.sum_keepdim(D::Minus1)?;
        let loss = ((total.log()? + highest)? - (&z * &chosen)?.sum_keepdim(D::Minus1)?)?;
        losses.push((loss * &counts)?.squeeze(1)?);
        if !wanted.any() {
            continue;
        }
        let mut dz = (exponentials.broadcast_div(&total)?.broadcast_mul(&counts)? - chosen)?;
        if let Some(slope) = slope {
            dz = (dz * slope)?;
        }
        if wants_x {
            dxs.push(weight.composed_input_gradient(&dz)?);
        }
        if wants_weight {
            let part = stock_product(&contiguous(&dz.t()?)?, &x)?;
            dw = Some(match dw {
                Some(sum) => (sum + part)?,
                None => part,
            });
        }
    }
    let dx = wants_x.then(|| joined(dxs)).transpose()?;
    Ok(Outcome {
        per_row: joined(losses)?,
        gradients: [dx, dw],
    })
}
