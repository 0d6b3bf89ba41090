//! Convolution by GPU kernels: one matrix product each for the output, the weight gradient and the
//! input gradient, by one of two methods. With columns, those of all samples are side by side in
//! memory, [channels kernel kernel, samples pixels]; if they would be too large, samples are
//! processed in chunks. Without columns, the product gathers its operands itself. Convolutions with
//! groups have kernels of their own.

use crate::cpu::im2col::Window;
use crate::error::Result;
use crate::kernels::convolution_choice::{ConvolutionPass, prefers_direct};
use crate::kernels::copies::{self, contiguous};
use crate::kernels::elementwise::swap_axes;
use crate::kernels::feature_maps::{self, columns, image};
use crate::kernels::matmul::{add_product, product, product_f32};
use crate::kernels::{KernelGroup, convolutions, run_on};
use candle_core::Tensor;

/// Elements in memory at once, for the columns or for the result if that is larger: 32 MiB in f32.
const MOST: usize = 1 << 23;

/// Elements of one sample's columns or of its result, whichever is larger.
fn of_a_sample(window: &Window, out: usize) -> usize {
    window.rows().max(out) * window.pixels()
}

/// True if the sizes fit the 32-bit indices of the kernels: the whole result for a convolution with
/// groups, otherwise one chunk.
pub(super) fn fits(window: &Window, samples: usize, out: usize) -> bool {
    let at_once = match window.groups {
        1 => of_a_sample(window, out),
        _ => samples * out * window.pixels(),
    };
    at_once < 1 << 31
}

fn chunk(window: &Window, samples: usize, out: usize) -> usize {
    (MOST / of_a_sample(window, out).max(1)).clamp(1, samples.max(1))
}

/// Applies `work` to each chunk of samples `(first, count)`.
fn each<T>(
    window: &Window,
    samples: usize,
    out: usize,
    mut work: impl FnMut(usize, usize) -> Result<T>,
) -> Result<Vec<T>> {
    let chunk = chunk(window, samples, out);
    (0..samples)
        .step_by(chunk)
        .map(|from| work(from, chunk.min(samples - from)))
        .collect()
}

fn joined(parts: Vec<Tensor>) -> Result<Tensor> {
    copies::joined(&parts.iter().collect::<Vec<_>>(), 0)
}

/// The columns of a chunk; for a pointwise convolution its axes swapped.
fn columns_of(window: &Window, x: &Tensor) -> Result<Tensor> {
    if window.is_pointwise() {
        let sizes = [x.dim(0)?, window.channels, window.pixels()];
        return Ok(swap_axes(x, sizes)?.reshape((window.rows(), ()))?);
    }
    columns(x, window)
}

/// Reorders [samples, out, ..] to [out, samples pixels].
fn by_channel(window: &Window, dy: &Tensor) -> Result<Tensor> {
    let (samples, out) = (dy.dim(0)?, dy.dim(1)?);
    Ok(swap_axes(dy, [samples, out, window.pixels()])?.reshape((out, ()))?)
}

/// How the products of a convolution are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// As was faster when this device was measured.
    Measured,
    Columns,
    /// Without columns, if 32 bits index the result.
    Direct,
}

impl Method {
    /// True if a product runs without columns. `operand` is the one that it gathers: the input, or
    /// the gradient of the output.
    fn is_direct(
        self,
        pass: ConvolutionPass,
        window: &Window,
        out: usize,
        operand: &Tensor,
    ) -> Result<bool> {
        let samples = operand.dim(0)?;
        let is_wanted = match self {
            Method::Measured => prefers_direct(window, samples, out, pass, operand.dtype()),
            Method::Columns => false,
            Method::Direct => true,
        };
        // Asked last, because it records that these kernels are used.
        Ok(is_wanted
            && convolutions::fits(window, samples, out)
            && run_on(KernelGroup::DirectConv2d, operand))
    }
}

/// The output.
pub(super) fn forward(
    window: &Window,
    x: &Tensor,
    weight: &Tensor,
    method: Method,
) -> Result<Tensor> {
    if window.groups > 1 {
        return feature_maps::grouped(x, weight, window);
    }
    if method.is_direct(ConvolutionPass::Forward, window, weight.dim(0)?, x)? {
        return convolutions::forward(x, weight, window);
    }
    let (out, (height, width)) = (weight.dim(0)?, window.out());
    let w = contiguous(weight)?.reshape((out, window.rows()))?;
    let parts = each(window, x.dim(0)?, out, |from, count| {
        let y = product(&w, &columns_of(window, &x.narrow(0, from, count)?)?)?;
        let y = swap_axes(&y, [out, count, window.pixels()])?;
        Ok(y.reshape((count, out, height, width))?)
    })?;
    joined(parts)
}

/// The gradient of the weights, in f32.
pub(super) fn weight_gradient(
    window: &Window,
    x: &Tensor,
    dy: &Tensor,
    method: Method,
) -> Result<Tensor> {
    if window.groups > 1 {
        return feature_maps::grouped_weight(x, dy, window);
    }
    if method.is_direct(ConvolutionPass::WeightGradient, window, dy.dim(1)?, x)? {
        return convolutions::weight_gradient(x, dy, window);
    }
    let mut sum = None::<Tensor>;
    each(window, x.dim(0)?, dy.dim(1)?, |from, count| {
        let columns = columns_of(window, &x.narrow(0, from, count)?)?;
        let dy = by_channel(window, &dy.narrow(0, from, count)?)?;
        match &sum {
            Some(sum) => add_product(sum, &dy, &columns.t()?)?,
            None => sum = Some(product_f32(&dy, &columns.t()?)?),
        }
        Ok(())
    })?;
    match sum {
        Some(sum) => Ok(sum),
        None => Ok(Tensor::zeros(
            (dy.dim(1)?, window.rows()),
            dy.dtype(),
            dy.device(),
        )?),
    }
}

/// The gradient of the input.
pub(super) fn input_gradient(
    window: &Window,
    weight: &Tensor,
    dy: &Tensor,
    method: Method,
) -> Result<Tensor> {
    if window.groups > 1 {
        return feature_maps::grouped_input(dy, weight, window);
    }
    let out = weight.dim(0)?;
    if method.is_direct(ConvolutionPass::InputGradient, window, out, dy)? {
        return convolutions::input_gradient(dy, weight, window);
    }
    let w = contiguous(weight)?.reshape((out, window.rows()))?;
    let parts = each(window, dy.dim(0)?, out, |from, count| {
        let dy = by_channel(window, &dy.narrow(0, from, count)?)?;
        let columns = product(&w.t()?, &dy)?;
        if window.is_pointwise() {
            return swap_axes(&columns, [window.channels, count, window.pixels()]);
        }
        image(&columns, count, window)
    })?;
    joined(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(channels: usize, side: usize, kernel: usize, groups: usize) -> Window {
        Window {
            channels,
            height: side,
            width: side,
            kernel: (kernel, kernel),
            stride: 1,
            padding: kernel / 2,
            groups,
        }
    }

    #[test]
    fn samples_worked_in_chunks_need_not_be_counted_together() {
        // 64 channels at 56 px: 1.8 million columns per sample.
        let (block, samples) = (window(64, 56, 3, 1), 4096);
        assert!(fits(&block, samples, 64));
        assert!(chunk(&block, samples, 64) * of_a_sample(&block, 64) <= MOST);
        assert!(
            !fits(&window(64, 2048, 3, 1), 1, 64),
            "one sample's columns"
        );
    }

    #[test]
    fn chunks_count_the_larger_of_columns_and_results() {
        // Depthwise with a multiplier of eight: few columns, many results.
        let depthwise = window(1, 112, 3, 64);
        assert!(fits(&depthwise, 256, 512));
        assert!(!fits(&depthwise, 512, 512));
        // Few channels to many: the result determines the chunk.
        let wide = window(3, 112, 1, 1);
        assert!(chunk(&wide, 4096, 1024) * 1024 * wide.pixels() <= 2 * MOST);
    }
}
