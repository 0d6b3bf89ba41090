//! Attention by GPU kernels. Sizes and type choose the method. The method with products of whole
//! heads splits and joins the heads in one pass each, turns scores into weights in place, and works
//! on a few samples at a time, so that the weights of few heads exist at once. It recomputes the
//! weights in the backward pass, or saves them if they are smaller than the output.

use super::composed_blocks::BLOCK;
use super::{Memory, Sizes, grouped_blocks};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::attention::{Attended, WIDEST, attend, attend_backward};
use crate::kernels::elementwise::{Heads, join_heads, split_heads};
use crate::kernels::matmul::product;
use crate::kernels::row_kernels::{AttentionMask, softmax, softmax_backward};
use crate::kernels::uninit;
use candle_core::Tensor;

/// Weights in memory at once, in elements: 8 MiB in f32, but at least one sample.
const MOST: usize = 1 << 21;

pub(super) fn heads(s: &Sizes) -> Heads {
    Heads {
        samples: s.samples,
        tokens: s.tokens,
        heads: s.heads,
        head: s.head(),
    }
}

impl Sizes {
    /// The sizes of `count` samples, beginning with sample `from`.
    pub(super) fn of(&self, from: usize, count: usize) -> Sizes {
        let (lengths, starts) = (self.lengths.as_ref(), self.starts.as_ref());
        let tokens = from * self.tokens..(from + count) * self.tokens;
        Sizes {
            samples: count,
            lengths: lengths.map(|l| l[from..from + count].into()),
            starts: starts.map(|starts| starts[tokens].into()),
            ..self.clone()
        }
    }

    /// The chunks of samples, as `(first, count)`. They depend on the sizes of one sample only, so
    /// that a sample is computed the same way in every micro-batch.
    fn chunks(&self, most: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let square = self.heads * self.tokens * self.tokens;
        let (samples, chunk) = (self.samples, (most / square.max(1)).max(1));
        (0..samples)
            .step_by(chunk)
            .map(move |from| (from, chunk.min(samples - from)))
    }
}

/// All weights `p` [samples heads, tokens, tokens].
fn weights(s: &Sizes, q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let scores = product(q, &k.t()?)?;
    let counted = lengths(s, &scores)?;
    let seen = AttentionMask {
        scale: s.scale(),
        queries: (s.tokens, 0),
        keys: s.tokens,
        heads: s.heads,
        causal: s.causal,
        lengths: counted.as_ref(),
    };
    softmax(&scores, &seen)?;
    Ok(scores)
}

/// The lengths without padding, on the device of `like`; `None` if no sample is padded.
pub(super) fn lengths(s: &Sizes, like: &Tensor) -> Result<Option<Tensor>> {
    let some = s.lengths.as_deref();
    let Some(lengths) = some.filter(|l| l.iter().any(|&n| n < s.tokens)) else {
        return Ok(None);
    };
    let lengths: Vec<u32> = lengths.iter().map(|&n| n as u32).collect();
    Ok(Some(Tensor::new(lengths, like.device())?))
}

/// The method, chosen by sizes and device only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Products of blocks of queries, for CUDA with heads that begin at multiples of 16 bytes. On
    /// an H200 they take a third of the time of [`Way::Blocks`] in f32, and less in half types,
    /// whose matrix units only products can use. One block of scores is in memory.
    #[cfg(feature = "cuda")]
    Queries,
    /// Blocks with a running softmax, for long sequences. Only the output is in memory.
    Blocks,
    /// Products of whole heads, a few samples at a time, for short sequences and wide heads.
    Square,
    /// Products of blocks of queries of all heads that share keys. Also for wide heads with keys of
    /// their own in long causal sequences.
    Groups,
}

fn way(s: &Sizes, qkv: &Tensor) -> Way {
    if !s.is_plain() {
        return Way::Groups;
    }
    if s.keeps_square() {
        return Way::Square;
    }
    #[cfg(feature = "cuda")]
    if qkv.device().is_cuda() && super::cuda_blocks::fits(s, qkv.dtype()) {
        return Way::Queries;
    }
    // On the CPU only tests run these kernels; the method with whole heads has a test of its own.
    if s.head() <= WIDEST && (s.tokens > BLOCK || qkv.device().is_cpu()) {
        Way::Blocks
    } else if s.tokens > BLOCK && s.causal && s.lengths.is_none() {
        Way::Groups
    } else {
        Way::Square
    }
}

/// True if long sequences never need all weights at once.
pub(super) fn is_blocked(s: &Sizes, qkv: &Tensor) -> bool {
    way(s, qkv) != Way::Square
}

/// The kernels that compute it.
pub(super) fn kernel_group(s: &Sizes, qkv: &Tensor) -> KernelGroup {
    match way(s, qkv) {
        Way::Groups => KernelGroup::GroupedAttention,
        _ => KernelGroup::Attention,
    }
}

/// The output, and the tensors that the backward pass may use if they are still held.
pub(super) fn forward(s: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    match way(s, qkv) {
        Way::Blocks => {
            let lengths = lengths(s, qkv)?;
            let (y, sums) = attend(qkv, &attended(s, lengths.as_ref()))?;
            Ok((y.clone(), Memory::Rows(y, sums)))
        }
        #[cfg(feature = "cuda")]
        Way::Queries => super::cuda_blocks::forward(s, qkv),
        Way::Square => forward_within(s, qkv, MOST),
        Way::Groups => grouped_blocks::forward(s, qkv),
    }
}

fn attended<'a>(s: &Sizes, lengths: Option<&'a Tensor>) -> Attended<'a> {
    Attended {
        heads: heads(s),
        scale: s.scale(),
        causal: s.causal,
        lengths,
    }
}

pub(super) fn backward(s: &Sizes, qkv: &Tensor, memory: &Memory, dy: &Tensor) -> Result<Tensor> {
    match (way(s, qkv), memory) {
        (Way::Blocks, memory) => {
            let again;
            let (y, sums) = match memory {
                Memory::Rows(y, sums) => (y, sums),
                _ => {
                    let lengths = lengths(s, qkv)?;
                    again = attend(qkv, &attended(s, lengths.as_ref()))?;
                    (&again.0, &again.1)
                }
            };
            let lengths = lengths(s, qkv)?;
            attend_backward(qkv, y, sums, dy, &attended(s, lengths.as_ref()))
        }
        #[cfg(feature = "cuda")]
        (Way::Queries, _) => super::cuda_blocks::backward(s, qkv, dy),
        (Way::Square, Memory::Square(p)) => backward_within(s, qkv, Some(p), dy, MOST),
        (Way::Square, _) => backward_within(s, qkv, None, dy, MOST),
        (Way::Groups, _) => grouped_blocks::backward(s, qkv, dy),
    }
}

fn forward_within(s: &Sizes, qkv: &Tensor, most: usize) -> Result<(Tensor, Memory)> {
    let y = uninit(&[s.samples, s.tokens, s.width], qkv.dtype(), qkv)?;
    let all = [(0, s.samples)];
    let mut kept = None;
    let work = |(from, count): (usize, usize)| -> Result<Tensor> {
        let part = s.of(from, count);
        let parts = split_heads(&qkv.narrow(0, from, count)?, 3, heads(&part))?;
        let p = weights(&part, &parts[0], &parts[1])?;
        let out = y.narrow(0, from, count)?;
        join_heads(&[&product(&p, &parts[2])?], heads(&part), &out)?;
        Ok(p)
    };
    if s.keeps_square() {
        all.into_iter()
            .try_for_each(|one| work(one).map(|p| kept = Some(p)))?;
    } else {
        s.chunks(most).try_for_each(|one| work(one).map(|_| ()))?;
    }
    Ok((y, kept.map_or(Memory::Nothing, Memory::Square)))
}

fn backward_within(
    s: &Sizes,
    qkv: &Tensor,
    p: Option<&Tensor>,
    dy: &Tensor,
    most: usize,
) -> Result<Tensor> {
    let (dqkv, dy) = (
        uninit(qkv.dims(), qkv.dtype(), qkv)?,
        dy.to_dtype(qkv.dtype())?,
    );
    let chunks = match p {
        Some(_) => vec![(0, s.samples)],
        None => s.chunks(most).collect(),
    };
    for (from, count) in chunks {
        let part = s.of(from, count);
        let parts = split_heads(&qkv.narrow(0, from, count)?, 3, heads(&part))?;
        let [q, k, v] = [&parts[0], &parts[1], &parts[2]];
        let p = match p {
            Some(p) => p.clone(),
            None => weights(&part, q, k)?,
        };
        let dy = &split_heads(&dy.narrow(0, from, count)?, 1, heads(&part))?[0];
        let dv = product(&p.t()?, dy)?;
        let ds = product(dy, &v.t()?)?;
        softmax_backward(&p, &ds, s.scale())?;
        drop(p);
        let (dq, dk) = (product(&ds, k)?, product(&ds.t()?, q)?);
        let out = dqkv.narrow(0, from, count)?;
        join_heads(&[&dq, &dk, &dv], heads(&part), &out)?;
    }
    Ok(dqkv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert_dtype::host_tensor;
    use crate::inplace::to_f64;
    use crate::kernels::emulator;
    use crate::rng::Rng;
    use candle_core::{DType, Device};

    fn drawn(name: &str, shape: &[usize]) -> Tensor {
        let stream = Rng::new(9).site(name);
        let count = shape.iter().product::<usize>() as u64;
        let values = (0..count).map(|i| 6.0 * stream.uniform(i) - 3.0).collect();
        host_tensor(values, shape, DType::F32, &Device::Cpu).expect("a small tensor")
    }

    /// Output and gradient with at most `most` weights in memory at once.
    fn within(s: &Sizes, most: usize) -> [Vec<f64>; 2] {
        let qkv = drawn("qkv", &[s.samples, s.tokens, 3 * s.width]);
        let dy = drawn("dy", &[s.samples, s.tokens, s.width]);
        emulator::with(|| {
            let (y, _) = forward_within(s, &qkv, most).expect("shapes that fit");
            let dqkv = backward_within(s, &qkv, None, &dy, most).expect("shapes that fit");
            [y, dqkv].map(|t| to_f64(&t).expect("numbers"))
        })
    }

    #[test]
    fn samples_at_a_time_change_no_bit() {
        for lengths in [None, Some([7, 2, 0, 5, 7])] {
            let sizes = Sizes {
                causal: true,
                lengths: lengths.map(|l| l.into()),
                ..Sizes::plain([5, 7, 6], 2)
            };
            let whole = within(&sizes, usize::MAX);
            for most in [1, 2 * 49 * 2, 2 * 49 * 3] {
                assert_eq!(within(&sizes, most), whole, "{most}");
            }
        }
    }
}
