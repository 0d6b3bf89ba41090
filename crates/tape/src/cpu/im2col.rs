//! `im2col` and its transpose for one sample, which turn a convolution into one matrix product.

use crate::cpu::Float;
use crate::cpu::threads::skips_arithmetic;
use std::ops::Range;

/// Bytes of the columns that are made at once, if a row of outputs has no more.
const COLUMN_BYTES: usize = 1 << 20;

/// Sizes of a convolution, for one group of one sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub kernel: (usize, usize),
    pub stride: usize,
    pub padding: usize,
    /// Groups per sample.
    pub groups: usize,
}

impl Window {
    /// Output height and width.
    pub fn out(&self) -> (usize, usize) {
        let size =
            |input: usize, kernel: usize| (input + 2 * self.padding - kernel) / self.stride + 1;
        (
            size(self.height, self.kernel.0),
            size(self.width, self.kernel.1),
        )
    }

    /// Rows of the column matrix: channels times kernel pixels.
    pub fn rows(&self) -> usize {
        self.channels * self.kernel.0 * self.kernel.1
    }

    /// Output pixels.
    pub fn pixels(&self) -> usize {
        let (height, width) = self.out();
        height * width
    }

    /// Rows of outputs whose columns are made at once, so that they stay in the cache.
    fn strip<T>(&self) -> usize {
        let (height, width) = self.out();
        if self.is_pointwise() {
            return height.max(1);
        }
        (COLUMN_BYTES / (self.rows() * width * size_of::<T>()).max(1)).clamp(1, height.max(1))
    }

    /// The rows of outputs, in strips whose columns are made at once.
    pub fn strips<T>(&self) -> impl Iterator<Item = Range<usize>> {
        let (height, strip) = (self.out().0, self.strip::<T>());
        let starts = (0..height).step_by(strip);
        starts.map(move |start| start..(start + strip).min(height))
    }

    /// Values of the columns of one strip; none if the input is used in place.
    pub fn scratch<T>(&self) -> usize {
        if self.is_pointwise() {
            return 0;
        }
        self.rows() * self.out().1 * self.strip::<T>()
    }

    /// Input values per group.
    pub fn group(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Input values per sample.
    pub fn sample(&self) -> usize {
        self.groups * self.group()
    }

    /// True if the columns equal the input, so that no copy is needed.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == (1, 1) && self.stride == 1 && self.padding == 0
    }

    /// The output columns `from..to` whose input column `x * stride + shift - padding` lies inside
    /// the image.
    fn inside(&self, shift: usize, out: usize, limit: usize) -> (usize, usize) {
        let from = self
            .padding
            .saturating_sub(shift)
            .div_ceil(self.stride)
            .min(out);
        let to = if limit + self.padding > shift {
            (limit + self.padding - shift)
                .div_ceil(self.stride)
                .min(out)
        } else {
            0
        };
        (from, to.max(from))
    }
}

/// Writes the columns of these rows of outputs to `columns` [rows, pixels]; zero outside of the
/// image `x` [channels, height, width].
pub(crate) fn im2col<T: Float>(w: &Window, x: &[T], strip: Range<usize>, columns: &mut [T]) {
    if skips_arithmetic() {
        return;
    }
    let (out_height, out_width) = w.out();
    let zero = T::zero();
    let mut rows = columns.chunks_exact_mut(strip.len() * out_width);
    for image in x.chunks_exact(w.height * w.width) {
        for i in 0..w.kernel.0 {
            let (top, bottom) = w.inside(i, out_height, w.height);
            let (top, bottom) = (
                top.clamp(strip.start, strip.end),
                bottom.clamp(strip.start, strip.end),
            );
            for j in 0..w.kernel.1 {
                let (left, right) = w.inside(j, out_width, w.width);
                let Some(row) = rows.next() else { return };
                row[..(top - strip.start) * out_width].fill(zero);
                row[(bottom - strip.start) * out_width..].fill(zero);
                for y in top..bottom {
                    let line = &mut row[(y - strip.start) * out_width..][..out_width];
                    let source = &image[(y * w.stride + i - w.padding) * w.width..][..w.width];
                    line[..left].fill(zero);
                    line[right..].fill(zero);
                    // A kernel that is larger than the image has columns that lie outside.
                    if left == right {
                        continue;
                    }
                    let first = left * w.stride + j - w.padding.min(left * w.stride + j);
                    if w.stride == 1 {
                        line[left..right].copy_from_slice(&source[first..first + right - left]);
                    } else {
                        line[left..right]
                            .iter_mut()
                            .zip(source[first.min(w.width)..].iter().step_by(w.stride))
                            .for_each(|(l, &s)| *l = s);
                    }
                }
            }
        }
    }
}

/// Adds `columns` [rows, pixels] to `x`: the transpose of [`im2col`].
pub(crate) fn col2im<T: Float>(w: &Window, columns: &[T], strip: Range<usize>, x: &mut [T]) {
    if skips_arithmetic() {
        return;
    }
    let (out_height, out_width) = w.out();
    let mut rows = columns.chunks_exact(strip.len() * out_width);
    for image in x.chunks_exact_mut(w.height * w.width) {
        for i in 0..w.kernel.0 {
            let (top, bottom) = w.inside(i, out_height, w.height);
            let (top, bottom) = (
                top.clamp(strip.start, strip.end),
                bottom.clamp(strip.start, strip.end),
            );
            for j in 0..w.kernel.1 {
                let (left, right) = w.inside(j, out_width, w.width);
                let Some(row) = rows.next() else { return };
                for y in top..bottom {
                    let line = &row[(y - strip.start) * out_width..][..out_width];
                    let target = &mut image[(y * w.stride + i - w.padding) * w.width..][..w.width];
                    let first = left * w.stride + j - w.padding.min(left * w.stride + j);
                    let target = &mut target[first.min(w.width)..];
                    target
                        .iter_mut()
                        .step_by(w.stride)
                        .zip(&line[left..right])
                        .for_each(|(t, &l)| *t += l);
                }
            }
        }
    }
}
