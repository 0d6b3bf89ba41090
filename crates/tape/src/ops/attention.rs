//! Multi-head attention (Vaswani et al. 2017) on the joint projection: `qkv` [samples, tokens, 3
//! width] to [samples, tokens, width]. Per head `p = softmax(c q kᵀ)`, `y = p v`, `c = 1 /
//! sqrt(head width)`; optionally causal. Samples may have different lengths: keys beyond a sample's
//! length are hidden, and queries beyond it give zero.
//!
//! Grouped-query attention (Ainslie et al. 2023): `qkv` holds fewer heads of keys and values than
//! of queries, [samples, tokens, (heads + 2 key heads) head width], and consecutive heads of
//! queries share one, which is never repeated in memory. A window hides keys further back, a soft
//! cap replaces each score `s` by `cap tanh(s / cap)`, and a token of a packed sequence sees no
//! token before its document.
//!
//! Backward: `dv = pᵀ dy`, `dp = dy vᵀ`, `ds = p (dp - rowsum(dp p))`, `dq = c ds k`, `dk = c dsᵀ
//! q`. Saved: `qkv`, and depending on the sizes either `p` [samples, heads, tokens, tokens] or `y`
//! and the logarithm of each row's sum [samples, tokens, heads], from which `p` is recomputed in
//! blocks that stay in the cache (Dao et al. 2022). The form composed of tensor primitives saves
//! `p` or nothing for up to 512 tokens, and the output and the sums for more. A GPU saves `qkv`
//! alone, or also `p` if it is no larger than the output and heads share no keys.

mod cpu_blocks;
mod composed;
mod gpu;
mod grouped_blocks;
#[cfg(feature = "cuda")]
mod cuda_blocks;
mod cpu_full;
mod composed_blocks;

use super::{Form, axes, expect_shape, misfit};
use crate::cpu::{Float, Matrix, skips_arithmetic, with_float};
use crate::error::Result;
use crate::kernels::copies::contiguous;
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

/// The heads and the mask of causal grouped-query attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupedAttention {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values; divides `heads`.
    pub key_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Factor on the scores.
    pub scale: f64,
    /// A token sees itself and at most `window - 1` tokens before it; `None` for all tokens before.
    pub window: Option<usize>,
    /// Bound of the scores, reached smoothly (Gemma Team 2024).
    pub soft_cap: Option<f64>,
}

impl GroupedAttention {
    /// Heads with keys of their own that share `width` evenly and see all tokens before.
    pub fn for_heads(heads: usize, width: usize) -> Self {
        let head_width = width / heads.max(1);
        GroupedAttention {
            heads,
            key_heads: heads,
            head_width,
            scale: 1.0 / (head_width as f64).sqrt(),
            window: None,
            soft_cap: None,
        }
    }
}

/// Sizes of one call.
#[derive(Debug, Clone)]
struct Sizes {
    samples: usize,
    tokens: usize,
    width: usize,
    heads: usize,
    /// Heads of keys, and of values.
    key_heads: usize,
    /// Factor on the scores.
    scale: f64,
    causal: bool,
    /// Most tokens that a query sees; `None` for any number.
    window: Option<usize>,
    soft_cap: Option<f64>,
    /// Tokens per sample without padding; `None` if no sample is padded.
    lengths: Option<Arc<[usize]>>,
    /// For each token of each sample, the first token of its document; `None` if a sample is one
    /// document.
    starts: Option<Arc<[usize]>>,
}

impl Sizes {
    fn new(qkv: &Value, shape: AttentionShape, lengths: Option<Arc<[usize]>>) -> Result<Self> {
        let [samples, tokens, three] = axes("attention", "qkv", qkv)?;
        let width = three / 3;
        if shape.heads == 0 || width % shape.heads != 0 {
            let expected = format!(
                "a width that is a multiple of {} (the number of heads)",
                shape.heads
            );
            return Err(misfit("attention", "qkv", expected, qkv));
        }
        expect_shape("attention", "qkv", qkv, &[samples, tokens, 3 * width])?;
        Ok(Sizes {
            causal: shape.causal,
            lengths,
            ..Sizes::plain([samples, tokens, width], shape.heads)
        })
    }

    /// Heads with keys of their own, which see all tokens of `[samples, tokens, width]`.
    fn plain(dims: [usize; 3], heads: usize) -> Self {
        Sizes {
            samples: dims[0],
            tokens: dims[1],
            width: dims[2],
            heads,
            key_heads: heads,
            scale: 1.0 / ((dims[2] / heads.max(1)) as f64).sqrt(),
            causal: false,
            window: None,
            soft_cap: None,
            lengths: None,
            starts: None,
        }
    }

    fn grouped(qkv: &Value, shape: GroupedAttention, starts: Option<&[usize]>) -> Result<Self> {
        const OP: &str = "grouped_attention";
        let [samples, tokens, _] = axes(OP, "qkv", qkv)?;
        if shape.key_heads == 0 || !shape.heads.is_multiple_of(shape.key_heads) {
            let GroupedAttention {
                heads, key_heads, ..
            } = shape;
            let expected = format!(
                "a number of query heads ({heads}) that is a multiple of the number of key heads ({key_heads})"
            );
            return Err(misfit(OP, "qkv", expected, qkv));
        }
        let row = (shape.heads + 2 * shape.key_heads) * shape.head_width;
        expect_shape(OP, "qkv", qkv, &[samples, tokens, row])?;
        if let Some(starts) = starts {
            let mut all = starts.iter().enumerate();
            let fit = all.all(|(i, &start)| start <= i % tokens.max(1));
            if starts.len() != samples * tokens || !fit {
                let expected = "one start for each token, none of them after its token,";
                return Err(misfit(OP, "qkv", expected, qkv));
            }
        }
        Ok(Sizes {
            samples,
            tokens,
            width: shape.heads * shape.head_width,
            heads: shape.heads,
            key_heads: shape.key_heads,
            scale: shape.scale,
            causal: true,
            window: shape.window.filter(|&window| window < tokens),
            soft_cap: shape.soft_cap,
            lengths: None,
            starts: starts.map(Arc::from),
        })
    }

    /// True if every head of queries has keys of its own, and only the causal mask and padding hide
    /// keys.
    fn is_plain(&self) -> bool {
        let hides = self.window.is_some() || self.starts.is_some();
        self.key_heads == self.heads && !hides && self.soft_cap.is_none()
    }

    /// Width of a row of `qkv`.
    fn row(&self) -> usize {
        self.width + 2 * self.key_heads * self.head()
    }

    /// Heads of queries that share one of keys.
    fn per_key(&self) -> usize {
        self.heads / self.key_heads
    }

    /// The first column of head `head` of part `part` (0 q, 1 k, 2 v) in a row of `qkv`. Keys and
    /// values are those of the head's group.
    fn column(&self, part: usize, head: usize) -> usize {
        let group = head / self.per_key();
        self.head()
            * match part {
                0 => head,
                1 => self.heads + group,
                _ => self.heads + self.key_heads + group,
            }
    }

    fn head(&self) -> usize {
        self.width / self.heads
    }

    fn scale(&self) -> f64 {
        self.scale
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

    /// The first key that the query at `row` of a sample sees.
    fn first(&self, sample: usize, row: usize) -> usize {
        let window = self.window.map_or(0, |w| (row + 1).saturating_sub(w));
        let starts = self.starts.as_ref();
        window.max(starts.map_or(0, |starts| starts[sample * self.tokens + row]))
    }

    /// True if the weights of a head are no larger than its output: saving them costs less than
    /// recomputing them. Grouped heads recompute them in any case.
    fn keeps_square(&self) -> bool {
        self.tokens <= self.head() && self.is_plain()
    }

    /// The rows `rows` of head `head` of part `part` (0 q, 1 k, 2 v) of one sample's `qkv`.
    fn part<'a, T: Float>(
        &self,
        qkv: &'a [T],
        part: usize,
        head: usize,
        rows: Range<usize>,
    ) -> Matrix<'a, T> {
        let at = rows.start * self.row() + self.column(part, head);
        Matrix::strided(&qkv[at..], rows.len(), self.head(), self.row())
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
        self.attend(qkv, Sizes::new(qkv, shape, None)?)
    }

    /// Causal attention over `qkv` [samples, tokens, (heads + 2 key heads) head width]: the heads
    /// of queries, then those of keys, then those of values. In a packed sequence, `starts` is the
    /// position of the first token of each token's document, for all tokens of all samples.
    pub fn grouped_attention(
        &self,
        qkv: &Value,
        shape: GroupedAttention,
        starts: Option<&[usize]>,
    ) -> Result<Value> {
        self.attend(qkv, Sizes::grouped(qkv, shape, starts)?)
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
        self.attend(qkv, Sizes::new(qkv, shape, Some(lengths.into()))?)
    }

    /// Long sequences are computed in blocks: on a GPU by kernels, unless wide heads see later
    /// tokens or padding, otherwise by tensor primitives.
    fn attention_form(&self, sizes: &Sizes, qkv: &Tensor) -> Form {
        let is_short = sizes.tokens <= composed_blocks::BLOCK;
        let fits = is_short || gpu::is_blocked(sizes, qkv);
        self.form_that_fits(gpu::kernel_group(sizes, qkv), qkv, fits)
    }

    fn attend(&self, qkv: &Value, sizes: Sizes) -> Result<Value> {
        self.poll()?;
        let form = self.attention_form(&sizes, qkv.tensor());
        let (y, memory) = forward(form, &sizes, &contiguous(qkv.tensor())?)?;
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
            let (input, dy) = (kept.get()?, contiguous(&dy)?);
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
        _ if is_dry_group(form, sizes) => grouped_blocks::dry_forward(sizes, qkv),
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

/// Whether this is a dry run of an operation that a GPU computes in groups of heads.
fn is_dry_group(form: Form, sizes: &Sizes) -> bool {
    let is_long = sizes.tokens > composed_blocks::BLOCK;
    skips_arithmetic() && form == Form::Composed && is_long && !sizes.is_plain()
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
        _ if is_dry_group(form, sizes) => grouped_blocks::dry_backward(sizes, qkv),
        Memory::Square(p) if form == Form::Cpu => {
            with_float!("attention", dy, T => cpu_full::backward::<T>(sizes, qkv, p, dy))
        }
        Memory::Rows(y, sums) if form == Form::Composed => {
            composed_blocks::backward(sizes, qkv, y, sums, dy, composed_blocks::BLOCK)
        }
        Memory::Rows(y, sums) => {
            with_float!("attention", dy, T => cpu_blocks::backward::<T>(sizes, qkv, y, sums, dy))
        }
        Memory::Square(p) => composed::backward(sizes, qkv, p, None, dy),
        Memory::Nothing => composed::backward_recomputed(sizes, qkv, dy),
    }
}
