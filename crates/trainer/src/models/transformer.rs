//! The transformer block that vision, text and language models share, its norms before the branches or, as BERT has them,
//! behind their sums. Attention has no key bias: its true gradient is zero, since softmax does not see a shift of all scores.

use super::adapter::Adapter;
use super::layers::{Map, of};
use super::past::{Past, Seen};
use super::{Builder, LayerNorm, Linear};
use std::sync::Arc;
use tape::{AttentionShape, DeferredOutput, GeluLinear, ParameterId, Result, Tape, Value};

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
    /// Width between the two maps of the second branch.
    pub hidden: usize,
    /// What stands between those maps.
    pub gelu: Gelu,
    /// Where the norms stand.
    pub norms: Norms,
    /// What a branch is multiplied by before it is added.
    pub branches: Branches,
}

/// Forms of the Gaussian error linear unit (Hendrycks and Gimpel 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gelu {
    /// With the hyperbolic tangent: GPT-2, and what Ebb trains from scratch.
    Tanh,
    /// With the error function: BERT, ViT, DINOv2.
    Erf,
}

/// Where the norms of a block stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norms {
    /// Before each branch.
    Before,
    /// Behind each sum of a branch with what goes round it (Vaswani et al. 2017).
    After,
}

/// What a branch is multiplied by before it is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Branches {
    /// One.
    Plain,
    /// One trained factor a channel (Touvron et al. 2021): DINOv2.
    Scaled,
}

impl BlockShape {
    /// The block of Ebb's own models: norms before the branches, four times the width between the maps, tanh form.
    pub fn pre_norm(width: usize, heads: usize) -> Self {
        BlockShape {
            width,
            heads,
            causal: false,
            epsilon: 1e-5,
            hidden: 4 * width,
            gelu: Gelu::Tanh,
            norms: Norms::Before,
            branches: Branches::Plain,
        }
    }
}

/// One block: attention, then a map up and down again.
#[derive(Debug, Clone)]
pub struct Block {
    /// Where queries, keys and values come from: `blocks.0.qkv`.
    name: Arc<str>,
    norm1: LayerNorm,
    qkv: ParameterId,
    qkv_adapter: Option<Adapter>,
    query_bias: ParameterId,
    value_bias: ParameterId,
    projection: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    /// Factors of the two branches.
    scales: Option<[ParameterId; 2]>,
    attention: AttentionShape,
    gelu: Gelu,
    norms: Norms,
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
            qkv_adapter: b.within("qkv", |b| b.adapter(3 * width, width))?,
            query_bias: b.constant("query.bias", &[width], 0.0)?,
            value_bias: b.constant("value.bias", &[width], 0.0)?,
            projection: Linear::build(b, "projection", width, width, DEVIATION)?,
            norm2: LayerNorm::build(b, "norm2", width, shape.epsilon)?,
            up: Linear::build(b, "up", width, shape.hidden, DEVIATION)?,
            down: Linear::build(b, "down", shape.hidden, width, DEVIATION)?,
            scales: match shape.branches {
                Branches::Plain => None,
                Branches::Scaled => Some([
                    b.constant("scale1", &[width], 1.0)?,
                    b.constant("scale2", &[width], 1.0)?,
                ]),
            },
            attention: AttentionShape {
                heads: shape.heads,
                causal: shape.causal,
            },
            gelu: shape.gelu,
            norms: shape.norms,
        })
    }

    /// [samples, tokens, width] to the same; with `lengths` only so many tokens of each sample are seen.
    pub fn forward(&self, tape: &Tape, x: &Value, lengths: Option<&[usize]>) -> Result<Value> {
        self.ending(tape, x, lengths)?.finish(tape)
    }

    /// As [`Block::forward`] of tokens that follow others, which join what was seen.
    fn follow(&self, tape: &Tape, x: &Value, seen: &mut Seen) -> Result<Value> {
        let attend = |qkv: &Value| seen.attention(tape, qkv, self.attention);
        self.around(tape, x, attend)?.finish(tape)
    }

    /// As [`Block::forward`], the last operation still to be done where the tape can leave it out.
    fn ending(&self, tape: &Tape, x: &Value, lengths: Option<&[usize]>) -> Result<DeferredOutput> {
        self.around(tape, x, |qkv| match lengths {
            Some(lengths) => tape.attention_padded(qkv, self.attention, lengths),
            None => tape.attention(qkv, self.attention),
        })
    }

    /// The block around its attention.
    fn around(
        &self,
        tape: &Tape,
        x: &Value,
        attend: impl FnOnce(&Value) -> Result<Value>,
    ) -> Result<DeferredOutput> {
        let x_in = match self.norms {
            Norms::Before => self.norm1.forward(tape, x)?,
            Norms::After => x.clone(),
        };
        let y = attend(&self.queries(tape, &x_in)?)?;
        let x = self.join(tape, &self.projection, 0, &y, x)?;
        match (self.norms, self.gelu, self.scales) {
            (Norms::Before, Gelu::Tanh, None) if self.down.is_plain(tape) => {
                let x_in = self.norm2.forward(tape, &x)?;
                let (y, x_bias) = self.up.without_bias(tape, &x_in)?;
                let (weight, bias) = self.down.values(tape);
                let ending = DeferredOutput::GeluLinear(Box::new(GeluLinear {
                    x: y,
                    x_is_spent: true,
                    x_bias,
                    weight,
                    bias,
                    residual: x,
                }));
                of(self.down.name(), ending.checked())
            }
            (Norms::Before, ..) => {
                let y = self.between(tape, &self.norm2.forward(tape, &x)?)?;
                Ok(self.join(tape, &self.down, 1, &y, &x)?.into())
            }
            (Norms::After, ..) => {
                let x = self.norm1.forward(tape, &x)?;
                let y = self.between(tape, &x)?;
                let x = self.join(tape, &self.down, 1, &y, &x)?;
                Ok(self.norm2.forward(tape, &x)?.into())
            }
        }
    }

    /// Queries, keys and values, side by side.
    fn queries(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (query, value) = (
            tape.parameter(self.query_bias),
            tape.parameter(self.value_bias),
        );
        let no_key_bias = Value::constant(query.tensor().zeros_like()?);
        let bias = tape.concat(&[&query, &no_key_bias, &value])?;
        let map = Map {
            name: &self.name,
            weight: self.qkv,
            adapter: self.qkv_adapter.as_ref(),
        };
        map.forward(tape, x, Some(&bias))
    }

    /// What stands between the second branch's maps.
    fn between(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.up.forward(tape, x)?;
        match self.gelu {
            Gelu::Tanh => tape.gelu(&y),
            Gelu::Erf => tape.gelu_erf(&y),
        }
    }

    /// The last map of branch `branch`, added to what goes round it.
    fn join(
        &self,
        tape: &Tape,
        map: &Linear,
        branch: usize,
        y: &Value,
        around: &Value,
    ) -> Result<Value> {
        let Some(scales) = self.scales else {
            return map.forward_add(tape, y, around);
        };
        let y = map.forward(tape, y)?;
        let scale = tape.cast(&tape.parameter(scales[branch]), y.tensor().dtype())?;
        tape.add(&of(map.name(), tape.broadcast_mul(&y, &scale))?, around)
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
            // A frozen block at the beginning keeps nothing as it is.
            let passes = x.needs_gradient() || tape.trains_under(&format!("blocks.{i}."));
            x = if i < checkpointed && passes {
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

    /// Runs all blocks over tokens that follow those of `past`, which they join.
    pub fn follow(&self, tape: &Tape, x: Value, past: &mut Past) -> Result<Value> {
        let blocks = self.blocks.iter().zip(past.blocks());
        blocks
            .into_iter()
            .try_fold(x, |x, (block, seen)| block.follow(tape, &x, seen))
    }
}
