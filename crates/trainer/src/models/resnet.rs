//! Residual network (He et al. 2016) with GroupNorm in the place of BatchNorm.

use super::{Builder, Conv, GroupNorm, Linear};
use tape::{Result, Tape, Value};

/// Widths and depths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetShape {
    /// Channels of the stem.
    pub stem: usize,
    /// Channels and stride of each block.
    pub blocks: Vec<(usize, usize)>,
    /// Groups of each norm.
    pub groups: usize,
}

impl ResNetShape {
    /// The small ConvNet: four blocks, 1.2 M parameters, for photographs of 32 to 128 px trained from scratch.
    pub fn convnet() -> Self {
        ResNetShape {
            stem: 32,
            blocks: vec![(32, 2), (64, 2), (128, 2), (256, 2)],
            groups: 8,
        }
    }
}

/// The network.
#[derive(Debug, Clone)]
pub struct ResNet {
    stem: Conv,
    stem_norm: GroupNorm,
    blocks: Vec<Block>,
    head: Linear,
}

#[derive(Debug, Clone)]
struct Block {
    conv1: Conv,
    norm1: GroupNorm,
    conv2: Conv,
    norm2: GroupNorm,
    shortcut: Option<(Conv, GroupNorm)>,
}

/// Deviation of the head's first weights: nearly even scores at the start.
const HEAD_DEVIATION: f64 = 0.01;

impl ResNet {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: &ResNetShape, classes: usize) -> Result<Self> {
        let stem = Conv::build(b, "stem.conv", (3, shape.stem), 3, 1)?;
        let stem_norm = GroupNorm::build(b, "stem.norm", shape.stem, shape.groups)?;
        let mut channels = shape.stem;
        let mut blocks = Vec::with_capacity(shape.blocks.len());
        for (i, &(out, stride)) in shape.blocks.iter().enumerate() {
            let block = b.within(&format!("blocks.{i}"), |b| {
                Block::build(b, (channels, out), stride, shape.groups)
            })?;
            blocks.push(block);
            channels = out;
        }
        Ok(ResNet {
            stem,
            stem_norm,
            blocks,
            head: Linear::build(b, "head", channels, classes, HEAD_DEVIATION)?,
        })
    }

    /// [samples, 3, side, side] to [samples, classes].
    pub fn forward(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let x = self
            .stem_norm
            .forward(tape, &self.stem.forward(tape, images)?)?;
        let mut x = tape.relu(&x)?;
        for block in &self.blocks {
            x = block.forward(tape, &x)?;
        }
        self.head.forward(tape, &tape.mean_pool(&x)?)
    }
}

impl Block {
    fn build(
        b: &mut Builder,
        (inputs, outputs): (usize, usize),
        stride: usize,
        groups: usize,
    ) -> Result<Self> {
        let changes = stride != 1 || inputs != outputs;
        Ok(Block {
            conv1: Conv::build(b, "conv1", (inputs, outputs), 3, stride)?,
            norm1: GroupNorm::build(b, "norm1", outputs, groups)?,
            conv2: Conv::build(b, "conv2", (outputs, outputs), 3, 1)?,
            norm2: GroupNorm::build(b, "norm2", outputs, groups)?,
            shortcut: if changes {
                let conv = Conv::build(b, "shortcut.conv", (inputs, outputs), 1, stride)?;
                Some((conv, GroupNorm::build(b, "shortcut.norm", outputs, groups)?))
            } else {
                None
            },
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.norm1.forward(tape, &self.conv1.forward(tape, x)?)?;
        let y = tape.relu(&y)?;
        let y = self.norm2.forward(tape, &self.conv2.forward(tape, &y)?)?;
        let x = match &self.shortcut {
            Some((conv, norm)) => norm.forward(tape, &conv.forward(tape, x)?)?,
            None => x.clone(),
        };
        tape.relu(&tape.add(&y, &x)?)
    }
}
