//! Text encoder for classification: learnt positions, bidirectional blocks, the mean token to the classes.

use super::layers::of;
use super::transformer::{BlockShape, Blocks, DEVIATION};
use super::{Builder, LayerNorm, Linear};
use tape::{ParameterId, Result, Tape, Value};

/// Sizes of a text encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextEncoderShape {
    /// Tokens a sequence.
    pub tokens: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// Width of a token.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads; they divide the width.
    pub heads: usize,
}

/// The network.
#[derive(Debug, Clone)]
pub struct TextEncoder {
    shape: TextEncoderShape,
    embedding: ParameterId,
    positions: ParameterId,
    blocks: Blocks,
    norm: LayerNorm,
    head: Linear,
}

/// Added to a variance.
const EPSILON: f64 = 1e-5;

impl TextEncoder {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: TextEncoderShape, classes: usize) -> Result<Self> {
        let block = BlockShape {
            width: shape.width,
            heads: shape.heads,
            causal: false,
            epsilon: EPSILON,
        };
        Ok(TextEncoder {
            shape,
            embedding: b.normal(
                "embedding.weight",
                &[shape.vocabulary, shape.width],
                DEVIATION,
            )?,
            positions: b.normal("positions", &[shape.tokens, shape.width], DEVIATION)?,
            blocks: Blocks::build(b, block, shape.depth)?,
            norm: LayerNorm::build(b, "norm", shape.width, EPSILON)?,
            head: Linear::build(b, "head", shape.width, classes, DEVIATION)?,
        })
    }

    /// Class scores [samples, classes] of whole sequences one after the other.
    pub fn forward(&self, tape: &Tape, ids: &[u32], checkpointed: usize) -> Result<Value> {
        let samples = ids.len() / self.shape.tokens;
        let x = tape.embedding(
            &tape.parameter(self.embedding),
            ids,
            &[samples, self.shape.tokens],
        )?;
        let x = of(
            "positions",
            tape.add_repeated(&x, &tape.parameter(self.positions)),
        )?;
        let x = self
            .norm
            .forward(tape, &self.blocks.forward(tape, x, checkpointed)?)?;
        self.head.forward(tape, &tape.mean_tokens(&x)?)
    }
}
