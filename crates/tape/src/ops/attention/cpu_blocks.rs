//! Attention on the CPU in blocks of queries and keys with a running softmax (Milakov and
//! Gimelshein 2018; Dao et al. 2022). The weights of a head never exist as a whole, and the scores
//! of a block stay in the cache.

use super::{Memory, Sizes};
use crate::cpu::{Float, Matrix, View, buffer, lanes, product, threads, to_tensor, wide};
use crate::error::Result;
use candle_core::Tensor;
use rayon::prelude::*;

const OP: &str = "attention";
/// Queries per block.
const QUERIES: usize = 128;
/// Keys per block: its scores take a quarter of a megabyte.
const KEYS: usize = 512;

/// One block of scores: queries `rows.0..rows.1` against keys `keys.0..keys.1`.
#[derive(Clone, Copy)]
struct Block {
    rows: (usize, usize),
    keys: (usize, usize),
}

impl Block {
    fn count(self) -> usize {
        self.rows.1 - self.rows.0
    }

    fn width(self) -> usize {
        self.keys.1 - self.keys.0
    }

    /// The number of keys of this block that its query `i` sees.
    fn seen(self, s: &Sizes, length: usize, i: usize) -> usize {
        s.seen(self.rows.0 + i, length)
            .clamp(self.keys.0, self.keys.1)
            - self.keys.0
    }
}

/// The blocks with all keys that the queries `rows` see.
fn blocks(s: &Sizes, rows: (usize, usize), length: usize) -> impl Iterator<Item = Block> {
    let end = s.seen(rows.1 - 1, length);
    (0..end).step_by(KEYS).map(move |from| Block {
        rows,
        keys: (from, (from + KEYS).min(end)),
    })
}

/// The rows of one sample, and its length without padding.
struct Sample<'a, T> {
    sizes: &'a Sizes,
    qkv: &'a [T],
    length: usize,
}

pub(super) fn forward<T: Float>(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let input = View::<T>::new(OP, qkv)?;
    let mut y = buffer::<T>(s.samples * s.tokens * s.width);
    let mut sums = buffer::<T>(s.samples * s.tokens * s.heads);
    let samples = y
        .par_chunks_mut((s.tokens * s.width).max(1))
        .zip(sums.par_chunks_mut((s.tokens * s.heads).max(1)))
        .zip(input.par_chunks((3 * s.tokens * s.width).max(1)));
    samples.enumerate().for_each(|(n, ((y, sums), qkv))| {
        let sample = Sample {
            sizes: s,
            qkv,
            length: s.length(n),
        };
        y.par_chunks_mut(QUERIES * s.width)
            .zip(sums.par_chunks_mut(QUERIES * s.heads))
            .enumerate()
            .for_each_init(
                || buffer::<T>(QUERIES * KEYS),
                |scores, (i, (y, sums))| {
                    let from = i * QUERIES;
                    let counted = (sums.len() / s.heads).min(sample.length.saturating_sub(from));
                    y[counted * s.width..].fill(T::zero());
                    sums[counted * s.heads..].fill(T::zero());
                    for head in 0..s.heads {
                        if counted > 0 {
                            sample.attend((from, from + counted), head, scores, y, sums);
                        }
                    }
                },
            );
    });
    let y = to_tensor(y, &[s.samples, s.tokens, s.width])?;
    let sums = to_tensor(sums, &[s.samples, s.tokens, s.heads])?;
    Ok((y.clone(), Memory::Rows(y, sums)))
}

impl<T: Float> Sample<'_, T> {
    /// Writes the output of one head for the queries `rows` to `y`, beginning with the first query,
    /// and the logarithm of each row's sum to `sums`.
    fn attend(
        &self,
        rows: (usize, usize),
        head: usize,
        scores: &mut [T],
        y: &mut [T],
        sums: &mut [T],
    ) {
        let (s, at) = (self.sizes, head * self.sizes.head());
        let q = s.part(self.qkv, 0, head, rows);
        let mut highest = [T::neg_infinity(); QUERIES];
        let mut totals = [T::zero(); QUERIES];
        for block in blocks(s, rows, self.length) {
            let (k, v) = (
                s.part(self.qkv, 1, head, block.keys),
                s.part(self.qkv, 2, head, block.keys),
            );
            let width = block.width();
            product(
                scores,
                width,
                q,
                k.transposed(),
                T::zero(),
                T::from_constant(s.scale()),
                false,
            );
            wide(
                #[inline(always)]
                || {
                    for i in 0..block.count() {
                        let seen = block.seen(s, self.length, i);
                        let (row, hidden) = scores[i * width..(i + 1) * width].split_at_mut(seen);
                        hidden.fill(T::zero());
                        let peak = num_traits::Float::max(highest[i], lanes::max(row));
                        if block.keys.0 > 0 {
                            let fade = (highest[i] - peak).exponential();
                            totals[i] *= fade;
                            lanes::map(&mut y[i * s.width + at..][..s.head()], |v| v * fade);
                        }
                        totals[i] += lanes::map_sum(row, |v| (v - peak).exponential());
                        highest[i] = peak;
                    }
                },
            );
            let weights = Matrix::rows(&scores[..block.count() * width], block.count(), width);
            let keep = if block.keys.0 > 0 {
                T::one()
            } else {
                T::zero()
            };
            product(&mut y[at..], s.width, weights, v, keep, T::one(), false);
        }
        wide(
            #[inline(always)]
            || {
                for i in 0..rows.1 - rows.0 {
                    let share = T::one() / totals[i];
                    lanes::map(&mut y[i * s.width + at..][..s.head()], |v| v * share);
                    sums[i * s.heads + head] = highest[i] + totals[i].ln();
                }
            },
        );
    }
}

/// The place of a head's gradients: the offsets of `dq`, `dk` and `dv`, and the distance between
/// two rows.
#[derive(Clone, Copy)]
struct Layout {
    parts: [usize; 3],
    stride: usize,
}

pub(super) fn backward<T: Float>(
    s: &Sizes,
    qkv: &Tensor,
    y: &Tensor,
    sums: &Tensor,
    dy: &Tensor,
) -> Result<Tensor> {
    let (input, y, dy) = (
        View::<T>::new(OP, qkv)?,
        View::<T>::new(OP, y)?,
        View::<T>::new(OP, dy)?,
    );
    let sums = View::<T>::new(OP, sums)?;
    let (row, d) = (3 * s.width, s.head());
    let mut dqkv = buffer::<T>(s.samples * s.tokens * row);
    let one = |n: usize| Past {
        sample: Sample {
            sizes: s,
            qkv: &input[n * s.tokens * row..(n + 1) * s.tokens * row],
            length: s.length(n),
        },
        y: &y[n * s.tokens * s.width..(n + 1) * s.tokens * s.width],
        dy: &dy[n * s.tokens * s.width..(n + 1) * s.tokens * s.width],
        sums: &sums[n * s.tokens * s.heads..(n + 1) * s.tokens * s.heads],
    };
    let scratch = || buffer::<T>(2 * QUERIES * KEYS);
    let samples = dqkv.par_chunks_mut((s.tokens * row).max(1)).enumerate();
    if s.samples >= threads() {
        samples.for_each_init(scratch, |scratch, (n, out)| {
            out.fill(T::zero());
            for head in 0..s.heads {
                let at = head * d;
                let layout = Layout {
                    parts: [at, s.width + at, 2 * s.width + at],
                    stride: row,
                };
                one(n).backward(head, scratch, out, layout);
            }
        });
    } else {
        // There are fewer samples than threads: the heads run in parallel, each into its own rows,
        // which are joined afterwards.
        samples.for_each(|(n, out)| {
            let size = s.tokens * d;
            let layout = Layout {
                parts: [0, size, 2 * size],
                stride: d,
            };
            let mut heads = buffer::<T>(s.heads * 3 * size);
            heads.par_chunks_mut(3 * size).enumerate().for_each_init(
                scratch,
                |scratch, (head, out)| {
                    out.fill(T::zero());
                    one(n).backward(head, scratch, out, layout);
                },
            );
            out.par_chunks_mut(row)
                .enumerate()
                .for_each(|(token, out)| {
                    for (i, out) in out.chunks_exact_mut(d).enumerate() {
                        let (part, head) = (i / s.heads, i % s.heads);
                        out.copy_from_slice(&heads[(head * 3 + part) * size + token * d..][..d]);
                    }
                });
        });
    }
    to_tensor(dqkv, &[s.samples, s.tokens, row])
}

/// One sample after its forward pass.
struct Past<'a, T> {
    sample: Sample<'a, T>,
    y: &'a [T],
    dy: &'a [T],
    sums: &'a [T],
}

impl<T: Float> Past<'_, T> {
    /// Adds one head's gradients to `out`, which must hold zeros there.
    fn backward(&self, head: usize, scratch: &mut [T], out: &mut [T], layout: Layout) {
        let (s, length) = (self.sample.sizes, self.sample.length);
        for from in (0..length).step_by(QUERIES) {
            let rows = (from, (from + QUERIES).min(length));
            for block in blocks(s, rows, length) {
                self.block(head, block, scratch, out, layout);
            }
        }
    }

    /// Adds the gradients of one block of scores.
    fn block(&self, head: usize, block: Block, scratch: &mut [T], out: &mut [T], layout: Layout) {
        let Sample {
            sizes: s,
            qkv,
            length,
        } = self.sample;
        let (count, width, at) = (block.count(), block.width(), head * s.head());
        let (q, k, v) = (
            s.part(qkv, 0, head, block.rows),
            s.part(qkv, 1, head, block.keys),
            s.part(qkv, 2, head, block.keys),
        );
        let dy = Matrix::strided(
            &self.dy[block.rows.0 * s.width + at..],
            count,
            s.head(),
            s.width,
        );
        let (p, ds) = scratch.split_at_mut(QUERIES * KEYS);
        let (p, ds) = (&mut p[..count * width], &mut ds[..count * width]);
        product(
            p,
            width,
            q,
            k.transposed(),
            T::zero(),
            T::from_constant(s.scale()),
            false,
        );
        product(ds, width, dy, v.transposed(), T::zero(), T::one(), false);
        wide(
            #[inline(always)]
            || {
                for (i, (p, ds)) in p
                    .chunks_exact_mut(width)
                    .zip(ds.chunks_exact_mut(width))
                    .enumerate()
                {
                    let token = block.rows.0 + i;
                    let (own, sum) = (token * s.width + at, self.sums[token * s.heads + head]);
                    let inner = lanes::sum2(
                        &self.y[own..][..s.head()],
                        &self.dy[own..][..s.head()],
                        |y, d| y * d,
                    );
                    let seen = block.seen(s, length, i);
                    p[seen..].fill(T::zero());
                    ds[seen..].fill(T::zero());
                    lanes::map_pairs(&mut p[..seen], &mut ds[..seen], |p, d| {
                        let p = (p - sum).exponential();
                        (p, p * (d - inner))
                    });
                }
            },
        );
        let (p, ds) = (
            Matrix::rows(p, count, width),
            Matrix::rows(ds, count, width),
        );
        let [dq, dk, dv] = layout.parts;
        let (of_rows, of_keys) = (block.rows.0 * layout.stride, block.keys.0 * layout.stride);
        let (one, scale) = (T::one(), T::from_constant(s.scale()));
        product(
            &mut out[dq + of_rows..],
            layout.stride,
            ds,
            k,
            one,
            scale,
            false,
        );
        product(
            &mut out[dk + of_keys..],
            layout.stride,
            ds.transposed(),
            q,
            one,
            scale,
            false,
        );
        product(
            &mut out[dv + of_keys..],
            layout.stride,
            p.transposed(),
            dy,
            one,
            one,
            false,
        );
    }
}
