//! Attention composed of tensor primitives in blocks of queries and keys, for every device and for
//! sequences whose weights would be large (Dao et al. 2022). Only the weights of one block exist at
//! a time. Of earlier blocks, each row keeps the highest score, the sum of exponentials and the sum
//! of values. Saved: the output and the logarithm of each row's sum, from which the backward pass
//! recomputes the weights block by block.

use super::composed::{
    HIDDEN, capped, joined, product_across, product_along, product_over, split, split_output,
};
use super::{Memory, Sizes};
use crate::convert_dtype::{host_tensor, widened};
use crate::cpu::skips_arithmetic;
use crate::error::Result;
use crate::kernels::copies::{self, contiguous, owned};
use candle_core::{D, DType, Device, Tensor};

/// Tokens per block, and the longest sequence that is computed without blocks. It depends on the
/// tokens only, so that a sample is computed the same way in every micro-batch.
pub(super) const BLOCK: usize = 512;

/// The first row or column, and how many.
type Span = (usize, usize);

/// The tensors that blocks are cut from: [samples, heads or key heads, tokens, head].
struct Whole<'a> {
    sizes: &'a Sizes,
    block: usize,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// 0 for real keys and [`HIDDEN`] for padding: [samples, 1, 1, tokens].
    hidden: Option<Tensor>,
    /// 1 for real queries and 0 for padding: [samples, 1, tokens, 1].
    counted: Option<Tensor>,
}

/// Copies `span` of axis `axis`.
fn cut(tensor: &Tensor, axis: usize, (from, count): Span) -> Result<Tensor> {
    owned(&tensor.narrow(axis, from, count)?)
}

/// Joins the tokens of all blocks.
fn of_blocks(parts: &[Tensor]) -> Result<Tensor> {
    copies::joined(&parts.iter().collect::<Vec<_>>(), 2)
}

impl<'a> Whole<'a> {
    fn new(sizes: &'a Sizes, qkv: &Tensor, block: usize) -> Result<Self> {
        let [q, k, v] = split(sizes, qkv)?;
        let (dtype, device) = (widened_type(qkv.dtype()), qkv.device());
        let by_token = |number: fn(bool) -> f64, shape: &[usize]| -> Result<Option<Tensor>> {
            let Some(lengths) = &sizes.lengths else {
                return Ok(None);
            };
            let counts = lengths
                .iter()
                .flat_map(|&length| (0..sizes.tokens).map(move |token| token < length));
            let values = counts.map(number).collect();
            host_tensor(values, shape, dtype, device).map(Some)
        };
        let (samples, tokens) = (sizes.samples, sizes.tokens);
        Ok(Whole {
            sizes,
            block,
            q,
            k,
            v,
            hidden: by_token(
                |counts| if counts { 0.0 } else { HIDDEN },
                &[samples, 1, 1, tokens],
            )?,
            counted: by_token(
                |counts| f64::from(u8::from(counts)),
                &[samples, 1, tokens, 1],
            )?,
        })
    }

    /// The blocks of queries or keys, in order.
    fn blocks(&self) -> impl Iterator<Item = Span> + use<> {
        let (tokens, block) = (self.sizes.tokens, self.block);
        (0..tokens)
            .step_by(block)
            .map(move |from| (from, block.min(tokens - from)))
    }

    /// The blocks of keys that these queries see. The first one is always included, because every
    /// row needs a highest score.
    fn seen(&self, (from, count): Span) -> impl Iterator<Item = Span> + use<> {
        let firsts = (0..self.sizes.samples)
            .flat_map(|n| (from..from + count).map(move |row| self.sizes.first(n, row)));
        let begin = firsts.min().unwrap_or(0);
        let longest = match &self.sizes.lengths {
            Some(lengths) => lengths.iter().max().copied().unwrap_or(0),
            None => self.sizes.tokens,
        };
        let end = if self.sizes.causal {
            longest.min(from + count)
        } else {
            longest
        };
        // The first block allocates less than those after it, which are alike.
        let most = if skips_arithmetic() { 2 } else { usize::MAX };
        self.blocks()
            .skip_while(move |&(key, count)| key + count <= begin)
            .take_while(move |&(key, _)| key == 0 || key < end)
            .take(most)
    }

    /// The scores of a block, and the derivative of the soft cap. Hidden scores are so low that
    /// their weight is 0.
    fn scores(&self, q: &Tensor, queries: Span, keys: Span) -> Result<(Tensor, Option<Tensor>)> {
        let s = self.sizes;
        let k = cut(&self.k, 2, keys)?;
        let scores = (widened(&product_across(s, q, &k)?)? * s.scale())?;
        let (mut scores, slope) = capped(s, scores)?;
        if let Some(hidden) = &self.hidden {
            scores = scores.broadcast_add(&cut(hidden, 3, keys)?)?;
        }
        if let Some(mask) = mask(s, queries, keys, (scores.dtype(), q.device()))? {
            scores = scores.broadcast_add(&mask)?;
        }
        Ok((scores, slope))
    }

    /// Sets padded queries to zero.
    fn without_padding(&self, rows: Tensor) -> Result<Tensor> {
        match &self.counted {
            Some(counted) => Ok(rows.broadcast_mul(&counted.to_dtype(rows.dtype())?)?),
            None => Ok(rows),
        }
    }
}

fn widened_type(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// The mask of a block that later keys, a window and documents make, added to its scores: [samples
/// or 1, 1, queries, keys]. `None` if they hide nothing.
fn mask(s: &Sizes, queries: Span, keys: Span, like: (DType, &Device)) -> Result<Option<Tensor>> {
    if !s.causal {
        return Ok(None);
    }
    let samples = if s.starts.is_some() { s.samples } else { 1 };
    let rows = (0..samples).flat_map(|n| (0..queries.1).map(move |row| (n, queries.0 + row)));
    let hides = |(n, row): (usize, usize)| keys.0 + keys.1 > row + 1 || s.first(n, row) > keys.0;
    if !rows.clone().any(hides) {
        return Ok(None);
    }
    let values = rows.flat_map(|(n, row)| {
        let visible = s.first(n, row)..row + 1;
        (keys.0..keys.0 + keys.1).map(move |key| if visible.contains(&key) { 0.0 } else { HIDDEN })
    });
    let shape = [samples, 1, queries.1, keys.1];
    host_tensor(values.collect(), &shape, like.0, like.1).map(Some)
}

/// The sum so far, with one more term.
fn plus(sum: Option<Tensor>, term: Tensor) -> Result<Tensor> {
    Ok(match sum {
        Some(sum) => (sum + term)?,
        None => term,
    })
}

/// The running result of each row: its highest score, and the sums of exponentials and of values
/// relative to it.
struct Running {
    highest: Tensor,
    sum: Tensor,
    values: Tensor,
}

impl Running {
    /// Adds one block.
    fn with(before: Option<Running>, s: &Sizes, scores: &Tensor, v: &Tensor) -> Result<Running> {
        let own = scores.max_keepdim(D::Minus1)?;
        let highest = match &before {
            Some(before) => before.highest.maximum(&own)?,
            None => own,
        };
        let p = scores.broadcast_sub(&highest)?.exp()?;
        let mut sum = p.sum_keepdim(D::Minus1)?;
        let mut values = widened(&product_along(s, &p.to_dtype(v.dtype())?, v)?)?;
        if let Some(before) = before {
            let fade = (before.highest - &highest)?.exp()?;
            sum = (sum + (before.sum * &fade)?)?;
            values = (values + before.values.broadcast_mul(&fade)?)?;
        }
        Ok(Running {
            highest,
            sum,
            values,
        })
    }
}

pub(super) fn forward(s: &Sizes, qkv: &Tensor, block: usize) -> Result<(Tensor, Memory)> {
    let whole = Whole::new(s, qkv, block)?;
    let (mut outputs, mut sums) = (Vec::new(), Vec::new());
    for queries in whole.blocks() {
        let q = cut(&whole.q, 2, queries)?;
        let mut running = None;
        for keys in whole.seen(queries) {
            let (scores, _) = whole.scores(&q, queries, keys)?;
            let v = cut(&whole.v, 2, keys)?;
            running = Some(Running::with(running, s, &scores, &v)?);
        }
        if let Some(rows) = running {
            outputs.push(rows.values.broadcast_div(&rows.sum)?);
            sums.push((rows.highest + rows.sum.log()?)?);
        }
    }
    let y = whole.without_padding(of_blocks(&outputs)?)?;
    let y = contiguous(&y.to_dtype(qkv.dtype())?.transpose(1, 2)?)?;
    let y = y.reshape((s.samples, s.tokens, s.width))?;
    Ok((y.clone(), Memory::Rows(y, of_blocks(&sums)?)))
}

pub(super) fn backward(
    s: &Sizes,
    qkv: &Tensor,
    y: &Tensor,
    sums: &Tensor,
    dy: &Tensor,
    block: usize,
) -> Result<Tensor> {
    let whole = Whole::new(s, qkv, block)?;
    let dtype = qkv.dtype();
    let dy = whole.without_padding(split_output(s, dy)?)?;
    // Per row, the sum of its weights times their gradients.
    let met = (widened(&dy)? * widened(&split_output(s, y)?)?)?.sum_keepdim(D::Minus1)?;
    let mut dq = Vec::new();
    let mut of_keys: Vec<Option<[Tensor; 2]>> = whole.blocks().map(|_| None).collect();
    for queries in whole.blocks() {
        let (q, dy) = (cut(&whole.q, 2, queries)?, cut(&dy, 2, queries)?);
        let (sum, met) = (cut(sums, 2, queries)?, cut(&met, 2, queries)?);
        let mut dq_sum: Option<Tensor> = None;
        for keys in whole.seen(queries) {
            let (scores, slope) = whole.scores(&q, queries, keys)?;
            let p = scores.broadcast_sub(&sum)?.exp()?;
            let dp = widened(&product_across(s, &dy, &cut(&whole.v, 2, keys)?)?)?;
            let mut ds = (&p * dp.broadcast_sub(&met)?)?;
            if let Some(slope) = slope {
                ds = (ds * slope)?;
            }
            let (ds, p) = (ds.to_dtype(dtype)?, p.to_dtype(dtype)?);
            let own = widened(&product_along(s, &ds, &cut(&whole.k, 2, keys)?)?)?;
            dq_sum = Some(plus(dq_sum, own)?);
            let [dk, dv] = [(&ds, &q), (&p, &dy)]
                .map(|(weights, rows)| widened(&product_over(s, weights, rows)?));
            let (dk, dv) = (dk?, dv?);
            let of_keys = &mut of_keys[keys.0 / block];
            *of_keys = Some(match of_keys.take() {
                Some([k, v]) => [(k + dk)?, (v + dv)?],
                None => [dk, dv],
            });
        }
        dq.extend(dq_sum);
    }
    let (mut dk, mut dv) = (Vec::new(), Vec::new());
    for (keys, of_keys) in whole.blocks().zip(of_keys) {
        // Keys that no query sees have no gradient.
        let [k, v] = match of_keys {
            Some(both) => both,
            None => {
                let zeros = widened(&cut(&whole.k, 2, keys)?)?.zeros_like()?;
                [zeros.clone(), zeros]
            }
        };
        dk.push(k);
        dv.push(v);
    }
    let scaled = |parts: &[Tensor]| -> Result<Tensor> {
        Ok((of_blocks(parts)? * s.scale())?.to_dtype(dtype)?)
    };
    let dv = of_blocks(&dv)?.to_dtype(dtype)?;
    joined(s, [&scaled(&dq)?, &scaled(&dk)?, &dv])
}

#[cfg(test)]
mod tests {
    use super::super::composed;
    use super::*;
    use crate::inplace::to_f64;
    use crate::rng::Rng;

    fn drawn(name: &str, shape: &[usize]) -> Tensor {
        let stream = Rng::new(9).site(name);
        let count = shape.iter().product::<usize>() as u64;
        let values = (0..count).map(|i| 6.0 * stream.uniform(i) - 3.0).collect();
        host_tensor(values, shape, DType::F64, &Device::Cpu).expect("a small tensor")
    }

    fn furthest(a: &Tensor, b: &Tensor) -> f64 {
        let (a, b) = (to_f64(a).expect("numbers"), to_f64(b).expect("numbers"));
        a.iter().zip(&b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
    }

    /// Output and gradient, in blocks of this size and without blocks.
    fn both(sizes: &Sizes, block: usize) -> Result<[(Tensor, Tensor); 2]> {
        let qkv = drawn("qkv", &[sizes.samples, sizes.tokens, sizes.row()]);
        let dy = drawn("dy", &[sizes.samples, sizes.tokens, sizes.width]);
        let (y, memory) = forward(sizes, &qkv, block)?;
        let Memory::Rows(kept, sums) = &memory else {
            panic!("blocks keep rows");
        };
        let blocks = backward(sizes, &qkv, kept, sums, &dy, block)?;
        let (whole, _) = composed::forward(sizes, &qkv)?;
        Ok([
            (y, blocks),
            (whole, composed::backward_recomputed(sizes, &qkv, &dy)?),
        ])
    }

    #[test]
    fn blocks_of_any_size_give_the_same_attention() {
        for causal in [false, true] {
            for lengths in [None, Some([8, 8, 8]), Some([1, 8, 3]), Some([2, 0, 5])] {
                let sizes = Sizes {
                    causal,
                    lengths: lengths.map(|lengths| lengths.into()),
                    ..Sizes::plain([3, 8, 6], 2)
                };
                check(&sizes, &format!("{causal} {lengths:?}"));
            }
        }
    }

    /// Blocks of any size give what a computation without blocks gives.
    fn check(sizes: &Sizes, name: &str) {
        for block in [1, 3, 4, 7, 8, 20] {
            let [blocks, whole] = both(sizes, block).expect("shapes that fit");
            let name = format!("{name} in blocks of {block}");
            assert!(furthest(&blocks.0, &whole.0) < 1e-13, "{name}: output");
            assert!(furthest(&blocks.1, &whole.1) < 1e-13, "{name}: gradient");
        }
    }

    #[test]
    fn blocks_of_any_size_give_the_same_grouped_attention() {
        // The second sample is packed from three documents.
        let starts = [[0; 8], [0, 0, 0, 3, 3, 5, 5, 5], [0; 8]].concat();
        for (key_heads, window, soft_cap, starts) in [
            (2, None, None, None),
            (1, Some(3), None, None),
            (2, Some(1), Some(0.7), None),
            (4, None, Some(0.7), Some(starts.clone())),
            (2, Some(3), None, Some(starts)),
        ] {
            let sizes = Sizes {
                causal: true,
                key_heads,
                window,
                soft_cap,
                scale: 1.3,
                starts: starts.clone().map(|starts| starts.into()),
                ..Sizes::plain([3, 8, 12], 4)
            };
            check(
                &sizes,
                &format!("{key_heads} {window:?} {soft_cap:?} {starts:?}"),
            );
        }
    }
}
