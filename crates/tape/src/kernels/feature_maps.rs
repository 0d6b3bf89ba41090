//! Kernels over images [samples, channels, height, width]: group norm, columns of convolutions,
//! pooling. Inputs must be contiguous.

use super::Argument::{Count, In, Number, Out};
use super::elementwise::{PART, fours};
use super::{Argument, Grid, Kernel, alike, row_kernels, single, uninit, uninit_like};
use crate::cpu::im2col::Window;
use crate::error::Result;
use candle_core::{DType, Tensor};

/// Sizes of a group norm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups {
    pub channels: usize,
    /// Pixels per channel.
    pub pixels: usize,
    /// Channels per group.
    pub each: usize,
    /// Activation: 0 none, 1 ReLU, 2 GELU.
    pub function: usize,
}

impl Groups {
    fn counts<'a>(self) -> [Argument<'a>; 4] {
        [
            Count(self.pixels),
            Count(self.channels),
            Count(self.each),
            Count(self.function),
        ]
    }
}

/// Simdgroups per row of `size` elements.
fn simds(size: usize) -> usize {
    size.div_ceil(128).clamp(1, 8)
}

/// Simdgroups per row of `size` elements, with four elements per lane if possible.
fn simds_by_four(size: usize) -> usize {
    if size.is_multiple_of(4) {
        size.div_ceil(512).clamp(1, 8)
    } else {
        simds(size)
    }
}

/// The mean and `r` of each group, [samples, groups, 2] in f32.
pub(crate) fn group_moments(x: &Tensor, s: Groups, epsilon: f64) -> Result<Tensor> {
    let size = s.each * s.pixels;
    let groups = s.channels / s.each;
    let moments = uninit(&[x.dim(0)?, groups, 2], DType::F32, x)?;
    let grid = Grid::groups(x.dim(0)? * groups, simds_by_four(size));
    let fours = fours(&[x], size);
    let arguments = [In(x), Out(&moments), Count(size), Number(epsilon), fours];
    Kernel::typed("group_moments", x).launch(grid, &arguments, x.device())?;
    Ok(moments)
}

/// `f(n w + b)`.
pub(crate) fn group_norm(
    x: &Tensor,
    moments: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    s: Groups,
) -> Result<Tensor> {
    let (w, b, y) = (single(weight)?, single(bias)?, uninit_like(x)?);
    let mut arguments = vec![In(x), In(moments), In(&w), In(&b), Out(&y)];
    arguments.extend(s.counts());
    arguments.push(fours(&[x], s.pixels));
    let kernel = Kernel::typed("group_norm", x);
    let grid = Grid::groups(x.dim(0)? * s.channels, simds_by_four(s.pixels));
    kernel.launch(grid, &arguments, x.device())?;
    Ok(y)
}

/// `dx`, and `dw` and `db` in f32.
pub(crate) fn group_norm_backward(
    x: &Tensor,
    moments: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    dy: &Tensor,
    s: Groups,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (w, b, dy) = (single(weight)?, single(bias)?, &alike(dy, x)?);
    let samples = x.dim(0)?;
    let sums = uninit(&[samples, 2 * s.channels], DType::F32, x)?;
    let mut arguments = vec![In(x), In(moments), In(&w), In(&b), In(dy), Out(&sums)];
    arguments.extend(s.counts());
    arguments.push(fours(&[x, dy], s.pixels));
    let grid = Grid::groups(samples * s.channels, simds_by_four(s.pixels));
    Kernel::typed("group_norm_sums", x).launch(grid, &arguments, x.device())?;
    let groups = samples * s.channels / s.each;
    let means = uninit(&[groups, 2], DType::F32, x)?;
    let arguments = [
        In(&sums),
        In(&w),
        Out(&means),
        Count(groups),
        Count(s.channels),
        Count(s.each),
        Number((s.each * s.pixels) as f64),
    ];
    Kernel::single("group_means").launch(Grid::elements(groups), &arguments, x.device())?;
    let dx = uninit_like(x)?;
    let mut arguments = vec![In(x), In(moments), In(&w), In(&b), In(dy), In(&means)];
    arguments.push(Out(&dx));
    arguments.extend(s.counts());
    arguments.push(fours(&[x, dy], s.pixels));
    Kernel::typed("group_norm_backward", x).launch(grid, &arguments, x.device())?;
    let sums = row_kernels::column_sums(&sums)?;
    let (dw, db) = (
        sums.narrow(0, 0, s.channels)?,
        sums.narrow(0, s.channels, s.channels)?,
    );
    Ok((dx, dw, db))
}

/// Sizes of a walk over the windows of an image.
fn walk<'a>(rows: usize, samples: usize, w: &Window) -> Vec<Argument<'a>> {
    let counts = [rows, samples, w.channels].map(Count);
    counts.into_iter().chain(window_counts(w)).collect()
}

/// Sizes of the image, the kernel and the output, the stride and the padding.
fn window_counts<'a>(w: &Window) -> [Argument<'a>; 8] {
    let ((rows, columns), (height, width)) = (w.kernel, w.out());
    [
        w.height, w.width, rows, columns, height, width, w.stride, w.padding,
    ]
    .map(Count)
}

/// The columns [channels kernel kernel, samples pixels] of `x`, for one group.
pub(crate) fn columns(x: &Tensor, window: &Window) -> Result<Tensor> {
    let samples = x.dim(0)?;
    let columns = uninit(&[window.rows(), samples * window.pixels()], x.dtype(), x)?;
    let rows = window.rows() * samples;
    let mut arguments = vec![In(x), Out(&columns)];
    arguments.extend(walk(rows, samples, window));
    let parts = window.pixels().div_ceil(PART).max(1);
    arguments.push(Count(parts));
    Kernel::typed("image_to_columns", x).launch(
        Grid::rows(rows * parts),
        &arguments,
        x.device(),
    )?;
    Ok(columns)
}

/// The transpose of [`columns`]: [samples, channels, height, width].
pub(crate) fn image(columns: &Tensor, samples: usize, window: &Window) -> Result<Tensor> {
    let shape = [samples, window.channels, window.height, window.width];
    let x = uninit(&shape, columns.dtype(), columns)?;
    let planes = samples * window.channels;
    let mut arguments = vec![In(columns), Out(&x)];
    arguments.extend(walk(planes, samples, window));
    let kernel = Kernel::typed("columns_to_image", columns);
    let grid = Grid::groups(planes, simds(window.height * window.width));
    kernel.launch(grid, &arguments, columns.device())?;
    Ok(x)
}

/// Sizes of a pooling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    /// Input height and width.
    pub input: (usize, usize),
    /// Output height and width.
    pub output: (usize, usize),
    /// Side of the window.
    pub kernel: usize,
    /// Pixels between two positions.
    pub stride: usize,
    /// Border in pixels.
    pub padding: usize,
}

impl Pool {
    fn counts<'a>(self, n: usize) -> [Argument<'a>; 8] {
        [
            Count(n),
            Count(self.input.0),
            Count(self.input.1),
            Count(self.output.0),
            Count(self.output.1),
            Count(self.kernel),
            Count(self.stride),
            Count(self.padding),
        ]
    }
}

/// The largest value of each window, and its place in the window as one byte.
pub(crate) fn max_pool(x: &Tensor, shape: &[usize], pool: Pool) -> Result<(Tensor, Tensor)> {
    let y = uninit(shape, x.dtype(), x)?;
    let places = uninit(shape, DType::U8, x)?;
    let n = y.elem_count();
    let mut arguments = vec![In(x), Out(&y), Out(&places)];
    arguments.extend(pool.counts(n));
    Kernel::typed("max_pool", x).launch(Grid::elements(n), &arguments, x.device())?;
    Ok((y, places))
}

/// Each pixel gets the gradients of the windows that chose it.
pub(crate) fn max_pool_backward(
    dy: &Tensor,
    places: &Tensor,
    shape: &[usize],
    pool: Pool,
) -> Result<Tensor> {
    let dx = uninit(shape, dy.dtype(), dy)?;
    let n = dx.elem_count();
    let mut arguments = vec![In(dy), In(places), Out(&dx)];
    arguments.extend(pool.counts(n));
    Kernel::typed("max_pool_backward", dy).launch(Grid::elements(n), &arguments, dy.device())?;
    Ok(dx)
}

fn averaged(
    name: &'static str,
    from: &Tensor,
    size: (usize, usize),
    pool: Pool,
    inside: bool,
) -> Result<Tensor> {
    let to = uninit(
        &[from.dim(0)?, from.dim(1)?, size.0, size.1],
        from.dtype(),
        from,
    )?;
    let n = to.elem_count();
    let mut arguments = vec![In(from), Out(&to)];
    arguments.extend(pool.counts(n));
    arguments.push(Count(usize::from(inside)));
    Kernel::typed(name, from).launch(Grid::elements(n), &arguments, from.device())?;
    Ok(to)
}

/// The mean of each window of `x` [samples, channels, height, width], over the pixels inside the
/// image or over all places.
pub(crate) fn avg_pool(x: &Tensor, pool: Pool, inside: bool) -> Result<Tensor> {
    averaged("avg_pool", x, pool.output, pool, inside)
}

/// Each pixel gets its share of the gradient of the windows that contain it.
pub(crate) fn avg_pool_backward(dy: &Tensor, pool: Pool, inside: bool) -> Result<Tensor> {
    averaged("avg_pool_backward", dy, pool.input, pool, inside)
}

/// Sizes of a convolution with groups: the channels of one group, and all outputs.
fn grouped_counts<'a>(first: usize, outs: usize, w: &Window) -> Vec<Argument<'a>> {
    let counts = [first, w.channels, outs, w.groups].map(Count);
    counts.into_iter().chain(window_counts(w)).collect()
}

/// Convolution with groups, without columns: [samples, outs, height, width].
pub(crate) fn grouped(x: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let (w, outs, (height, width)) = (alike(weight, x)?, weight.dim(0)?, window.out());
    let y = uninit(&[x.dim(0)?, outs, height, width], x.dtype(), x)?;
    let n = y.elem_count();
    let mut arguments = vec![In(x), In(&w), Out(&y)];
    arguments.extend(grouped_counts(n, outs, window));
    Kernel::typed("grouped", x).launch(Grid::elements(n), &arguments, x.device())?;
    Ok(y)
}

/// The input gradient of [`grouped`].
pub(crate) fn grouped_input(dy: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let (w, channels) = (alike(weight, dy)?, window.channels * window.groups);
    let shape = [dy.dim(0)?, channels, window.height, window.width];
    let dx = uninit(&shape, dy.dtype(), dy)?;
    let n = dx.elem_count();
    let mut arguments = vec![In(dy), In(&w), Out(&dx)];
    arguments.extend(grouped_counts(n, dy.dim(1)?, window));
    Kernel::typed("grouped_input", dy).launch(Grid::elements(n), &arguments, dy.device())?;
    Ok(dx)
}

/// The weight gradient of [`grouped`], [outs, channels of a group, kernel, kernel] in f32.
pub(crate) fn grouped_weight(x: &Tensor, dy: &Tensor, window: &Window) -> Result<Tensor> {
    let (dy, samples, outs) = (alike(dy, x)?, x.dim(0)?, dy.dim(1)?);
    let shape = [outs, window.channels, window.kernel.0, window.kernel.1];
    let dw = uninit(&shape, DType::F32, x)?;
    let mut arguments = vec![In(x), In(&dy), Out(&dw)];
    arguments.extend(grouped_counts(samples, outs, window));
    let grid = Grid::groups(outs * window.rows(), simds(samples * window.pixels()));
    Kernel::typed("grouped_weight", x).launch(grid, &arguments, x.device())?;
    Ok(dw)
}
