//! Average pooling over a square window, [samples, channels, height, width]. [`PoolDivisor`] says
//! what the sum of a window is divided by. Backward: each pixel gets its share of the gradient of
//! every window that contains it. Nothing is saved.
//!
//! Composed: `y = R x Cᵀ` with averaging matrices for rows and columns.

use super::{Form, PoolShape, axes, expect_filled, misfit};
use crate::convert_dtype::host_tensor;
use crate::cpu::{Float, View, buffer, to_tensor, with_float};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::kernels::feature_maps;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;
use std::ops::Range;

/// The divisor of a window's sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolDivisor {
    /// The number of places in the window; the border counts as zeros.
    Window,
    /// The number of pixels in the window; the border does not count.
    Pixels,
}

/// The windows along one axis.
#[derive(Debug, Clone)]
struct Line {
    size: usize,
    windows: Vec<Range<usize>>,
    /// The divisor of each window along this axis.
    divisors: Vec<usize>,
}

impl Line {
    fn new(size: usize, shape: PoolShape, divisor: PoolDivisor) -> Self {
        let count = (size + 2 * shape.padding - shape.kernel) / shape.stride + 1;
        let windows: Vec<Range<usize>> = (0..count)
            .map(|i| i * shape.stride)
            .map(|at| {
                at.saturating_sub(shape.padding)..(at + shape.kernel - shape.padding).min(size)
            })
            .collect();
        let divided = |window: &Range<usize>| match divisor {
            PoolDivisor::Window => shape.kernel,
            PoolDivisor::Pixels => window.len(),
        };
        Line {
            size,
            divisors: windows.iter().map(divided).collect(),
            windows,
        }
    }

    fn len(&self) -> usize {
        self.windows.len()
    }

    /// The averaging matrix [windows, size].
    fn matrix(&self, like: &Tensor) -> Result<Tensor> {
        let mut values = vec![0.0; self.len() * self.size];
        for (row, window) in values.chunks_exact_mut(self.size).zip(0..) {
            row[self.windows[window].clone()].fill(1.0 / self.divisors[window] as f64);
        }
        host_tensor(
            values,
            &[self.len(), self.size],
            like.dtype(),
            like.device(),
        )
    }
}

impl Tape<'_> {
    /// The mean of each window. The padding must be less than the kernel.
    pub fn avg_pool(&self, x: &Value, shape: PoolShape, divisor: PoolDivisor) -> Result<Value> {
        self.poll()?;
        let [samples, channels, height, width] = axes("avg_pool", "x", x)?;
        expect_filled("avg_pool", "x", x)?;
        let covers = |size: usize| size + 2 * shape.padding >= shape.kernel;
        if shape.stride == 0 || shape.padding >= shape.kernel || !covers(height) || !covers(width) {
            let expected = format!("an image that is large enough for {shape:?}");
            return Err(misfit("avg_pool", "x", expected, x));
        }
        let rows = Line::new(height, shape, divisor);
        let columns = Line::new(width, shape, divisor);
        let input = contiguous(x.tensor())?;
        let form = self.form(KernelGroup::AvgPool, &input);
        let (fused, device) = (form == Form::Cpu, form == Form::Device);
        let pool = feature_maps::Pool {
            input: (height, width),
            output: (rows.len(), columns.len()),
            kernel: shape.kernel,
            stride: shape.stride,
            padding: shape.padding,
        };
        let inside = divisor == PoolDivisor::Pixels;
        let y = if device {
            feature_maps::avg_pool(&input, pool, inside)?
        } else if fused {
            with_float!("avg_pool", input, T => {
                let xs = View::<T>::new("avg_pool", &input)?;
                to_tensor(forward(&xs, &rows, &columns), &[samples, channels, rows.len(), columns.len()])
            })?
        } else {
            let (r, c) = (rows.matrix(&input)?, columns.matrix(&input)?);
            r.broadcast_matmul(&input.broadcast_matmul(&contiguous(&c.t()?)?)?)?
        };
        self.unary(x, y, &[], move |dy| {
            let dy = contiguous(&dy)?;
            if device {
                feature_maps::avg_pool_backward(&dy, pool, inside)
            } else if fused {
                with_float!("avg_pool", dy, T => {
                    let dys = View::<T>::new("avg_pool", &dy)?;
                    to_tensor(backward(&dys, &rows, &columns), &[samples, channels, height, width])
                })
            } else {
                let (r, c) = (rows.matrix(&dy)?, columns.matrix(&dy)?);
                let across = dy.broadcast_matmul(&c)?;
                Ok(contiguous(&r.t()?)?.broadcast_matmul(&across)?)
            }
        })
    }
}

fn forward<T: Float>(x: &[T], rows: &Line, columns: &Line) -> Vec<T> {
    let (pixels, outputs) = (rows.size * columns.size, rows.len() * columns.len());
    let mut y = buffer::<T>(x.len() / pixels * outputs);
    let planes = y.par_chunks_mut(outputs).zip(x.par_chunks(pixels));
    planes.for_each(|(y, x)| {
        for (at, y) in y.iter_mut().enumerate() {
            let (i, j) = (at / columns.len(), at % columns.len());
            let mut sum = T::zero();
            for row in rows.windows[i].clone() {
                let seen = &x[row * columns.size..][columns.windows[j].clone()];
                sum = seen.iter().fold(sum, |sum, &v| sum + v);
            }
            *y = sum / T::from_constant((rows.divisors[i] * columns.divisors[j]) as f64);
        }
    });
    y
}

fn backward<T: Float>(dy: &[T], rows: &Line, columns: &Line) -> Vec<T> {
    let (pixels, outputs) = (rows.size * columns.size, rows.len() * columns.len());
    let mut dx = buffer::<T>(dy.len() / outputs * pixels);
    let planes = dx.par_chunks_mut(pixels).zip(dy.par_chunks(outputs));
    planes.for_each(|(dx, dy)| {
        dx.fill(T::zero());
        for (at, &dy) in dy.iter().enumerate() {
            let (i, j) = (at / columns.len(), at % columns.len());
            let share = dy / T::from_constant((rows.divisors[i] * columns.divisors[j]) as f64);
            for row in rows.windows[i].clone() {
                let seen = &mut dx[row * columns.size..][columns.windows[j].clone()];
                seen.iter_mut().for_each(|d| *d += share);
            }
        }
    });
    dx
}
