//! Residual network (He et al. 2016) with GroupNorm in the place of BatchNorm.

use super::{Builder, Conv, GroupNorm, Linear};
use tape::{Activation, Ending, PoolShape, Result, Tape, Value};

/// Widths and depths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetShape {
    /// How an image enters.
    pub stem: Stem,
    /// Channels of the stem.
    pub channels: usize,
    /// Channels and stride of each block.
    pub blocks: Vec<(usize, usize)>,
    /// Groups of each norm.
    pub groups: usize,
    /// What follows each norm.
    pub activation: Activation,
}

/// How an image enters the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stem {
    /// 3x3 at full size: small photographs.
    Plain,
    /// 7x7 with stride 2, then max pooling with stride 2: photographs of 224 px.
    Pooled,
}

impl ResNetShape {
    /// The small ConvNet: four blocks, 1.2 M parameters, for photographs of 32 to 128 px trained from scratch.
    pub fn convnet() -> Self {
        ResNetShape {
            stem: Stem::Plain,
            channels: 32,
            blocks: vec![(32, 2), (64, 2), (128, 2), (256, 2)],
            groups: 8,
            activation: Activation::Gelu,
        }
    }

    /// ResNet-18 (He et al. 2016): 11.2 M parameters beside the head.
    pub fn resnet18() -> Self {
        ResNetShape {
            stem: Stem::Pooled,
            channels: 64,
            blocks: [(64, 1), (128, 2), (256, 2), (512, 2)]
                .iter()
                .flat_map(|&(c, s)| [(c, s), (c, 1)])
                .collect(),
            groups: 32,
            activation: Activation::Relu,
        }
    }
}

/// The network.
#[derive(Debug, Clone)]
pub struct ResNet {
    stem: Entrance,
    blocks: Vec<Block>,
    head: Linear,
}

/// How an image enters, built.
#[derive(Debug, Clone)]
struct Entrance {
    conv: Conv,
    norm: GroupNorm,
    activation: Activation,
    pool: Option<PoolShape>,
}

impl Entrance {
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
    conv1: Conv,
    norm1: GroupNorm,
    conv2: Conv,
    norm2: GroupNorm,
    shortcut: Option<(Conv, GroupNorm)>,
    activation: Activation,
    keeps_last: bool,
}

/// Side of a block's kernels.
const KERNEL: usize = 3;

/// A checkpointed block of so many channels keeps what its last convolution gives: a value of it costs more than a thousand
/// products to compute again. All convolutions of a residual network cost about as much, but the deeper ones give less.
pub(crate) fn keeps_last(channels: usize) -> bool {
    channels * KERNEL * KERNEL > 1000
}

/// Deviation of the head's first weights: nearly even scores at the start.
const HEAD_DEVIATION: f64 = 0.01;

impl ResNet {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: &ResNetShape, classes: usize) -> Result<Self> {
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
            conv: Conv::build(b, "stem.conv", (3, shape.channels), kernel, stride)?,
            norm: GroupNorm::build(b, "stem.norm", shape.channels, shape.groups)?,
            activation: shape.activation,
            pool,
        };
        let mut channels = shape.channels;
        let mut blocks = Vec::with_capacity(shape.blocks.len());
        for (i, &(out, stride)) in shape.blocks.iter().enumerate() {
            let block = b.within(&format!("blocks.{i}"), |b| {
                Block::build(b, (channels, out), stride, shape)
            })?;
            blocks.push(block);
            channels = out;
        }
        Ok(ResNet {
            stem,
            blocks,
            head: Linear::build(b, "head", channels, classes, HEAD_DEVIATION)?,
        })
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// [samples, 3, side, side] to [samples, classes]; the first `checkpointed` blocks keep their input only, and where that
    /// is all of them the stem does too.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let mut x = if checkpointed >= self.blocks.len() {
            let stem = self.stem.clone();
            tape.checkpoint_samples(images, move |tape, x, _| stem.forward(tape, x))?
        } else {
            self.stem.forward(tape, images)?
        };
        for (i, block) in self.blocks.iter().enumerate() {
            x = if i < checkpointed {
                block.checkpointed(tape, &x)?
            } else {
                block.forward(tape, &x)?
            };
        }
        self.head.forward(tape, &tape.mean_pool(&x)?)
    }
}

impl Block {
    fn build(
        b: &mut Builder,
        (inputs, outputs): (usize, usize),
        stride: usize,
        shape: &ResNetShape,
    ) -> Result<Self> {
        let groups = shape.groups;
        let changes = stride != 1 || inputs != outputs;
        Ok(Block {
            conv1: Conv::build(b, "conv1", (inputs, outputs), KERNEL, stride)?,
            norm1: GroupNorm::build(b, "norm1", outputs, groups)?,
            conv2: Conv::build(b, "conv2", (outputs, outputs), KERNEL, 1)?,
            norm2: GroupNorm::build(b, "norm2", outputs, groups)?,
            shortcut: if changes {
                let conv = Conv::build(b, "shortcut.conv", (inputs, outputs), 1, stride)?;
                Some((conv, GroupNorm::build(b, "shortcut.norm", outputs, groups)?))
            } else {
                None
            },
            activation: shape.activation,
            keeps_last: keeps_last(outputs),
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.branch(tape, x)?.finish(tape)?;
        self.join(tape, y, &self.around(tape, x)?)
    }

    /// As [`Block::forward`], run again in backward: keeps its input, and what its last convolution gives where that is worth it.
    fn checkpointed(&self, tape: &Tape, x: &Value) -> Result<Value> {
        if !self.keeps_last {
            let block = self.clone();
            return tape.checkpoint_samples(x, move |tape, x, _| block.forward(tape, x));
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
    fn branch(&self, tape: &Tape, x: &Value) -> Result<Ending> {
        let y = self.conv1.forward(tape, x)?;
        let y = self.norm1.forward(tape, &y, self.activation)?;
        self.conv2.ending(tape, &y)
    }

    /// What goes round the convolutions.
    fn around(&self, tape: &Tape, x: &Value) -> Result<Value> {
        match &self.shortcut {
            Some((conv, norm)) => norm.forward(tape, &conv.forward(tape, x)?, Activation::None),
            None => Ok(x.clone()),
        }
    }

    fn join(&self, tape: &Tape, y: Value, x: &Value) -> Result<Value> {
        let y = self.norm2.forward(tape, &y, Activation::None)?;
        tape.activate(&tape.add(&y, x)?, self.activation)
    }
}
