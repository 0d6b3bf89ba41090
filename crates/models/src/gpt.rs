//! Decoder-only language models: GPT-2 (Radford et al. 2019), with learned positions and output
//! weights tied to the embeddings, and the newer ones of `decoder.rs`.

use crate::decoder::{Decoder, DecoderShape};
use crate::kv_cache::KvCache;
use crate::lora::BaseWeight;
use crate::parameter_builder::ParameterBuilder;
use crate::text_backbone::{Backbone, SequenceShape};
use crate::transformer::BlockShape;
use std::sync::Arc;
use tape::{Loss, Result, Tape, Value};

/// A language model.
#[derive(Debug, Clone)]
pub struct Gpt(Body);

/// `samples` sequences of equal length, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct TokenBatch<'a> {
    /// Input tokens.
    pub ids: &'a [u32],
    /// The next token of each token, or [`tape::IGNORED`].
    pub targets: &'a [u32],
    /// Number of sequences.
    pub samples: usize,
    /// For each token, the position in its sequence of the first token of its document; `None` if
    /// each sequence is one document.
    pub starts: Option<&'a [usize]>,
}

#[derive(Debug, Clone)]
enum Body {
    /// GPT-2.
    LearnedPositions(Backbone),
    /// Llama and its relatives.
    Rotary(Decoder),
}

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
        let backbone = Backbone::build(b, shape, block, 0)?;
        Ok(Gpt(Body::LearnedPositions(backbone)))
    }

    /// Builds one of the newer networks.
    pub(crate) fn with_decoder(b: &mut ParameterBuilder, shape: &DecoderShape) -> Result<Self> {
        Ok(Gpt(Body::Rotary(Decoder::build(b, shape)?)))
    }

    /// Scores of the next token after each token of `samples` sequences of equal length, [samples,
    /// tokens, vocabulary].
    ///
    /// # Errors
    /// The sequences are longer than the model's context or differ in length.
    pub fn scores(&self, tape: &Tape, ids: &[u32], samples: usize) -> Result<Value> {
        let x = self.forward(tape, ids, samples, None, 0)?;
        self.scored(tape, &x)
    }

    /// Saves the input of only every `blocks`-th checkpointed block, if the network has rotary
    /// positions.
    pub(crate) fn set_segment(&mut self, blocks: usize) {
        if let Body::Rotary(decoder) = &mut self.0 {
            decoder.set_segment(blocks);
        }
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        match &self.0 {
            Body::LearnedPositions(backbone) => backbone.depth(),
            Body::Rotary(decoder) => decoder.depth(),
        }
    }

    /// Scores [1, vocabulary] of the token after the sequence `ids`.
    ///
    /// # Errors
    /// The sequence is empty or longer than the model's context.
    pub fn next_scores(&self, tape: &Tape, ids: &[u32]) -> Result<Value> {
        let x = self.forward(tape, ids, 1, None, 0)?;
        self.last_scores(tape, &x, ids.len())
    }

    /// Like [`Gpt::next_scores`] for the tokens in `cache` followed by `ids`: any number for an
    /// empty cache, then one at a time, which only costs a pass over that token. See
    /// [`Gpt::longest_unstretched`] for models that must read a longer sequence again.
    ///
    /// # Errors
    /// The sequence is longer than the model's context.
    pub fn next_scores_cached(
        &self,
        tape: &Tape,
        ids: &[u32],
        cache: &mut KvCache,
    ) -> Result<Value> {
        let x = match &self.0 {
            Body::LearnedPositions(backbone) => backbone.forward_cached(tape, ids, cache)?,
            Body::Rotary(decoder) => decoder.forward_cached(tape, ids, cache)?,
        };
        self.last_scores(tape, &x, ids.len())
    }

    /// The number of cached tokens after which a sequence must be read again into an empty cache,
    /// because longer ones rotate all their tokens by other angles. `None` for most models.
    pub fn longest_unstretched(&self) -> Option<usize> {
        match &self.0 {
            Body::LearnedPositions(_) => None,
            Body::Rotary(decoder) => decoder.longest_unstretched(),
        }
    }

    /// An empty cache for this model.
    pub fn new_cache(&self) -> KvCache {
        KvCache::new(self.depth())
    }

    /// Keys and values in a cache with `tokens` tokens, of all blocks together.
    pub fn cached_values(&self, tokens: usize) -> usize {
        match &self.0 {
            Body::LearnedPositions(backbone) => 2 * tokens * backbone.depth() * backbone.width(),
            Body::Rotary(decoder) => decoder.cached_values(tokens),
        }
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
        self.packed_loss(
            tape,
            TokenBatch {
                ids,
                targets,
                samples,
                starts: None,
            },
            checkpointed,
        )
    }

    /// Like [`Gpt::loss`] for sequences that are packed from documents. A token sees no token of
    /// another document. In a GPT-2, which was trained without this, it does.
    ///
    /// # Errors
    /// As [`Gpt::loss`].
    pub fn packed_loss(&self, tape: &Tape, batch: TokenBatch, checkpointed: usize) -> Result<Loss> {
        let (rows, output) = (
            self.token_states(tape, batch, checkpointed)?,
            self.output(tape),
        );
        tape.linear_cross_entropy_capped(&rows, output.of_loss(), batch.targets, self.score_cap())
    }

    /// The cross-entropy of each token, [samples times tokens], for losses that weigh tokens
    /// differently. The output weights must be frozen. Otherwise as [`Gpt::packed_loss`].
    ///
    /// # Errors
    /// As [`Gpt::loss`], or the output weights are trained.
    pub fn token_losses(
        &self,
        tape: &Tape,
        batch: TokenBatch,
        checkpointed: usize,
    ) -> Result<Value> {
        let (rows, output) = (
            self.token_states(tape, batch, checkpointed)?,
            self.output(tape),
        );
        tape.linear_cross_entropy_rows(&rows, output.of_loss(), batch.targets, self.score_cap())
    }

    /// The last hidden state of each token, [samples times tokens, width].
    fn token_states(&self, tape: &Tape, batch: TokenBatch, checkpointed: usize) -> Result<Value> {
        let starts = batch.starts.map(Arc::from);
        let x = self.forward(tape, batch.ids, batch.samples, starts, checkpointed)?;
        let width = x.dims().last().copied().unwrap_or(0);
        tape.reshape(&x, &[batch.ids.len(), width])
    }

    /// The last hidden state of each token.
    fn forward(
        &self,
        tape: &Tape,
        ids: &[u32],
        samples: usize,
        starts: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        match &self.0 {
            Body::LearnedPositions(backbone) => {
                backbone.forward(tape, ids, samples, None, checkpointed)
            }
            Body::Rotary(decoder) => decoder.forward(tape, ids, samples, starts, checkpointed),
        }
    }

    /// The output weights [vocabulary, width].
    fn output<'a>(&self, tape: &Tape<'a>) -> BaseWeight<'a> {
        match &self.0 {
            Body::LearnedPositions(backbone) => BaseWeight::Full(backbone.embedding(tape)),
            Body::Rotary(decoder) => decoder.output(tape),
        }
    }

    fn score_cap(&self) -> Option<f64> {
        match &self.0 {
            Body::LearnedPositions(_) => None,
            Body::Rotary(decoder) => decoder.score_cap(),
        }
    }

    /// Scores of the next token after each hidden state.
    fn scored(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let scores = self.output(tape).map(tape, x, None)?;
        match self.score_cap() {
            None => Ok(scores),
            Some(cap) => tape.scale(&tape.tanh(&tape.scale(&scores, 1.0 / cap)?)?, cap),
        }
    }

    /// Scores after the last of `tokens` tokens.
    fn last_scores(&self, tape: &Tape, x: &Value, tokens: usize) -> Result<Value> {
        let width = x.dims().last().copied().unwrap_or(0);
        let last = tape.narrow(x, 1, tokens.saturating_sub(1)..tokens)?;
        self.scored(tape, &tape.reshape(&last, &[1, width])?)
    }
}
