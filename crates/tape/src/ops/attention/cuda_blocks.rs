//! Attention on CUDA in blocks of queries, by products that read and write the joint projection
//! directly: no head is copied. Only the weights of one block of queries, on all keys they see,
//! exist at a time; a causal block skips the later keys. The backward pass recomputes them block by
//! block, beginning with the last block, which alone sees all keys.

use super::gpu::{heads, lengths};
use super::{Memory, Sizes};
use crate::error::Result;
use crate::kernels::batched_heads::{Matrices, Table};
use crate::kernels::row_kernels::{AttentionMask, softmax, softmax_backward};
use crate::kernels::uninit;
use candle_core::{DType, Tensor};

/// Weights in memory at once, in elements: 32 MiB in f32.
const MOST: usize = 1 << 23;
/// Queries per causal block: enough for products at full speed, and few enough to skip most hidden
/// keys.
const QUERIES: usize = 128;
/// Minimum of queries per block.
const MINIMUM: usize = 32;

/// True if heads begin at multiples of 16 bytes, as cuBLAS requires.
pub(super) fn fits(s: &Sizes, dtype: DType) -> bool {
    (s.head() * dtype.size_in_bytes()).is_multiple_of(16) && s.tokens > 0
}

/// A range of each head's queries, and the keys they see.
#[derive(Clone, Copy)]
struct Block {
    from: usize,
    rows: usize,
    keys: usize,
}

/// Queries per block. Depends on the sizes of one sample only.
fn queries(s: &Sizes) -> usize {
    let most = if s.causal { QUERIES } else { s.tokens };
    (MOST / (s.heads * s.tokens).max(1)).clamp(MINIMUM, most.max(MINIMUM))
}

/// All blocks, the last one first.
fn blocks(s: &Sizes) -> Vec<Block> {
    let (each, tokens) = (queries(s), s.tokens);
    let block = |from: usize| {
        let rows = each.min(tokens - from);
        let keys = if s.causal { from + rows } else { tokens };
        Block { from, rows, keys }
    };
    (0..tokens).step_by(each).rev().map(block).collect()
}

/// The chunks of samples, as `(first, count)`.
fn chunks(s: &Sizes) -> impl Iterator<Item = (usize, usize)> + use<> {
    let each = s.heads * queries(s).min(s.tokens) * s.tokens;
    let (samples, chunk) = (s.samples, (MOST / each.max(1)).max(1));
    (0..samples)
        .step_by(chunk)
        .map(move |from| (from, chunk.min(samples - from)))
}

struct Operands {
    block: Block,
    q: Matrices,
    y: Matrices,
    p: Matrices,
    dp: Matrices,
    dq: Matrices,
}

impl Block {
    /// Turns scores into weights.
    fn weights(self, s: &Sizes, p: &Tensor, lengths: Option<&Tensor>) -> Result<()> {
        let seen = AttentionMask {
            scale: s.scale(),
            queries: (self.rows, self.from),
            keys: self.keys,
            heads: s.heads,
            causal: s.causal,
            lengths,
        };
        softmax(&self.of(p)?, &seen)
    }

    /// The part of the scratch memory that this block needs.
    fn of(self, p: &Tensor) -> Result<Tensor> {
        let all = p.flatten_all()?;
        let count = p.dim(0)? * self.rows * self.keys;
        Ok(all
            .narrow(0, 0, count)?
            .reshape((p.dim(0)?, self.rows, self.keys))?)
    }
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let y = uninit(&[s.samples, s.tokens, s.width], qkv.dtype(), qkv)?;
    for (from, count) in chunks(s) {
        let part = s.of(from, count);
        let (qkv, y) = (qkv.narrow(0, from, count)?, y.narrow(0, from, count)?);
        let mut table = Table::new(heads(&part), &qkv)?;
        let all = blocks(&part);
        let p = table.scratch(queries(s).min(s.tokens), s.tokens, &qkv)?;
        let (k, v) = (table.heads(&qkv, 1, 3, 0)?, table.heads(&qkv, 2, 3, 0)?);
        let mut operands = Vec::with_capacity(all.len());
        for block in all {
            let q = table.heads(&qkv, 0, 3, block.from)?;
            let y = table.heads(&y, 0, 1, block.from)?;
            let p = table.squares(&p, block.rows, block.keys)?;
            operands.push((block, q, y, p));
        }
        table.upload()?;
        let lengths = lengths(&part, &qkv)?;
        for (block, q, y, at) in operands {
            let (rows, keys, width) = (block.rows, block.keys, s.head());
            table.multiply([rows, keys, width], q, k.t(), at, 0.0)?;
            block.weights(&part, &p, lengths.as_ref())?;
            table.multiply([rows, width, keys], at, v, y, 0.0)?;
        }
    }
    Ok((y, Memory::Nothing))
}

pub(super) fn backward(s: &Sizes, qkv: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (dqkv, dy) = (
        uninit(qkv.dims(), qkv.dtype(), qkv)?,
        dy.to_dtype(qkv.dtype())?,
    );
    for (from, count) in chunks(s) {
        let part = s.of(from, count);
        let cut = |whole: &Tensor| whole.narrow(0, from, count);
        let (qkv, dy, dqkv) = (cut(qkv)?, cut(&dy)?, cut(&dqkv)?);
        let mut table = Table::new(heads(&part), &qkv)?;
        let all = blocks(&part);
        let rows = queries(s).min(s.tokens);
        let p = table.scratch(rows, s.tokens, &qkv)?;
        let dp = table.scratch(rows, s.tokens, &qkv)?;
        let (k, v) = (table.heads(&qkv, 1, 3, 0)?, table.heads(&qkv, 2, 3, 0)?);
        let (dk, dv) = (table.heads(&dqkv, 1, 3, 0)?, table.heads(&dqkv, 2, 3, 0)?);
        let mut operands = Vec::with_capacity(all.len());
        for block in all {
            operands.push(Operands {
                block,
                q: table.heads(&qkv, 0, 3, block.from)?,
                y: table.heads(&dy, 0, 1, block.from)?,
                p: table.squares(&p, block.rows, block.keys)?,
                dp: table.squares(&dp, block.rows, block.keys)?,
                dq: table.heads(&dqkv, 0, 3, block.from)?,
            });
        }
        table.upload()?;
        let lengths = lengths(&part, &qkv)?;
        for (i, o) in operands.iter().enumerate() {
            let (rows, keys, width) = (o.block.rows, o.block.keys, s.head());
            // The queries of the last block see all keys, so this block writes what the others add
            // to.
            let keep = if i == 0 { 0.0 } else { 1.0 };
            table.multiply([rows, keys, width], o.q, k.t(), o.p, 0.0)?;
            o.block.weights(&part, &p, lengths.as_ref())?;
            table.multiply([keys, width, rows], o.p.t(), o.y, dv, keep)?;
            table.multiply([rows, keys, width], o.y, v.t(), o.dp, 0.0)?;
            softmax_backward(&o.block.of(&p)?, &o.block.of(&dp)?, s.scale())?;
            table.multiply([rows, width, keys], o.dp, k, o.dq, 0.0)?;
            table.multiply([keys, width, rows], o.dp.t(), o.q, dk, keep)?;
        }
    }
    Ok(dqkv)
}
