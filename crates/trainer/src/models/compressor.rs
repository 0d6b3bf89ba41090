//! Token compression: a policy that reads a sequence and says how much each token should be kept, and a language model that fills
//! what was dropped from what was kept, on both sides of it. Two networks with nothing in common but the choice between them.
//! Refuses to know how the choice is made and what it earns.

use super::transformer::DEVIATION;
use super::trunk::{SequenceShape, Trunk};
use super::{Builder, Linear};
use candle_core::Tensor;
use std::sync::Arc;
use tape::{Loss, ParameterId, Result, Tape, Value};

/// Sizes of both networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressorShape {
    /// The language model.
    pub model: SequenceShape,
    /// The policy, where it is learnt.
    pub policy: Option<SequenceShape>,
}

/// The network.
#[derive(Debug, Clone)]
pub struct Compressor {
    model: Trunk,
    around: Around,
    /// Stands in the place of a dropped token.
    gap: ParameterId,
    policy: Option<Policy>,
}

#[derive(Debug, Clone)]
struct Policy {
    trunk: Trunk,
    around: Around,
    head: Linear,
}

/// What the policy says of each token, [samples, tokens] both.
pub struct Judgement {
    /// How much it should be kept: log odds.
    pub logits: Value,
    /// What dropping it is expected to cost, in nats: the learnt baseline.
    pub costs: Value,
}

/// What stands on both sides of each token, mapped and added to it: spelling is learnt from neighbours long before attention has found
/// them.
#[derive(Debug, Clone)]
struct Around(Linear);

/// Neighbours on each side.
const REACH: usize = 4;

impl Around {
    fn build(b: &mut Builder, width: usize) -> Result<Self> {
        let inputs = (2 * REACH + 1) * width;
        let deviation = 1.0 / (inputs as f64).sqrt();
        Ok(Around(Linear::build(
            b, "around", inputs, width, deviation,
        )?))
    }

    /// [samples, tokens, width] to the same; beyond both ends stands nothing.
    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (samples, tokens, width) = x.tensor().dims3()?;
        let nothing = Tensor::zeros(
            (samples, REACH, width),
            x.tensor().dtype(),
            x.tensor().device(),
        )?;
        let nothing = Value::constant(nothing);
        let framed = tape.concat_along(&[&nothing, x, &nothing], 1)?;
        let shifted = (0..=2 * REACH).map(|by| tape.narrow(&framed, 1, by..by + tokens));
        let shifted = shifted.collect::<Result<Vec<Value>>>()?;
        let side_by_side = tape.concat_along(&shifted.iter().collect::<Vec<_>>(), 2)?;
        self.0.forward_add(tape, &side_by_side, x)
    }
}

fn trunk(b: &mut Builder, shape: SequenceShape) -> Result<Trunk> {
    Trunk::build(b, shape, shape.block(false), 0)
}

impl Compressor {
    /// Builds both networks, under `model` and `policy`.
    pub fn build(b: &mut Builder, shape: CompressorShape) -> Result<Self> {
        Ok(Compressor {
            model: b.within("model", |b| trunk(b, shape.model))?,
            around: b.within("model", |b| Around::build(b, shape.model.width))?,
            gap: b.normal("model.gap", &[shape.model.width], DEVIATION)?,
            policy: match shape.policy {
                None => None,
                Some(shape) => Some(b.within("policy", |b| {
                    Ok(Policy {
                        trunk: trunk(b, shape)?,
                        around: Around::build(b, shape.width)?,
                        head: Linear::build(b, "head", shape.width, 2, DEVIATION)?,
                    })
                })?),
            },
        })
    }

    /// Blocks: the language model's, then the policy's.
    pub fn depth(&self) -> usize {
        let policy = self.policy.as_ref();
        self.model.depth() + policy.map_or(0, |policy| policy.trunk.depth())
    }

    /// What the policy says of `samples` sequences of one length, where there is one; with `lengths` only so many tokens of each
    /// count. The first `checkpointed` blocks of both networks keep their input only.
    pub fn judge(
        &self,
        tape: &Tape,
        ids: &[u32],
        samples: usize,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Option<Judgement>> {
        let Some(policy) = &self.policy else {
            return Ok(None);
        };
        let checkpointed = checkpointed.saturating_sub(self.model.depth());
        let dims = [samples, ids.len() / samples.max(1)];
        let x = tape.embedding(&policy.trunk.embedding(tape), ids, &dims)?;
        let x = policy.around.forward(tape, &x)?;
        let x = policy.trunk.read(tape, x, lengths, checkpointed)?;
        let said = policy.head.forward(tape, &x)?;
        let one = |n: usize| tape.reshape(&tape.narrow(&said, 2, n..n + 1)?, &dims);
        Ok(Some(Judgement {
            logits: one(0)?,
            costs: one(1)?,
        }))
    }

    /// [samples, tokens, width] behind tokens of which those are seen whose `kept` [samples, tokens] is 1, and a gap where it is
    /// 0. The gradient reaches `kept` where it has one.
    fn read(
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
        let x = self.around.forward(tape, &tape.broadcast_add(&x, &gap)?)?;
        self.model.read(tape, x, lengths, checkpointed)
    }

    /// Summed cross-entropy of `targets`, one row a token; those that are `IGNORED` cost nothing. Otherwise as [`Compressor::judge`].
    pub fn loss(
        &self,
        tape: &Tape,
        ids: &[u32],
        kept: &Value,
        targets: &[u32],
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Loss> {
        let x = self.read(tape, ids, kept, lengths, checkpointed)?;
        let width = x.dims().last().copied().unwrap_or(0);
        let rows = tape.reshape(&x, &[ids.len(), width])?;
        tape.linear_cross_entropy(&rows, &self.model.embedding(tape), targets)
    }

    /// Scores [samples, tokens, vocabulary] of what stands at each place.
    pub fn scores(
        &self,
        tape: &Tape,
        ids: &[u32],
        kept: &Value,
        lengths: Option<Arc<[usize]>>,
    ) -> Result<Value> {
        let x = self.read(tape, ids, kept, lengths, 0)?;
        tape.linear(&x, &self.model.embedding(tape), None)
    }
}
