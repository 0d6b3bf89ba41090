//! Attention on the CPU in blocks of queries and keys with a running softmax (Milakov and
//! Gimelshein 2018; Dao et al. 2022). The weights of a head never exist as a whole, and the scores
//! of a block stay in the cache.

use super::{Memory, Sizes};
use crate::cpu::{
    Float, Matrix, Product, View, buffer, skips_arithmetic, threads, to_tensor, vectorized_rows,
    wide,
};
use crate::error::Result;
use candle_core::Tensor;
use rayon::prelude::*;
use std::ops::Range;

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
    /// Whether these are the first keys of the queries.
    is_first: bool,
}

impl Block {
    fn rows(self) -> Range<usize> {
        self.rows.0..self.rows.1
    }

    fn keys(self) -> Range<usize> {
        self.keys.0..self.keys.1
    }

    fn count(self) -> usize {
        self.rows.1 - self.rows.0
    }

    fn width(self) -> usize {
        self.keys.1 - self.keys.0
    }
}

/// The rows of one sample, and its length without padding.
struct Sample<'a, T> {
    sizes: &'a Sizes,
    index: usize,
    qkv: &'a [T],
    length: usize,
}

pub(super) fn forward<T: Float>(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let input = View::<T>::new(OP, qkv)?;
    let mut y = buffer::<T>(s.samples * s.tokens * s.width);
    let mut sums = buffer::<T>(s.samples * s.tokens * s.heads);
    let row = s.row();
    let samples = y
        .par_chunks_mut((s.tokens * s.width).max(1))
        .zip(sums.par_chunks_mut((s.tokens * s.heads).max(1)))
        .zip(input.par_chunks((s.tokens * row).max(1)));
    samples.enumerate().for_each(|(n, ((y, sums), qkv))| {
        let sample = Sample {
            sizes: s,
            index: n,
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

/// The running softmax of a block of queries.
struct RunningSoftmax<T> {
    /// The highest score of each query so far.
    highest: [T; QUERIES],
    /// The sum of the exponentials of each query's scores, relative to the highest.
    totals: [T; QUERIES],
}

impl<T: Float> Sample<'_, T> {
    /// The blocks with all keys that the queries `rows` see.
    fn blocks(&self, rows: (usize, usize)) -> impl Iterator<Item = Block> + use<T> {
        let s = self.sizes;
        let end = s.seen(rows.1 - 1, self.length);
        let begins = (rows.0..rows.1).map(|row| s.first(self.index, row));
        let begin = begins.min().unwrap_or(0);
        // All blocks have the same memory.
        let most = if skips_arithmetic() { 1 } else { usize::MAX };
        let all = (begin..end).step_by(KEYS).take(most);
        all.map(move |from| Block {
            rows,
            keys: (from, (from + KEYS).min(end)),
            is_first: from == begin,
        })
    }

    /// The keys of a block that its query `i` sees, counted from the first key of the block.
    fn visible(&self, block: Block, i: usize) -> Range<usize> {
        let (s, row) = (self.sizes, block.rows.0 + i);
        let within = |key: usize| key.clamp(block.keys.0, block.keys.1) - block.keys.0;
        let to = within(s.seen(row, self.length));
        within(s.first(self.index, row)).min(to)..to
    }

    /// Writes the scores of a block, with its keys as the inner axis.
    fn scores(&self, block: Block, head: usize, scores: &mut [T]) {
        let s = self.sizes;
        let q = s.part(self.qkv, 0, head, block.rows());
        let k = s.part(self.qkv, 1, head, block.keys());
        let scaled = Product::new().scaled(T::from_constant(s.scale()));
        scaled.write(scores, block.width(), q, k.transposed());
    }

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
        let s = self.sizes;
        let y = &mut y[head * s.head()..];
        let mut softmax = RunningSoftmax {
            highest: [T::neg_infinity(); QUERIES],
            totals: [T::zero(); QUERIES],
        };
        for block in self.blocks(rows) {
            let scores = &mut scores[..block.count() * block.width()];
            self.scores(block, head, scores);
            wide(
                #[inline(always)]
                || self.to_weights(block, &mut softmax, scores, y),
            );
            let weights = Matrix::rows(scores, block.count(), block.width());
            let v = s.part(self.qkv, 2, head, block.keys());
            let product = Product::new().adding(!block.is_first);
            product.write(y, s.width, weights, v);
        }
        wide(
            #[inline(always)]
            || {
                for i in 0..rows.1 - rows.0 {
                    let share = T::one() / softmax.totals[i];
                    vectorized_rows::map(&mut y[i * s.width..][..s.head()], |v| v * share);
                    sums[i * s.heads + head] = softmax.highest[i] + softmax.totals[i].ln();
                }
            },
        );
    }

    /// Turns the scores of a block into weights relative to the highest scores so far, and scales
    /// the sums of the blocks before, which `y` holds, to match.
    #[inline(always)]
    fn to_weights(
        &self,
        block: Block,
        softmax: &mut RunningSoftmax<T>,
        scores: &mut [T],
        y: &mut [T],
    ) {
        let (s, width) = (self.sizes, block.width());
        let RunningSoftmax { highest, totals } = softmax;
        for i in 0..block.count() {
            let row = &mut scores[i * width..(i + 1) * width];
            let visible = self.visible(block, i);
            row[..visible.start].fill(T::zero());
            row[visible.end..].fill(T::zero());
            let row = &mut row[visible];
            if row.is_empty() {
                continue;
            }
            if let Some(cap) = s.soft_cap.map(T::from_constant) {
                vectorized_rows::map(row, |v| cap * (v / cap).hyperbolic_tangent());
            }
            let peak = num_traits::Float::max(highest[i], vectorized_rows::max(row));
            if !block.is_first {
                let fade = (highest[i] - peak).exponential();
                totals[i] *= fade;
                vectorized_rows::map(&mut y[i * s.width..][..s.head()], |v| v * fade);
            }
            totals[i] += vectorized_rows::map_sum(row, |v| (v - peak).exponential());
            highest[i] = peak;
        }
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
    let row = s.row();
    let mut dqkv = buffer::<T>(s.samples * s.tokens * row);
    let past = |n: usize| Past {
        sample: Sample {
            sizes: s,
            index: n,
            qkv: &input[n * s.tokens * row..(n + 1) * s.tokens * row],
            length: s.length(n),
        },
        y: &y[n * s.tokens * s.width..(n + 1) * s.tokens * s.width],
        dy: &dy[n * s.tokens * s.width..(n + 1) * s.tokens * s.width],
        sums: &sums[n * s.tokens * s.heads..(n + 1) * s.tokens * s.heads],
    };
    let samples = dqkv.par_chunks_mut((s.tokens * row).max(1)).enumerate();
    // Each element is the same sum either way.
    if s.samples >= threads() {
        samples.for_each_init(backward_scratch, |scratch, (n, out)| {
            past(n).backward_in_turn(scratch, out);
        });
    } else {
        samples.for_each(|(n, out)| past(n).backward_in_parallel(out));
    }
    to_tensor(dqkv, &[s.samples, s.tokens, row])
}

/// Memory for the weights of a block and their gradients.
fn backward_scratch<T: Float>() -> Vec<T> {
    buffer(2 * QUERIES * KEYS)
}

/// One sample after its forward pass.
struct Past<'a, T> {
    sample: Sample<'a, T>,
    y: &'a [T],
    dy: &'a [T],
    sums: &'a [T],
}

impl<T: Float> Past<'_, T> {
    /// Writes the gradients of all heads, one head after the other.
    fn backward_in_turn(&self, scratch: &mut [T], out: &mut [T]) {
        let s = self.sample.sizes;
        out.fill(T::zero());
        for head in 0..s.heads {
            let layout = Layout {
                parts: [0, 1, 2].map(|part| s.column(part, head)),
                stride: s.row(),
            };
            self.backward(head, scratch, out, layout);
        }
    }

    /// Writes the gradients of all heads. The groups of heads that share keys run in parallel, each
    /// into its own rows, which are joined afterwards.
    fn backward_in_parallel(&self, out: &mut [T]) {
        let (s, d) = (self.sample.sizes, self.sample.sizes.head());
        let (size, queries) = (s.tokens * d, s.per_key());
        let group = (queries + 2) * size;
        let mut groups = buffer::<T>(s.key_heads * group);
        let each = groups.par_chunks_mut(group.max(1)).enumerate();
        each.for_each_init(backward_scratch, |scratch, (index, out)| {
            out.fill(T::zero());
            for query in 0..queries {
                let layout = Layout {
                    parts: [query * size, queries * size, (queries + 1) * size],
                    stride: d,
                };
                self.backward(index * queries + query, scratch, out, layout);
            }
        });
        let rows = out.par_chunks_mut(s.row().max(1)).enumerate();
        rows.for_each(|(token, out)| {
            for (i, out) in out.chunks_exact_mut(d).enumerate() {
                let (index, place) = match i.checked_sub(s.heads) {
                    None => (i / queries, i % queries),
                    Some(key) if key < s.key_heads => (key, queries),
                    Some(key) => (key - s.key_heads, queries + 1),
                };
                out.copy_from_slice(&groups[index * group + place * size + token * d..][..d]);
            }
        });
    }

    /// Adds one head's gradients to `out`, which must hold zeros there.
    fn backward(&self, head: usize, scratch: &mut [T], out: &mut [T], layout: Layout) {
        let length = self.sample.length;
        for from in (0..length).step_by(QUERIES) {
            let rows = (from, (from + QUERIES).min(length));
            for block in self.sample.blocks(rows) {
                self.block(head, block, scratch, out, layout);
            }
        }
    }

    /// Adds the gradients of one block of scores.
    fn block(&self, head: usize, block: Block, scratch: &mut [T], out: &mut [T], layout: Layout) {
        let Sample { sizes: s, qkv, .. } = self.sample;
        let (count, width, at) = (block.count(), block.width(), head * s.head());
        let q = s.part(qkv, 0, head, block.rows());
        let k = s.part(qkv, 1, head, block.keys());
        let v = s.part(qkv, 2, head, block.keys());
        let dy = &self.dy[block.rows.0 * s.width + at..];
        let dy = Matrix::strided(dy, count, s.head(), s.width);
        let (p, ds) = scratch.split_at_mut(QUERIES * KEYS);
        let (p, ds) = (&mut p[..count * width], &mut ds[..count * width]);
        self.sample.scores(block, head, p);
        Product::new().write(ds, width, dy, v.transposed());
        wide(
            #[inline(always)]
            || self.weights_and_gradients(head, block, p, ds),
        );
        let p = Matrix::rows(p, count, width);
        let ds = Matrix::rows(ds, count, width);
        let [dq, dk, dv] = layout.parts;
        let (of_rows, of_keys) = (block.rows.0 * layout.stride, block.keys.0 * layout.stride);
        let sum = Product::new().adding(true);
        let scaled = sum.scaled(T::from_constant(s.scale()));
        scaled.write(&mut out[dq + of_rows..], layout.stride, ds, k);
        scaled.write(&mut out[dk + of_keys..], layout.stride, ds.transposed(), q);
        sum.write(&mut out[dv + of_keys..], layout.stride, p.transposed(), dy);
    }

    /// Turns the scores `p` of a block into weights, and the gradients `ds` of these weights into
    /// those of the scores.
    #[inline(always)]
    fn weights_and_gradients(&self, head: usize, block: Block, p: &mut [T], ds: &mut [T]) {
        let (s, width) = (self.sample.sizes, block.width());
        let rows = p.chunks_exact_mut(width).zip(ds.chunks_exact_mut(width));
        for (i, (p, ds)) in rows.enumerate() {
            let token = block.rows.0 + i;
            let own = token * s.width + head * s.head();
            let sum = self.sums[token * s.heads + head];
            let (y, dy) = (&self.y[own..][..s.head()], &self.dy[own..][..s.head()]);
            let inner = vectorized_rows::sum2(y, dy, |y, d| y * d);
            let visible = self.sample.visible(block, i);
            for row in [&mut *p, &mut *ds] {
                row[..visible.start].fill(T::zero());
                row[visible.end..].fill(T::zero());
            }
            let (p, ds) = (&mut p[visible.clone()], &mut ds[visible]);
            match s.soft_cap.map(T::from_constant) {
                None => vectorized_rows::map_pairs(p, ds, |p, d| {
                    let p = (p - sum).exponential();
                    (p, p * (d - inner))
                }),
                Some(cap) => vectorized_rows::map_pairs(p, ds, |score, d| {
                    let t = (score / cap).hyperbolic_tangent();
                    let p = (cap * t - sum).exponential();
                    (p, p * (d - inner) * (T::one() - t * t))
                }),
            }
        }
    }
}
