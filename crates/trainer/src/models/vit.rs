//! Vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class token and learnt positions.

use super::layers::of;
use super::transformer::{BlockShape, Blocks, DEVIATION};
use super::{Builder, LayerNorm, Linear};
use tape::{ParameterId, Result, Tape, Value};

/// Sizes of a vision transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VitShape {
    /// Side of the image in pixels; a multiple of `patch`.
    pub image: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Width of a token.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads; they divide the width.
    pub heads: usize,
}

impl VitShape {
    /// A small transformer for photographs of 32 to 128 px: 6 blocks of 128, 8-px patches, 1.2 M parameters.
    pub fn micro(image: usize) -> Self {
        VitShape {
            image,
            patch: 8,
            width: 128,
            depth: 6,
            heads: 4,
        }
    }

    /// ViT-Tiny/16: 12 blocks of 192, 5.5 M parameters.
    pub fn tiny(image: usize) -> Self {
        VitShape {
            image,
            patch: 16,
            width: 192,
            depth: 12,
            heads: 3,
        }
    }

    fn patches(&self) -> usize {
        (self.image / self.patch) * (self.image / self.patch)
    }
}

/// The network.
#[derive(Debug, Clone)]
pub struct Vit {
    shape: VitShape,
    patch: Linear,
    class_token: ParameterId,
    positions: ParameterId,
    blocks: Blocks,
    norm: LayerNorm,
    head: Linear,
}

/// Added to a variance.
const EPSILON: f64 = 1e-6;

impl Vit {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: VitShape, classes: usize) -> Result<Self> {
        let pixels = 3 * shape.patch * shape.patch;
        let block = BlockShape {
            width: shape.width,
            heads: shape.heads,
            causal: false,
            epsilon: EPSILON,
        };
        Ok(Vit {
            shape,
            // One patch is one row of a linear map: its first values follow its own inputs.
            patch: Linear::build(
                b,
                "patch",
                pixels,
                shape.width,
                (1.0 / pixels as f64).sqrt(),
            )?,
            class_token: b.normal("class_token", &[shape.width], DEVIATION)?,
            positions: b.normal("positions", &[shape.patches() + 1, shape.width], DEVIATION)?,
            blocks: Blocks::build(b, block, shape.depth)?,
            norm: LayerNorm::build(b, "norm", shape.width, EPSILON)?,
            head: Linear::build(b, "head", shape.width, classes, DEVIATION)?,
        })
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// [samples, 3, side, side] to [samples, classes]; the first `checkpointed` blocks keep their input only.
    pub fn forward(&self, tape: &Tape, images: &Value, checkpointed: usize) -> Result<Value> {
        let x = self.patch.forward(tape, &self.patches(images)?)?;
        let x = of(
            "class_token",
            tape.prepend_token(&tape.parameter(self.class_token), &x),
        )?;
        let x = of(
            "positions",
            tape.add_repeated(&x, &tape.parameter(self.positions)),
        )?;
        let x = self.blocks.forward(tape, x, None, checkpointed)?;
        // The norm works token by token, so only the class token needs it.
        self.head
            .forward(tape, &self.norm.forward(tape, &tape.first_token(&x)?)?)
    }

    /// Cuts images into rows of patch pixels: [samples, patches, 3 patch patch]. Data only: no gradient passes.
    fn patches(&self, images: &Value) -> Result<Value> {
        let (samples, channels, height, width) = images.tensor().dims4()?;
        let p = self.shape.patch;
        let cut = images
            .tensor()
            .reshape((samples, channels, height / p, p, width / p, p))?;
        let rows = cut.permute((0, 2, 4, 1, 3, 5))?.contiguous()?;
        Ok(Value::constant(rows.reshape((
            samples,
            self.shape.patches(),
            channels * p * p,
        ))?))
    }
}
