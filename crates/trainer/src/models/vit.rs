//! Vision transformer (Dosovitskiy et al. 2021), pre-norm, with a class token and learnt positions. Attention has no key
//! bias: its true gradient is zero, since softmax does not see a shift of all scores.

use super::{Builder, LayerNorm, Linear};
use tape::{AttentionShape, ParameterId, Result, Tape, Value};

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
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Debug, Clone)]
struct Block {
    norm1: LayerNorm,
    qkv: ParameterId,
    query_bias: ParameterId,
    value_bias: ParameterId,
    projection: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    attention: AttentionShape,
}

/// Deviation of first weights.
const DEVIATION: f64 = 0.02;
/// Added to a variance.
const EPSILON: f64 = 1e-6;

impl Vit {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: VitShape, classes: usize) -> Result<Self> {
        let pixels = 3 * shape.patch * shape.patch;
        // One patch is one row of a linear map: its first values follow its own inputs.
        let patch = Linear::build(
            b,
            "patch",
            pixels,
            shape.width,
            (1.0 / pixels as f64).sqrt(),
        )?;
        let class_token = b.normal("class_token", &[shape.width], DEVIATION)?;
        let positions = b.normal("positions", &[shape.patches() + 1, shape.width], DEVIATION)?;
        let blocks = (0..shape.depth)
            .map(|i| b.within(&format!("blocks.{i}"), |b| Block::build(b, shape)))
            .collect::<Result<_>>()?;
        let norm = LayerNorm::build(b, "norm", shape.width, EPSILON)?;
        let head = Linear::build(b, "head", shape.width, classes, DEVIATION)?;
        Ok(Vit {
            shape,
            patch,
            class_token,
            positions,
            blocks,
            norm,
            head,
        })
    }

    /// [samples, 3, side, side] to [samples, classes].
    pub fn forward(&self, tape: &Tape, images: &Value) -> Result<Value> {
        let x = self.patch.forward(tape, &self.patches(images)?)?;
        let x = tape.prepend_token(&tape.parameter(self.class_token), &x)?;
        let mut x = tape.add_repeated(&x, &tape.parameter(self.positions))?;
        for block in &self.blocks {
            x = block.forward(tape, &x)?;
        }
        self.head
            .forward(tape, &tape.first_token(&self.norm.forward(tape, &x)?)?)
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

impl Block {
    fn build(b: &mut Builder, shape: VitShape) -> Result<Self> {
        let width = shape.width;
        Ok(Block {
            norm1: LayerNorm::build(b, "norm1", width, EPSILON)?,
            qkv: b.normal("qkv.weight", &[3 * width, width], DEVIATION)?,
            query_bias: b.constant("query.bias", &[width], 0.0)?,
            value_bias: b.constant("value.bias", &[width], 0.0)?,
            projection: Linear::build(b, "projection", width, width, DEVIATION)?,
            norm2: LayerNorm::build(b, "norm2", width, EPSILON)?,
            up: Linear::build(b, "up", width, 4 * width, DEVIATION)?,
            down: Linear::build(b, "down", 4 * width, width, DEVIATION)?,
            attention: AttentionShape {
                heads: shape.heads,
                causal: false,
            },
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (query, value) = (
            tape.parameter(self.query_bias),
            tape.parameter(self.value_bias),
        );
        let no_key_bias = Value::constant(query.tensor().zeros_like()?);
        let bias = tape.concat(&[&query, &no_key_bias, &value])?;
        let qkv = tape.linear(
            &self.norm1.forward(tape, x)?,
            &tape.parameter(self.qkv),
            Some(&bias),
        )?;
        let y = self
            .projection
            .forward(tape, &tape.attention(&qkv, self.attention)?)?;
        let x = tape.add(x, &y)?;
        let y = self.up.forward(tape, &self.norm2.forward(tape, &x)?)?;
        let y = self.down.forward(tape, &tape.gelu(&y)?)?;
        tape.add(&x, &y)
    }
}
