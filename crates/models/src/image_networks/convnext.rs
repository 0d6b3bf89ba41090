//! ConvNeXt (Liu et al. 2022): stages of blocks with a depthwise convolution of 7x7, a LayerNorm
//! over the channels, and an MLP of four times the width. Channels are the last axis, except inside
//! the convolutions.

mod hub_format;

pub(crate) use hub_format::HubConvNext;

use crate::error::naming;
use crate::hub_format::HubNetwork;
use crate::image_network::{HubExport, HubTensors, ImageArchitecture, ImageNetwork};
use crate::layers::{LayerNorm, Linear};
use crate::onnx_graph::{Features, Graph};
use crate::parameter_builder::ParameterBuilder;
use crate::transformer::{DEVIATION, Gelu};
use std::sync::Arc;
use tape::{Conv2dShape, ParameterId, Result, Tape, Value};

/// Side of the depthwise kernels.
const KERNEL: usize = 7;
/// Added to the variance by all norms but the last.
const EPSILON: f64 = 1e-6;

/// The description of a ConvNeXt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConvNextArchitecture {
    /// Channels of each stage.
    pub widths: Vec<usize>,
    /// Number of blocks of each stage.
    pub depths: Vec<usize>,
    /// Side of the patches of the stem, in pixels.
    pub patch: usize,
    /// Activation of the MLPs.
    pub gelu: Gelu,
    /// Initial factor per channel of each block; `None` for no factors.
    pub layer_scale: Option<f64>,
    /// Added to the variance by the last norm.
    pub last_epsilon: f64,
}

/// Position and sizes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockPlace {
    stage: usize,
    /// Index in its stage.
    layer: usize,
    /// Channels of its input.
    inputs: usize,
    width: usize,
}

impl BlockPlace {
    /// Whether it halves the side of its input first.
    fn is_downsampling(self) -> bool {
        self.stage > 0 && self.layer == 0
    }
}

impl ConvNextArchitecture {
    /// ConvNeXt-T: 28.6 M parameters with 1,000 classes.
    pub fn tiny() -> Self {
        ConvNextArchitecture {
            widths: vec![96, 192, 384, 768],
            depths: vec![3, 3, 9, 3],
            patch: 4,
            gelu: Gelu::Erf,
            layer_scale: Some(1e-6),
            last_epsilon: EPSILON,
        }
    }

    /// All blocks in order.
    fn places(&self) -> Vec<BlockPlace> {
        let mut places = Vec::new();
        let mut inputs = self.widths[0];
        for (stage, (&width, &depth)) in self.widths.iter().zip(&self.depths).enumerate() {
            for layer in 0..depth {
                places.push(BlockPlace {
                    stage,
                    layer,
                    inputs,
                    width,
                });
                inputs = width;
            }
        }
        places
    }

    fn build_blocks(&self, b: &mut ParameterBuilder) -> Result<Vec<Block>> {
        let places = self.places().into_iter().enumerate();
        let blocks = places
            .map(|(i, place)| b.within(&format!("blocks.{i}"), |b| Block::build(b, place, self)));
        blocks.collect()
    }

    /// Channels of the last stage.
    fn features(&self) -> usize {
        self.widths.last().copied().unwrap_or(0)
    }
}

impl ImageArchitecture for ConvNextArchitecture {
    fn blocks(&self) -> usize {
        self.depths.iter().sum()
    }

    fn build(&self, b: &mut ParameterBuilder, outputs: usize) -> Result<Arc<dyn ImageNetwork>> {
        let stem = ConvShape {
            inputs: 3,
            outputs: self.widths[0],
            kernel: self.patch,
            shape: strided(self.patch),
        };
        let features = self.features();
        Ok(Arc::new(ConvNext {
            stem: BiasedConv::build(b, "stem.conv", stem)?,
            stem_norm: LayerNorm::build(b, "stem.norm", self.widths[0], EPSILON)?,
            blocks: self.build_blocks(b)?,
            norm: LayerNorm::build(b, "norm", features, self.last_epsilon)?,
            head: Linear::build(b, "head", features, outputs, DEVIATION)?,
        }))
    }

    fn hub_export(&self) -> HubExport {
        HubExport {
            config: self.config(),
            tensors: HubTensors::Published(HubConvNext::from_scratch(self.clone()).table()),
        }
    }

    fn onnx_features(&self, g: &mut Graph, images: &str) -> crate::error::Result<Features> {
        hub_format::onnx_features(self, g, images)
    }
}

/// A convolution whose kernels do not overlap.
fn strided(kernel: usize) -> Conv2dShape {
    Conv2dShape {
        stride: kernel,
        padding: 0,
        groups: 1,
    }
}

#[derive(Debug, Clone)]
struct ConvNext {
    stem: BiasedConv,
    stem_norm: LayerNorm,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl ImageNetwork for ConvNext {
    fn depth(&self) -> usize {
        self.blocks.len()
    }

    fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let x = self.stem.forward_images(tape, images)?;
        let mut x = self.stem_norm.forward(tape, &x)?;
        for (i, block) in self.blocks.iter().enumerate() {
            // A frozen block before the first trained one saves nothing anyway.
            let has_gradient = x.needs_gradient() || tape.trains_under(&format!("blocks.{i}."));
            x = if i < checkpointed && has_gradient {
                let block = block.clone();
                tape.checkpoint_samples(&x, move |tape, x, _| block.forward(tape, x))?
            } else {
                block.forward(tape, &x)?
            };
        }
        let &[samples, height, width, channels] = x.dims() else {
            unreachable!("a convolution has four axes");
        };
        let pixels = tape.reshape(&x, &[samples, height * width, channels])?;
        let features = self.norm.forward(tape, &tape.mean_tokens(&pixels)?)?;
        self.head.forward(tape, &features)
    }
}

/// Sizes of a [`BiasedConv`].
#[derive(Debug, Clone, Copy)]
struct ConvShape {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    shape: Conv2dShape,
}

/// A convolution with a bias. Its output has the channels as the last axis.
#[derive(Debug, Clone)]
struct BiasedConv {
    name: Arc<str>,
    weight: ParameterId,
    bias: ParameterId,
    shape: Conv2dShape,
}

impl BiasedConv {
    fn build(b: &mut ParameterBuilder, name: &str, size: ConvShape) -> Result<Self> {
        let ConvShape {
            inputs,
            outputs,
            kernel,
            shape,
        } = size;
        let kernels = [outputs, inputs / shape.groups, kernel, kernel];
        b.within(name, |b| {
            Ok(BiasedConv {
                name: b.prefix(),
                weight: b.normal("weight", &kernels, DEVIATION)?,
                bias: b.constant("bias", &[outputs], 0.0)?,
                shape,
            })
        })
    }

    /// Maps [samples, height, width, inputs] to [samples, .., outputs].
    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        self.forward_images(tape, &tape.permute(x, &[0, 3, 1, 2])?)
    }

    /// Maps [samples, inputs, height, width] to [samples, .., outputs].
    fn forward_images(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (weight, bias) = (tape.parameter(self.weight), tape.parameter(self.bias));
        let y = naming(&self.name, tape.conv2d(x, &weight, self.shape))?;
        let y = tape.permute(&y, &[0, 2, 3, 1])?;
        naming(&self.name, tape.broadcast_add(&y, &bias))
    }
}

#[derive(Debug, Clone)]
struct Block {
    /// Norm and convolution that halve the side.
    downsample: Option<(LayerNorm, BiasedConv)>,
    depthwise: BiasedConv,
    norm: LayerNorm,
    up: Linear,
    gelu: Gelu,
    down: Linear,
    scale: Option<ParameterId>,
}

impl Block {
    fn build(
        b: &mut ParameterBuilder,
        place: BlockPlace,
        sizes: &ConvNextArchitecture,
    ) -> Result<Self> {
        let width = place.width;
        let downsample = if place.is_downsampling() {
            let conv = ConvShape {
                inputs: place.inputs,
                outputs: width,
                kernel: 2,
                shape: strided(2),
            };
            let norm = LayerNorm::build(b, "downsample.norm", place.inputs, EPSILON)?;
            Some((norm, BiasedConv::build(b, "downsample.conv", conv)?))
        } else {
            None
        };
        let depthwise = ConvShape {
            inputs: width,
            outputs: width,
            kernel: KERNEL,
            shape: Conv2dShape {
                stride: 1,
                padding: KERNEL / 2,
                groups: width,
            },
        };
        let scale = sizes.layer_scale;
        Ok(Block {
            downsample,
            depthwise: BiasedConv::build(b, "depthwise", depthwise)?,
            norm: LayerNorm::build(b, "norm", width, EPSILON)?,
            up: Linear::build(b, "up", width, 4 * width, DEVIATION)?,
            gelu: sizes.gelu,
            down: Linear::build(b, "down", 4 * width, width, DEVIATION)?,
            scale: scale
                .map(|value| b.constant("scale", &[width], value))
                .transpose()?,
        })
    }

    /// Maps [samples, height, width, channels] to the block's channels, with half the side if it
    /// downsamples.
    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let x = match &self.downsample {
            Some((norm, conv)) => conv.forward(tape, &norm.forward(tape, x)?)?,
            None => x.clone(),
        };
        let y = self
            .norm
            .forward(tape, &self.depthwise.forward(tape, &x)?)?;
        let y = self.up.forward(tape, &y)?;
        let y = match self.gelu {
            Gelu::Tanh => tape.gelu(&y),
            Gelu::Erf => tape.gelu_erf(&y),
        }?;
        let Some(scale) = self.scale else {
            return self.down.forward_add(tape, &y, &x);
        };
        let y = self.down.forward(tape, &y)?;
        let scale = tape.cast(&tape.parameter(scale), y.tensor().dtype())?;
        let y = naming(self.down.name(), tape.broadcast_mul(&y, &scale))?;
        tape.add(&y, &x)
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog::{ImageModel, ModelId};
    use crate::network::Network;

    #[test]
    fn convnext_tiny_has_the_parameters_of_its_paper() {
        let tiny = ModelId::Image(ImageModel::ConvNextTiny);
        let count = Network::count_parameters(tiny, 224, 1000);
        assert_eq!(count.expect("it can be built"), 28_589_128);
        assert_eq!(tiny.blocks(), 18);
    }
}
