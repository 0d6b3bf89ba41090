//! Decoder-only language model (GPT-2, Radford et al. 2019): learned positions, causal blocks, and
//! output weights tied to the embeddings.

use crate::kv_cache::KvCache;
use crate::parameter_builder::ParameterBuilder;
use crate::text_backbone::{Backbone, SequenceShape};
use crate::transformer::BlockShape;
use tape::{Loss, Result, Tape, Value};

/// A language model.
#[derive(Debug, Clone)]
pub struct Gpt(Backbone);

impl Gpt {
    /// Builds a network to train from scratch.
    pub fn build(b: &mut ParameterBuilder, shape: SequenceShape) -> Result<Self> {
        Gpt::with_block(b, shape, shape.block(true))
    }

    /// Builds a network of other blocks.
    pub(crate) fn with_block(
        b: &mut ParameterBuilder,
        shape: SequenceShape,
        block: BlockShape,
    ) -> Result<Self> {
        Ok(Gpt(Backbone::build(b, shape, block, 0)?))
    }

    /// Scores of the next token after each token of `samples` sequences of equal length, [samples,
    /// tokens, vocabulary].
    ///
    /// # Errors
    /// The sequences are longer than the model's context or differ in length.
    pub fn scores(&self, tape: &Tape, ids: &[u32], samples: usize) -> Result<Value> {
        let x = self.0.forward(tape, ids, samples, None, 0)?;
        tape.linear(&x, &self.0.embedding(tape), None)
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Scores [1, vocabulary] of the token after the sequence `ids`.
    ///
    /// # Errors
    /// The sequence is empty or longer than the model's context.
    pub fn next_scores(&self, tape: &Tape, ids: &[u32]) -> Result<Value> {
        let x = self.0.forward(tape, ids, 1, None, 0)?;
        self.last_scores(tape, &x, ids.len())
    }

    /// Like [`Gpt::next_scores`] for the tokens in `cache` followed by `ids`: any number for an
    /// empty cache, then one at a time, which only costs a pass over that token.
    ///
    /// # Errors
    /// The sequence is longer than the model's context.
    pub fn next_scores_cached(
        &self,
        tape: &Tape,
        ids: &[u32],
        cache: &mut KvCache,
    ) -> Result<Value> {
        let x = self.0.forward_cached(tape, ids, cache)?;
        self.last_scores(tape, &x, ids.len())
    }

    /// An empty cache for this model.
    pub fn new_cache(&self) -> KvCache {
        KvCache::new(self.0.depth())
    }

    /// Scores after the last of `tokens` tokens.
    fn last_scores(&self, tape: &Tape, x: &Value, tokens: usize) -> Result<Value> {
        let width = x.dims().last().copied().unwrap_or(0);
        let last = tape.narrow(x, 1, tokens.saturating_sub(1)..tokens)?;
        let last = tape.reshape(&last, &[1, width])?;
        tape.linear(&last, &self.0.embedding(tape), None)
    }

    /// Summed cross-entropy of the next token, one row per token. `ids` and `targets` are `samples`
    /// sequences of equal length, one after the other. The first `checkpointed` blocks save only
    /// their input.
    ///
    /// # Errors
    /// The sequences are longer than the model's context, or a target is outside the vocabulary.
    pub fn loss(
        &self,
        tape: &Tape,
        ids: &[u32],
        targets: &[u32],
        samples: usize,
        checkpointed: usize,
    ) -> Result<Loss> {
        let x = self.0.forward(tape, ids, samples, None, checkpointed)?;
        let width = x.dims().last().copied().unwrap_or(0);
        let rows = tape.reshape(&x, &[ids.len(), width])?;
        tape.linear_cross_entropy(&rows, &self.0.embedding(tape), targets)
    }
}
