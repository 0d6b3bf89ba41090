//! Residual network (He et al. 2016) with GroupNorm instead of BatchNorm, or with the frozen
//! BatchNorm of pretrained weights.

mod shape;
mod norm;
mod hub_format;
mod onnx;

pub(crate) use hub_format::HubResNet;
pub use shape::{ResNetBranch, ResNetNorm, ResNetShape, ResNetStem, ResNetStyle};

use crate::image_network::{HubExport, HubTensors, ImageArchitecture, ImageNetwork};
use crate::layers::{Conv, ConvSize, Linear};
use crate::onnx_graph::{Features, Graph};
use crate::parameter_builder::ParameterBuilder;
use norm::Norm;
use shape::KERNEL;
use std::ops::Range;
use std::sync::Arc;
use tape::{Activation, DeferredOutput, PoolShape, Result, Tape, Value};

/// A residual network for images.
#[derive(Debug, Clone)]
pub struct ResNet {
    stem: StemLayers,
    blocks: Vec<Block>,
    /// Blocks before the first one that halves the side. Their inputs are the largest activations.
    first_stage: usize,
    head: Linear,
}

/// The layers before the first block.
#[derive(Debug, Clone)]
struct StemLayers {
    channels: usize,
    conv: Conv,
    norm: Norm,
    activation: Activation,
    pool: Option<PoolShape>,
}

impl StemLayers {
    /// Number of values that the convolution outputs per sample.
    fn values(&self, images: &Value) -> usize {
        let shrinks = if self.pool.is_some() { 2 } else { 1 };
        let pixels: usize = images
            .dims()
            .iter()
            .skip(2)
            .map(|n| n.div_ceil(shrinks))
            .product();
        pixels * self.channels
    }

    fn forward(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let x = self.conv.forward(tape, images)?;
        let x = self.norm.forward(tape, &x, self.activation)?;
        match self.pool {
            Some(pool) => tape.max_pool(&x, pool),
            None => Ok(x),
        }
    }
}

#[derive(Debug, Clone)]
struct Block {
    /// All convolutions but the last, each followed by the activation.
    first: Vec<(Conv, Norm)>,
    last: (Conv, Norm),
    shortcut: Option<(Conv, Norm)>,
    activation: Activation,
    saves_last: bool,
}

/// Whether a checkpointed block of this many channels saves the output of its last convolution: one
/// value of it takes more than a thousand multiplications to recompute. All convolutions of a
/// residual network cost about the same, but deeper ones output fewer values.
pub fn saves_last_convolution(channels: usize) -> bool {
    multiplications(channels, KERNEL) > 1000
}

/// Multiplications per output value of a convolution.
fn multiplications(inputs: usize, kernel: usize) -> usize {
    inputs * kernel * kernel
}

/// Standard deviation of the head's initial weights: scores are nearly equal at the start.
const HEAD_DEVIATION: f64 = 0.01;
/// The max pooling of a pooled stem.
const STEM_POOL: PoolShape = PoolShape {
    kernel: 3,
    stride: 2,
    padding: 1,
};

impl ResNet {
    /// Builds a network to train from scratch.
    pub fn build(b: &mut ParameterBuilder, shape: &ResNetShape, classes: usize) -> Result<Self> {
        ResNet::with_style(b, shape, ResNetStyle::BASIC, classes)
    }

    /// Builds a network with other branches or norms.
    pub(crate) fn with_style(
        b: &mut ParameterBuilder,
        shape: &ResNetShape,
        style: ResNetStyle,
        classes: usize,
    ) -> Result<Self> {
        let (kernel, stride, pool) = match shape.stem {
            ResNetStem::Plain => (3, 1, None),
            ResNetStem::Pooled => (7, 2, Some(STEM_POOL)),
        };
        let size = ConvSize {
            inputs: 3,
            outputs: shape.channels,
            kernel,
            stride,
        };
        let stem = StemLayers {
            channels: shape.channels,
            conv: Conv::build(b, "stem.conv", size)?,
            norm: Norm::build(b, "stem.norm", shape.channels, shape.groups, style.norm)?,
            activation: shape.activation,
            pool,
        };
        let mut channels = shape.channels;
        let mut blocks = Vec::with_capacity(shape.blocks.len());
        for (i, &(out, stride)) in shape.blocks.iter().enumerate() {
            let block = b.within(&format!("blocks.{i}"), |b| {
                let size = BlockSize {
                    inputs: channels,
                    outputs: out,
                    stride,
                };
                Block::build(b, size, shape, style)
            })?;
            blocks.push(block);
            channels = out;
        }
        Ok(ResNet {
            stem,
            blocks,
            first_stage: shape.blocks.iter().take_while(|b| b.1 == 1).count(),
            head: Linear::build(b, "head", channels, classes, HEAD_DEVIATION)?,
        })
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Maps `images` [samples, 3, side, side] to class scores [samples, classes]. The first
    /// `checkpointed` blocks save only their input; if that is all of them, the stem does too. On a
    /// GPU the stem always does: its activations are the largest of a micro-batch and cheap to
    /// recompute.
    ///
    /// # Errors
    /// The images do not have three channels.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let on_gpu = !images.tensor().device().is_cpu();
        self.forward_on(tape, images, checkpointed, on_gpu)
    }

    fn forward_on(
        &self,
        tape: &Tape,
        images: &Value,
        checkpointed: usize,
        on_gpu: bool,
    ) -> Result<Value> {
        let all = checkpointed >= self.blocks.len();
        let nests =
            all && on_gpu && self.first_stage > 0 && self.trains_before(tape, self.first_stage);
        let (done, x) = if nests {
            let x = self.first_stage_checkpointed(tape, images)?;
            (self.first_stage, x)
        } else {
            let recompute = match (all, on_gpu) {
                (true, _) => StemRecompute::FewSamples,
                (false, true) => StemRecompute::AllSamples,
                (false, false) => StemRecompute::Never,
            };
            (0, self.forward_stem(tape, images, recompute)?)
        };
        let x = self.forward_blocks(tape, x, done..self.blocks.len(), checkpointed)?;
        self.head.forward(tape, &tape.mean_pool(&x)?)
    }

    /// Whether the stem or a block before `block` is trained.
    fn trains_before(&self, tape: &Tape, block: usize) -> bool {
        tape.trains_under("stem.") || (0..block).any(|i| tape.trains_under(&format!("blocks.{i}.")))
    }

    /// Stem and first stage as one checkpoint that is recomputed a few samples at a time. Stem and
    /// blocks are checkpoints inside it, so their inputs are only saved for those few samples, at
    /// the cost of one more forward pass.
    fn first_stage_checkpointed(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let (network, stage) = (self.clone(), self.first_stage);
        let values = self.stem.values(images) / 4;
        tape.checkpoint_samples_of(images, values, move |tape, images, _| {
            let x = network.forward_stem(tape, images, StemRecompute::FewSamples)?;
            network.forward_blocks(tape, x, 0..stage, stage)
        })
    }

    fn forward_stem(&self, tape: &Tape, images: &Value, recompute: StemRecompute) -> Result<Value> {
        let values = match recompute {
            StemRecompute::Never => return self.stem.forward(tape, images),
            StemRecompute::AllSamples => 0,
            StemRecompute::FewSamples => self.stem.values(images),
        };
        if !tape.trains_under("stem.") {
            return self.stem.forward(tape, images);
        }
        let stem = self.stem.clone();
        tape.checkpoint_samples_of(images, values, move |tape, x, _| stem.forward(tape, x))
    }

    /// Some of the blocks; those before `checkpointed` save only their input.
    fn forward_blocks(
        &self,
        tape: &Tape,
        x: Value,
        blocks: Range<usize>,
        checkpointed: usize,
    ) -> Result<Value> {
        let mut x = x;
        for i in blocks {
            let block = &self.blocks[i];
            // A frozen block before the first trained one saves nothing anyway.
            let has_gradient = x.needs_gradient() || tape.trains_under(&format!("blocks.{i}."));
            x = if i < checkpointed && has_gradient {
                block.forward_checkpointed(tape, &x)?
            } else {
                block.forward(tape, &x)?
            };
        }
        Ok(x)
    }
}

/// Whether the stem's activations are recomputed in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StemRecompute {
    Never,
    /// All samples of the micro-batch at once.
    AllSamples,
    /// A few samples at a time, which needs less memory.
    FewSamples,
}

/// Channels and stride of a block.
struct BlockSize {
    inputs: usize,
    outputs: usize,
    stride: usize,
}

impl Block {
    fn build(
        b: &mut ParameterBuilder,
        size: BlockSize,
        shape: &ResNetShape,
        style: ResNetStyle,
    ) -> Result<Self> {
        let BlockSize {
            inputs,
            outputs,
            stride,
        } = size;
        let (groups, norm) = (shape.groups, style.norm);
        let changes = stride != 1 || inputs != outputs;
        let mut saves_last = false;
        let mut first = Vec::new();
        for (i, size) in (1..).zip(style.branch.convolutions(inputs, outputs, stride)) {
            let conv = Conv::build(b, &format!("conv{i}"), size)?;
            let norm = Norm::build(b, &format!("norm{i}"), size.outputs, groups, norm)?;
            first.push((conv, norm));
            saves_last = multiplications(size.inputs, size.kernel) > 1000;
        }
        let last = first.pop().expect("a branch has convolutions");
        Ok(Block {
            first,
            last,
            shortcut: if changes {
                let size = ConvSize {
                    inputs,
                    outputs,
                    kernel: 1,
                    stride,
                };
                let conv = Conv::build(b, "shortcut.conv", size)?;
                let norm = Norm::build(b, "shortcut.norm", outputs, groups, norm)?;
                Some((conv, norm))
            } else {
                None
            },
            activation: shape.activation,
            saves_last,
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.forward_branch(tape, x)?.finish(tape)?;
        self.add_shortcut(tape, y, &self.forward_shortcut(tape, x)?)
    }

    /// Like [`Block::forward`], recomputed in the backward pass. Saves the block's input and, on
    /// the CPU if it is expensive to recompute, the output of the last convolution.
    fn forward_checkpointed(&self, tape: &Tape, x: &Value) -> Result<Value> {
        if !self.saves_last || !x.tensor().device().is_cpu() {
            let block = self.clone();
            // The outputs of the first convolution and its norm. Parts of half this size save 15 MB
            // at batch size 32, but take 1.5 times as long.
            let values =
                2 * x.tensor().elem_count() / x.dims().first().copied().unwrap_or(1).max(1);
            return tape.checkpoint_samples_of(x, values, move |tape, x, _| block.forward(tape, x));
        }
        let (branch, shortcut) = (self.clone(), self.clone());
        let y = tape.checkpoint_samples(x, move |tape, x, _| branch.forward_branch(tape, x))?;
        let x = match self.shortcut {
            Some(_) => {
                tape.checkpoint_samples(x, move |tape, x, _| shortcut.forward_shortcut(tape, x))?
            }
            None => x.clone(),
        };
        self.add_shortcut(tape, y, &x)
    }

    /// The convolutions; the last one is left to the caller.
    fn forward_branch(&self, tape: &Tape, x: &Value) -> Result<DeferredOutput> {
        let mut x = x.clone();
        for (conv, norm) in &self.first {
            x = norm.forward(tape, &conv.forward(tape, &x)?, self.activation)?;
        }
        self.last.0.deferred(tape, &x)
    }

    /// The shortcut around the convolutions.
    fn forward_shortcut(&self, tape: &Tape, x: &Value) -> Result<Value> {
        match &self.shortcut {
            Some((conv, norm)) => norm.forward(tape, &conv.forward(tape, x)?, Activation::None),
            None => Ok(x.clone()),
        }
    }

    /// Adds the shortcut `x` to `y`, the output of the last convolution.
    fn add_shortcut(&self, tape: &Tape, y: Value, x: &Value) -> Result<Value> {
        let y = self.last.1.forward(tape, &y, Activation::None)?;
        tape.activate(&tape.add(&y, x)?, self.activation)
    }
}

impl ImageNetwork for ResNet {
    fn depth(&self) -> usize {
        self.depth()
    }

    fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        self.forward(tape, images, checkpointed)
    }
}

/// The description of a residual network.
#[derive(Debug, Clone)]
pub(crate) struct ResNetArchitecture {
    pub shape: ResNetShape,
    pub style: ResNetStyle,
}

/// PyTorch code that reads a residual network with GroupNorm.
const CODE: &str = include_str!("resnet/modeling_ebb.py");

impl ImageArchitecture for ResNetArchitecture {
    fn blocks(&self) -> usize {
        self.shape.blocks.len()
    }

    fn build(&self, b: &mut ParameterBuilder, outputs: usize) -> Result<Arc<dyn ImageNetwork>> {
        let network = ResNet::with_style(b, &self.shape, self.style, outputs)?;
        Ok(Arc::new(network))
    }

    fn hub_export(&self) -> HubExport {
        HubExport {
            config: hub_format::resnet_config(&self.shape, self.style.branch),
            tensors: HubTensors::WithCode {
                file: "modeling_ebb.py",
                code: CODE,
            },
        }
    }

    fn onnx_features(&self, g: &mut Graph, images: &str) -> crate::error::Result<Features> {
        let pooled = onnx::features(g, images, &self.shape, self.style)?;
        Ok(Features::One("head", pooled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};
    use tape::inplace::to_f64;
    use tape::{Cancel, Kernels, Parameters, Rng};

    /// A number of samples that is not a multiple of eight.
    const SAMPLES: usize = 11;

    /// Gradients of every parameter if `checkpointed` blocks are recomputed as on a GPU or a CPU.
    fn gradients(checkpointed: usize, on_gpu: bool) -> Vec<(String, Vec<f64>)> {
        let shape = ResNetShape {
            stem: ResNetStem::Pooled,
            channels: 8,
            blocks: vec![(8, 1), (8, 1), (16, 2)],
            groups: 4,
            activation: Activation::Relu,
        };
        let mut parameters = Parameters::default();
        let mut builder = ParameterBuilder::new(&mut parameters, 3, DType::F64, &Device::Cpu);
        let network = ResNet::build(&mut builder, &shape, 3).expect("a network");
        let stream = Rng::new(5);
        let pixels = (0..SAMPLES as u64 * 3 * 256).map(|i| stream.normal(i));
        let pixels: Vec<f64> = pixels.collect();
        let images = Tensor::from_vec(pixels, (SAMPLES, 3, 16, 16), &Device::Cpu);
        let images = Value::constant(images.expect("as many pixels"));
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let scores = network.forward_on(&tape, &images, checkpointed, on_gpu);
        let labels: Vec<u32> = (0..SAMPLES as u32).map(|sample| sample % 3).collect();
        let loss = tape.cross_entropy(&scores.expect("scores"), &labels, 0.0);
        let root = loss.expect("a loss").sum;
        let found = tape.backward(vec![(root, 1.0)]).expect("gradients");
        let named = parameters.iter().zip(found);
        let named = named.map(|(parameter, gradient)| {
            let gradient = gradient.expect("every parameter takes part");
            let values = to_f64(&gradient).expect("numbers");
            (parameter.name.clone(), values)
        });
        named.collect()
    }

    #[test]
    fn checkpointing_the_first_stage_keeps_the_gradients() {
        let saved = gradients(0, false);
        for (checkpointed, on_gpu) in [(3, false), (0, true), (3, true)] {
            for ((name, expected), (_, found)) in saved.iter().zip(gradients(checkpointed, on_gpu))
            {
                let scale = expected.iter().fold(1e-9f64, |most, v| most.max(v.abs()));
                let apart = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
                let apart = apart.fold(0.0, f64::max) / scale;
                assert!(
                    apart < 1e-12,
                    "the gradient of {name} differs by {apart:.1e} with {checkpointed} checkpointed blocks (on a GPU: {on_gpu})"
                );
            }
        }
    }
}
