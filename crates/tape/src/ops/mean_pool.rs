//! Mean pooling over the pixels of a channel or the tokens of a sequence. Nothing is saved.

use super::{axes, misfit};
use crate::convert_dtype::{host_tensor, widened};
use crate::cpu::{Float, View, to_tensor, vectorized_rows, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

impl Tape<'_> {
    /// The mean over the tokens of each sequence: [samples, tokens, width] to [samples, width].
    pub fn mean_tokens(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let [samples, tokens, width] = axes("mean_tokens", "x", x)?;
        let y = widened(x.tensor())?.mean(1)?.to_dtype(x.tensor().dtype())?;
        let copies = self.copies();
        self.unary(x, y, &[], move |dy| {
            let dy = (dy / tokens as f64)?.reshape((samples, 1, width))?;
            copies.owned(&dy.broadcast_as((samples, tokens, width))?)
        })
    }

    /// The mean over the first `lengths[n]` tokens of sequence `n`; the rest is padding. A sequence
    /// without tokens gives zero.
    pub fn mean_tokens_padded(&self, x: &Value, lengths: &[usize]) -> Result<Value> {
        self.poll()?;
        let [samples, tokens, width] = axes("mean_tokens", "x", x)?;
        if lengths.len() != samples || lengths.iter().any(|&length| length > tokens) {
            let expected =
                format!("one sample for each of the lengths {lengths:?}, with enough tokens,");
            return Err(misfit("mean_tokens", "x", expected, x));
        }
        let wide = contiguous(&widened(x.tensor())?)?;
        let across = shares(lengths, tokens, &wide)?.reshape((samples, 1, tokens))?;
        let y = across.matmul(&wide)?.reshape((samples, width))?;
        let y = y.to_dtype(x.tensor().dtype())?;
        let (lengths, dtype) = (lengths.to_vec(), x.tensor().dtype());
        self.unary(x, y, &[], move |dy| {
            let dy = widened(&dy)?.reshape((samples, 1, width))?;
            let shares = shares(&lengths, tokens, &dy)?;
            Ok(shares.broadcast_mul(&dy)?.to_dtype(dtype)?)
        })
    }

    /// The mean over the pixels of each channel.
    pub fn mean_pool(&self, x: &Value) -> Result<Value> {
        self.poll()?;
        let [samples, channels, height, width] = axes("mean_pool", "x", x)?;
        let pixels = height * width;
        let fused = self.fuses(x.tensor());
        let flat = contiguous(x.tensor())?.reshape((samples, channels, pixels))?;
        let y = if fused {
            with_float!("mean_pool", flat, T => {
                let xs = View::<T>::new("mean_pool", &flat)?;
                let count = T::from_constant(pixels as f64);
                to_tensor(xs.chunks_exact(pixels).map(|x| vectorized_rows::sum(x, |v| v) / count).collect::<Vec<T>>(), &[samples, channels])
            })?
        } else {
            widened(&flat)?.mean(2)?.to_dtype(flat.dtype())?
        };
        let (shape, copies) = (x.tensor().shape().clone(), self.copies());
        self.unary(x, y, &[], move |dy| {
            let dy = (dy / pixels as f64)?;
            if !fused {
                let dy = dy.reshape((samples, channels, 1))?;
                let dy = dy.broadcast_as((samples, channels, pixels))?;
                return Ok(copies.contiguous(&dy)?.reshape(shape)?);
            }
            with_float!("mean_pool", dy, T => {
                let dy = View::<T>::new("mean_pool", &dy)?;
                let spread: Vec<T> = dy.par_iter().flat_map_iter(|&d| std::iter::repeat_n(d, pixels)).collect();
                to_tensor(spread, shape.dims())
            })
        })
    }
}

/// The weight of each token in its sequence's mean, with the type and device of `like`: [samples,
/// tokens, 1].
fn shares(lengths: &[usize], tokens: usize, like: &Tensor) -> Result<Tensor> {
    let share = |length: usize, token| {
        if token < length {
            1.0 / length as f64
        } else {
            0.0
        }
    };
    let values = lengths
        .iter()
        .flat_map(|&length| (0..tokens).map(move |token| share(length, token)));
    let shape = [lengths.len(), tokens, 1];
    host_tensor(values.collect(), &shape, like.dtype(), like.device())
}
