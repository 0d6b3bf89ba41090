//! A residual network as a graph: convolutions, GroupNorm or a frozen BatchNorm, max pooling.

use super::{ResNetNorm, ResNetShape, ResNetStem, ResNetStyle};
use crate::error::Result;
use crate::layers::GROUP_EPSILON;
use crate::onnx_graph::{Attribute, Graph, Name};
use candle_core::{DType, Device, Tensor};
use tape::Activation;

/// Features [batch, channels] of images [batch, 3, side, side].
pub(super) fn features(
    g: &mut Graph,
    images: &str,
    shape: &ResNetShape,
    style: ResNetStyle,
) -> Result<Name> {
    let norms = Norms {
        norm: style.norm,
        groups: shape.groups,
    };
    let stride = match shape.stem {
        ResNetStem::Plain => 1,
        ResNetStem::Pooled => 2,
    };
    let x = convolution(g, images, "stem.conv", stride)?;
    let mut x = norms.apply(g, &x, "stem.norm", shape.activation)?;
    if shape.stem == ResNetStem::Pooled {
        let settings = vec![
            Attribute::ints("kernel_shape", &[3, 3]),
            Attribute::ints("strides", &[2, 2]),
            Attribute::ints("pads", &[1, 1, 1, 1]),
        ];
        x = g.node("MaxPool", &[&x], settings);
    }
    let mut inputs = shape.channels;
    for (i, &(outputs, stride)) in shape.blocks.iter().enumerate() {
        let block = format!("blocks.{i}");
        let shortcut = if stride != 1 || inputs != outputs {
            let y = convolution(g, &x, &format!("{block}.shortcut.conv"), stride)?;
            norms.apply(g, &y, &format!("{block}.shortcut.norm"), Activation::None)?
        } else {
            x.clone()
        };
        let convolutions = style.branch.convolutions(inputs, outputs, stride);
        let last = convolutions.len();
        for (n, size) in (1..).zip(convolutions) {
            let y = convolution(g, &x, &format!("{block}.conv{n}"), size.stride)?;
            let activation = if n == last {
                Activation::None
            } else {
                shape.activation
            };
            x = norms.apply(g, &y, &format!("{block}.norm{n}"), activation)?;
        }
        let sum = g.add(&x, &shortcut);
        x = g.activate(sum, shape.activation);
        inputs = outputs;
    }
    let settings = vec![
        Attribute::ints("axes", &[2, 3]),
        Attribute::int("keepdims", 0),
    ];
    Ok(g.node("ReduceMean", &[&x], settings))
}

/// A convolution without bias, padded so that stride 1 keeps the size.
fn convolution(g: &mut Graph, x: &str, name: &str, stride: usize) -> Result<Name> {
    let name = format!("{name}.weight");
    let kernel = g.value(&name)?.dims().last().copied().unwrap_or(1);
    let weight = g.parameter(&name)?;
    let (kernel, border) = (kernel as i64, (kernel / 2) as i64);
    let settings = vec![
        Attribute::ints("kernel_shape", &[kernel; 2]),
        Attribute::ints("strides", &[stride as i64; 2]),
        Attribute::ints("pads", &[border; 4]),
    ];
    Ok(g.node("Conv", &[x, &weight], settings))
}

/// The norm after each convolution.
struct Norms {
    norm: ResNetNorm,
    groups: usize,
}

impl Norms {
    fn apply(&self, g: &mut Graph, x: &str, name: &str, activation: Activation) -> Result<Name> {
        let x = match self.norm {
            ResNetNorm::Group => self.grouped(g, x)?,
            ResNetNorm::Frozen => x.to_owned(),
        };
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let channels = g.value(&weight)?.elem_count();
        let weight = g.reshaped(&weight, &[channels, 1, 1])?;
        let bias = g.reshaped(&bias, &[channels, 1, 1])?;
        let y = g.mul(&x, &weight);
        let y = g.add(&y, &bias);
        Ok(g.activate(y, activation))
    }

    /// Normalizes each group of channels, as the channels of an InstanceNormalization: runtimes
    /// have supported it for longer than a GroupNormalization with one factor per channel.
    fn grouped(&self, g: &mut Graph, x: &str) -> Result<Name> {
        let shape = g.node("Shape", &[x], Vec::new());
        let rows = g.reshape(x, &[0, self.groups as i64, -1]);
        let constant =
            |value: f32| Tensor::full(value, self.groups, &Device::Cpu)?.to_dtype(DType::F32);
        let ones = g.tensor(&format!("ones.{}", self.groups), &constant(1.0)?)?;
        let zeros = g.tensor(&format!("zeros.{}", self.groups), &constant(0.0)?)?;
        let settings = vec![Attribute::float("epsilon", GROUP_EPSILON)];
        let rows = g.node("InstanceNormalization", &[&rows, &ones, &zeros], settings);
        Ok(g.node("Reshape", &[&rows, &shape], Vec::new()))
    }
}
