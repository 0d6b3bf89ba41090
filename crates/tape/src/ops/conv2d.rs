//! Two-dimensional convolution without bias (a norm follows): `x` [samples, in, height, width], `w`
//! [out, in / groups, k, k]. With groups, each part of the channels is convolved with its own part
//! of the kernels; as many groups as channels is a depthwise convolution.
//!
//! Each sample is one matrix product over its columns. Backward: `dw = sum dy columns(x)ᵀ`, `dx =
//! columnsᵀ(wᵀ dy)`. Saved: `x` if `w` needs a gradient and `x` is not cheap to recompute; `w` (a
//! parameter: free) if `x` needs one.

mod composed_gradients;
mod gpu;

use super::{Form, axes, expect_filled, expect_shape, misfit};
use crate::cancel::Cancel;
use crate::cancel::CancelWatch;
use crate::convert_dtype::widened_on_cpu;
use crate::cpu::im2col::{Window, col2im, im2col};
use crate::cpu::{
    Float, Matrix, Product, View, add_in_order, buffer, buffer_for_job, scratch_of_other_threads,
    threads, to_tensor, with_float,
};
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::saved_input::held;
use crate::tape::{Tape, Value};
use candle_core::Tensor;
use rayon::prelude::*;

/// Stride, padding and groups of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dShape {
    /// Pixels between two positions of the kernel.
    pub stride: usize,
    /// Zeros around the image, in pixels.
    pub padding: usize,
    /// Number of groups; must divide the channels and the kernels.
    pub groups: usize,
}

impl Tape<'_> {
    /// Convolves `x` [samples, in, height, width] with `weight` [out, in / groups, kernel, kernel].
    pub fn conv2d(&self, x: &Value, weight: &Value, shape: Conv2dShape) -> Result<Value> {
        self.poll()?;
        let window = window(x, weight, shape)?;
        let x_in = contiguous(x.tensor())?;
        let form = self.conv_form(&window, &x_in, weight);
        let y = if form == Form::Cpu {
            with_float!("conv2d", x_in, T => forward::<T>(&window, &x_in, weight.tensor(), self.cancel()))?
        } else if form == Form::Device {
            gpu::forward(&window, &x_in, weight.tensor())?
        } else {
            widened_on_cpu(&x_in)?
                .conv2d(
                    &widened_on_cpu(weight.tensor())?,
                    shape.padding,
                    shape.stride,
                    1,
                    shape.groups,
                )?
                .to_dtype(x_in.dtype())?
        };
        self.record_conv2d(x, weight, shape, window, y)
    }

    /// Falls back to the composed form if the sizes exceed the 32-bit indices of the GPU kernels.
    fn conv_form(&self, window: &Window, x: &Tensor, weight: &Value) -> Form {
        let fits = gpu::fits(window, x.dims()[0], weight.dims()[0]);
        self.form_that_fits(KernelGroup::Conv2d, x, fits)
    }

    /// Records [`Tape::conv2d`] without computing the result, whose values nothing reads.
    pub(crate) fn conv2d_shape_only(
        &self,
        x: &Value,
        weight: &Value,
        shape: Conv2dShape,
    ) -> Result<Value> {
        self.poll()?;
        let window = window(x, weight, shape)?;
        let (height, width) = window.out();
        let dims = [x.dims()[0], weight.dims()[0], height, width];
        let y = super::shape_only(x.tensor(), &dims)?;
        self.record_conv2d(x, weight, shape, window, y)
    }

    fn record_conv2d(
        &self,
        x: &Value,
        weight: &Value,
        shape: Conv2dShape,
        window: Window,
        y: Tensor,
    ) -> Result<Value> {
        if !self.records(&[x, weight]) {
            return Ok(Value::constant(y));
        }
        let (x_id, w_id) = (x.id(), weight.id());
        let form = self.conv_form(&window, x.tensor(), weight);
        let fused = form == Form::Cpu;
        let input_shape = x.tensor().shape().clone();
        let saved_x = w_id.is_some().then(|| x.saved_input());
        let saved_w = x_id.is_some().then(|| weight.saved_input());
        let weight_shape = weight.tensor().shape().clone();
        let saved = held([&saved_x, &saved_w]);
        Ok(
            self.push(y, &saved.iter().collect::<Vec<_>>(), move |dy, sink| {
                let dy = contiguous(&dy)?;
                if let Some(x) = saved_x {
                    let x = x.get()?;
                    let dw = if fused {
                        with_float!("conv2d", dy, T => weight_gradient::<T>(&window, &x, &dy, sink.cancel()))?
                            .reshape(&weight_shape)?
                    } else if form == Form::Device {
                        gpu::weight_gradient(&window, &x, &dy)?.reshape(&weight_shape)?
                    } else {
                        composed_gradients::by_group(shape.groups, &x, 1, &dy, 1, 0, |x, dy| {
                            composed_gradients::weight_gradient(x, dy, shape, window.kernel)
                        })?
                    };
                    sink.add_owned(w_id, dw)?;
                }
                if let Some(w) = saved_w {
                    let w = w.get()?;
                    let dx = if fused {
                        with_float!("conv2d", dy, T => input_gradient::<T>(&window, &w, &dy, sink.cancel()))?
                    } else if form == Form::Device {
                        gpu::input_gradient(&window, &w, &dy)?
                    } else {
                        composed_gradients::by_group(shape.groups, &w, 0, &dy, 1, 1, |w, dy| {
                            composed_gradients::input_gradient(w, dy, shape, &window)
                        })?
                    };
                    sink.add_owned(x_id, dx.reshape(input_shape)?)?;
                }
                Ok(())
            }),
        )
    }
}

/// Fails if the operands do not fit, with both shapes.
pub(crate) fn conv2d_fits(x: &Value, weight: &Value, shape: Conv2dShape) -> Result<()> {
    window(x, weight, shape).map(|_| ())
}

/// The sizes of one sample.
///
/// # Errors
/// The operands do not fit.
fn window(x: &Value, weight: &Value, shape: Conv2dShape) -> Result<Window> {
    let [_, channels, height, width] = axes("conv2d", "x", x)?;
    expect_filled("conv2d", "x", x)?;
    let [out, _, kernel_height, kernel_width] = axes("conv2d", "weight", weight)?;
    if shape.groups == 0 || channels % shape.groups != 0 || out % shape.groups != 0 {
        let expected = format!(
            "a number of groups ({}) that divides the input channels and the {out} output channels",
            shape.groups
        );
        return Err(misfit("conv2d", "x", expected, x));
    }
    let channels = channels / shape.groups;
    expect_shape(
        "conv2d",
        "weight",
        weight,
        &[out, channels, kernel_height, kernel_width],
    )?;
    let (least_height, least_width) = (
        kernel_height.saturating_sub(2 * shape.padding),
        kernel_width.saturating_sub(2 * shape.padding),
    );
    if shape.stride == 0 || height < least_height || width < least_width {
        let expected = format!(
            "a stride of at least 1 and an image of at least {least_height} x {least_width}"
        );
        return Err(misfit("conv2d", "x", expected, x));
    }
    Ok(Window {
        channels,
        height,
        width,
        kernel: (kernel_height, kernel_width),
        stride: shape.stride,
        padding: shape.padding,
        groups: shape.groups,
    })
}

/// Calls `work` for each sample's part of `out`: samples run in parallel if there are enough,
/// otherwise one after the other with parallel products. The last argument is whether the product
/// may use all threads. A cancelled micro-batch ends with the current sample.
fn each_sample<T: Float>(
    out: &mut [T],
    size: usize,
    scratch: usize,
    cancel: &Cancel,
    work: impl Fn(usize, &mut [T], &mut [T], bool) + Sync,
) -> Result<()> {
    let watch = CancelWatch::new(cancel);
    let work = |n, out: &mut [T], columns: &mut [T], parallel| {
        if watch.should_continue() {
            work(n, out, columns, parallel);
        }
    };
    if out.len() / size.max(1) >= threads() {
        let _others = scratch_of_other_threads::<T>(out.len() / size.max(1), scratch);
        out.par_chunks_mut(size).enumerate().for_each_init(
            || buffer::<T>(scratch),
            |columns, (n, out)| work(n, out, columns, false),
        );
    } else {
        let mut columns = buffer::<T>(scratch);
        out.chunks_mut(size)
            .enumerate()
            .for_each(|(n, out)| work(n, out, &mut columns, true));
    }
    watch.finish()
}

fn forward<T: Float>(
    window: &Window,
    x: &Tensor,
    weight: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (x.dim(0)?, weight.dim(0)?);
    let (xs, w) = (
        View::<T>::new("conv2d", x)?,
        View::<T>::new("conv2d", weight)?,
    );
    let (rows, pixels) = (window.rows(), window.pixels());
    let mut y = buffer::<T>(samples * out * pixels);
    let scratch = if window.is_pointwise() {
        0
    } else {
        rows * pixels
    };
    each_sample(
        &mut y,
        out * pixels,
        scratch,
        cancel,
        |n, y, columns, parallel| {
            let x = &xs[n * window.sample()..(n + 1) * window.sample()];
            for ((x, y), w) in x
                .chunks_exact(window.group())
                .zip(y.chunks_exact_mut(out / window.groups * pixels))
                .zip(w.chunks_exact(out / window.groups * rows))
            {
                let columns: &[T] = if window.is_pointwise() {
                    x
                } else {
                    im2col(window, x, columns);
                    columns
                };
                let w = Matrix::rows(w, out / window.groups, rows);
                let columns = Matrix::rows(columns, rows, pixels);
                let product = Product::new().parallel(parallel);
                product.write(y, pixels, w, columns);
            }
        },
    )?;
    let (height, width) = window.out();
    to_tensor(y, &[samples, out, height, width])
}

fn input_gradient<T: Float>(
    window: &Window,
    weight: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, weight.dim(0)?);
    let (w, dys) = (
        View::<T>::new("conv2d", weight)?,
        View::<T>::new("conv2d", dy)?,
    );
    let (rows, pixels) = (window.rows(), window.pixels());
    let mut dx = buffer::<T>(samples * window.sample());
    let scratch = if window.is_pointwise() {
        0
    } else {
        rows * pixels
    };
    each_sample(
        &mut dx,
        window.sample(),
        scratch,
        cancel,
        |n, dx, columns, parallel| {
            let part = out / window.groups;
            let dy = dys[n * out * pixels..(n + 1) * out * pixels].chunks_exact(part * pixels);
            let groups = dx.chunks_exact_mut(window.group()).zip(dy);
            let product = Product::new().parallel(parallel);
            for ((dx, dy), w) in groups.zip(w.chunks_exact(part * rows)) {
                let dy = Matrix::rows(dy, part, pixels);
                let w = Matrix::rows(w, part, rows).transposed();
                if window.is_pointwise() {
                    product.write(dx, pixels, w, dy);
                    continue;
                }
                product.write(columns, pixels, w, dy);
                dx.fill(T::zero());
                col2im(window, columns, dx);
            }
        },
    )?;
    let channels = window.channels * window.groups;
    to_tensor(dx, &[samples, channels, window.height, window.width])
}

/// Bytes for all partial weight gradients together.
const PARTIAL_BYTES: usize = 32 << 20;

fn weight_gradient<T: Float>(
    window: &Window,
    x: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, dy.dim(1)?);
    let (xs, dys) = (View::<T>::new("conv2d", x)?, View::<T>::new("conv2d", dy)?);
    let (rows, pixels) = (window.rows(), window.pixels());
    // The shape determines the chunks of samples, which are added in order: the sum does not depend
    // on the number of threads. Three chunks would keep one of two threads waiting, so their number
    // is a power of two.
    let fitting = PARTIAL_BYTES / (out * rows * size_of::<T>()).max(1);
    let chunks = (1_usize << fitting.clamp(2, 8).ilog2()).min(samples.max(1));
    let length = samples.div_ceil(chunks);
    let parallel = chunks < threads();
    let scratch = if window.is_pointwise() {
        0
    } else {
        rows * pixels
    };
    let jobs = samples.div_ceil(length);
    let _others = scratch_of_other_threads::<T>(jobs, scratch);
    let watch = CancelWatch::new(cancel);
    let partial: Vec<Vec<T>> = (0..jobs)
        .into_par_iter()
        .map(|chunk| {
            let mut dw = buffer_for_job::<T>(out * rows, chunk, jobs);
            let mut columns = buffer::<T>(scratch);
            let samples = chunk * length..((chunk + 1) * length).min(samples);
            for n in samples.take_while(|_| watch.should_continue()) {
                let product = Product::new().adding(n > chunk * length);
                let part = out / window.groups;
                let x =
                    xs[n * window.sample()..(n + 1) * window.sample()].chunks_exact(window.group());
                let dy = dys[n * out * pixels..(n + 1) * out * pixels].chunks_exact(part * pixels);
                for ((dw, x), dy) in dw.chunks_exact_mut(part * rows).zip(x).zip(dy) {
                    let columns: &[T] = if window.is_pointwise() {
                        x
                    } else {
                        im2col(window, x, &mut columns);
                        &columns
                    };
                    let columns = Matrix::rows(columns, rows, pixels).transposed();
                    let dy = Matrix::rows(dy, part, pixels);
                    product.parallel(parallel).write(dw, rows, dy, columns);
                }
            }
            dw
        })
        .collect();
    watch.finish()?;
    to_tensor(add_in_order(partial, out * rows), &[out, rows])
}
