//! Two-dimensional convolution without bias (a norm follows): `x` [samples, in, height, width], `w`
//! [out, in / groups, k, k]. With groups, each part of the channels is convolved with its own part
//! of the kernels; as many groups as channels is a depthwise convolution.
//!
//! Backward: `dw = sum dy columns(x)ᵀ`, `dx = columnsᵀ(wᵀ dy)`. Saved: `x` if `w` needs a gradient
//! and `x` is not cheap to recompute; `w` (a parameter: free) if `x` needs one.

mod composed_gradients;
mod cpu;
mod gpu;
mod measure_methods;

pub use measure_methods::faster_convolutions;

use self::gpu::Method;
use super::{Form, axes, expect_filled, expect_shape, misfit};
use crate::convert_dtype::widened_on_cpu;
use crate::cpu::im2col::Window;
use crate::error::Result;
use crate::kernels::KernelGroup;
use crate::kernels::copies::contiguous;
use crate::saved_input::held;
use crate::tape::{Tape, Value};
use candle_core::Tensor;

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

/// A convolution as it is recorded.
struct Convolution {
    shape: Conv2dShape,
    window: Window,
    method: Method,
}

impl Tape<'_> {
    /// Convolves `x` [samples, in, height, width] with `weight` [out, in / groups, kernel, kernel].
    pub fn conv2d(&self, x: &Value, weight: &Value, shape: Conv2dShape) -> Result<Value> {
        self.convolve(x, weight, shape, Method::Measured)
    }

    /// [`Tape::conv2d`], on a GPU without columns even if that is slower: for the device check.
    pub(crate) fn conv2d_without_columns(
        &self,
        x: &Value,
        weight: &Value,
        shape: Conv2dShape,
    ) -> Result<Value> {
        self.convolve(x, weight, shape, Method::Direct)
    }

    fn convolve(
        &self,
        x: &Value,
        weight: &Value,
        shape: Conv2dShape,
        method: Method,
    ) -> Result<Value> {
        self.poll()?;
        let window = window(x, weight, shape)?;
        let x_in = contiguous(x.tensor())?;
        let form = self.conv_form(&window, &x_in, weight);
        let y = if form == Form::Cpu {
            cpu::forward(&window, &x_in, weight.tensor(), self.cancel())?
        } else if form == Form::Device {
            gpu::forward(&window, &x_in, weight.tensor(), method)?
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
        let convolution = Convolution {
            shape,
            window,
            method,
        };
        self.record_conv2d(x, weight, convolution, y)
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
        let convolution = Convolution {
            shape,
            window,
            method: Method::Measured,
        };
        self.record_conv2d(x, weight, convolution, y)
    }

    fn record_conv2d(
        &self,
        x: &Value,
        weight: &Value,
        convolution: Convolution,
        y: Tensor,
    ) -> Result<Value> {
        let Convolution {
            shape,
            window,
            method,
        } = convolution;
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
                        cpu::weight_gradient(&window, &x, &dy, sink.cancel())?
                            .reshape(&weight_shape)?
                    } else if form == Form::Device {
                        gpu::weight_gradient(&window, &x, &dy, method)?.reshape(&weight_shape)?
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
                        cpu::input_gradient(&window, &w, &dy, sink.cancel())?
                    } else if form == Form::Device {
                        gpu::input_gradient(&window, &w, &dy, method)?
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
