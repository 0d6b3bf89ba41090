//! Convolutions whose columns never exist in memory: matrix products that gather their operands
//! from the images. Inputs must be contiguous; there are no groups of channels.

use super::Argument::{Count, In, Out};
use super::copies::{contiguous, try_contiguous};
use super::{Argument, Grid, Kernel, alike, row_kernels, uninit};
use crate::convert_dtype::convert;
use crate::cpu::im2col::Window;
use crate::error::Result;
use crate::launch_grid::FEWER_ELEMENTS;
use candle_core::{DType, Tensor};

/// Rows and columns of the result that a group works on, and elements of the inner axis that it
/// multiplies at a time: TILE_ROWS, TILE_COLUMNS and the largest TILE_DEPTH of the sources.
const ROWS: usize = 64;
const COLUMNS: usize = 128;
const DEPTH: usize = 32;
/// Simdgroups of a group.
const SIMDS: usize = 8;
/// A result of fewer tiles than this many groups does not fill a large GPU. Its inner axis is then
/// cut into parts until there are about [`GROUPS`] groups.
const FEW_GROUPS: usize = 160;
const GROUPS: usize = 512;
/// Least elements of the inner axis of a part.
const SHORTEST: usize = 512;
/// Most elements of all parts together: 32 MiB.
const MOST: usize = 1 << 23;

/// True if there are no groups, and 32 bits index the result. The caller has asked this of the
/// operands.
pub(crate) fn fits(window: &Window, samples: usize, out: usize) -> bool {
    let result = samples * out * window.pixels();
    let indexed = result.max(samples * window.sample());
    // The weight gradient packs a place of the kernel into 32 bits.
    let packed = window.kernel.0.max(window.kernel.1) < 1 << 16;
    window.groups == 1 && indexed < FEWER_ELEMENTS && packed
}

/// The sizes that all kernels take first: `rows` of the result, `depth` channels of the operand
/// that is gathered, its height and width, the kernel, the size of the image that is written or of
/// the output, the stride and the padding.
fn counts<'a>(
    samples: usize,
    rows: usize,
    depth: usize,
    from: (usize, usize),
    to: (usize, usize),
    w: &Window,
) -> Vec<Argument<'a>> {
    let sizes = [samples, rows, depth, from.0, from.1, w.kernel.0, w.kernel.1];
    let sizes = sizes.into_iter().chain([to.0, to.1, w.stride, w.padding]);
    sizes.map(Count).collect()
}

/// Groups along `rows` and along `columns` of a result.
fn tiles(rows: usize, columns: usize) -> usize {
    rows.div_ceil(ROWS) * columns.div_ceil(COLUMNS)
}

/// A strided tensor in memory of its own, by Ebb's copies if they may run.
fn laid_out(x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() {
        return Ok(x.clone());
    }
    match try_contiguous(x)? {
        Some(copy) => Ok(copy),
        None => contiguous(x),
    }
}

/// A cut of the inner axis of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    count: usize,
    /// Elements of the inner axis of each part.
    each: usize,
}

/// The parts of a product whose result has `groups` tiles and `result` elements.
fn parts(groups: usize, result: usize, inner: usize) -> Parts {
    let wanted = if groups < FEW_GROUPS {
        GROUPS.div_ceil(groups.max(1))
    } else {
        1
    };
    let most = (MOST / result.max(1)).min(inner / SHORTEST);
    let wanted = wanted.min(most).max(1);
    let each = inner.div_ceil(wanted).next_multiple_of(DEPTH).max(DEPTH);
    Parts {
        count: inner.div_ceil(each).max(1),
        each,
    }
}

/// A product whose second operand is gathered from images.
struct Gathering<'a> {
    /// The images: the input, or the gradient of the output.
    operand: &'a Tensor,
    /// The weights by rows of the result, places of the kernel and channels of the operand.
    weight: &'a Tensor,
    /// The shape of the result.
    shape: [usize; 4],
    is_backward: bool,
}

impl Gathering<'_> {
    fn compute(&self, window: &Window) -> Result<Tensor> {
        let x = self.operand;
        let ([samples, rows, height, width], depth) = (self.shape, x.dim(1)?);
        let step = if self.is_backward { window.stride } else { 1 };
        // Every class of pixels has as many groups as the largest one.
        let of_class = height.div_ceil(step) * width.div_ceil(step);
        let groups = tiles(rows, samples * of_class) * step * step;
        let result = samples * rows * height * width;
        let places = window.kernel.0.div_ceil(step) * window.kernel.1.div_ceil(step);
        let parts = parts(groups, result, places * depth);
        let y = match parts.count {
            1 => uninit(&self.shape, x.dtype(), x)?,
            count => uninit(&[count, result], DType::F32, x)?,
        };
        // One of both is written.
        let mut arguments = vec![In(x), In(self.weight), Out(&y), Out(&y)];
        let from = (x.dim(2)?, x.dim(3)?);
        arguments.extend(counts(samples, rows, depth, from, (height, width), window));
        let last = [usize::from(self.is_backward), parts.count, parts.each];
        arguments.extend(last.map(Count));
        let grid = Grid::groups(groups * parts.count, SIMDS);
        Kernel::convolution("convolve", x).launch(grid, &arguments, x.device())?;
        if parts.count == 1 {
            return Ok(y);
        }
        let y = row_kernels::column_sums(&y)?;
        Ok(convert(&y, x.dtype())?.reshape(&self.shape)?)
    }
}

/// The output [samples, out, height, width].
pub(crate) fn forward(x: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let (out, (height, width)) = (weight.dim(0)?, window.out());
    let places = window.kernel.0 * window.kernel.1;
    let w = alike(weight, x)?.reshape((out, window.channels, places))?;
    // The channels of a place are neighbors: their pixels are at equal distances.
    let w = laid_out(&w.transpose(1, 2)?)?;
    let gathering = Gathering {
        operand: x,
        weight: &w,
        shape: [x.dim(0)?, out, height, width],
        is_backward: false,
    };
    gathering.compute(window)
}

/// The gradient of the input, [samples, channels, height, width].
pub(crate) fn input_gradient(dy: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let w = alike(weight, dy)?.reshape((dy.dim(1)?, window.rows()))?;
    let w = laid_out(&w.t()?)?;
    let gathering = Gathering {
        operand: dy,
        weight: &w,
        shape: [dy.dim(0)?, window.channels, window.height, window.width],
        is_backward: true,
    };
    gathering.compute(window)
}

/// The gradient of the weights, [out, channels kernel kernel] in f32. The parts are added in order.
pub(crate) fn weight_gradient(x: &Tensor, dy: &Tensor, window: &Window) -> Result<Tensor> {
    let (dy, samples, out, span) = (alike(dy, x)?, x.dim(0)?, dy.dim(1)?, window.rows());
    let pixels = samples * window.pixels();
    let parts = parts(tiles(out, span), out * span, pixels);
    let dw = uninit(&[parts.count, out * span], DType::F32, x)?;
    let (from, to) = ((window.height, window.width), window.out());
    let mut arguments = vec![In(x), In(&dy), Out(&dw)];
    arguments.extend(counts(samples, out, window.channels, from, to, window));
    arguments.push(Count(parts.each));
    let grid = Grid::groups(tiles(out, span) * parts.count, SIMDS);
    Kernel::convolution("convolve_weight", x).launch(grid, &arguments, x.device())?;
    let dw = match parts.count {
        1 => dw,
        _ => row_kernels::column_sums(&dw)?,
    };
    Ok(dw.reshape((out, span))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_a_gpu_and_are_neither_short_nor_large() {
        // The weight gradient of 64 to 64 channels, 32 samples of 56 x 56 pixels: five tiles.
        let groups = tiles(64, 576);
        let found = parts(groups, 64 * 576, 32 * 56 * 56);
        let all = found.count * groups;
        assert!((400..=600).contains(&all), "{found:?}");
        // The output of 512 to 512 channels, 32 samples of 7 x 7 pixels.
        let groups = tiles(512, 32 * 49);
        assert_eq!(groups, 104);
        let found = parts(groups, 512 * 32 * 49, 9 * 512);
        assert!((4..=5).contains(&found.count), "{found:?}");
        assert_eq!(parts(FEW_GROUPS, 1 << 20, 9 * 512).count, 1, "enough tiles");
        for inner in [0, 1, 31, 100, 512, 1023] {
            assert_eq!(parts(1, 72, inner).count, 1, "{inner}");
        }
        let result = 1024 * 2048;
        assert!(parts(1, result, 1 << 22).count * result <= MOST);
    }

    #[test]
    fn parts_cover_the_inner_axis_once() {
        for inner in [1000, 1024, 4608, 5000, 100_352] {
            for groups in [1, 7, 104] {
                let Parts { count, each } = parts(groups, 1000, inner);
                assert!(count * each >= inner && (count - 1) * each < inner);
                assert_eq!(each % DEPTH, 0);
            }
        }
    }

    #[test]
    fn a_result_that_32_bits_cannot_index_is_left_to_columns() {
        let window = Window {
            channels: 3,
            height: 224,
            width: 224,
            kernel: (3, 3),
            stride: 1,
            padding: 1,
            groups: 1,
        };
        assert!(fits(&window, 600, 64));
        assert!(!fits(&window, 700, 64));
        let grouped = Window {
            groups: 3,
            ..window
        };
        assert!(!fits(&grouped, 1, 3));
    }
}
