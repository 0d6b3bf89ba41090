//! Grouped-query attention on a GPU in blocks of queries, by products of whole groups. The queries
//! of all heads that share a key head are the rows of one matrix, so that no key is repeated in
//! memory, and a product over these rows sums their gradients. Only the weights of one block of
//! queries, on all keys they see, exist at a time: later keys and those before a window are
//! skipped. The backward pass recomputes them block by block.
//!
//! Blocks depend on the sizes of one sample only, so that a sample is computed the same way in
//! every micro-batch. Keys before a document are hidden, but not skipped.

use super::{Memory, Sizes};
use crate::error::Result;
use crate::kernels::elementwise::zeros;
use crate::kernels::grouped_heads::{GroupMask, Groups, KEYS};
use crate::kernels::matmul::{add_product_to_rows, product};
use crate::kernels::uninit;
use candle_core::{DType, Tensor};

/// What may be in memory at once.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes of weights.
    weight_bytes: usize,
    /// Queries per block and head: enough for products at full speed, and few enough to skip most
    /// hidden keys.
    max_queries: usize,
    /// Minimum of queries per block and head, even if the weights take more memory.
    min_queries: usize,
}

impl Limits {
    const CUDA: Limits = Limits {
        weight_bytes: 32 << 20,
        max_queries: 256,
        min_queries: 32,
    };
    const METAL: Limits = Limits {
        weight_bytes: 8 << 20,
        max_queries: 128,
        min_queries: 32,
    };

    fn for_device(x: &Tensor) -> Self {
        if x.device().is_cuda() {
            Limits::CUDA
        } else {
            Limits::METAL
        }
    }

    /// Queries per block and head.
    fn queries(&self, s: &Sizes, dtype: DType) -> usize {
        let seen = s
            .window
            .map_or(s.tokens, |window| window + self.max_queries);
        let row = s.heads * seen.min(s.tokens) * dtype.size_in_bytes();
        let most = self.max_queries.max(self.min_queries);
        (self.weight_bytes / row.max(1)).clamp(self.min_queries, most)
    }

    /// Samples that are computed together.
    fn samples(&self, s: &Sizes, blocks: &[Block], dtype: DType) -> usize {
        let most = blocks.iter().map(|block| block.rows * block.keys).max();
        let each = s.heads * most.unwrap_or(1) * dtype.size_in_bytes();
        (self.weight_bytes / each.max(1)).max(1)
    }
}

/// A range of each head's queries, and the keys they see.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    from: usize,
    rows: usize,
    /// First key.
    begin: usize,
    keys: usize,
}

/// All blocks of `each` queries. The last one, which sees most keys, comes first.
fn blocks(s: &Sizes, each: usize) -> Vec<Block> {
    let block = |from: usize| {
        let rows = each.min(s.tokens - from);
        let first = s.window.map_or(0, |w| (from + 1).saturating_sub(w));
        let begin = first / KEYS * KEYS;
        let keys = (from + rows).next_multiple_of(KEYS) - begin;
        Block {
            from,
            rows,
            begin,
            keys,
        }
    };
    (0..s.tokens).step_by(each).rev().map(block).collect()
}

impl Block {
    fn queries(self, all: &Tensor, groups: Groups) -> Result<Tensor> {
        let share = groups.share;
        Ok(all.narrow(1, self.from * share, self.rows * share)?)
    }

    fn keys(self, all: &Tensor) -> Result<Tensor> {
        Ok(all.narrow(1, self.begin, self.keys)?)
    }

    fn mask<'a>(self, s: &Sizes, groups: Groups, starts: Option<&'a Tensor>) -> GroupMask<'a> {
        GroupMask {
            groups,
            scale: s.scale(),
            soft_cap: s.soft_cap,
            window: s.window,
            starts,
            first: self.from,
            begin: self.begin,
        }
    }
}

fn groups(s: &Sizes) -> Groups {
    Groups {
        samples: s.samples,
        tokens: s.tokens,
        key_heads: s.key_heads,
        share: s.per_key(),
        head: s.head(),
    }
}

/// The first token of each token's document, on the device of `like`; `None` if every sample is one
/// document.
fn starts(s: &Sizes, like: &Tensor) -> Result<Option<Tensor>> {
    let some = s.starts.as_deref();
    let Some(starts) = some.filter(|starts| starts.iter().any(|&start| start > 0)) else {
        return Ok(None);
    };
    let starts: Vec<u32> = starts.iter().map(|&start| start as u32).collect();
    Ok(Some(Tensor::new(starts, like.device())?))
}

/// Calls `work` with the blocks and, in turn, with the sizes and the first sample of each chunk.
fn in_chunks(
    s: &Sizes,
    limits: Limits,
    dtype: DType,
    mut work: impl FnMut(&[Block], &Sizes, usize) -> Result<()>,
) -> Result<()> {
    let blocks = blocks(s, limits.queries(s, dtype));
    let chunk = limits.samples(s, &blocks, dtype);
    for from in (0..s.samples).step_by(chunk) {
        let part = s.of(from, chunk.min(s.samples - from));
        work(&blocks, &part, from)?;
    }
    Ok(())
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let y = forward_within(s, qkv, Limits::for_device(qkv))?;
    Ok((y, Memory::Nothing))
}

pub(super) fn backward(s: &Sizes, qkv: &Tensor, dy: &Tensor) -> Result<Tensor> {
    backward_within(s, qkv, dy, Limits::for_device(qkv))
}

fn forward_within(s: &Sizes, qkv: &Tensor, limits: Limits) -> Result<Tensor> {
    let y = uninit(&[s.samples, s.tokens, s.width], qkv.dtype(), qkv)?;
    in_chunks(s, limits, qkv.dtype(), |blocks, part, from| {
        let groups = groups(part);
        let cut = |whole: &Tensor| whole.narrow(0, from, part.samples);
        let (qkv, y) = (cut(qkv)?, cut(&y)?);
        let [q, k, v] = groups.split_all(&qkv)?;
        let starts = starts(part, &qkv)?;
        for block in blocks {
            let q = block.queries(&q, groups)?;
            let p = product(&q, &block.keys(&k)?.t()?)?;
            block.mask(part, groups, starts.as_ref()).softmax(&p)?;
            let rows = product(&p, &block.keys(&v)?)?;
            groups.join_queries(&rows, &y, block.from)?;
        }
        Ok(())
    })?;
    Ok(y)
}

fn backward_within(s: &Sizes, qkv: &Tensor, dy: &Tensor, limits: Limits) -> Result<Tensor> {
    let (dqkv, dy) = (
        uninit(qkv.dims(), qkv.dtype(), qkv)?,
        dy.to_dtype(qkv.dtype())?,
    );
    in_chunks(s, limits, qkv.dtype(), |blocks, part, from| {
        let groups = groups(part);
        let cut = |whole: &Tensor| whole.narrow(0, from, part.samples);
        let (qkv, dy, dqkv) = (cut(qkv)?, cut(&dy)?, cut(&dqkv)?);
        let [q, k, v] = groups.split_all(&qkv)?;
        let dy = groups.split_queries(&dy)?;
        let starts = starts(part, &qkv)?;
        // Sums over many blocks would lose digits in a half type.
        let sums = || zeros(&[groups.matrices(), groups.padded(), groups.head], &qkv);
        let (dk, dv) = (sums()?, sums()?);
        for block in blocks {
            let (q, dy) = (block.queries(&q, groups)?, block.queries(&dy, groups)?);
            let k = block.keys(&k)?;
            let p = product(&q, &k.t()?)?;
            let ds = product(&dy, &block.keys(&v)?.t()?)?;
            let mask = block.mask(part, groups, starts.as_ref());
            mask.softmax_backward(&p, &ds)?;
            add_product_to_rows(&dv, block.begin, &p.t()?, &dy)?;
            drop(p);
            groups.join_queries(&product(&ds, &k)?, &dqkv, block.from)?;
            add_product_to_rows(&dk, block.begin, &ds.t()?, &q)?;
        }
        groups.join_keys(&dk, &dv, &dqkv)
    })?;
    Ok(dqkv)
}

/// Allocates and frees what [`forward`] does with the larger limits of CUDA. For dry runs on the
/// CPU: the kernels do not run there, and tensor primitives take minutes for long sequences.
pub(super) fn dry_forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    let y = Tensor::zeros((s.samples, s.tokens, s.width), qkv.dtype(), qkv.device())?;
    in_dry_chunks(s, qkv, |part, most| {
        let _split = part.split()?;
        let _weights = (part.weights(most)?, part.rows(most)?);
        Ok(())
    })?;
    Ok((y, Memory::Nothing))
}

/// As [`dry_forward`] for [`backward`].
pub(super) fn dry_backward(s: &Sizes, qkv: &Tensor) -> Result<Tensor> {
    let dqkv = qkv.zeros_like()?;
    in_dry_chunks(s, qkv, |part, most| {
        let _split = (part.split()?, part.queries()?);
        let _sums = (part.sums()?, part.sums()?);
        let _weights = (part.weights(most)?, part.weights(most)?, part.rows(most)?);
        Ok(())
    })?;
    Ok(dqkv)
}

/// Calls `work` with the groups of each chunk of samples, and with the block of most weights.
fn in_dry_chunks(
    s: &Sizes,
    qkv: &Tensor,
    work: impl Fn(DryGroups, Block) -> Result<()>,
) -> Result<()> {
    in_chunks(s, Limits::CUDA, qkv.dtype(), |blocks, part, _| {
        let most = blocks.iter().max_by_key(|block| block.rows * block.keys);
        let groups = groups(part);
        most.map_or(Ok(()), |&most| work(DryGroups { groups, like: qkv }, most))
    })
}

/// The tensors of a chunk of samples, all zeros.
struct DryGroups<'a> {
    groups: Groups,
    like: &'a Tensor,
}

impl DryGroups<'_> {
    fn zeros(&self, rows: usize, columns: usize, dtype: DType) -> Result<Tensor> {
        let shape = (self.groups.matrices(), rows, columns);
        Ok(Tensor::zeros(shape, dtype, self.like.device())?)
    }

    fn queries(&self) -> Result<Tensor> {
        let rows = self.groups.tokens * self.groups.share;
        self.zeros(rows, self.groups.head, self.like.dtype())
    }

    fn split(&self) -> Result<[Tensor; 3]> {
        let keys = || self.zeros(self.groups.padded(), self.groups.head, self.like.dtype());
        Ok([self.queries()?, keys()?, keys()?])
    }

    fn sums(&self) -> Result<Tensor> {
        self.zeros(self.groups.padded(), self.groups.head, DType::F32)
    }

    fn weights(&self, block: Block) -> Result<Tensor> {
        let rows = block.rows * self.groups.share;
        self.zeros(rows, block.keys, self.like.dtype())
    }

    /// The product of weights with keys or values.
    fn rows(&self, block: Block) -> Result<Tensor> {
        let rows = block.rows * self.groups.share;
        self.zeros(rows, self.groups.head, self.like.dtype())
    }
}

#[cfg(test)]
mod tests {
    use super::super::composed;
    use super::*;
    use crate::convert_dtype::host_tensor;
    use crate::dry_run::dry_run;
    use crate::inplace::to_f64;
    use crate::kernels::emulator;
    use crate::ops::Form;
    use crate::rng::Rng;
    use candle_core::Device;
    use std::sync::Arc;

    /// One block of all queries of all samples.
    const WHOLE: Limits = Limits {
        weight_bytes: usize::MAX,
        max_queries: usize::MAX / 2,
        min_queries: 1,
    };

    fn drawn(name: &str, shape: &[usize], dtype: DType) -> Tensor {
        let stream = Rng::new(9).site(name);
        let count = shape.iter().product::<usize>() as u64;
        let values = (0..count).map(|i| 4.0 * stream.uniform(i) - 2.0).collect();
        host_tensor(values, shape, dtype, &Device::Cpu).expect("a small tensor")
    }

    fn sizes(samples: usize, tokens: usize, heads: [usize; 3]) -> Sizes {
        let [key_heads, share, head] = heads;
        let all = key_heads * share;
        Sizes {
            causal: true,
            key_heads,
            scale: 0.6,
            ..Sizes::plain([samples, tokens, all * head], all)
        }
    }

    /// Documents of three, one and five tokens, in turn.
    fn documents(samples: usize, tokens: usize) -> Arc<[usize]> {
        let start = |token: usize| token / 9 * 9 + [0, 0, 0, 3, 4, 4, 4, 4, 4][token % 9];
        (0..samples * tokens).map(|i| start(i % tokens)).collect()
    }

    #[test]
    fn a_dry_run_has_an_output_and_a_gradient_of_zeros() {
        let s = sizes(2, 600, [2, 3, 16]);
        let qkv = drawn("qkv", &[s.samples, s.tokens, s.row()], DType::BF16);
        let ((y, dqkv), _) = dry_run(2, || {
            let (y, memory) = super::super::forward(Form::Composed, &s, &qkv).expect("memory");
            let back = super::super::backward(Form::Composed, &s, &qkv, &memory, &y);
            (y, back.expect("memory"))
        });
        assert_eq!(y.dims(), [2, 600, 96]);
        assert_eq!((dqkv.dims(), dqkv.dtype()), (qkv.dims(), DType::BF16));
        for zeros in [y, dqkv] {
            assert!(to_f64(&zeros).expect("numbers").iter().all(|v| *v == 0.0));
        }
    }

    /// Output and gradient by the kernels.
    fn found(s: &Sizes, dtype: DType, limits: Limits) -> [Vec<f64>; 2] {
        let qkv = drawn("qkv", &[s.samples, s.tokens, s.row()], dtype);
        let dy = drawn("dy", &[s.samples, s.tokens, s.width], dtype);
        emulator::with(|| {
            let y = forward_within(s, &qkv, limits).expect("shapes that fit");
            let dqkv = backward_within(s, &qkv, &dy, limits).expect("shapes that fit");
            [y, dqkv].map(|t| to_f64(&t).expect("numbers"))
        })
    }

    /// Output and gradient of the same numbers in the composed form in f64.
    fn expected(s: &Sizes, dtype: DType) -> [Vec<f64>; 2] {
        let exact = |t: Tensor| t.to_dtype(DType::F64).expect("the types convert");
        let qkv = exact(drawn("qkv", &[s.samples, s.tokens, s.row()], dtype));
        let dy = exact(drawn("dy", &[s.samples, s.tokens, s.width], dtype));
        let (y, _) = composed::forward(s, &qkv).expect("shapes that fit");
        let dqkv = composed::backward_recomputed(s, &qkv, &dy).expect("shapes that fit");
        [y, dqkv].map(|t| to_f64(&t).expect("numbers"))
    }

    fn check(s: &Sizes, dtype: DType, limits: Limits, allowed: f64) {
        let pairs = found(s, dtype, limits).into_iter().zip(expected(s, dtype));
        for (part, (found, expected)) in pairs.enumerate() {
            let scale = expected.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
            let off = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let worst = off.fold(0.0, f64::max) / scale;
            assert!(worst <= allowed, "{worst:e} in part {part} of {s:?}");
            assert!(found.iter().all(|v| v.is_finite()), "{s:?}");
        }
    }

    /// Windows, soft caps and documents of each of these sizes.
    fn masks(s: &Sizes) -> Vec<Sizes> {
        let starts = Some(documents(s.samples, s.tokens));
        let all = [
            (None, None, None),
            (Some(1), None, None),
            (Some(7), None, starts.clone()),
            (None, Some(0.9), None),
            (Some(12), Some(1.7), starts),
        ];
        let masked = |(window, soft_cap, starts): (Option<usize>, _, _)| Sizes {
            window: window.filter(|&window| window < s.tokens),
            soft_cap,
            starts,
            ..s.clone()
        };
        all.into_iter().map(masked).collect()
    }

    #[test]
    fn groups_of_any_size_give_what_the_composed_form_gives() {
        for (samples, tokens, heads) in [
            (1, 1, [1, 2, 3]),
            (3, 1, [2, 1, 4]),
            (2, 19, [2, 4, 4]),
            (1, 33, [1, 8, 5]),
            (2, 16, [3, 1, 8]),
            (2, 21, [2, 2, 12]),
        ] {
            for s in masks(&sizes(samples, tokens, heads)) {
                check(&s, DType::F32, WHOLE, 3e-6);
                let blocks = Limits {
                    max_queries: 5,
                    ..WHOLE
                };
                check(&s, DType::F32, blocks, 3e-6);
            }
        }
    }

    #[test]
    fn half_types_lose_only_their_own_digits() {
        for s in masks(&sizes(2, 21, [2, 2, 12])) {
            check(&s, DType::BF16, WHOLE, 2.0 / 128.0);
            check(&s, DType::F16, WHOLE, 2.0 / 1024.0);
        }
    }

    #[test]
    fn samples_at_a_time_change_no_bit() {
        for s in masks(&sizes(5, 11, [2, 2, 4])) {
            let blocks = Limits {
                max_queries: 4,
                ..WHOLE
            };
            let whole = found(&s, DType::F32, blocks);
            for samples in [1, 2, 3] {
                let chunks = Limits {
                    weight_bytes: samples * 4 * 4 * 4 * 16,
                    min_queries: 4,
                    ..blocks
                };
                assert_eq!(found(&s, DType::F32, chunks), whole, "{samples}");
            }
        }
    }

    #[test]
    fn blocks_keep_to_their_limits() {
        let limits = |mebibytes: usize, max_queries| Limits {
            weight_bytes: mebibytes << 20,
            max_queries,
            min_queries: 32,
        };
        let long = sizes(4, 8192, [8, 2, 128]);
        for (s, limits, bytes) in [
            (sizes(4, 1024, [8, 2, 128]), limits(32, 256), 32 << 20),
            (long.clone(), limits(32, 256), 32 << 20),
            // At least 32 queries of 16 heads.
            (long.clone(), limits(1, 256), 8 << 20),
            (
                Sizes {
                    window: Some(1024),
                    ..long
                },
                limits(32, 256),
                32 << 20,
            ),
        ] {
            let blocks = blocks(&s, limits.queries(&s, DType::BF16));
            let samples = limits.samples(&s, &blocks, DType::BF16).min(s.samples);
            let most = blocks.iter().map(|b| b.rows * b.keys).max().expect("some");
            let found = 2 * samples * s.heads * most;
            assert!(found <= bytes && found > bytes / 4, "{found} for {s:?}");
            // Every query sees itself, and all that its window shows.
            for b in &blocks {
                let first = s.window.map_or(0, |w| (b.from + 1).saturating_sub(w));
                assert!(b.begin <= first && b.begin + b.keys >= b.from + b.rows);
            }
        }
    }
}
