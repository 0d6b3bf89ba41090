//! Multi-head attention (Vaswani et al. 2017) on the joint projection: `qkv` [samples, tokens, 3
//! width] to [samples, tokens, width]. Per head `p = softmax(c q kᵀ)`, `y = p v`, `c = 1 /
//! sqrt(head width)`; optionally causal. Samples may have different lengths: keys beyond a sample's
//! length are hidden, and queries beyond it give zero.
//!
//! Backward: `dv = pᵀ dy`, `dp = dy vᵀ`, `ds = p (dp - rowsum(dp p))`, `dq = c ds k`, `dk = c dsᵀ
//! q`. Saved: `qkv`, and depending on the sizes either `p` [samples, heads, tokens, tokens] or `y`
//! and the logarithm of each row's sum [samples, tokens, heads], from which `p` is recomputed in
//! blocks that stay in the cache (Dao et al. 2022). The form composed of tensor primitives saves
//! `p` or nothing for up to 512 tokens, and the output and the sums for more. A GPU saves `qkv`
//! alone, or also `p` if it is no larger than the output.

mod cpu_blocks;
mod composed;
mod gpu;
#[cfg(feature = "cuda")]
mod cuda_blocks;
mod cpu_full;
mod composed_blocks;

use super::{Form, axes, expect_shape, misfit};
use crate::cpu::{Float, Matrix, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::saved_input::Recompute;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The number of heads, and the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Number of heads; must divide the width.
    pub heads: usize,
    /// A token sees only itself and the tokens before it.
    pub causal: bool,
}

/// Sizes of one call.
#[derive(Debug, Clone)]
struct Sizes {
    samples: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    causal: bool,
    /// Tokens per sample without padding; `None` if no sample is padded.
    lengths: Option<Arc<[usize]>>,
}

impl Sizes {
    fn new(qkv: &Value, shape: AttentionShape, lengths: Option<Arc<[usize]>>) -> Result<Self> {
        let [samples, tokens, three] = axes("attention", "qkv", qkv)?;
        let width = three / 3;
        if shape.heads == 0 || width % shape.heads != 0 {
            let expected = format!("a width divisible by {} heads", shape.heads);
            return Err(misfit("attention", "qkv", expected, qkv));
        }
        expect_shape("attention", "qkv", qkv, &[samples, tokens, 3 * width])?;
        Ok(Sizes {
            samples,
            tokens,
            width,
            heads: shape.heads,
            causal: shape.causal,
            lengths,
        })
    }

    fn head(&self) -> usize {
        self.width / self.heads
    }

    fn scale(&self) -> f64 {
        1.0 / (self.head() as f64).sqrt()
    }

    /// Tokens of a sample without padding.
    fn length(&self, sample: usize) -> usize {
        self.lengths.as_ref().map_or(self.tokens, |l| l[sample])
    }

    /// The number of keys that the query at `row` sees.
    fn seen(&self, row: usize, length: usize) -> usize {
        if self.causal {
            (row + 1).min(length)
        } else {
            length
        }
    }

    /// True if the weights of a head are no larger than its output: saving them costs less than
    /// recomputing them.
    fn keeps_square(&self) -> bool {
        self.tokens <= self.head()
    }

    /// The rows `rows` of head `head` of part `part` (0 q, 1 k, 2 v) of one sample's `qkv`.
    fn part<'a, T: Float>(
        &self,
        qkv: &'a [T],
        part: usize,
        head: usize,
        rows: Range<usize>,
    ) -> Matrix<'a, T> {
        let at = rows.start * 3 * self.width + part * self.width + head * self.head();
        Matrix::strided(&qkv[at..], rows.len(), self.head(), 3 * self.width)
    }
}

/// The tensors that the backward pass needs besides `qkv`.
enum Memory {
    /// All weights.
    Square(Tensor),
    /// The output, and the logarithm of each row's sum.
    Rows(Tensor, Tensor),
    /// Nothing: the weights are recomputed.
    Nothing,
}

impl Memory {
    fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Memory::Square(p) => vec![p],
            Memory::Rows(y, sums) => vec![y, sums],
            Memory::Nothing => Vec::new(),
        }
    }
}

impl Tape<'_> {
    /// Attention over `qkv` [samples, tokens, 3 width]: queries, keys and values side by side.
    pub fn attention(&self, qkv: &Value, shape: AttentionShape) -> Result<Value> {
        self.attend(qkv, shape, None)
    }

    /// Attention in which sample `n` has `lengths[n]` tokens. The rest is padding: hidden, with an
    /// output of zero.
    pub fn attention_padded(
        &self,
        qkv: &Value,
        shape: AttentionShape,
        lengths: &[usize],
    ) -> Result<Value> {
        let (samples, tokens) = (qkv.dims().first(), qkv.dims().get(1));
        if Some(&lengths.len()) != samples || lengths.iter().max() > tokens {
            let expected =
                format!("one sample for each of the lengths {lengths:?}, with enough tokens,");
            return Err(misfit("attention", "qkv", expected, qkv));
        }
        self.attend(qkv, shape, Some(lengths.into()))
    }

    /// Long sequences are computed in blocks: on a GPU by kernels unless the heads are too wide,
    /// otherwise by tensor primitives.
    fn attention_form(&self, sizes: &Sizes, qkv: &Tensor) -> Form {
        match self.form(KernelGroup::Attention, qkv) {
            Form::Device
                if sizes.tokens > composed_blocks::BLOCK && !gpu::is_blocked(sizes, qkv) =>
            {
                Form::Composed
            }
            form => form,
        }
    }

    fn attend(
        &self,
        qkv: &Value,
        shape: AttentionShape,
        lengths: Option<Arc<[usize]>>,
    ) -> Result<Value> {
        self.poll()?;
        let sizes = Sizes::new(qkv, shape, lengths)?;
        let form = self.attention_form(&sizes, qkv.tensor());
        let (y, memory) = forward(form, &sizes, &qkv.tensor().contiguous()?)?;
        if !self.records(&[qkv]) {
            return Ok(Value::constant(y));
        }
        let (id, kept) = (qkv.id(), qkv.saved_input());
        // On a GPU, operations that need the output recompute it. The tensors that come with it are
        // held until the backward pass reaches this operation.
        let held = Rc::new(RefCell::new(None));
        let (memory, again) = match (form, memory) {
            (Form::Device, Memory::Rows(..) | Memory::Nothing) => {
                let (sizes, held) = (sizes.clone(), Rc::clone(&held));
                let again = Recompute::new(kept.clone(), &[], move |qkv| {
                    let (y, memory) = gpu::forward(&sizes, qkv)?;
                    held.replace(Some(memory));
                    Ok(y)
                });
                (Memory::Nothing, Some(again))
            }
            (_, memory) => (memory, None),
        };
        let memory = Rc::new(memory);
        let (counted, also) = (kept.clone(), Rc::clone(&memory));
        let saved = [counted.counted(), also.tensors()].concat();
        let y = self.push(y, &saved, move |dy, sink| {
            let (input, dy) = (kept.get()?, dy.contiguous()?);
            let held = held.take();
            let memory = held.as_ref().unwrap_or(&memory);
            sink.add_owned(id, backward(form, &sizes, &input, memory, &dy)?)
        });
        Ok(match again {
            Some(again) => y.with_recompute(again),
            None => y,
        })
    }
}

fn forward(form: Form, sizes: &Sizes, qkv: &Tensor) -> Result<(Tensor, Memory)> {
    match (form, sizes.keeps_square()) {
        (Form::Device, _) => gpu::forward(sizes, qkv),
        (Form::Composed, _) if sizes.tokens > composed_blocks::BLOCK => {
            composed_blocks::forward(sizes, qkv, composed_blocks::BLOCK)
        }
        (Form::Composed, _) => composed::forward(sizes, qkv),
        (Form::Cpu, true) => {
            with_float!("attention", qkv, T => cpu_full::forward::<T>(sizes, qkv))
        }
        (Form::Cpu, false) => {
            with_float!("attention", qkv, T => cpu_blocks::forward::<T>(sizes, qkv))
        }
    }
}

/// The gradient of `qkv`.
fn backward(
    form: Form,
    sizes: &Sizes,
    qkv: &Tensor,
    memory: &Memory,
    dy: &Tensor,
) -> Result<Tensor> {
    match memory {
        _ if form == Form::Device => gpu::backward(sizes, qkv, memory, dy),
        Memory::Square(p) if form == Form::Cpu => {
            with_float!("attention", dy, T => cpu_full::backward::<T>(sizes, qkv, p, dy))
        }
        Memory::Rows(y, sums) if form == Form::Composed => {
            composed_blocks::backward(sizes, qkv, y, sums, dy, composed_blocks::BLOCK)
        }
        Memory::Rows(y, sums) => {
            with_float!("attention", dy, T => cpu_blocks::backward::<T>(sizes, qkv, y, sums, dy))
        }
        Memory::Square(p) => composed::backward(sizes, qkv, p, dy),
        Memory::Nothing => composed::backward(sizes, qkv, &composed::weights(sizes, qkv)?, dy),
    }
}
