//! The part shared by all text models: token embeddings with learned positions, blocks, and a norm
//! before or after them.

use crate::error::naming;
use crate::kv_cache::{KvCache, tokens_that_fit};
use crate::layers::LayerNorm;
use crate::parameter_builder::ParameterBuilder;
use crate::transformer::{BlockShape, Blocks, DEVIATION, NormPlacement};
use candle_core::Shape;
use std::sync::Arc;
use tape::{ParameterId, Result, Tape, TapeError, Value};

/// Sizes of a text model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceShape {
    /// Most tokens per sequence.
    pub tokens: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Width of a token.
    pub width: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
}

/// Maps token ids to one vector per token.
#[derive(Debug, Clone)]
pub(crate) struct Backbone {
    shape: SequenceShape,
    embedding: ParameterId,
    positions: ParameterId,
    /// Embeddings of BERT's token types. Ebb only uses type 0.
    token_types: Option<ParameterId>,
    blocks: Blocks,
    norm: LayerNorm,
    norms: NormPlacement,
}

/// Added to the variance by its norms.
const EPSILON: f64 = 1e-5;

/// The rows `ids` of an embedding table, quantized or not, in the shape `sizes` [samples, tokens]
/// and in the half type of the tape, or else in the element type of the parameter `like`.
pub(crate) fn embedded(
    tape: &Tape,
    table: ParameterId,
    like: ParameterId,
    ids: &[u32],
    sizes: [usize; 2],
) -> Result<Value> {
    match tape.quantized(table) {
        Some(weight) => {
            let rows = tape.quantized_embedding(weight, ids, &sizes)?;
            let of_like = || tape.parameter(like).tensor().dtype();
            tape.cast(&rows, tape.half().unwrap_or_else(of_like))
        }
        None => tape.embedding(&tape.parameter(table), ids, &sizes),
    }
}

impl SequenceShape {
    /// The block of a model of this shape trained from scratch. With `causal`, a token only attends
    /// to itself and to earlier tokens.
    pub(crate) fn block(&self, causal: bool) -> BlockShape {
        BlockShape {
            causal,
            epsilon: EPSILON,
            ..BlockShape::pre_norm(self.width, self.heads)
        }
    }
}

impl Backbone {
    /// Builds a backbone of blocks of shape `block`. Post-norm blocks get a norm after the
    /// embeddings and none at the end (Devlin et al. 2019). With `token_types` above 0, an
    /// embedding of the token type is added to each token.
    pub fn build(
        b: &mut ParameterBuilder,
        shape: SequenceShape,
        block: BlockShape,
        token_types: usize,
    ) -> Result<Self> {
        let SequenceShape {
            tokens,
            vocabulary,
            width,
            depth,
            ..
        } = shape;
        Ok(Backbone {
            shape,
            embedding: b.normal("embedding.weight", &[vocabulary, width], DEVIATION)?,
            positions: b.normal("positions", &[tokens, width], DEVIATION)?,
            token_types: match token_types {
                0 => None,
                types => Some(b.normal("kinds", &[types, width], DEVIATION)?),
            },
            blocks: Blocks::build(b, block, depth)?,
            norm: LayerNorm::build(b, "norm", width, block.epsilon)?,
            norms: block.norms,
        })
    }

    /// The token embeddings [vocabulary, width], for a head that is tied to them.
    pub fn embedding(&self, tape: &Tape) -> Value {
        tape.parameter(self.embedding)
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Channels of each token.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// Maps `ids`, `samples` sequences of equal length one after the other, to [samples, tokens,
    /// width]. With `lengths`, the tokens of a sequence beyond its length are padding. The first
    /// `checkpointed` blocks save only their input.
    pub fn forward(
        &self,
        tape: &Tape,
        ids: &[u32],
        samples: usize,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let tokens = ids.len() / samples.max(1);
        if ids.is_empty() || ids.len() != samples * tokens || tokens > self.shape.tokens {
            return Err(TapeError::Shape {
                op: "embedding",
                what: "ids".to_owned(),
                expected: format!(
                    "{samples} sequences of equal length, at most {} tokens each",
                    self.shape.tokens
                ),
                found: Shape::from(ids.len()),
            });
        }
        let x = self.embed(tape, ids, [samples, tokens])?;
        self.forward_embedded(tape, x, lengths, checkpointed)
    }

    /// The embeddings of `ids` in the shape `sizes` [samples, tokens].
    fn embed(&self, tape: &Tape, ids: &[u32], sizes: [usize; 2]) -> Result<Value> {
        embedded(tape, self.embedding, self.positions, ids, sizes)
    }

    /// Like [`Backbone::forward`] for one sequence whose `ids` follow those in `cache`, which they
    /// join: any number for an empty cache, then one at a time. Only for pre-norm blocks.
    pub fn forward_cached(&self, tape: &Tape, ids: &[u32], cache: &mut KvCache) -> Result<Value> {
        let (from, to) = (cache.tokens(), cache.tokens() + ids.len());
        let fits = !ids.is_empty() && to <= self.shape.tokens && (from == 0 || ids.len() == 1);
        if !fits || self.norms != NormPlacement::Before {
            return Err(TapeError::Shape {
                op: "embedding",
                what: "ids".to_owned(),
                expected: tokens_that_fit(from, self.shape.tokens),
                found: Shape::from(ids.len()),
            });
        }
        let x = self.embed(tape, ids, [1, ids.len()])?;
        let positions = tape.narrow(&tape.parameter(self.positions), 0, from..to)?;
        let x = naming("positions", tape.add_repeated(&x, &positions))?;
        let x = self.blocks.forward_cached(tape, x, cache)?;
        cache.advance(ids.len());
        self.norm.forward(tape, &x)
    }

    /// Like [`Backbone::forward`] for embedded tokens [samples, tokens, width].
    pub fn forward_embedded(
        &self,
        tape: &Tape,
        x: Value,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let tokens = x.dims().get(1).copied().unwrap_or(0);
        let mut positions = tape.parameter(self.positions);
        if tokens < self.shape.tokens {
            positions = tape.narrow(&positions, 0, 0..tokens)?;
        }
        let mut x = naming("positions", tape.add_repeated(&x, &positions))?;
        if let Some(types) = self.token_types {
            let first = tape.narrow(&tape.parameter(types), 0, 0..1)?;
            x = naming("kinds", tape.broadcast_add(&x, &first))?;
        }
        if self.norms == NormPlacement::After {
            x = self.norm.forward(tape, &x)?;
        }
        let x = self.blocks.forward(tape, x, lengths, checkpointed)?;
        match self.norms {
            NormPlacement::Before => self.norm.forward(tape, &x),
            NormPlacement::After => Ok(x),
        }
    }
}
