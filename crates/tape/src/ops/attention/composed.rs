//! Attention composed of tensor primitives, for every device. Weights that were not saved are
//! recomputed all at once; `composed_blocks.rs` handles long sequences in blocks.

use super::{Memory, Sizes};
use crate::convert_dtype::{host_tensor, widened};
use crate::error::Result;
use crate::kernels::copies::{self, contiguous, owned};
use crate::ops::stock_product;
use candle_core::{D, Tensor};

/// Queries [samples, heads, tokens, head], and keys and values [samples, key heads, tokens, head],
/// each contiguous.
pub(super) fn split(s: &Sizes, qkv: &Tensor) -> Result<[Tensor; 3]> {
    let heads = qkv
        .reshape((s.samples, s.tokens, s.heads + 2 * s.key_heads, s.head()))?
        .transpose(1, 2)?;
    let part =
        |from: usize, count: usize| -> Result<Tensor> { owned(&heads.narrow(1, from, count)?) };
    Ok([
        part(0, s.heads)?,
        part(s.heads, s.key_heads)?,
        part(s.heads + s.key_heads, s.key_heads)?,
    ])
}

/// Puts the rows of all heads that share keys one after the other, so that a product with the keys
/// repeats none of them: [samples, heads, rows, ..] to [samples, key heads, rows of a group, ..].
pub(super) fn by_key(s: &Sizes, heads: &Tensor) -> Result<Tensor> {
    let (samples, count, rows, width) = heads.dims4()?;
    let rows = count / s.key_heads * rows;
    Ok(contiguous(heads)?.reshape((samples, s.key_heads, rows, width))?)
}

/// The inverse of [`by_key`].
pub(super) fn by_head(s: &Sizes, groups: &Tensor) -> Result<Tensor> {
    let (samples, _, rows, width) = groups.dims4()?;
    let rows = rows / s.per_key();
    Ok(groups.reshape((samples, s.heads, rows, width))?)
}

/// `a bᵀ` of queries with the keys of their group.
pub(super) fn product_across(s: &Sizes, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    by_head(s, &stock_product(&by_key(s, a)?, &contiguous(&b.t()?)?)?)
}

/// `a b` of the weights of queries with the values of their group.
pub(super) fn product_along(s: &Sizes, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    by_head(s, &stock_product(&by_key(s, a)?, b)?)
}

/// `aᵀ b`, summed over the queries of each group.
pub(super) fn product_over(s: &Sizes, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let a = contiguous(&by_key(s, a)?.t()?)?;
    stock_product(&a, &by_key(s, b)?)
}

/// Scores with the soft cap, and the derivative of the cap; `None` without a cap.
pub(super) fn capped(s: &Sizes, scores: Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let Some(cap) = s.soft_cap else {
        return Ok((scores, None));
    };
    let t = (scores / cap)?.tanh()?;
    let slope = (t.sqr()?.neg()? + 1.0)?;
    Ok(((t * cap)?, Some(slope)))
}

/// The output's gradient per head: [samples, heads, tokens, head].
pub(super) fn split_output(s: &Sizes, dy: &Tensor) -> Result<Tensor> {
    let dy = dy.reshape((s.samples, s.tokens, s.heads, s.head()))?;
    contiguous(&dy.transpose(1, 2)?)
}

/// Joins the heads of queries, keys and values: [samples, tokens, all of them].
pub(super) fn joined(s: &Sizes, parts: [&Tensor; 3]) -> Result<Tensor> {
    let joined = contiguous(&copies::joined(&parts, 1)?.transpose(1, 2)?)?;
    Ok(joined.reshape((s.samples, s.tokens, s.row()))?)
}

/// Added to the scores of hidden keys.
pub(super) const HIDDEN: f64 = -1e30;

/// The mask of visible keys as 1 and 0, [samples or 1, 1, tokens, tokens]; `None` if all are
/// visible.
fn visible(s: &Sizes, scores: &Tensor) -> Result<Option<Tensor>> {
    if !s.causal && s.lengths.is_none() {
        return Ok(None);
    }
    let differ = s.lengths.is_some() || s.starts.is_some();
    let samples = if differ { s.samples } else { 1 };
    let mut values = Vec::with_capacity(samples * s.tokens * s.tokens);
    for n in 0..samples {
        let length = s.length(n);
        for row in 0..s.tokens {
            let seen = if row < length { s.seen(row, length) } else { 0 };
            let visible = s.first(n, row)..seen;
            values.extend((0..s.tokens).map(|key| f64::from(u8::from(visible.contains(&key)))));
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

/// All weights `p` [samples, heads, tokens, tokens], and the derivative of the soft cap.
fn weights_and_slope(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Option<Tensor>)> {
    let [q, k, _] = split(s, qkv)?;
    let scores = (widened(&product_across(s, &q, &k)?)? * s.scale())?;
    let (mut scores, slope) = capped(s, scores)?;
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
    Ok((p.to_dtype(qkv.dtype())?, slope))
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let [_, _, v] = split(s, qkv)?;
    let (p, _) = weights_and_slope(s, qkv)?;
    let y = contiguous(&product_along(s, &p, &v)?.transpose(1, 2)?)?
        .reshape((s.samples, s.tokens, s.width))?;
    let memory = if s.keeps_square() {
        Memory::Square(p)
    } else {
        Memory::Nothing
    };
    Ok((y, memory))
}

/// [`backward`] with weights that were not saved.
pub(super) fn backward_recomputed(s: &Sizes, qkv: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (p, slope) = weights_and_slope(s, qkv)?;
    backward(s, qkv, &p, slope.as_ref(), dy)
}

/// The gradient of `qkv`. `slope` is the derivative of the soft cap, if there is one.
pub(super) fn backward(
    s: &Sizes,
    qkv: &Tensor,
    p: &Tensor,
    slope: Option<&Tensor>,
    dy: &Tensor,
) -> Result<Tensor> {
    let [q, k, v] = split(s, qkv)?;
    let dy = split_output(s, dy)?;
    let dv = product_over(s, p, &dy)?;
    let (p, dp) = (widened(p)?, widened(&product_across(s, &dy, &v)?)?);
    let mut ds = (&p * dp.broadcast_sub(&(&dp * &p)?.sum_keepdim(D::Minus1)?)?)?;
    if let Some(slope) = slope {
        ds = (ds * slope)?;
    }
    let ds = ds.to_dtype(qkv.dtype())?;
    let dq = (product_along(s, &ds, &k)? * s.scale())?;
    let dk = (product_over(s, &ds, &q)? * s.scale())?;
    joined(s, [&dq, &dk, &dv])
}
