//! Text encoder for classification: learnt positions, bidirectional blocks, the mean token to the classes. Texts of different
//! lengths are padded to the longest; what is padding nothing sees.

use super::transformer::DEVIATION;
use super::trunk::{SequenceShape, Trunk};
use super::{Builder, Linear};
use tape::{Result, Tape, Value};

/// Sizes of a text encoder.
pub type TextEncoderShape = SequenceShape;

/// The network.
#[derive(Debug, Clone)]
pub struct TextEncoder {
    trunk: Trunk,
    head: Linear,
}

impl TextEncoder {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: TextEncoderShape, classes: usize) -> Result<Self> {
        Ok(TextEncoder {
            trunk: Trunk::build(b, shape, shape.block(false))?,
            head: Linear::build(b, "head", shape.width, classes, DEVIATION)?,
        })
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.trunk.depth()
    }

    /// Class scores [samples, classes] of texts one after the other, padded to one length, which is at most the model's; text
    /// `n` has `lengths[n]` tokens, at least one. Any id will do as padding. The first `checkpointed` blocks keep their input
    /// only.
    pub fn forward(
        &self,
        tape: &Tape,
        ids: &[u32],
        lengths: &[usize],
        checkpointed: usize,
    ) -> Result<Value> {
        let samples = lengths.len();
        let padded = lengths.iter().any(|length| length * samples != ids.len());
        let lengths = padded.then(|| lengths.into());
        let x = self
            .trunk
            .forward(tape, ids, samples, lengths.clone(), checkpointed)?;
        let mean = match lengths {
            Some(lengths) => tape.mean_tokens_padded(&x, &lengths)?,
            None => tape.mean_tokens(&x)?,
        };
        self.head.forward(tape, &mean)
    }
}
