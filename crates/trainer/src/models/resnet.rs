//! Residual network (He et al. 2016) with GroupNorm in the place of BatchNorm, or with the frozen BatchNorm of published weights.

mod shape;

use super::layers::Norm;
use super::{Builder, Conv, Linear};
use shape::KERNEL;
pub use shape::{Branch, ResNetNorm, ResNetShape, ResNetStyle, Stem};
use std::ops::Range;
use tape::{Activation, DeferredOutput, PoolShape, Result, Tape, Value};

/// The network.
#[derive(Debug, Clone)]
pub struct ResNet {
    stem: Entrance,
    blocks: Vec<Block>,
    /// Blocks before the first that halves the side: what enters these is the largest of what all blocks keep.
    first_stage: usize,
    head: Linear,
}

/// How an image enters, built.
#[derive(Debug, Clone)]
struct Entrance {
    channels: usize,
    conv: Conv,
    norm: Norm,
    activation: Activation,
    pool: Option<PoolShape>,
}

impl Entrance {
    /// Values of a sample that the convolution gives.
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
    /// All but the last, each with its activation.
    first: Vec<(Conv, Norm)>,
    last: (Conv, Norm),
    shortcut: Option<(Conv, Norm)>,
    activation: Activation,
    keeps_last: bool,
}

/// A checkpointed block of so many channels keeps what its last convolution gives: a value of it costs more than a thousand
/// products to compute again. All convolutions of a residual network cost about as much, but the deeper ones give less.
pub(crate) fn keeps_last(channels: usize) -> bool {
    products(channels, KERNEL) > 1000
}

/// Products that a value of a convolution costs.
fn products(inputs: usize, kernel: usize) -> usize {
    inputs * kernel * kernel
}

/// Deviation of the head's first weights: nearly even scores at the start.
const HEAD_DEVIATION: f64 = 0.01;

impl ResNet {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: &ResNetShape, classes: usize) -> Result<Self> {
        ResNet::styled(b, shape, ResNetStyle::OWN, classes)
    }

    /// Builds the network for `classes` of other branches or norms.
    pub fn styled(
        b: &mut Builder,
        shape: &ResNetShape,
        style: ResNetStyle,
        classes: usize,
    ) -> Result<Self> {
        let (kernel, stride, pool) = match shape.stem {
            Stem::Plain => (3, 1, None),
            Stem::Pooled => (
                7,
                2,
                Some(PoolShape {
                    kernel: 3,
                    stride: 2,
                    padding: 1,
                }),
            ),
        };
        let stem = Entrance {
            channels: shape.channels,
            conv: Conv::build(b, "stem.conv", (3, shape.channels), kernel, stride)?,
            norm: Norm::build(b, "stem.norm", shape.channels, shape.groups, style.norm)?,
            activation: shape.activation,
            pool,
        };
        let mut channels = shape.channels;
        let mut blocks = Vec::with_capacity(shape.blocks.len());
        for (i, &(out, stride)) in shape.blocks.iter().enumerate() {
            let block = b.within(&format!("blocks.{i}"), |b| {
                Block::build(b, (channels, out), stride, (shape, style))
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

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// [samples, 3, side, side] to [samples, classes]; the first `checkpointed` blocks keep their input only, and where that
    /// is all of them the stem does too. On a GPU it always does: a value of the stem's costs few products, of which a GPU
    /// has plenty, and all of them together are the largest thing that a piece would keep.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let on_gpu = !images.tensor().device().is_cpu();
        self.forward_as(tape, images, checkpointed, on_gpu)
    }

    fn forward_as(
        &self,
        tape: &Tape,
        images: &Value,
        checkpointed: usize,
        on_gpu: bool,
    ) -> Result<Value> {
        let all = checkpointed >= self.blocks.len();
        let begins = all && on_gpu && self.first_stage > 0;
        let (begun, x) = match begins && self.trains_before(tape, self.first_stage) {
            true => (self.first_stage, self.begin_lean(tape, images)?),
            false => (0, self.enter(tape, images, all || on_gpu, all)?),
        };
        let x = self.through(tape, x, begun..self.blocks.len(), checkpointed)?;
        self.head.forward(tape, &tape.mean_pool(&x)?)
    }

    fn trains_before(&self, tape: &Tape, block: usize) -> bool {
        tape.trains_under("stem.") || (0..block).any(|i| tape.trains_under(&format!("blocks.{i}.")))
    }

    /// Stem and first stage as one checkpoint of a few samples at a time, within which stem and blocks are checkpoints too: their
    /// inputs are kept for these few alone, for one more forward pass.
    fn begin_lean(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let (network, stage) = (self.clone(), self.first_stage);
        let values = self.stem.values(images) / 4;
        tape.checkpoint_samples_of(images, values, move |tape, images, _| {
            let x = network.enter(tape, images, true, true)?;
            network.through(tape, x, 0..stage, stage)
        })
    }

    /// The stem, run again in backward where that is `lean`: a few samples at a time where there are to be `few`.
    fn enter(&self, tape: &Tape, images: &Value, lean: bool, few: bool) -> Result<Value> {
        if !lean || !tape.trains_under("stem.") {
            return self.stem.forward(tape, images);
        }
        let stem = self.stem.clone();
        let values = if few { stem.values(images) } else { 0 };
        tape.checkpoint_samples_of(images, values, move |tape, x, _| stem.forward(tape, x))
    }

    /// Some of the blocks, those before `checkpointed` run again in backward.
    fn through(
        &self,
        tape: &Tape,
        x: Value,
        blocks: Range<usize>,
        checkpointed: usize,
    ) -> Result<Value> {
        let mut x = x;
        for i in blocks {
            let block = &self.blocks[i];
            // A frozen block at the beginning keeps nothing as it is.
            let passes = x.needs_gradient() || tape.trains_under(&format!("blocks.{i}."));
            x = match i < checkpointed && passes {
                true => block.checkpointed(tape, &x)?,
                false => block.forward(tape, &x)?,
            };
        }
        Ok(x)
    }
}

impl Block {
    fn build(
        b: &mut Builder,
        (inputs, outputs): (usize, usize),
        stride: usize,
        (shape, style): (&ResNetShape, ResNetStyle),
    ) -> Result<Self> {
        let (groups, norm) = (shape.groups, style.norm);
        let changes = stride != 1 || inputs != outputs;
        let (mut channels, mut keeps_last) = (inputs, false);
        let mut first = Vec::new();
        for (i, (out, kernel, stride)) in (1..).zip(style.branch.convolutions(outputs, stride)) {
            let conv = Conv::build(b, &format!("conv{i}"), (channels, out), kernel, stride)?;
            let norm = Norm::build(b, &format!("norm{i}"), out, groups, norm)?;
            first.push((conv, norm));
            keeps_last = products(channels, kernel) > 1000;
            channels = out;
        }
        let last = first.pop().expect("a branch has convolutions");
        Ok(Block {
            first,
            last,
            shortcut: if changes {
                let conv = Conv::build(b, "shortcut.conv", (inputs, outputs), 1, stride)?;
                let norm = Norm::build(b, "shortcut.norm", outputs, groups, norm)?;
                Some((conv, norm))
            } else {
                None
            },
            activation: shape.activation,
            keeps_last,
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.branch(tape, x)?.finish(tape)?;
        self.join(tape, y, &self.around(tape, x)?)
    }

    /// As [`Block::forward`], run again in backward: keeps its input, and what its last convolution gives where that is worth it: not
    /// on a GPU, which has plenty of products.
    fn checkpointed(&self, tape: &Tape, x: &Value) -> Result<Value> {
        if !self.keeps_last || !x.tensor().device().is_cpu() {
            let block = self.clone();
            // What its first convolution gives, and its norm. Parts half as large need 15 MB less of a batch of 32, but take 1.5 times as long.
            let values =
                2 * x.tensor().elem_count() / x.dims().first().copied().unwrap_or(1).max(1);
            return tape.checkpoint_samples_of(x, values, move |tape, x, _| block.forward(tape, x));
        }
        let (branch, around) = (self.clone(), self.clone());
        let y = tape.checkpoint_samples(x, move |tape, x, _| branch.branch(tape, x))?;
        let x = match self.shortcut {
            Some(_) => tape.checkpoint_samples(x, move |tape, x, _| around.around(tape, x))?,
            None => x.clone(),
        };
        self.join(tape, y, &x)
    }

    /// The convolutions, the last one still to be done.
    fn branch(&self, tape: &Tape, x: &Value) -> Result<DeferredOutput> {
        let mut x = x.clone();
        for (conv, norm) in &self.first {
            x = norm.forward(tape, &conv.forward(tape, &x)?, self.activation)?;
        }
        self.last.0.ending(tape, &x)
    }

    /// What goes round the convolutions.
    fn around(&self, tape: &Tape, x: &Value) -> Result<Value> {
        match &self.shortcut {
            Some((conv, norm)) => norm.forward(tape, &conv.forward(tape, x)?, Activation::None),
            None => Ok(x.clone()),
        }
    }

    fn join(&self, tape: &Tape, y: Value, x: &Value) -> Result<Value> {
        let y = self.last.1.forward(tape, &y, Activation::None)?;
        tape.activate(&tape.add(&y, x)?, self.activation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};
    use tape::inplace::to_f64;
    use tape::{Cancel, Kernels, Parameters, Rng};

    /// More than one part of eight.
    const SAMPLES: usize = 11;

    /// Gradients of every parameter, where `checkpointed` blocks run again as on a GPU or as on the CPU.
    fn gradients(checkpointed: usize, on_gpu: bool) -> Vec<(String, Vec<f64>)> {
        let shape = ResNetShape {
            stem: Stem::Pooled,
            channels: 8,
            blocks: vec![(8, 1), (8, 1), (16, 2)],
            groups: 4,
            activation: Activation::Relu,
        };
        let mut parameters = Parameters::default();
        let mut builder = Builder::new(&mut parameters, 3, DType::F64, &Device::Cpu);
        let network = ResNet::build(&mut builder, &shape, 3).expect("a network");
        let stream = Rng::new(5);
        let pixels = (0..SAMPLES as u64 * 3 * 256).map(|i| stream.normal(i));
        let pixels: Vec<f64> = pixels.collect();
        let images = Tensor::from_vec(pixels, (SAMPLES, 3, 16, 16), &Device::Cpu);
        let images = Value::constant(images.expect("as many pixels"));
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let scores = network.forward_as(&tape, &images, checkpointed, on_gpu);
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
    fn a_first_stage_in_one_checkpoint_has_the_gradients_of_one_that_is_kept() {
        let kept = gradients(0, false);
        for (checkpointed, on_gpu) in [(3, false), (0, true), (3, true)] {
            for ((name, expected), (_, found)) in kept.iter().zip(gradients(checkpointed, on_gpu)) {
                let scale = expected.iter().fold(1e-9f64, |most, v| most.max(v.abs()));
                let apart = expected.iter().zip(found).map(|(a, b)| (a - b).abs());
                let apart = apart.fold(0.0, f64::max) / scale;
                assert!(
                    apart < 1e-12,
                    "{name}, {checkpointed} blocks, on a GPU {on_gpu}: {apart:.1e}"
                );
            }
        }
    }
}
