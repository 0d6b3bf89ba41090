//! Decoder-only language model (Radford et al. 2019): learnt positions, causal blocks, output weights tied to the embedding.

use super::layers::of;
use super::transformer::{BlockShape, Blocks, DEVIATION};
use super::{Builder, LayerNorm};
use tape::{Loss, ParameterId, Result, Tape};

/// Sizes of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptShape {
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
pub struct Gpt {
    shape: GptShape,
    embedding: ParameterId,
    positions: ParameterId,
    blocks: Blocks,
    norm: LayerNorm,
}

/// Added to a variance.
const EPSILON: f64 = 1e-5;

impl Gpt {
    /// Builds the network.
    pub fn build(b: &mut Builder, shape: GptShape) -> Result<Self> {
        let block = BlockShape {
            width: shape.width,
            heads: shape.heads,
            causal: true,
            epsilon: EPSILON,
        };
        Ok(Gpt {
            shape,
            embedding: b.normal(
                "embedding.weight",
                &[shape.vocabulary, shape.width],
                DEVIATION,
            )?,
            positions: b.normal("positions", &[shape.tokens, shape.width], DEVIATION)?,
            blocks: Blocks::build(b, block, shape.depth)?,
            norm: LayerNorm::build(b, "norm", shape.width, EPSILON)?,
        })
    }

    /// Summed cross-entropy of the next token, one row a token. `ids` and `targets` are whole sequences one after the
    /// other; the first `checkpointed` blocks keep their input only.
    pub fn loss(
        &self,
        tape: &Tape,
        ids: &[u32],
        targets: &[u32],
        checkpointed: usize,
    ) -> Result<Loss> {
        let samples = ids.len() / self.shape.tokens;
        let embedding = tape.parameter(self.embedding);
        let x = tape.embedding(&embedding, ids, &[samples, self.shape.tokens])?;
        let x = of(
            "positions",
            tape.add_repeated(&x, &tape.parameter(self.positions)),
        )?;
        let x = self
            .norm
            .forward(tape, &self.blocks.forward(tape, x, checkpointed)?)?;
        let rows = tape.reshape(&x, &[ids.len(), self.shape.width])?;
        tape.linear_cross_entropy(&rows, &embedding, targets)
    }
}
