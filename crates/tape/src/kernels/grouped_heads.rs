//! Kernels for attention whose heads share keys. Queries are [samples key heads, tokens heads that
//! share, head]: the queries of a block of tokens, of all heads that share a key head, are the rows
//! of one matrix. Keys and values are [samples key heads, padded tokens, head].

use super::Argument::{self, Count, In, Number, Out};
use super::elementwise::fours;
use super::{Grid, Kernel, uninit};
use crate::error::Result;
use candle_core::Tensor;

/// Ranges of keys begin and end at multiples of this number, so that kernels and products read
/// whole words.
pub(crate) const KEYS: usize = 8;
/// Keys that a simdgroup holds in registers, and most simdgroups per row. More could have too many
/// threads for a GPU; longer rows are read several times.
const KEYS_PER_SIMD: usize = 512;
const MOST_SIMDS: usize = 8;

/// Sizes of grouped heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups {
    pub samples: usize,
    pub tokens: usize,
    pub key_heads: usize,
    /// Heads of queries per key head.
    pub share: usize,
    /// Width of a head.
    pub head: usize,
}

impl Groups {
    /// Tokens with padding: rows of keys and values.
    pub fn padded(self) -> usize {
        self.tokens.next_multiple_of(KEYS)
    }

    /// Matrices of keys in all samples.
    pub fn matrices(self) -> usize {
        self.samples * self.key_heads
    }

    /// Columns of all queries of a token.
    fn query_columns(self) -> usize {
        self.key_heads * self.share * self.head
    }

    fn split(self, x: &Tensor, outputs: [&Tensor; 3], padded: usize, width: usize) -> Result<()> {
        let rows = self.samples * padded;
        let arguments = [
            In(x),
            Out(outputs[0]),
            Out(outputs[1]),
            Out(outputs[2]),
            Count(rows),
            Count(self.tokens),
            Count(padded),
            Count(self.key_heads),
            Count(self.share),
            Count(self.head),
            Count(width),
            fours(&[x], self.head),
        ];
        Kernel::typed("split_groups", x).launch(Grid::rows(rows), &arguments, x.device())
    }

    /// Queries, keys and values of `qkv` [samples, tokens, (heads + 2 key heads) head]. Keys and
    /// values of padding are zero.
    pub fn split_all(self, qkv: &Tensor) -> Result<[Tensor; 3]> {
        let q = self.new_queries(qkv)?;
        let keys = || {
            let shape = [self.matrices(), self.padded(), self.head];
            uninit(&shape, qkv.dtype(), qkv)
        };
        let (k, v) = (keys()?, keys()?);
        let width = self.query_columns() + 2 * self.key_heads * self.head;
        self.split(qkv, [&q, &k, &v], self.padded(), width)?;
        Ok([q, k, v])
    }

    /// The queries in `x` [samples, tokens, heads head].
    pub fn split_queries(self, x: &Tensor) -> Result<Tensor> {
        let q = self.new_queries(x)?;
        // No row has columns of keys, but the kernel needs some tensor in their place.
        self.split(x, [&q, &q, &q], self.tokens, self.query_columns())?;
        Ok(q)
    }

    fn new_queries(self, like: &Tensor) -> Result<Tensor> {
        let shape = [self.matrices(), self.tokens * self.share, self.head];
        uninit(&shape, like.dtype(), like)
    }

    /// Puts queries `x` [matrices, tokens of a block heads that share, head] into the first columns
    /// of `y` [samples, tokens, any], from token `first` on.
    pub fn join_queries(self, x: &Tensor, y: &Tensor, first: usize) -> Result<()> {
        let tokens = x.dim(1)? / self.share;
        let rows = self.samples * tokens;
        let arguments = [
            In(x),
            Out(y),
            Count(rows),
            Count(tokens),
            Count(first),
            Count(self.tokens),
            Count(self.key_heads),
            Count(self.share * self.head),
            Count(y.dim(2)?),
            fours(&[x, y], self.head),
        ];
        Kernel::typed("join_groups", x).launch(Grid::rows(rows), &arguments, x.device())
    }

    /// Puts gradients of keys and values, in f32, into the last columns of `y` [samples, tokens,
    /// (heads + 2 key heads) head].
    pub fn join_keys(self, dk: &Tensor, dv: &Tensor, y: &Tensor) -> Result<()> {
        let rows = self.samples * self.tokens;
        let arguments = [
            In(dk),
            In(dv),
            Out(y),
            Count(rows),
            Count(self.tokens),
            Count(self.padded()),
            Count(self.key_heads),
            Count(self.head),
            Count(y.dim(2)?),
            fours(&[dk, dv, y], self.head),
        ];
        Kernel::typed("join_keys", y).launch(Grid::rows(rows), &arguments, y.device())
    }
}

/// Adds `x` [matrices, rows, width] to the rows of `sum` [matrices, any, width] from `first` on.
/// `sum` is in f32; `first` and all numbers of rows are multiples of [`KEYS`].
pub(crate) fn add_rows(sum: &Tensor, x: &Tensor, first: usize) -> Result<()> {
    let (_, rows, width) = x.dims3()?;
    let (count, whole) = (x.elem_count(), sum.dim(1)? * width);
    let arguments = [
        In(x),
        Out(sum),
        Count(count),
        Count(rows * width),
        Count(whole),
        Count(first * width),
    ];
    Kernel::typed("add_rows", x).launch(Grid::elements(count), &arguments, x.device())
}

/// What the scores of a block of queries stand for, and which keys each of them sees: itself and
/// tokens before it.
pub(crate) struct GroupMask<'a> {
    pub groups: Groups,
    /// Factor of the scores.
    pub scale: f64,
    /// Bound of the scores, reached smoothly.
    pub soft_cap: Option<f64>,
    /// Most tokens that a query sees.
    pub window: Option<usize>,
    /// The first token of each token's document [samples, tokens], u32.
    pub starts: Option<&'a Tensor>,
    /// Token of the first query.
    pub first: usize,
    /// Token of the first key, a multiple of [`KEYS`]; no query sees an earlier one.
    pub begin: usize,
}

impl GroupMask<'_> {
    fn launch(&self, name: &'static str, scores: &[&Tensor], simds: Option<usize>) -> Result<()> {
        let p = scores[0];
        let (matrices, rows, keys) = p.dims3()?;
        let simds = simds.unwrap_or(keys.div_ceil(KEYS_PER_SIMD).clamp(1, MOST_SIMDS));
        let mut arguments: Vec<Argument> = scores.iter().map(|&tensor| Out(tensor)).collect();
        arguments.extend([
            // Without documents the kernel reads no starts, but needs some tensor in their place.
            In(self.starts.unwrap_or(p)),
            Number(self.scale),
            Number(self.soft_cap.unwrap_or(0.0)),
            Count(keys),
            Count(self.begin),
            Count(rows),
            Count(self.first),
            Count(self.groups.share),
            Count(self.groups.key_heads),
            Count(self.groups.tokens),
            Count(self.window.unwrap_or(0)),
            Count(usize::from(self.starts.is_some())),
        ]);
        let grid = Grid::groups(matrices * rows, simds);
        Kernel::typed(name, p).launch(grid, &arguments, p.device())
    }

    /// Turns scores [matrices, queries, keys] into weights, in place.
    pub fn softmax(&self, scores: &Tensor) -> Result<()> {
        self.launch("group_softmax", &[scores], None)
    }

    /// Turns scores into weights, and gradients of weights `dp` into those of scores, in place.
    pub fn softmax_backward(&self, scores: &Tensor, dp: &Tensor) -> Result<()> {
        self.launch("group_softmax_backward", &[scores, dp], None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inplace::to_f64;
    use crate::kernels::emulator;
    use candle_core::Device;

    /// Weights and gradients of 3 rows of 1,072 scores with this number of simdgroups per row.
    fn rows(simds: usize) -> [Vec<f64>; 2] {
        let drawn = |factor: usize| {
            let values: Vec<f32> = (0..3 * 1072)
                .map(|i| (i * factor % 23) as f32 / 8.0 - 1.0)
                .collect();
            Tensor::from_vec(values, (1, 3, 1072), &Device::Cpu).expect("a small tensor")
        };
        let (weights, p, dp) = (drawn(37), drawn(37), drawn(11));
        let mask = GroupMask {
            groups: Groups {
                samples: 1,
                tokens: 1100,
                key_heads: 1,
                share: 1,
                head: 1,
            },
            scale: 0.5,
            soft_cap: Some(0.9),
            window: Some(1060),
            starts: None,
            first: 1073,
            begin: 8,
        };
        emulator::with(|| {
            mask.launch("group_softmax", &[&weights], Some(simds))?;
            mask.launch("group_softmax_backward", &[&p, &dp], Some(simds))
        })
        .expect("kernels");
        let all = [weights, p, dp].map(|t| to_f64(&t).expect("numbers"));
        let [weights, p, dp] = all;
        assert_eq!(weights, p, "both kernels give the same weights");
        [p, dp]
    }

    #[test]
    fn rows_that_no_register_holds_give_the_same_results() {
        // A simdgroup holds 512 keys.
        let [long, held] = [rows(1), rows(3)];
        for (long, held) in long.iter().zip(&held) {
            let apart = long.iter().zip(held).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) <= 1e-7);
            assert!(held.iter().any(|v| v.abs() > 1e-5));
        }
        let [p, _] = held;
        for row in p.chunks(1072) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        }
        // Query 1,073 sees the keys from 14 on, of which the block begins with key 8.
        assert_eq!(p.iter().take_while(|&&p| p == 0.0).count(), 6);
    }
}
