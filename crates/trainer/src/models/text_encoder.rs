//! Text encoder for classification: learnt positions, bidirectional blocks, the mean token or the first one to the classes.
//! Texts of different lengths are padded to the longest; what is padding nothing sees.

use super::transformer::{BlockShape, DEVIATION};
use super::trunk::{SequenceShape, Trunk};
use super::{Builder, Linear};
use tape::{Result, Tape, Value};

/// Sizes of a text encoder.
pub type TextEncoderShape = SequenceShape;

/// What stands for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of its tokens.
    Mean,
    /// Its first token.
    First,
    /// Its first token through a map and the hyperbolic tangent (Devlin et al. 2019).
    FirstMapped,
}

/// What a text encoder is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextEncoderStyle {
    /// One block.
    pub block: BlockShape,
    /// Kinds of tokens that have an embedding of their own; 0 where there is no such thing.
    pub kinds: usize,
    /// What stands for a text.
    pub pooling: Pooling,
}

impl TextEncoderStyle {
    /// Ebb's own encoder of that shape: pre-norm blocks, the mean token.
    pub fn own(shape: TextEncoderShape) -> Self {
        TextEncoderStyle {
            block: shape.block(false),
            kinds: 0,
            pooling: Pooling::Mean,
        }
    }
}

/// The network.
#[derive(Debug, Clone)]
pub struct TextEncoder {
    trunk: Trunk,
    pooling: Pooling,
    pooler: Option<Linear>,
    head: Linear,
}

impl TextEncoder {
    /// Builds the network for `classes`.
    pub fn build(b: &mut Builder, shape: TextEncoderShape, classes: usize) -> Result<Self> {
        TextEncoder::styled(b, shape, TextEncoderStyle::own(shape), classes)
    }

    /// Builds the network for `classes` of other blocks or with another pooling.
    pub fn styled(
        b: &mut Builder,
        shape: TextEncoderShape,
        style: TextEncoderStyle,
        classes: usize,
    ) -> Result<Self> {
        let width = shape.width;
        Ok(TextEncoder {
            trunk: Trunk::build(b, shape, style.block, style.kinds)?,
            pooling: style.pooling,
            pooler: match style.pooling {
                Pooling::FirstMapped => Some(Linear::build(b, "pooler", width, width, DEVIATION)?),
                Pooling::Mean | Pooling::First => None,
            },
            head: Linear::build(b, "head", width, classes, DEVIATION)?,
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
        let text = self.embed(tape, ids, lengths, checkpointed)?;
        self.head.forward(tape, &text)
    }

    /// What stands for each text: [samples, width]. Otherwise as [`TextEncoder::forward`].
    pub fn embed(
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
        match (self.pooling, &self.pooler, lengths) {
            (Pooling::Mean, _, Some(lengths)) => tape.mean_tokens_padded(&x, &lengths),
            (Pooling::Mean, _, None) => tape.mean_tokens(&x),
            (_, None, _) => tape.first_token(&x),
            (_, Some(pooler), _) => tape.tanh(&pooler.forward(tape, &tape.first_token(&x)?)?),
        }
    }
}
