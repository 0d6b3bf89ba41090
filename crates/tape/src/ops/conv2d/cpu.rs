//! Convolutions on the CPU. Those in f32 with 3 x 3 kernels and stride 1 use Winograd's method. In
//! all others, each sample is a matrix product over its columns, which are made in strips.

use crate::cancel::{Cancel, CancelWatch};
use crate::cpu::im2col::{Window, col2im, im2col};
use crate::cpu::winograd::Winograd;
use crate::cpu::{
    Float, Matrix, Product, View, add_in_order, buffer, buffer_for_job, scratch_of_other_threads,
    threads, to_tensor, with_float,
};
use crate::error::Result;
use candle_core::{DType, Tensor};
use rayon::prelude::*;
use std::ops::Range;

const OP: &str = "conv2d";

/// The faster method without columns, if there is one for these sizes and this type.
fn without_columns(window: &Window, out: usize, operand: &Tensor) -> Option<Winograd> {
    (operand.dtype() == DType::F32)
        .then(|| Winograd::new(window, out))
        .flatten()
}

/// The output.
pub(super) fn forward(
    window: &Window,
    x: &Tensor,
    weight: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (x.dim(0)?, weight.dim(0)?);
    if let Some(method) = without_columns(window, out, x) {
        let (height, width) = window.out();
        let mut y = buffer::<f32>(samples * out * height * width);
        method.forward(&View::new(OP, x)?, &View::new(OP, weight)?, &mut y, cancel)?;
        return to_tensor(y, &[samples, out, height, width]);
    }
    with_float!("conv2d", x, T => columns_forward::<T>(window, x, weight, cancel))
}

/// The gradient of the input.
pub(super) fn input_gradient(
    window: &Window,
    weight: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, weight.dim(0)?);
    if let Some(method) = without_columns(window, out, dy) {
        let mut dx = buffer::<f32>(samples * window.sample());
        method.input_gradient(
            &View::new(OP, dy)?,
            &View::new(OP, weight)?,
            &mut dx,
            cancel,
        )?;
        return to_tensor(dx, &[samples, window.channels, window.height, window.width]);
    }
    with_float!("conv2d", dy, T => columns_input_gradient::<T>(window, weight, dy, cancel))
}

/// The gradient of the weights, [out, rows of the columns].
pub(super) fn weight_gradient(
    window: &Window,
    x: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let out = dy.dim(1)?;
    if let Some(method) = without_columns(window, out, dy) {
        let dw = method.weight_gradient(&View::new(OP, x)?, &View::new(OP, dy)?, cancel)?;
        return to_tensor(dw, &[out, window.rows()]);
    }
    with_float!("conv2d", dy, T => columns_weight_gradient::<T>(window, x, dy, cancel))
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

/// The columns of a strip of outputs, in `scratch` or in the input itself.
fn columns_of<'a, T: Float>(
    window: &Window,
    x: &'a [T],
    strip: Range<usize>,
    scratch: &'a mut [T],
) -> Matrix<'a, T> {
    if window.is_pointwise() {
        return Matrix::rows(x, window.rows(), window.pixels());
    }
    let pixels = strip.len() * window.out().1;
    let columns = &mut scratch[..window.rows() * pixels];
    im2col(window, x, strip, columns);
    Matrix::rows(columns, window.rows(), pixels)
}

fn columns_forward<T: Float>(
    window: &Window,
    x: &Tensor,
    weight: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (x.dim(0)?, weight.dim(0)?);
    let (xs, w) = (View::<T>::new(OP, x)?, View::<T>::new(OP, weight)?);
    let (rows, pixels) = (window.rows(), window.pixels());
    let mut y = buffer::<T>(samples * out * pixels);
    let (width, scratch) = (window.out().1, window.scratch::<T>());
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
                let w = Matrix::rows(w, out / window.groups, rows);
                let product = Product::new().parallel(parallel);
                for strip in window.strips::<T>() {
                    let y = &mut y[strip.start * width..];
                    product.write(y, pixels, w, columns_of(window, x, strip, columns));
                }
            }
        },
    )?;
    let (height, width) = window.out();
    to_tensor(y, &[samples, out, height, width])
}

fn columns_input_gradient<T: Float>(
    window: &Window,
    weight: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, weight.dim(0)?);
    let (w, dys) = (View::<T>::new(OP, weight)?, View::<T>::new(OP, dy)?);
    let (rows, pixels) = (window.rows(), window.pixels());
    let mut dx = buffer::<T>(samples * window.sample());
    let (width, scratch) = (window.out().1, window.scratch::<T>());
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
                let w = Matrix::rows(w, part, rows).transposed();
                if window.is_pointwise() {
                    product.write(dx, pixels, w, Matrix::rows(dy, part, pixels));
                    continue;
                }
                dx.fill(T::zero());
                for strip in window.strips::<T>() {
                    let some = strip.len() * width;
                    let dy = Matrix::strided(&dy[strip.start * width..], part, some, pixels);
                    product.write(columns, some, w, dy);
                    col2im(window, &columns[..rows * some], strip, dx);
                }
            }
        },
    )?;
    let channels = window.channels * window.groups;
    to_tensor(dx, &[samples, channels, window.height, window.width])
}

/// Bytes for all partial weight gradients together.
const PARTIAL_BYTES: usize = 32 << 20;

fn columns_weight_gradient<T: Float>(
    window: &Window,
    x: &Tensor,
    dy: &Tensor,
    cancel: &Cancel,
) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, dy.dim(1)?);
    let (xs, dys) = (View::<T>::new(OP, x)?, View::<T>::new(OP, dy)?);
    let (rows, pixels, width) = (window.rows(), window.pixels(), window.out().1);
    // The shape determines the chunks of samples, which are added in order: the sum does not depend
    // on the number of threads. Three chunks would keep one of two threads waiting, so their number
    // is a power of two.
    let fitting = PARTIAL_BYTES / (out * rows * size_of::<T>()).max(1);
    let chunks = (1_usize << fitting.clamp(2, 8).ilog2()).min(samples.max(1));
    let length = samples.div_ceil(chunks);
    let parallel = chunks < threads();
    let scratch = window.scratch::<T>();
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
                let product = Product::new().parallel(parallel);
                let part = out / window.groups;
                let x =
                    xs[n * window.sample()..(n + 1) * window.sample()].chunks_exact(window.group());
                let dy = dys[n * out * pixels..(n + 1) * out * pixels].chunks_exact(part * pixels);
                for ((dw, x), dy) in dw.chunks_exact_mut(part * rows).zip(x).zip(dy) {
                    for strip in window.strips::<T>() {
                        let (from, some) = (strip.start * width, strip.len() * width);
                        let product = product.adding(n > chunk * length || strip.start > 0);
                        let dy = Matrix::strided(&dy[from..], part, some, pixels);
                        let columns = columns_of(window, x, strip, &mut columns);
                        product.write(dw, rows, dy, columns.transposed());
                    }
                }
            }
            dw
        })
        .collect();
    watch.finish()?;
    to_tensor(add_in_order(partial, out * rows), &[out, rows])
}
