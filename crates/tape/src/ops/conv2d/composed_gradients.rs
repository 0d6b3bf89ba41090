//! Gradients of a convolution, composed of tensor primitives for every device.

use super::{Conv2dShape, Window};
use crate::convert_dtype::widened_on_cpu;
use crate::error::Result;
use crate::kernels::copies::{self, owned};
use candle_core::Tensor;

/// Applies `work` to each group's part of `a`, cut along `a_axis`, and of `b`, cut along `b_axis`.
/// Joins the results along the axis `joined`.
pub(super) fn by_group(
    groups: usize,
    a: &Tensor,
    a_axis: usize,
    b: &Tensor,
    b_axis: usize,
    joined: usize,
    work: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if groups == 1 {
        return work(a, b);
    }
    let part = |t: &Tensor, axis: usize, group: usize| -> Result<Tensor> {
        let size = t.dim(axis)? / groups;
        owned(&t.narrow(axis, group * size, size)?)
    };
    let parts = (0..groups)
        .map(|group| work(&part(a, a_axis, group)?, &part(b, b_axis, group)?))
        .collect::<Result<Vec<_>>>()?;
    copies::joined(&parts.iter().collect::<Vec<_>>(), joined)
}

/// The kernel's gradient, by convolving the input with the output's gradient. Both are made
/// contiguous first: with a view as the kernel, candle's Metal backend reads wrong values for more
/// than one sample.
pub(super) fn weight_gradient(
    x: &Tensor,
    dy: &Tensor,
    shape: Conv2dShape,
    kernel: (usize, usize),
) -> Result<Tensor> {
    let x = widened_on_cpu(&owned(&x.transpose(0, 1)?)?)?;
    let dy = widened_on_cpu(&owned(&dy.transpose(0, 1)?)?)?;
    let dw = x.conv2d(&dy, shape.padding, 1, shape.stride, 1)?;
    let dw = dw.narrow(2, 0, kernel.0)?.narrow(3, 0, kernel.1)?;
    owned(&dw.transpose(0, 1)?)
}

pub(super) fn input_gradient(
    weight: &Tensor,
    dy: &Tensor,
    shape: Conv2dShape,
    window: &Window,
) -> Result<Tensor> {
    let (out_height, out_width) = window.out();
    // The transposed convolution crops the padding at the far edge. If the stride ended the walk
    // early, output padding restores the cropped pixels. One number serves both axes, so the longer
    // one decides and the other is cut.
    let missing = |input: usize, out: usize, kernel: usize| {
        input + 2 * shape.padding - ((out - 1) * shape.stride + kernel)
    };
    let (rows, columns) = (
        missing(window.height, out_height, window.kernel.0),
        missing(window.width, out_width, window.kernel.1),
    );
    let dx = widened_on_cpu(dy)?.conv_transpose2d(
        &widened_on_cpu(weight)?,
        shape.padding,
        rows.max(columns),
        shape.stride,
        1,
    )?;
    let dx = dx.narrow(2, 0, window.height)?.narrow(3, 0, window.width)?;
    Ok(owned(&dx)?.to_dtype(dy.dtype())?)
}
