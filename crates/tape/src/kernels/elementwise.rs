//! Elementwise kernels: activations, gates, biases, in-place sums, reordered axes, quantized
//! values. Inputs must be contiguous.

use super::Argument::{Count, In, Number, Out};
use super::copies::contiguous;
use super::{Argument, Grid, Kernel, KernelGroup, alike, single, uninit, uninit_like};
use crate::convert_dtype::convert;
use crate::error::Result;
use crate::rng::{Rng, share_of_u32};
use candle_core::{DType, Tensor};

/// A pointwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    /// The tanh form.
    Gelu,
    /// The exact form.
    GeluExact,
    /// `x sigmoid(x)`.
    Silu,
    /// `max(x, 0)`; its derivative is computed from the output.
    Relu,
}

impl Function {
    /// The group of its kernels.
    pub fn group(self) -> KernelGroup {
        match self {
            Function::Gelu => KernelGroup::Gelu,
            Function::GeluExact => KernelGroup::GeluExact,
            Function::Silu => KernelGroup::Silu,
            Function::Relu => KernelGroup::Relu,
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Function::Gelu => ("gelu_tanh", "gelu_tanh_backward"),
            Function::GeluExact => ("gelu_exact", "gelu_exact_backward"),
            Function::Silu => ("silu", "silu_backward"),
            Function::Relu => ("relu", "relu_backward"),
        }
    }
}

/// True if a kernel may read four elements as one word: `size` is a multiple of 4, and every tensor
/// begins at such an offset.
pub(super) fn by_four(tensors: &[&Tensor], size: usize) -> bool {
    let whole = |t: &&Tensor| t.layout().start_offset().is_multiple_of(4);
    size.is_multiple_of(4) && tensors.iter().all(whole)
}

/// [`by_four`] as an argument: 1 or 0.
pub(super) fn fours<'a>(tensors: &[&Tensor], size: usize) -> Argument<'a> {
    Count(usize::from(by_four(tensors, size)))
}

/// Applies the function to every element.
pub(crate) fn apply(function: Function, x: &Tensor) -> Result<Tensor> {
    let (y, n) = (uninit_like(x)?, x.elem_count());
    let kernel = Kernel::typed(function.names().0, x);
    let arguments = [In(x), Out(&y), Count(n), fours(&[x], n)];
    kernel.launch(Grid::elements(n), &arguments, x.device())?;
    Ok(y)
}

/// `dy` times the derivative, from the saved tensor: the input, or the output of a ReLU.
pub(crate) fn apply_backward(function: Function, kept: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (dx, dy, n) = (uninit_like(kept)?, alike(dy, kept)?, kept.elem_count());
    let kernel = Kernel::typed(function.names().1, kept);
    let fours = fours(&[kept, &dy], n);
    let arguments = [In(kept), In(&dy), Out(&dx), Count(n), fours];
    kernel.launch(Grid::elements(n), &arguments, kept.device())?;
    Ok(dx)
}

/// The activation of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x sigmoid(x)`: SwiGLU.
    Silu,
    /// The tanh form of the Gaussian error linear unit: GeGLU.
    Gelu,
}

impl Gate {
    /// The number of the function in the kernels.
    fn code<'a>(self) -> Argument<'a> {
        match self {
            Gate::Silu => Count(0),
            Gate::Gelu => Count(1),
        }
    }
}

/// `activation(gate) * up`.
pub(crate) fn gated(gate: &Tensor, up: &Tensor, activation: Gate) -> Result<Tensor> {
    let (up, y, n) = (alike(up, gate)?, uninit_like(gate)?, gate.elem_count());
    let fours = fours(&[gate, &up], n);
    let arguments = [
        In(gate),
        In(&up),
        Out(&y),
        Count(n),
        activation.code(),
        fours,
    ];
    Kernel::typed("gated", gate).launch(Grid::elements(n), &arguments, gate.device())?;
    Ok(y)
}

/// The gradients of the gate and of `up`.
pub(crate) fn gated_backward(
    gate: &Tensor,
    up: &Tensor,
    dy: &Tensor,
    activation: Gate,
) -> Result<(Tensor, Tensor)> {
    let (up, dy, n) = (alike(up, gate)?, alike(dy, gate)?, gate.elem_count());
    let (d_gate, d_up) = (uninit_like(gate)?, uninit_like(gate)?);
    let fours = fours(&[gate, &up, &dy], n);
    let arguments = [
        In(gate),
        In(&up),
        In(&dy),
        Out(&d_gate),
        Out(&d_up),
        Count(n),
        activation.code(),
        fours,
    ];
    Kernel::typed("gated_backward", gate).launch(Grid::elements(n), &arguments, gate.device())?;
    Ok((d_gate, d_up))
}

/// `gelu(x + a)` for rows with the width of `a`.
pub(crate) fn bias_gelu(x: &Tensor, a: &Tensor) -> Result<Tensor> {
    let (a, h, n) = (single(a)?, uninit_like(x)?, x.elem_count());
    let (size, width) = (Count(n), Count(a.elem_count()));
    let fours = fours(&[x, &a], a.elem_count());
    let arguments = [In(x), In(&a), Out(&h), size, width, fours];
    Kernel::typed("bias_gelu", x).launch(Grid::elements(n), &arguments, x.device())?;
    Ok(h)
}

/// Turns `x` into `dx` and `dh` into `h`, in place.
pub(crate) fn bias_gelu_backward(x: &Tensor, a: &Tensor, dh: &Tensor) -> Result<()> {
    let (a, n) = (single(a)?, x.elem_count());
    let (size, width) = (Count(n), Count(a.elem_count()));
    let fours = fours(&[x, &a, dh], a.elem_count());
    let arguments = [Out(x), In(&a), Out(dh), size, width, fours];
    Kernel::typed("bias_gelu_backward", x).launch(Grid::elements(n), &arguments, x.device())
}

/// Adds a bias to each row of `y`, and a residual of the shape of `y`, in place.
pub(crate) fn add_bias(y: &Tensor, bias: &Tensor, residual: Option<&Tensor>) -> Result<()> {
    let (b, n) = (single(bias)?, y.elem_count());
    let (size, width) = (Count(n), Count(b.elem_count()));
    match residual {
        None => {
            let fours = fours(&[y, &b], b.elem_count());
            let arguments = [Out(y), In(&b), size, width, fours];
            Kernel::typed("bias", y).launch(Grid::elements(n), &arguments, y.device())
        }
        Some(residual) => {
            let fours = fours(&[y, &b, residual], b.elem_count());
            let arguments = [Out(y), In(&b), In(residual), size, width, fours];
            Kernel::typed("bias_residual", y).launch(Grid::elements(n), &arguments, y.device())
        }
    }
}

/// `x[sample] + p` for every sample.
pub(crate) fn repeated(x: &Tensor, p: &Tensor) -> Result<Tensor> {
    let (p, y, n) = (
        contiguous(&convert(p, x.dtype())?)?,
        uninit_like(x)?,
        x.elem_count(),
    );
    let arguments = [In(x), In(&p), Out(&y), Count(n), Count(p.elem_count())];
    Kernel::typed("repeated", x).launch(Grid::elements(n), &arguments, x.device())?;
    Ok(y)
}

/// `sum += other`, both of one type, in place.
pub(crate) fn add_to(sum: &Tensor, other: &Tensor) -> Result<()> {
    let n = sum.elem_count();
    let arguments = [Out(sum), In(other), Count(n), fours(&[sum, other], n)];
    Kernel::typed("add_to", sum).launch(Grid::elements(n), &arguments, sum.device())
}

/// `x`, in f32, in another element type.
pub(crate) fn rounded(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let (y, n) = (uninit(x.dims(), dtype, x)?, x.elem_count());
    let arguments = [In(x), Out(&y), Count(n), fours(&[x, &y], n)];
    Kernel::typed("rounded", &y).launch(Grid::elements(n), &arguments, x.device())?;
    Ok(y)
}

/// Zeros in f32, on the device of `like`.
pub(crate) fn zeros(shape: &[usize], like: &Tensor) -> Result<Tensor> {
    let x = uninit(shape, DType::F32, like)?;
    let n = x.elem_count();
    let arguments = [Out(&x), Count(n), fours(&[&x], n)];
    Kernel::single("zeros").launch(Grid::elements(n), &arguments, x.device())?;
    Ok(x)
}

/// Sizes of attention heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    pub samples: usize,
    /// Tokens per sample.
    pub tokens: usize,
    /// Heads per token.
    pub heads: usize,
    /// Width of a head.
    pub head: usize,
}

/// Splits [samples, tokens, parts heads head] into `parts` tensors [samples heads, tokens, head].
pub(crate) fn split_heads(x: &Tensor, parts: usize, s: Heads) -> Result<Vec<Tensor>> {
    let shape = [parts, s.samples * s.heads, s.tokens, s.head];
    let (y, rows) = (uninit(&shape, x.dtype(), x)?, s.samples * s.tokens);
    let arguments = [
        In(x),
        Out(&y),
        Count(rows),
        Count(s.tokens),
        Count(parts),
        Count(s.heads),
        Count(s.head),
        Count(s.samples),
    ];
    Kernel::typed("split_heads", x).launch(Grid::rows(rows), &arguments, x.device())?;
    (0..parts).map(|i| Ok(y.get(i)?)).collect()
}

/// Joins one or three parts [samples heads, tokens, head] into `x` [samples, tokens, parts heads
/// head].
pub(crate) fn join_heads(parts: &[&Tensor], s: Heads, x: &Tensor) -> Result<()> {
    let first = parts[0];
    let at = |i: usize| In(parts.get(i).copied().unwrap_or(first));
    let rows = s.samples * s.tokens;
    let arguments = [
        at(0),
        at(1),
        at(2),
        Out(x),
        Count(rows),
        Count(s.tokens),
        Count(parts.len()),
        Count(s.heads),
        Count(s.head),
    ];
    Kernel::typed("join_heads", first).launch(Grid::rows(rows), &arguments, first.device())
}

/// What the codes of a quantized matrix stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Evenly spaced values.
    Even,
    /// The levels of NF4.
    Nf4,
}

/// The values of a quantized matrix in the type `dtype`, `columns` per row: of its rows `ids`, or
/// of all rows. Codes are u8 [rows, bytes], scales f32 [rows, blocks of 64 values].
pub(crate) fn dequantize(
    codes: &Tensor,
    coding: Coding,
    scales: &Tensor,
    ids: Option<&Tensor>,
    columns: usize,
    dtype: DType,
) -> Result<Tensor> {
    let (rows, blocks) = scales.dims2()?;
    let bytes = codes.dim(1)? / blocks.max(1);
    let rows = ids.map_or(rows, Tensor::elem_count);
    let (y, n) = (uninit(&[rows, columns], dtype, scales)?, rows * columns);
    let arguments = [
        In(codes),
        In(scales),
        // Without ids the kernel reads none, but needs some tensor in their place.
        In(ids.unwrap_or(scales)),
        Out(&y),
        Count(n),
        Count(columns),
        Count(blocks),
        Count(bytes),
        Count(usize::from(ids.is_some())),
        Count(usize::from(coding == Coding::Nf4)),
        fours(&[], columns),
    ];
    Kernel::typed("dequantize", &y).launch(Grid::elements(n), &arguments, y.device())?;
    Ok(y)
}

/// Elements per simdgroup for long rows.
pub(super) const PART: usize = 512;

/// Reorders a tensor of `sizes` [a, b, p] to [b, a, p].
pub(crate) fn swap_axes(x: &Tensor, sizes: [usize; 3]) -> Result<Tensor> {
    let [a, b, p] = sizes;
    let y = uninit(&[b, a, p], x.dtype(), x)?;
    let parts = p.div_ceil(PART).max(1);
    let fours = fours(&[x], p);
    let arguments = [
        In(x),
        Out(&y),
        Count(a),
        Count(b),
        Count(p),
        Count(parts),
        fours,
    ];
    Kernel::typed("swap_axes", x).launch(Grid::rows(a * b * parts), &arguments, x.device())?;
    Ok(y)
}

/// Streams as words for a device: two per stream, the low one first.
pub(super) fn words(streams: &[Rng], x: &Tensor) -> Result<Tensor> {
    let words = streams.iter().map(|stream| stream.state());
    let words: Vec<u32> = words.flat_map(|s| [s as u32, (s >> 32) as u32]).collect();
    Ok(Tensor::new(words, x.device())?)
}

/// Zeroes the elements for which the stream of their row draws below `fraction`; multiplies the
/// others by `kept`.
pub(crate) fn dropout(x: &Tensor, streams: &[Rng], fraction: f64, kept: f64) -> Result<Tensor> {
    drop_by(x, &words(streams, x)?, fraction, kept)
}

/// [`dropout`] with streams that are on the device already.
pub(super) fn drop_by(x: &Tensor, words: &Tensor, fraction: f64, kept: f64) -> Result<Tensor> {
    let (y, n) = (uninit_like(x)?, x.elem_count());
    let width = n / (words.elem_count() / 2).max(1);
    // Words of four per thread, or 0: the work for the first word is reused for the second.
    let words_a_thread = if !by_four(&[x], width) {
        0
    } else if width.is_multiple_of(8) {
        2
    } else {
        1
    };
    let arguments = [
        In(x),
        In(words),
        Out(&y),
        Count(n),
        Count(width),
        Count(share_of_u32(fraction) as usize),
        Number(kept),
        Count(words_a_thread),
    ];
    let grid = match words_a_thread {
        2 => Grid::groups(n.div_ceil(2048), 8),
        _ => Grid::elements(n),
    };
    Kernel::typed("dropout", x).launch(grid, &arguments, x.device())?;
    Ok(y)
}
