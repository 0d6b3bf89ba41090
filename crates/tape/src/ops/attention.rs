//! Multi-head attention (Vaswani et al. 2017) straight from the joint projection: `qkv` [samples, tokens, 3 width] to
//! [samples, tokens, width]; per head `p = softmax(q kᵀ / sqrt(head width))`, `y = p v`, optionally causal.
//!
//! Backward: `dv = pᵀ dy`, `dp = dy vᵀ`, `ds = p (dp - rowsum(dp p))`, `dq = c ds k`, `dk = c dsᵀ q`, `c = 1 / sqrt(head width)`.
//! Saved: `qkv` and one [samples, heads, tokens, tokens] tensor `p`.

use super::{axes, expect_shape};
use crate::cpu::{Float, Matrix, View, buffer, lanes, product, tensor_of, wide, with_float};
use crate::error::{Result, TapeError};
use crate::tape::{Tape, Value};
use candle_core::{D, Tensor};
use rayon::prelude::*;

/// How the width is cut, and what a token may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Heads; they divide the width.
    pub heads: usize,
    /// A token sees itself and those before it only.
    pub causal: bool,
}

#[derive(Clone, Copy)]
struct Sizes {
    samples: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    causal: bool,
}

impl Sizes {
    fn head(self) -> usize {
        self.width / self.heads
    }

    fn scale<T: Float>(self) -> T {
        T::of(1.0 / (self.head() as f64).sqrt())
    }

    /// Head `head` of part `part` (0 q, 1 k, 2 v) of one sample's `qkv`.
    fn part<T: Float>(self, qkv: &[T], part: usize, head: usize) -> Matrix<'_, T> {
        Matrix::strided(
            &qkv[part * self.width + head * self.head()..],
            self.tokens,
            self.head(),
            3 * self.width,
        )
    }
}

impl Tape<'_> {
    /// Attention over `qkv` [samples, tokens, 3 width]: queries, keys and values side by side.
    pub fn attention(&self, qkv: &Value, shape: AttentionShape) -> Result<Value> {
        self.poll()?;
        let [samples, tokens, three] = axes("attention", "qkv", qkv)?;
        let width = three / 3;
        if shape.heads == 0 || width % shape.heads != 0 {
            return Err(TapeError::Shape {
                op: "attention",
                what: "qkv".to_owned(),
                expected: format!("a width that {} heads divide", shape.heads),
                found: qkv.tensor().shape().clone(),
            });
        }
        expect_shape("attention", "qkv", qkv, &[samples, tokens, 3 * width])?;
        let sizes = Sizes {
            samples,
            tokens,
            width,
            heads: shape.heads,
            causal: shape.causal,
        };
        let fused = self.fuses(qkv.tensor());
        let input = qkv.tensor().contiguous()?;
        let (y, p) = if fused {
            with_float!("attention", input, T => forward::<T>(sizes, &input))?
        } else {
            composed_forward(sizes, &input)?
        };
        if !self.records(&[qkv]) {
            return Ok(Value::constant(y));
        }
        let id = qkv.id();
        Ok(
            self.push(y, &[&input.clone(), &p.clone()], move |dy, sink| {
                let dy = dy.contiguous()?;
                let dqkv = if fused {
                    with_float!("attention", dy, T => backward::<T>(sizes, &input, &p, &dy))?
                } else {
                    composed_backward(sizes, &input, &p, &dy)?
                };
                sink.give(id, dqkv)
            }),
        )
    }
}

fn forward<T: Float>(s: Sizes, qkv: &Tensor) -> Result<(Tensor, Tensor)> {
    let input = View::<T>::of("attention", qkv)?;
    let square = s.tokens * s.tokens;
    let mut p = buffer::<T>(s.samples * s.heads * square);
    p.par_chunks_mut(square.max(1))
        .enumerate()
        .for_each(|(i, p)| {
            let qkv = &input[i / s.heads * s.tokens * 3 * s.width..];
            let (q, k) = (s.part(qkv, 0, i % s.heads), s.part(qkv, 1, i % s.heads));
            product(p, s.tokens, q, k.transposed(), T::zero(), s.scale(), false);
            for (row, p) in p.chunks_exact_mut(s.tokens).enumerate() {
                wide(|| softmax(p, if s.causal { row + 1 } else { s.tokens }));
            }
        });
    let mut y = buffer::<T>(s.samples * s.tokens * s.width);
    y.par_chunks_mut((s.tokens * s.width).max(1))
        .enumerate()
        .for_each(|(n, y)| {
            let qkv = &input[n * s.tokens * 3 * s.width..];
            for head in 0..s.heads {
                let p = &p[(n * s.heads + head) * square..][..square];
                product(
                    &mut y[head * s.head()..],
                    s.width,
                    Matrix::rows(p, s.tokens, s.tokens),
                    s.part(qkv, 2, head),
                    T::zero(),
                    T::one(),
                    false,
                );
            }
        });
    Ok((
        tensor_of(y, &[s.samples, s.tokens, s.width])?,
        tensor_of(p, &[s.samples, s.heads, s.tokens, s.tokens])?,
    ))
}

/// Softmax over the first `seen` values; the rest becomes zero.
#[inline(always)]
fn softmax<T: Float>(p: &mut [T], seen: usize) {
    let (seen, unseen) = p.split_at_mut(seen);
    unseen.fill(T::zero());
    let highest = lanes::max(seen);
    lanes::map(seen, |v| (v - highest).exponential());
    let share = T::one() / lanes::sum(seen, |v| v);
    lanes::map(seen, |v| v * share);
}

fn backward<T: Float>(s: Sizes, qkv: &Tensor, p: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (input, p, dy) = (
        View::<T>::of("attention", qkv)?,
        View::<T>::of("attention", p)?,
        View::<T>::of("attention", dy)?,
    );
    let (square, row) = (s.tokens * s.tokens, 3 * s.width);
    let mut dqkv = buffer::<T>(s.samples * s.tokens * row);
    dqkv.par_chunks_mut((s.tokens * row).max(1))
        .enumerate()
        .for_each_init(
            || buffer::<T>(square),
            |ds, (n, dqkv)| {
                let qkv = &input[n * s.tokens * row..];
                for head in 0..s.heads {
                    let p = &p[(n * s.heads + head) * square..][..square];
                    let dy = Matrix::strided(
                        &dy[n * s.tokens * s.width + head * s.head()..],
                        s.tokens,
                        s.head(),
                        s.width,
                    );
                    let (q, k, v) = (
                        s.part(qkv, 0, head),
                        s.part(qkv, 1, head),
                        s.part(qkv, 2, head),
                    );
                    product(ds, s.tokens, dy, v.transposed(), T::zero(), T::one(), false);
                    wide(|| {
                        for (ds, p) in ds.chunks_exact_mut(s.tokens).zip(p.chunks_exact(s.tokens)) {
                            let inner = lanes::sum2(ds, p, |d, p| d * p);
                            ds.iter_mut()
                                .zip(p)
                                .for_each(|(d, &p)| *d = p * (*d - inner));
                        }
                    });
                    let weights = Matrix::rows(p, s.tokens, s.tokens).transposed();
                    let ds = Matrix::rows(ds, s.tokens, s.tokens);
                    let at = head * s.head();
                    product(&mut dqkv[at..], row, ds, k, T::zero(), s.scale(), false);
                    product(
                        &mut dqkv[s.width + at..],
                        row,
                        ds.transposed(),
                        q,
                        T::zero(),
                        s.scale(),
                        false,
                    );
                    product(
                        &mut dqkv[2 * s.width + at..],
                        row,
                        weights,
                        dy,
                        T::zero(),
                        T::one(),
                        false,
                    );
                }
            },
        );
    tensor_of(dqkv, &[s.samples, s.tokens, row])
}

/// Queries, keys and values [samples, heads, tokens, head], each contiguous.
fn split(s: Sizes, qkv: &Tensor) -> Result<[Tensor; 3]> {
    let parts = qkv
        .reshape((s.samples, s.tokens, 3, s.heads, s.head()))?
        .permute((2, 0, 3, 1, 4))?;
    let part =
        |i: usize| -> Result<Tensor> { Ok(parts.narrow(0, i, 1)?.squeeze(0)?.force_contiguous()?) };
    Ok([part(0)?, part(1)?, part(2)?])
}

fn composed_forward(s: Sizes, qkv: &Tensor) -> Result<(Tensor, Tensor)> {
    let [q, k, v] = split(s, qkv)?;
    let scale = 1.0 / (s.head() as f64).sqrt();
    let mut scores = (q.matmul(&k.t()?.contiguous()?)? * scale)?;
    if s.causal {
        let hidden: Vec<f32> = (0..s.tokens * s.tokens)
            .map(|i| {
                if i % s.tokens > i / s.tokens {
                    -1e30
                } else {
                    0.0
                }
            })
            .collect();
        let hidden =
            Tensor::from_vec(hidden, (s.tokens, s.tokens), qkv.device())?.to_dtype(qkv.dtype())?;
        scores = scores.broadcast_add(&hidden)?;
    }
    let exponentials = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let p = exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)?;
    let y = p
        .matmul(&v)?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((s.samples, s.tokens, s.width))?;
    Ok((y, p))
}

fn composed_backward(s: Sizes, qkv: &Tensor, p: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let [q, k, v] = split(s, qkv)?;
    let scale = 1.0 / (s.head() as f64).sqrt();
    let dy = dy
        .reshape((s.samples, s.tokens, s.heads, s.head()))?
        .transpose(1, 2)?
        .contiguous()?;
    let dv = p.t()?.contiguous()?.matmul(&dy)?;
    let dp = dy.matmul(&v.t()?.contiguous()?)?;
    let ds = (p * dp.broadcast_sub(&(&dp * p)?.sum_keepdim(D::Minus1)?)?)?;
    let dq = (ds.matmul(&k)? * scale)?;
    let dk = (ds.t()?.contiguous()?.matmul(&q)? * scale)?;
    let joined = Tensor::stack(&[&dq, &dk, &dv], 0)?
        .permute((1, 3, 0, 2, 4))?
        .contiguous()?;
    Ok(joined.reshape((s.samples, s.tokens, 3 * s.width))?)
}
