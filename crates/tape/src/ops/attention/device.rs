//! Attention by a GPU's kernels: heads are split and joined in one pass each, scores become weights where they stand, products are
//! the device's own. The weights are computed again in backward, or kept where that is less than the output.

use super::{Memory, Sizes};
use crate::error::Result;
use crate::kernels::elements::{Heads, join_heads, split_heads};
use crate::kernels::rows::{Seen, softmax, softmax_backward};
use candle_core::Tensor;

fn heads(s: &Sizes) -> Heads {
    Heads {
        samples: s.samples,
        tokens: s.tokens,
        heads: s.heads,
        head: s.head(),
    }
}

/// All weights `p` [samples, heads, tokens, tokens].
fn weights(s: &Sizes, q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let scores = q.matmul(&k.t()?)?;
    let seen = Seen {
        scale: s.scale(),
        tokens: s.tokens,
        heads: s.heads,
        causal: s.causal,
        lengths: s.lengths.as_deref(),
    };
    softmax(&scores, &seen)?;
    Ok(scores)
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let parts = split_heads(qkv, 3, heads(s))?;
    let p = weights(s, &parts[0], &parts[1])?;
    let y = join_heads(&[&p.matmul(&parts[2])?], heads(s))?;
    let memory = match s.keeps_square() {
        true => Memory::Square(p),
        false => Memory::Nothing,
    };
    Ok((y, memory))
}

pub(super) fn backward(s: &Sizes, qkv: &Tensor, p: Option<&Tensor>, dy: &Tensor) -> Result<Tensor> {
    let parts = split_heads(qkv, 3, heads(s))?;
    let [q, k, v] = [&parts[0], &parts[1], &parts[2]];
    let p = match p {
        Some(p) => p.clone(),
        None => weights(s, q, k)?,
    };
    let dy = &split_heads(&dy.to_dtype(qkv.dtype())?, 1, heads(s))?[0];
    let dv = p.t()?.matmul(dy)?;
    let ds = dy.matmul(&v.t()?)?;
    softmax_backward(&p, &ds, s.scale())?;
    drop(p);
    let dq = ds.matmul(k)?;
    let dk = ds.t()?.matmul(q)?;
    join_heads(&[&dq, &dk, &dv], heads(s))
}
