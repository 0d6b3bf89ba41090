//! What models of texts share: token embeddings with learnt positions, blocks, a norm before them or behind them. Refuses to
//! know the head and the loss.

use super::layers::of;
use super::transformer::{BlockShape, Blocks, DEVIATION, Norms};
use super::{Builder, LayerNorm, Past};
use candle_core::Shape;
use std::sync::Arc;
use tape::{ParameterId, Result, Tape, TapeError, Value};

/// Sizes of a model of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceShape {
    /// Most tokens a sequence.
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

/// From tokens to what each of them means in its sequence.
#[derive(Debug, Clone)]
pub(super) struct Trunk {
    shape: SequenceShape,
    embedding: ParameterId,
    positions: ParameterId,
    /// What is added to a token by the part of the text that it belongs to. Every token belongs to the first.
    kinds: Option<ParameterId>,
    blocks: Blocks,
    norm: LayerNorm,
    norms: Norms,
}

/// Added to a variance.
const EPSILON: f64 = 1e-5;

impl SequenceShape {
    /// A block of the model: `causal` where a token sees itself and those before it only.
    pub(crate) fn block(&self, causal: bool) -> BlockShape {
        BlockShape {
            causal,
            epsilon: EPSILON,
            ..BlockShape::pre_norm(self.width, self.heads)
        }
    }
}

impl Trunk {
    /// Builds it of `block`s. Where these have their norms behind their sums, the embeddings have one too, and there is none
    /// at the end (Devlin et al. 2019); with `kinds` above 0 they are sums of three, one of them by the kind of a token.
    pub fn build(
        b: &mut Builder,
        shape: SequenceShape,
        block: BlockShape,
        kinds: usize,
    ) -> Result<Self> {
        let SequenceShape {
            tokens,
            vocabulary,
            width,
            depth,
            ..
        } = shape;
        Ok(Trunk {
            shape,
            embedding: b.normal("embedding.weight", &[vocabulary, width], DEVIATION)?,
            positions: b.normal("positions", &[tokens, width], DEVIATION)?,
            kinds: match kinds {
                0 => None,
                kinds => Some(b.normal("kinds", &[kinds, width], DEVIATION)?),
            },
            blocks: Blocks::build(b, block, depth)?,
            norm: LayerNorm::build(b, "norm", width, block.epsilon)?,
            norms: block.norms,
        })
    }

    /// The token embeddings, for a head that is tied to them.
    pub fn embedding(&self, tape: &Tape) -> Value {
        tape.parameter(self.embedding)
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// [samples, tokens, width] of sequences one after the other, all of as many `ids`; with `lengths` only so many of each
    /// count and the rest is padding. The first `checkpointed` blocks keep their input only.
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
        self.read(tape, x, lengths, checkpointed)
    }

    fn embed(&self, tape: &Tape, ids: &[u32], sizes: [usize; 2]) -> Result<Value> {
        match tape.quantized(self.embedding) {
            Some(weight) => {
                let rows = tape.quantized_embedding(weight, ids, &sizes)?;
                tape.cast(&rows, tape.parameter(self.positions).tensor().dtype())
            }
            None => tape.embedding(&self.embedding(tape), ids, &sizes),
        }
    }

    /// The same of one sequence whose `ids` follow those of `past`, which they join: many at its beginning, then one at a time.
    /// Of blocks with their norms before the branches, as language models have them.
    pub fn follow(&self, tape: &Tape, ids: &[u32], past: &mut Past) -> Result<Value> {
        let (from, to) = (past.tokens(), past.tokens() + ids.len());
        let fits = !ids.is_empty() && to <= self.shape.tokens && (from == 0 || ids.len() == 1);
        if !fits || self.norms != Norms::Before {
            return Err(TapeError::Shape {
                op: "embedding",
                what: "ids".to_owned(),
                expected: format!(
                    "a beginning or one token behind {from}, at most {} in all",
                    self.shape.tokens
                ),
                found: Shape::from(ids.len()),
            });
        }
        let x = self.embed(tape, ids, [1, ids.len()])?;
        let positions = tape.narrow(&tape.parameter(self.positions), 0, from..to)?;
        let x = of("positions", tape.add_repeated(&x, &positions))?;
        let x = self.blocks.follow(tape, x, past)?;
        past.read(ids.len());
        self.norm.forward(tape, &x)
    }

    /// The same of tokens that are embedded already, [samples, tokens, width].
    pub fn read(
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
        let mut x = of("positions", tape.add_repeated(&x, &positions))?;
        if let Some(kinds) = self.kinds {
            let first = tape.narrow(&tape.parameter(kinds), 0, 0..1)?;
            x = of("kinds", tape.broadcast_add(&x, &first))?;
        }
        if self.norms == Norms::After {
            x = self.norm.forward(tape, &x)?;
        }
        let x = self.blocks.forward(tape, x, lengths, checkpointed)?;
        match self.norms {
            Norms::Before => self.norm.forward(tape, &x),
            Norms::After => Ok(x),
        }
    }
}
