//! Kernels over rows of the last axis: norms, sums over rows, masked softmax, sums of runs of rows.
//! Inputs must be contiguous.

use super::Argument::{Count, In, Number, Out};
use super::elementwise::{by_four, fours};
use super::{Grid, Kernel, alike, single, uninit, uninit_like};
use crate::error::Result;
use candle_core::{DType, Tensor};

/// Words of four elements per lane that hold a row in registers, for rows of up to 128 times as
/// many elements; each has its own kernels.
pub(super) const REGISTER_WORDS: [usize; 3] = [2, 4, 8];
/// Simdgroups that share 32 columns.
const SIMDS: usize = 8;

/// The kernel for rows of this width: one that holds them in registers, or `plain`. Also returns
/// whether it is the former. `names` are the kernels for two, four and eight words per lane.
fn by_width(
    plain: &'static str,
    names: [&'static str; 3],
    tensors: &[&Tensor],
    width: usize,
) -> (&'static str, bool) {
    let holds = REGISTER_WORDS
        .iter()
        .position(|&words| width <= 128 * words);
    match holds {
        Some(i) if by_four(tensors, width) => (names[i], true),
        _ => (plain, false),
    }
}

/// The number of rows of the last axis, and their width.
fn rows_of(x: &Tensor) -> (usize, usize) {
    let width = x.dims().last().copied().unwrap_or(1);
    (x.elem_count() / width.max(1), width)
}

/// `(x - mean) r w + b` for each row.
pub(crate) fn layer_norm(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> Result<Tensor> {
    let (rows, width) = rows_of(x);
    let (w, b, y) = (single(weight)?, single(bias)?, uninit_like(x)?);
    let names = ["layer_norm_2", "layer_norm_4", "layer_norm_8"];
    let (name, holds) = by_width("layer_norm", names, &[x, &w, &b], width);
    let mut arguments = vec![
        In(x),
        In(&w),
        In(&b),
        Out(&y),
        Count(width),
        Count(rows),
        Number(epsilon),
    ];
    if !holds {
        arguments.push(fours(&[x, &w, &b], width));
    }
    Kernel::typed(name, x).launch(Grid::rows(rows), &arguments, x.device())?;
    Ok(y)
}

/// `dx`, added to `held`; and `dw` and `db` in f32 if one of them is trained.
pub(crate) fn layer_norm_backward(
    x: &Tensor,
    weight: &Tensor,
    dy: &Tensor,
    held: Option<&Tensor>,
    epsilon: f64,
    is_trained: bool,
) -> Result<(Tensor, Option<[Tensor; 2]>)> {
    let (rows, width) = rows_of(x);
    let (w, dx, dy) = (single(weight)?, uninit_like(x)?, &alike(dy, x)?);
    let held = held.map(|held| alike(held, x)).transpose()?;
    let moments = uninit(&[rows, 2], DType::F32, x)?;
    let read = [x, &w, dy, held.as_ref().unwrap_or(x)];
    let names = [
        "layer_norm_backward_2",
        "layer_norm_backward_4",
        "layer_norm_backward_8",
    ];
    let (name, holds) = by_width("layer_norm_backward", names, &read, width);
    let mut arguments = vec![
        In(x),
        In(&w),
        In(dy),
        In(held.as_ref().unwrap_or(x)),
        Out(&dx),
        Out(&moments),
        Count(width),
        Count(rows),
        Number(epsilon),
        Count(usize::from(held.is_some())),
    ];
    if !holds {
        arguments.push(fours(&read, width));
    }
    Kernel::typed(name, x).launch(Grid::rows(rows), &arguments, x.device())?;
    if !is_trained {
        return Ok((dx, None));
    }
    Ok((dx, Some(layer_norm_sums(x, dy, &moments)?)))
}

/// `dw` and `db` in f32, from the mean and `r` of each row.
fn layer_norm_sums(x: &Tensor, dy: &Tensor, moments: &Tensor) -> Result<[Tensor; 2]> {
    let (rows, width) = rows_of(x);
    let (blocks, name) = if by_four(&[x, dy], width) {
        (width.div_ceil(128), "layer_norm_columns_by_four")
    } else {
        (width.div_ceil(32), "layer_norm_columns")
    };
    let (parts, chunk) = parts(rows, blocks);
    let sums = uninit(&[parts, 2 * width], DType::F32, x)?;
    let arguments = [
        In(x),
        In(dy),
        In(moments),
        Out(&sums),
        Count(width),
        Count(rows),
        Count(chunk),
    ];
    let grid = Grid::groups(parts * blocks, SIMDS);
    Kernel::typed(name, x).launch(grid, &arguments, x.device())?;
    let sums = finished(sums, parts)?;
    Ok([sums.narrow(0, 0, width)?, sums.narrow(0, width, width)?])
}

/// The constants of [`Tape::rms_norm`](crate::Tape::rms_norm).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNormShape {
    /// Added to the mean of the squares.
    pub epsilon: f64,
    /// Added to the weight: 1 in Gemma, 0 elsewhere.
    pub offset: f64,
}

/// `x r (w + offset)` for each row.
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor, shape: RmsNormShape) -> Result<Tensor> {
    let (rows, width) = rows_of(x);
    let (w, y) = (single(weight)?, uninit_like(x)?);
    let names = ["rms_norm_2", "rms_norm_4", "rms_norm_8"];
    let (name, holds) = by_width("rms_norm", names, &[x, &w], width);
    let mut arguments = vec![
        In(x),
        In(&w),
        Out(&y),
        Count(width),
        Count(rows),
        Number(shape.epsilon),
        Number(shape.offset),
    ];
    if !holds {
        arguments.push(fours(&[x, &w], width));
    }
    Kernel::typed(name, x).launch(Grid::rows(rows), &arguments, x.device())?;
    Ok(y)
}

/// What the backward pass of [`rms_norm`] reads.
pub(crate) struct RmsNormInputs<'a> {
    pub x: &'a Tensor,
    pub weight: &'a Tensor,
    pub dy: &'a Tensor,
    /// The gradient of `x` so far.
    pub held: Option<&'a Tensor>,
}

/// `dx`, added to `held`; and `dw` in f32 if the weight is trained.
pub(crate) fn rms_norm_backward(
    inputs: &RmsNormInputs,
    shape: RmsNormShape,
    is_weight_trained: bool,
) -> Result<(Tensor, Option<Tensor>)> {
    let x = inputs.x;
    let (rows, width) = rows_of(x);
    let (w, dx) = (single(inputs.weight)?, uninit_like(x)?);
    let dy = &alike(inputs.dy, x)?;
    let held = inputs.held.map(|held| alike(held, x)).transpose()?;
    let ratios = uninit(&[rows], DType::F32, x)?;
    let read = [x, &w, dy, held.as_ref().unwrap_or(x)];
    let names = [
        "rms_norm_backward_2",
        "rms_norm_backward_4",
        "rms_norm_backward_8",
    ];
    let (name, holds) = by_width("rms_norm_backward", names, &read, width);
    let mut arguments = vec![
        In(x),
        In(&w),
        In(dy),
        In(held.as_ref().unwrap_or(x)),
        Out(&dx),
        Out(&ratios),
        Count(width),
        Count(rows),
        Number(shape.epsilon),
        Number(shape.offset),
        Count(usize::from(held.is_some())),
    ];
    if !holds {
        arguments.push(fours(&read, width));
    }
    Kernel::typed(name, x).launch(Grid::rows(rows), &arguments, x.device())?;
    if !is_weight_trained {
        return Ok((dx, None));
    }
    let dw = rms_norm_weight_gradient(x, dy, &ratios)?;
    Ok((dx, Some(dw)))
}

/// `dw` in f32, from `r` of each row.
fn rms_norm_weight_gradient(x: &Tensor, dy: &Tensor, ratios: &Tensor) -> Result<Tensor> {
    let (rows, width) = rows_of(x);
    let (blocks, name) = if by_four(&[x, dy], width) {
        (width.div_ceil(128), "rms_norm_columns_by_four")
    } else {
        (width.div_ceil(32), "rms_norm_columns")
    };
    let (parts, chunk) = parts(rows, blocks);
    let sums = uninit(&[parts, width], DType::F32, x)?;
    let arguments = [
        In(x),
        In(dy),
        In(ratios),
        Out(&sums),
        Count(width),
        Count(rows),
        Count(chunk),
    ];
    let grid = Grid::groups(parts * blocks, SIMDS);
    Kernel::typed(name, x).launch(grid, &arguments, x.device())?;
    finished(sums, parts)
}

/// The number of parts of a sum over rows, and rows per part, for columns that take `blocks`
/// groups: enough groups to fill a GPU. Depends on the shape only.
fn parts(rows: usize, blocks: usize) -> (usize, usize) {
    let most = 1024usize.div_ceil(blocks.max(1)).min(128);
    let chunk = rows.div_ceil(most).max(4 * SIMDS);
    (rows.div_ceil(chunk).max(1), chunk)
}

/// Sums [parts, width] to [width].
fn finished(sums: Tensor, parts: usize) -> Result<Tensor> {
    let width = sums.dim(1)?;
    if parts == 1 {
        return Ok(sums.reshape(width)?);
    }
    summed(&sums, 1, parts)?.reshape(width).map_err(Into::into)
}

/// The number of groups for the columns of a part, and the kernel.
fn blocks(x: &Tensor, width: usize) -> (usize, &'static str) {
    if by_four(&[x], width) {
        (width.div_ceil(128), "column_sums_by_four")
    } else {
        (width.div_ceil(32), "column_sums")
    }
}

fn summed(x: &Tensor, parts: usize, chunk: usize) -> Result<Tensor> {
    let (rows, width) = rows_of(x);
    let sums = uninit(&[parts, width], DType::F32, x)?;
    let arguments = [In(x), Out(&sums), Count(width), Count(rows), Count(chunk)];
    let (blocks, name) = blocks(x, width);
    let grid = Grid::groups(parts * blocks, SIMDS);
    Kernel::typed(name, x).launch(grid, &arguments, x.device())?;
    Ok(sums)
}

/// The sum of all rows of `x` [rows, width], in f32.
pub(crate) fn column_sums(x: &Tensor) -> Result<Tensor> {
    let (rows, width) = rows_of(x);
    let (parts, chunk) = parts(rows, blocks(x, width).0);
    finished(summed(x, parts, chunk)?, parts)
}

/// The mask and scale of attention scores.
pub(crate) struct AttentionMask<'a> {
    /// Factor of the scores.
    pub scale: f64,
    /// Queries per head, and the token that the first of them is.
    pub queries: (usize, usize),
    /// Keys per head.
    pub keys: usize,
    /// Heads per sample.
    pub heads: usize,
    /// A query sees only itself and the tokens before it.
    pub causal: bool,
    /// Length of each sample without padding, u32; `None` if no sample is padded.
    pub lengths: Option<&'a Tensor>,
}

/// Turns scores [samples heads, queries, keys] into weights, in place.
pub(crate) fn softmax(scores: &Tensor, seen: &AttentionMask) -> Result<()> {
    let rows = scores.elem_count() / seen.keys.max(1);
    let (queries, first) = seen.queries;
    let arguments = [
        Out(scores),
        // Without padding the kernel does not read the lengths, but needs some tensor in their
        // place.
        In(seen.lengths.unwrap_or(scores)),
        Number(seen.scale),
        Count(seen.keys),
        Count(queries),
        Count(first),
        Count(seen.heads),
        Count(usize::from(seen.causal)),
        Count(usize::from(seen.lengths.is_some())),
        Count(rows),
    ];
    let names = ["seen_softmax_2", "seen_softmax_4", "seen_softmax_8"];
    let (name, _) = by_width("seen_softmax", names, &[scores], seen.keys);
    Kernel::typed(name, scores).launch(Grid::rows(rows), &arguments, scores.device())
}

/// Turns gradients of weights into those of scores, in place: `scale p (dp - sum dp p)`.
pub(crate) fn softmax_backward(p: &Tensor, dp: &Tensor, scale: f64) -> Result<()> {
    let (rows, width) = rows_of(p);
    let arguments = [In(p), Out(dp), Number(scale), Count(width), Count(rows)];
    let names = [
        "softmax_backward_2",
        "softmax_backward_4",
        "softmax_backward_8",
    ];
    let (name, _) = by_width("softmax_backward", names, &[p, dp], width);
    Kernel::typed(name, p).launch(Grid::rows(rows), &arguments, p.device())
}

/// Sums rows of `dy` [tokens, width] by runs: run `s` adds the rows `tokens[begins[s]..begins[s +
/// 1]]`, in order.
pub(crate) fn run_sums(dy: &Tensor, tokens: &Tensor, begins: &Tensor) -> Result<Tensor> {
    let (width, runs) = (dy.dim(1)?, begins.dim(0)? - 1);
    let sums = uninit(&[runs, width], DType::F32, dy)?;
    let arguments = [
        In(dy),
        In(tokens),
        In(begins),
        Out(&sums),
        Count(width),
        Count(runs),
    ];
    let grid = Grid::each(runs * width);
    Kernel::typed("run_sums", dy).launch(grid, &arguments, dy.device())?;
    Ok(sums)
}
