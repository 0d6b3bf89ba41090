//! Text encoder for classification: learned positions, bidirectional blocks, and classes from the
//! mean token or the first one. Texts of different lengths are padded to the longest; no token
//! attends to padding.

use crate::layers::Linear;
use crate::parameter_builder::ParameterBuilder;
use crate::text_backbone::{Backbone, SequenceShape};
use crate::transformer::{BlockShape, DEVIATION};
use tape::{Result, Tape, Value};

/// The vector that represents a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of its tokens.
    Mean,
    /// Its first token.
    First,
    /// Its first token after a linear map and tanh (Devlin et al. 2019).
    Pooler,
}

/// The blocks and the pooling of a text encoder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextEncoderStyle {
    pub block: BlockShape,
    /// Number of token types with an embedding; 0 for none.
    pub token_types: usize,
    /// The vector that represents a text.
    pub pooling: Pooling,
}

impl TextEncoderStyle {
    /// An encoder to train from scratch: pre-norm blocks, the mean token.
    pub fn from_scratch(shape: SequenceShape) -> Self {
        TextEncoderStyle {
            block: shape.block(false),
            token_types: 0,
            pooling: Pooling::Mean,
        }
    }
}

/// A text encoder with a head for classes.
#[derive(Debug, Clone)]
pub struct TextEncoder {
    backbone: Backbone,
    pooling: Pooling,
    pooler: Option<Linear>,
    head: Linear,
}

impl TextEncoder {
    /// Builds a network to train from scratch.
    pub fn build(b: &mut ParameterBuilder, shape: SequenceShape, classes: usize) -> Result<Self> {
        TextEncoder::with_style(b, shape, TextEncoderStyle::from_scratch(shape), classes)
    }

    /// Builds a network of other blocks or with another pooling.
    pub(crate) fn with_style(
        b: &mut ParameterBuilder,
        shape: SequenceShape,
        style: TextEncoderStyle,
        classes: usize,
    ) -> Result<Self> {
        let width = shape.width;
        Ok(TextEncoder {
            backbone: Backbone::build(b, shape, style.block, style.token_types)?,
            pooling: style.pooling,
            pooler: match style.pooling {
                Pooling::Pooler => Some(Linear::build(b, "pooler", width, width, DEVIATION)?),
                Pooling::Mean | Pooling::First => None,
            },
            head: Linear::build(b, "head", width, classes, DEVIATION)?,
        })
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.backbone.depth()
    }

    /// Class scores [samples, classes] of texts, padded with any id to equal length, one after the
    /// other. Text `n` has `lengths[n]` tokens, at least one. The first `checkpointed` blocks save
    /// only their input.
    ///
    /// # Errors
    /// The texts are longer than the model's context or differ in length.
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

    /// One vector per text, [samples, width]; otherwise like [`TextEncoder::forward`].
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
            .backbone
            .forward(tape, ids, samples, lengths.clone(), checkpointed)?;
        match (self.pooling, &self.pooler, lengths) {
            (Pooling::Mean, _, Some(lengths)) => tape.mean_tokens_padded(&x, &lengths),
            (Pooling::Mean, _, None) => tape.mean_tokens(&x),
            (_, None, _) => tape.first_token(&x),
            (_, Some(pooler), _) => tape.tanh(&pooler.forward(tape, &tape.first_token(&x)?)?),
        }
    }
}
