//! Attention on the CPU that saves all weights: tokens × tokens per head.

use super::{Memory, Sizes};
use crate::cpu::{Float, Matrix, Product, View, buffer, to_tensor, vectorized_rows, wide};
use crate::error::Result;
use candle_core::Tensor;
use rayon::prelude::*;

const OP: &str = "attention";

pub(super) fn forward<T: Float>(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let input = View::<T>::new(OP, qkv)?;
    let square = s.tokens * s.tokens;
    let mut p = buffer::<T>(s.samples * s.heads * square);
    p.par_chunks_mut(square.max(1))
        .enumerate()
        .for_each(|(i, p)| {
            let (n, head) = (i / s.heads, i % s.heads);
            let qkv = &input[n * s.tokens * 3 * s.width..];
            let q = s.part(qkv, 0, head, 0..s.tokens);
            let k = s.part(qkv, 1, head, 0..s.tokens);
            let scaled = Product::new().scaled(T::from_constant(s.scale()));
            scaled.write(p, s.tokens, q, k.transposed());
            let length = s.length(n);
            for (row, p) in p.chunks_exact_mut(s.tokens).enumerate() {
                let seen = if row < length { s.seen(row, length) } else { 0 };
                wide(
                    #[inline(always)]
                    || softmax(p, seen),
                );
            }
        });
    let mut y = buffer::<T>(s.samples * s.tokens * s.width);
    y.par_chunks_mut((s.tokens * s.width).max(1))
        .enumerate()
        .for_each(|(n, y)| {
            let qkv = &input[n * s.tokens * 3 * s.width..];
            for head in 0..s.heads {
                let p = &p[(n * s.heads + head) * square..][..square];
                let p = Matrix::rows(p, s.tokens, s.tokens);
                let v = s.part(qkv, 2, head, 0..s.tokens);
                Product::new().write(&mut y[head * s.head()..], s.width, p, v);
            }
        });
    let y = to_tensor(y, &[s.samples, s.tokens, s.width])?;
    let p = to_tensor(p, &[s.samples, s.heads, s.tokens, s.tokens])?;
    Ok((y, Memory::Square(p)))
}

/// Softmax over the first `seen` values; sets the rest to zero.
#[inline(always)]
fn softmax<T: Float>(p: &mut [T], seen: usize) {
    let (seen, unseen) = p.split_at_mut(seen);
    unseen.fill(T::zero());
    let highest = vectorized_rows::max(seen);
    let share = T::one() / vectorized_rows::map_sum(seen, |v| (v - highest).exponential());
    vectorized_rows::map(seen, |v| v * share);
}

/// Turns the gradients of the weights `p` into those of their scores, row by row.
#[inline(always)]
fn softmax_backward<T: Float>(ds: &mut [T], p: &[T], tokens: usize) {
    for (ds, p) in ds.chunks_exact_mut(tokens).zip(p.chunks_exact(tokens)) {
        let inner = vectorized_rows::sum2(ds, p, |d, p| d * p);
        let pairs = ds.iter_mut().zip(p);
        pairs.for_each(|(d, &p)| *d = p * (*d - inner));
    }
}

pub(super) fn backward<T: Float>(
    s: &Sizes,
    qkv: &Tensor,
    p: &Tensor,
    dy: &Tensor,
) -> Result<Tensor> {
    let (input, p, dy) = (
        View::<T>::new(OP, qkv)?,
        View::<T>::new(OP, p)?,
        View::<T>::new(OP, dy)?,
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
                    let at = head * s.head();
                    let p = &p[(n * s.heads + head) * square..][..square];
                    let dy = &dy[n * s.tokens * s.width + at..];
                    let dy = Matrix::strided(dy, s.tokens, s.head(), s.width);
                    let q = s.part(qkv, 0, head, 0..s.tokens);
                    let k = s.part(qkv, 1, head, 0..s.tokens);
                    let v = s.part(qkv, 2, head, 0..s.tokens);
                    Product::new().write(ds, s.tokens, dy, v.transposed());
                    wide(
                        #[inline(always)]
                        || softmax_backward(ds, p, s.tokens),
                    );
                    let p = Matrix::rows(p, s.tokens, s.tokens);
                    let ds = Matrix::rows(ds, s.tokens, s.tokens);
                    let scaled = Product::new().scaled(T::from_constant(s.scale()));
                    scaled.write(&mut dqkv[at..], row, ds, k);
                    scaled.write(&mut dqkv[s.width + at..], row, ds.transposed(), q);
                    let dv = &mut dqkv[2 * s.width + at..];
                    Product::new().write(dv, row, p.transposed(), dy);
                }
            },
        );
    to_tensor(dqkv, &[s.samples, s.tokens, row])
}
