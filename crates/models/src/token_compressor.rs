//! Token compression: a policy scores how much each token of a sequence should be kept, and a
//! language model predicts the dropped tokens from the kept ones on both sides. The two networks
//! share no parameters. How tokens are chosen from the scores, and how the policy is rewarded, is
//! up to the task.

use crate::layers::Linear;
use crate::parameter_builder::ParameterBuilder;
use crate::text_backbone::{Backbone, SequenceShape};
use crate::transformer::DEVIATION;
use candle_core::Tensor;
use std::sync::Arc;
use tape::{Loss, ParameterId, Result, Tape, Value};

/// Sizes of both networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressorShape {
    /// The language model.
    pub model: SequenceShape,
    /// The policy; `None` if it is not learned.
    pub policy: Option<SequenceShape>,
    /// Neighbors on each side that both networks add to a token.
    pub neighbors: usize,
}

/// A language model that fills gaps, with the policy that makes them.
#[derive(Debug, Clone)]
pub struct Compressor {
    model: Backbone,
    mixer: NeighborMixer,
    /// Replaces the embedding of a dropped token.
    gap: ParameterId,
    policy: Option<Policy>,
}

#[derive(Debug, Clone)]
struct Policy {
    backbone: Backbone,
    mixer: NeighborMixer,
    head: Linear,
}

/// The policy's output for each token, both [samples, tokens].
pub struct KeepScores {
    /// Log odds of keeping the token.
    pub logits: Value,
    /// Expected cost of dropping it in nats: the learned baseline.
    pub costs: Value,
}

/// Adds a linear map of its neighbors to each token: spelling is learned from neighbors long
/// before attention finds them.
#[derive(Debug, Clone)]
struct NeighborMixer {
    map: Linear,
    /// Neighbors on each side.
    neighbors: usize,
}

impl NeighborMixer {
    fn build(b: &mut ParameterBuilder, width: usize, neighbors: usize) -> Result<Self> {
        let inputs = (2 * neighbors + 1) * width;
        let deviation = 1.0 / (inputs as f64).sqrt();
        Ok(NeighborMixer {
            map: Linear::build(b, "around", inputs, width, deviation)?,
            neighbors,
        })
    }

    /// Maps `x` [samples, tokens, width] to the same shape. Neighbors beyond both ends are zero.
    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (samples, tokens, width) = x.tensor().dims3()?;
        let padding = Tensor::zeros(
            (samples, self.neighbors, width),
            x.tensor().dtype(),
            x.tensor().device(),
        )?;
        let padding = Value::constant(padding);
        let padded = tape.concat_along(&[&padding, x, &padding], 1)?;
        let shifted = (0..=2 * self.neighbors).map(|by| tape.narrow(&padded, 1, by..by + tokens));
        let shifted = shifted.collect::<Result<Vec<Value>>>()?;
        let side_by_side = tape.concat_along(&shifted.iter().collect::<Vec<_>>(), 2)?;
        self.map.forward_add(tape, &side_by_side, x)
    }
}

fn backbone(b: &mut ParameterBuilder, shape: SequenceShape) -> Result<Backbone> {
    Backbone::build(b, shape, shape.block(false), 0)
}

impl Compressor {
    /// Builds both networks, under `model` and `policy`.
    pub fn build(b: &mut ParameterBuilder, shape: CompressorShape) -> Result<Self> {
        let neighbors = shape.neighbors;
        Ok(Compressor {
            model: b.within("model", |b| backbone(b, shape.model))?,
            mixer: b.within("model", |b| {
                NeighborMixer::build(b, shape.model.width, neighbors)
            })?,
            gap: b.normal("model.gap", &[shape.model.width], DEVIATION)?,
            policy: match shape.policy {
                None => None,
                Some(shape) => Some(b.within("policy", |b| {
                    Ok(Policy {
                        backbone: backbone(b, shape)?,
                        mixer: NeighborMixer::build(b, shape.width, neighbors)?,
                        head: Linear::build(b, "head", shape.width, 2, DEVIATION)?,
                    })
                })?),
            },
        })
    }

    /// Number of blocks: the language model's plus the policy's.
    pub fn depth(&self) -> usize {
        let policy = self.policy.as_ref();
        self.model.depth() + policy.map_or(0, |policy| policy.backbone.depth())
    }

    /// The policy's scores of `samples` sequences of equal length; `None` without a learned policy.
    /// With `lengths`, the tokens of a sequence beyond its length are padding. The first
    /// `checkpointed` blocks of both networks together save only their input.
    ///
    /// # Errors
    /// The sequences are longer than the policy's context.
    pub fn keep_scores(
        &self,
        tape: &Tape,
        ids: &[u32],
        samples: usize,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Option<KeepScores>> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        let checkpointed = checkpointed.saturating_sub(self.model.depth());
        let dims = [samples, ids.len() / samples.max(1)];
        let x = tape.embedding(&policy.backbone.embedding(tape), ids, &dims)?;
        let x = policy.mixer.forward(tape, &x)?;
        let x = policy
            .backbone
            .forward_embedded(tape, x, lengths, checkpointed)?;
        let outputs = policy.head.forward(tape, &x)?;
        let one = |n: usize| tape.reshape(&tape.narrow(&outputs, 2, n..n + 1)?, &dims);
        Ok(Some(KeepScores {
            logits: one(0)?,
            costs: one(1)?,
        }))
    }

    /// Output [samples, tokens, width] of the language model for tokens whose `kept` [samples,
    /// tokens] is 1, with gaps where it is 0. The gradient reaches `kept` if it needs one.
    fn fill(
        &self,
        tape: &Tape,
        ids: &[u32],
        kept: &Value,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let (samples, tokens) = (kept.dims()[0], kept.dims()[1]);
        let embedding = self.model.embedding(tape);
        let x = tape.embedding(&embedding, ids, &[samples, tokens])?;
        let gap = tape.cast(&tape.parameter(self.gap), x.tensor().dtype())?;
        let kept = tape.cast(kept, x.tensor().dtype())?;
        // gap + kept (x - gap)
        let x = tape.broadcast_add(&x, &tape.scale(&gap, -1.0)?)?;
        let x = tape.broadcast_mul(&x, &tape.reshape(&kept, &[samples, tokens, 1])?)?;
        let x = self.mixer.forward(tape, &tape.broadcast_add(&x, &gap)?)?;
        self.model.forward_embedded(tape, x, lengths, checkpointed)
    }

    /// Summed cross-entropy of `targets`, one row per token; targets that are `tape::IGNORED` cost
    /// nothing. Otherwise like [`Compressor::keep_scores`].
    ///
    /// # Errors
    /// The sequences are longer than the model's context, or a target is outside the vocabulary.
    pub fn loss(
        &self,
        tape: &Tape,
        ids: &[u32],
        kept: &Value,
        targets: &[u32],
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Loss> {
        let x = self.fill(tape, ids, kept, lengths, checkpointed)?;
        let width = x.dims().last().copied().unwrap_or(0);
        let rows = tape.reshape(&x, &[ids.len(), width])?;
        tape.linear_cross_entropy(&rows, &self.model.embedding(tape), targets)
    }

    /// Scores [samples, tokens, vocabulary] of the token at each position.
    ///
    /// # Errors
    /// The sequences are longer than the model's context.
    pub fn scores(
        &self,
        tape: &Tape,
        ids: &[u32],
        kept: &Value,
        lengths: Option<Arc<[usize]>>,
    ) -> Result<Value> {
        let x = self.fill(tape, ids, kept, lengths, 0)?;
        tape.linear(&x, &self.model.embedding(tape), None)
    }
}
