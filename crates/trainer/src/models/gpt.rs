//! Decoder-only language model (Radford et al. 2019): learnt positions, causal blocks, output weights tied to the embedding.

use super::trunk::{SequenceShape, Trunk};
use super::{BlockShape, Builder, Past};
use tape::{Loss, Result, Tape, Value};

/// Sizes of a language model, all of whose sequences are as long as they may be.
pub type GptShape = SequenceShape;

/// The network.
#[derive(Debug, Clone)]
pub struct Gpt(Trunk);

impl Gpt {
    /// Builds the network.
    pub fn build(b: &mut Builder, shape: GptShape) -> Result<Self> {
        Gpt::styled(b, shape, shape.block(true))
    }

    /// Builds the network of other blocks.
    pub fn styled(b: &mut Builder, shape: GptShape, block: BlockShape) -> Result<Self> {
        Ok(Gpt(Trunk::build(b, shape, block, 0)?))
    }

    /// Scores of the next token [samples, tokens, vocabulary] behind each token of `samples` sequences of one length, which is
    /// at most the model's.
    pub fn scores(&self, tape: &Tape, ids: &[u32], samples: usize) -> Result<Value> {
        let x = self.0.forward(tape, ids, samples, None, 0)?;
        tape.linear(&x, &self.0.embedding(tape), None)
    }

    /// Blocks.
    pub fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Scores of the token that follows a sequence, one a token of the vocabulary; `ids` are at most as many as the model has
    /// room for.
    pub fn next(&self, tape: &Tape, ids: &[u32]) -> Result<Value> {
        let x = self.0.forward(tape, ids, 1, None, 0)?;
        self.of_last(tape, &x, ids.len())
    }

    /// As [`Gpt::next`] of what was read before and `ids` behind it: many at the beginning, then one at a time. What is kept of
    /// them makes each further token cost a pass over that one alone.
    pub fn follow(&self, tape: &Tape, ids: &[u32], past: &mut Past) -> Result<Value> {
        let x = self.0.follow(tape, ids, past)?;
        self.of_last(tape, &x, ids.len())
    }

    /// Nothing read yet.
    pub fn past(&self) -> Past {
        Past::of(self.0.depth())
    }

    /// Scores behind the last of so many tokens.
    fn of_last(&self, tape: &Tape, x: &Value, tokens: usize) -> Result<Value> {
        let width = x.dims().last().copied().unwrap_or(0);
        let last = tape.narrow(x, 1, tokens.saturating_sub(1)..tokens)?;
        let last = tape.reshape(&last, &[1, width])?;
        tape.linear(&last, &self.0.embedding(tape), None)
    }

    /// Summed cross-entropy of the next token, one row a token. `ids` and `targets` are `samples` sequences of one length,
    /// one after the other; the first `checkpointed` blocks keep their input only.
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
