//! The pre-norm transformer block that vision, text and language models share. Attention has no key bias: its true gradient
//! is zero, since softmax does not see a shift of all scores.

use super::layers::of;
use super::{Builder, LayerNorm, Linear};
use std::sync::Arc;
use tape::{AttentionShape, Ending, GeluLinear, ParameterId, Result, Tape, Value};

/// Sizes of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockShape {
    /// Width of a token.
    pub width: usize,
    /// Heads; they divide the width.
    pub heads: usize,
    /// A token sees itself and those before it only.
    pub causal: bool,
    /// Added to the variance of a norm.
    pub epsilon: f64,
}

/// One block: attention, then a map up to four times the width and down again.
#[derive(Debug, Clone)]
pub struct Block {
    /// Where queries, keys and values come from: `blocks.0.qkv`.
    name: Arc<str>,
    norm1: LayerNorm,
    qkv: ParameterId,
    query_bias: ParameterId,
    value_bias: ParameterId,
    projection: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    attention: AttentionShape,
}

/// Deviation of first weights (Radford et al. 2019).
pub const DEVIATION: f64 = 0.02;

impl Block {
    /// Builds one block.
    pub fn build(b: &mut Builder, shape: BlockShape) -> Result<Self> {
        let width = shape.width;
        Ok(Block {
            name: format!("{}.qkv", b.prefix()).into(),
            norm1: LayerNorm::build(b, "norm1", width, shape.epsilon)?,
            qkv: b.normal("qkv.weight", &[3 * width, width], DEVIATION)?,
            query_bias: b.constant("query.bias", &[width], 0.0)?,
            value_bias: b.constant("value.bias", &[width], 0.0)?,
            projection: Linear::build(b, "projection", width, width, DEVIATION)?,
            norm2: LayerNorm::build(b, "norm2", width, shape.epsilon)?,
            up: Linear::build(b, "up", width, 4 * width, DEVIATION)?,
            down: Linear::build(b, "down", 4 * width, width, DEVIATION)?,
            attention: AttentionShape {
                heads: shape.heads,
                causal: shape.causal,
            },
        })
    }

    /// [samples, tokens, width] to the same; with `lengths` only so many tokens of each sample are seen.
    pub fn forward(&self, tape: &Tape, x: &Value, lengths: Option<&[usize]>) -> Result<Value> {
        self.ending(tape, x, lengths)?.finish(tape)
    }

    /// As [`Block::forward`], the last map still to be done.
    fn ending(&self, tape: &Tape, x: &Value, lengths: Option<&[usize]>) -> Result<Ending> {
        let (query, value) = (
            tape.parameter(self.query_bias),
            tape.parameter(self.value_bias),
        );
        let no_key_bias = Value::constant(query.tensor().zeros_like()?);
        let bias = tape.concat(&[&query, &no_key_bias, &value])?;
        let x_in = self.norm1.forward(tape, x)?;
        let weight = tape.parameter(self.qkv);
        let qkv = of(&self.name, tape.linear(&x_in, &weight, Some(&bias)))?;
        let y = match lengths {
            Some(lengths) => tape.attention_padded(&qkv, self.attention, lengths)?,
            None => tape.attention(&qkv, self.attention)?,
        };
        let x = self.projection.forward_add(tape, &y, x)?;
        let (y, x_bias) = self.up.without_bias(tape, &self.norm2.forward(tape, &x)?)?;
        let (weight, bias) = self.down.values(tape);
        let ending = Ending::GeluLinear(Box::new(GeluLinear {
            x: y,
            x_bias,
            weight,
            bias,
            residual: x,
        }));
        of(self.down.name(), ending.fitting())
    }
}

/// Several blocks, the first of them run again in backward instead of kept.
#[derive(Debug, Clone)]
pub struct Blocks {
    blocks: Vec<Block>,
}

impl Blocks {
    /// Builds `depth` blocks under `blocks.0`, `blocks.1`, …
    pub fn build(b: &mut Builder, shape: BlockShape, depth: usize) -> Result<Self> {
        let blocks =
            (0..depth).map(|i| b.within(&format!("blocks.{i}"), |b| Block::build(b, shape)));
        Ok(Blocks {
            blocks: blocks.collect::<Result<_>>()?,
        })
    }

    /// Runs all blocks; with `lengths` only so many tokens of each sample are seen. The first `checkpointed` keep their input
    /// only.
    pub fn forward(
        &self,
        tape: &Tape,
        x: Value,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let mut x = x;
        for (i, block) in self.blocks.iter().enumerate() {
            x = if i < checkpointed {
                let (block, lengths) = (block.clone(), lengths.clone());
                tape.checkpoint_samples(&x, move |tape, x, samples| {
                    let lengths = lengths.as_ref().map(|lengths| &lengths[samples]);
                    block.ending(tape, x, lengths)
                })?
            } else {
                block.forward(tape, &x, lengths.as_deref())?
            };
        }
        Ok(x)
    }
}
