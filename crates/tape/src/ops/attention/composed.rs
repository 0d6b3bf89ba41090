//! Attention composed of tensor primitives, for every device. Weights that were not saved are
//! recomputed all at once; `composed_blocks.rs` handles long sequences in blocks.

use super::{Memory, Sizes};
use crate::convert_dtype::{host_tensor, widened};
use crate::error::Result;
use crate::ops::stock_product;
use candle_core::{D, Tensor};

/// Queries, keys and values, each contiguous: [samples, heads, tokens, head].
pub(super) fn split(s: &Sizes, qkv: &Tensor) -> Result<[Tensor; 3]> {
    let parts = qkv
        .reshape((s.samples, s.tokens, 3, s.heads, s.head()))?
        .permute((2, 0, 3, 1, 4))?;
    let part =
        |i: usize| -> Result<Tensor> { Ok(parts.narrow(0, i, 1)?.squeeze(0)?.force_contiguous()?) };
    Ok([part(0)?, part(1)?, part(2)?])
}

/// The output's gradient per head: [samples, heads, tokens, head].
pub(super) fn split_output(s: &Sizes, dy: &Tensor) -> Result<Tensor> {
    Ok(dy
        .reshape((s.samples, s.tokens, s.heads, s.head()))?
        .transpose(1, 2)?
        .contiguous()?)
}

/// Joins queries, keys and values: [samples, tokens, 3 width].
pub(super) fn joined(s: &Sizes, parts: [&Tensor; 3]) -> Result<Tensor> {
    let joined = Tensor::stack(&parts, 0)?
        .permute((1, 3, 0, 2, 4))?
        .contiguous()?;
    Ok(joined.reshape((s.samples, s.tokens, 3 * s.width))?)
}

/// Added to the scores of hidden keys.
pub(super) const HIDDEN: f64 = -1e30;

/// The mask of visible keys as 1 and 0, [samples or 1, 1, tokens, tokens]; `None` if all are
/// visible.
fn visible(s: &Sizes, scores: &Tensor) -> Result<Option<Tensor>> {
    if !s.causal && s.lengths.is_none() {
        return Ok(None);
    }
    let samples = if s.lengths.is_some() { s.samples } else { 1 };
    let mut values = Vec::with_capacity(samples * s.tokens * s.tokens);
    for n in 0..samples {
        let length = s.length(n);
        for row in 0..s.tokens {
            let seen = if row < length { s.seen(row, length) } else { 0 };
            values.extend((0..s.tokens).map(|key| f64::from(u8::from(key < seen))));
        }
    }
    let shape = [samples, 1, s.tokens, s.tokens];
    Ok(Some(host_tensor(
        values,
        &shape,
        scores.dtype(),
        scores.device(),
    )?))
}

/// All weights `p` [samples, heads, tokens, tokens].
pub(super) fn weights(s: &Sizes, qkv: &Tensor) -> Result<Tensor> {
    let [q, k, _] = split(s, qkv)?;
    let mut scores = (widened(&stock_product(&q, &k.t()?.contiguous()?)?)? * s.scale())?;
    let visible = visible(s, &scores)?;
    if let Some(visible) = &visible {
        // 1 becomes 0, 0 becomes `HIDDEN`.
        scores = scores.broadcast_add(&visible.affine(-HIDDEN, HIDDEN)?)?;
    }
    let exponentials = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let p = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
    let p = match visible {
        // The weights of a query that sees no key are zero.
        Some(visible) => p.broadcast_mul(&visible)?,
        None => p,
    };
    Ok(p.to_dtype(qkv.dtype())?)
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let [_, _, v] = split(s, qkv)?;
    let p = weights(s, qkv)?;
    let y = stock_product(&p, &v)?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((s.samples, s.tokens, s.width))?;
    let memory = if s.keeps_square() {
        Memory::Square(p)
    } else {
        Memory::Nothing
    };
    Ok((y, memory))
}

pub(super) fn backward(s: &Sizes, qkv: &Tensor, p: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let [q, k, v] = split(s, qkv)?;
    let dy = split_output(s, dy)?;
    let dv = stock_product(&p.t()?.contiguous()?, &dy)?;
    let (p, dp) = (
        widened(p)?,
        widened(&stock_product(&dy, &v.t()?.contiguous()?)?)?,
    );
    let ds = (&p * dp.broadcast_sub(&(&dp * &p)?.sum_keepdim(D::Minus1)?)?)?;
    let ds = ds.to_dtype(qkv.dtype())?;
    let dq = (stock_product(&ds, &k)? * s.scale())?;
    let dk = (stock_product(&ds.t()?.contiguous()?, &q)? * s.scale())?;
    joined(s, [&dq, &dk, &dv])
}
