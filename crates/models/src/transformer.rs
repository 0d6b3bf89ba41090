//! The transformer block shared by vision, text and language models, with pre-norm or, as in BERT,
//! post-norm. Attention has no key bias: its gradient is always zero, because softmax does not see
//! a shift of all scores.

use crate::error::naming;
use crate::kv_cache::{BlockCache, KvCache};
use crate::layers::{LayerNorm, Linear, LinearMap};
use crate::lora::Adapter;
use crate::parameter_builder::ParameterBuilder;
use std::sync::Arc;
use tape::{
    AttentionShape, DeferredOutput, GeluLinear, GroupedAttention, ParameterId, Result, Tape, Value,
};

/// Sizes of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockShape {
    /// Width of a token.
    pub width: usize,
    /// Number of heads; divides the width.
    pub heads: usize,
    /// Whether a token only attends to itself and to earlier tokens.
    pub causal: bool,
    /// Added to the variance by its norms.
    pub epsilon: f64,
    /// Width between the two maps of the MLP.
    pub hidden: usize,
    /// Activation between those maps.
    pub gelu: Gelu,
    /// Whether norms come before or after attention and MLP.
    pub norms: NormPlacement,
    /// Factor on attention and MLP before they are added to the residual.
    pub scale: ResidualScale,
}

/// Forms of the Gaussian error linear unit (Hendrycks and Gimpel 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gelu {
    /// The tanh approximation: GPT-2 and all networks trained from scratch.
    Tanh,
    /// The exact form with the error function: BERT, ViT, DINOv2.
    Erf,
}

/// Where a block has its norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// Before attention and before the MLP (pre-norm).
    Before,
    /// After each residual sum (post-norm, Vaswani et al. 2017).
    After,
}

/// Factor on attention and MLP before they are added to the residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidualScale {
    /// No factor.
    None,
    /// One trained factor per channel (LayerScale, Touvron et al. 2021): DINOv2.
    PerChannel,
}

impl BlockShape {
    /// The block of networks trained from scratch: pre-norm, an MLP of four times the width, tanh
    /// GELU.
    pub fn pre_norm(width: usize, heads: usize) -> Self {
        BlockShape {
            width,
            heads,
            causal: false,
            epsilon: 1e-5,
            hidden: 4 * width,
            gelu: Gelu::Tanh,
            norms: NormPlacement::Before,
            scale: ResidualScale::None,
        }
    }
}

/// One block: attention, then the MLP, each with a residual connection.
#[derive(Debug, Clone)]
pub struct Block {
    /// Name of the joint projection to queries, keys and values: `blocks.0.qkv`.
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
    /// Per-channel factors of attention and of the MLP.
    scales: Option<[ParameterId; 2]>,
    attention: AttentionShape,
    gelu: Gelu,
    norms: NormPlacement,
}

/// Standard deviation of initial weights (Radford et al. 2019).
pub(crate) const DEVIATION: f64 = 0.02;

impl Block {
    /// Builds one block.
    pub fn build(b: &mut ParameterBuilder, shape: BlockShape) -> Result<Self> {
        let width = shape.width;
        Ok(Block {
            name: format!("{}.qkv", b.prefix()).into(),
            norm1: LayerNorm::build(b, "norm1", width, shape.epsilon)?,
            qkv: b.normal("qkv.weight", &[3 * width, width], DEVIATION)?,
            qkv_adapter: b.within("qkv", |b| Adapter::for_map(b, 3 * width, width))?,
            query_bias: b.constant("query.bias", &[width], 0.0)?,
            value_bias: b.constant("value.bias", &[width], 0.0)?,
            projection: Linear::build(b, "projection", width, width, DEVIATION)?,
            norm2: LayerNorm::build(b, "norm2", width, shape.epsilon)?,
            up: Linear::build(b, "up", width, shape.hidden, DEVIATION)?,
            down: Linear::build(b, "down", shape.hidden, width, DEVIATION)?,
            scales: match shape.scale {
                ResidualScale::None => None,
                ResidualScale::PerChannel => Some([
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

    /// Maps `x` [samples, tokens, width] to the same shape. With `lengths`, only that many tokens
    /// of each sample are attended to.
    pub fn forward(&self, tape: &Tape, x: &Value, lengths: Option<&[usize]>) -> Result<Value> {
        self.deferred(tape, x, lengths)?.finish(tape)
    }

    /// Like [`Block::forward`] for tokens that follow those in `cache`, which they join.
    fn forward_cached(&self, tape: &Tape, x: &Value, cache: &mut BlockCache) -> Result<Value> {
        let attend = |qkv: &Value| {
            let width = qkv.dims().last().copied().unwrap_or(0) / 3;
            cache.attention(
                tape,
                qkv,
                GroupedAttention::for_heads(self.attention.heads, width),
            )
        };
        self.forward_with(tape, x, attend)?.finish(tape)
    }

    /// Like [`Block::forward`], but leaves the last operation to the caller if the tape can skip it
    /// when a checkpoint is recomputed.
    fn deferred(
        &self,
        tape: &Tape,
        x: &Value,
        lengths: Option<&[usize]>,
    ) -> Result<DeferredOutput> {
        self.forward_with(tape, x, |qkv| match lengths {
            Some(lengths) => tape.attention_padded(qkv, self.attention, lengths),
            None => tape.attention(qkv, self.attention),
        })
    }

    /// The block with `attend` as its attention from queries, keys and values.
    fn forward_with(
        &self,
        tape: &Tape,
        x: &Value,
        attend: impl FnOnce(&Value) -> Result<Value>,
    ) -> Result<DeferredOutput> {
        let x_in = match self.norms {
            NormPlacement::Before => self.norm1.forward(tape, x)?,
            NormPlacement::After => x.clone(),
        };
        let y = attend(&self.queries_keys_values(tape, &x_in)?)?;
        let x = self.add_residual(tape, &self.projection, 0, &y, x)?;
        match (self.norms, self.gelu, self.scales) {
            (NormPlacement::Before, Gelu::Tanh, None) if self.down.is_plain(tape) => {
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
                naming(self.down.name(), ending.checked())
            }
            (NormPlacement::Before, ..) => {
                let y = self.up_activated(tape, &self.norm2.forward(tape, &x)?)?;
                Ok(self.add_residual(tape, &self.down, 1, &y, &x)?.into())
            }
            (NormPlacement::After, ..) => {
                let x = self.norm1.forward(tape, &x)?;
                let y = self.up_activated(tape, &x)?;
                let x = self.add_residual(tape, &self.down, 1, &y, &x)?;
                Ok(self.norm2.forward(tape, &x)?.into())
            }
        }
    }

    /// Queries, keys and values side by side, [samples, tokens, 3 width].
    fn queries_keys_values(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let (query, value) = (
            tape.parameter(self.query_bias),
            tape.parameter(self.value_bias),
        );
        let no_key_bias = Value::constant(query.tensor().zeros_like()?);
        let bias = tape.concat(&[&query, &no_key_bias, &value])?;
        let map = LinearMap {
            name: &self.name,
            weight: self.qkv,
            adapter: self.qkv_adapter.as_ref(),
        };
        map.forward(tape, x, Some(&bias))
    }

    /// The MLP before its second map.
    fn up_activated(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.up.forward(tape, x)?;
        match self.gelu {
            Gelu::Tanh => tape.gelu(&y),
            Gelu::Erf => tape.gelu_erf(&y),
        }
    }

    /// Adds `map(y)` to `residual`, scaled by factor `branch` (0: attention, 1: MLP) if there is
    /// one.
    fn add_residual(
        &self,
        tape: &Tape,
        map: &Linear,
        branch: usize,
        y: &Value,
        residual: &Value,
    ) -> Result<Value> {
        let Some(scales) = self.scales else {
            return map.forward_add(tape, y, residual);
        };
        let y = map.forward(tape, y)?;
        let scale = tape.cast(&tape.parameter(scales[branch]), y.tensor().dtype())?;
        let y = naming(map.name(), tape.broadcast_mul(&y, &scale))?;
        tape.add(&y, residual)
    }
}

/// A stack of blocks. The activations of the first ones may be recomputed in the backward pass.
#[derive(Debug, Clone)]
pub struct Blocks {
    blocks: Vec<Block>,
}

impl Blocks {
    /// Builds `depth` blocks under `blocks.0`, `blocks.1`, …
    pub fn build(b: &mut ParameterBuilder, shape: BlockShape, depth: usize) -> Result<Self> {
        let blocks =
            (0..depth).map(|i| b.within(&format!("blocks.{i}"), |b| Block::build(b, shape)));
        Ok(Blocks {
            blocks: blocks.collect::<Result<_>>()?,
        })
    }

    /// Runs all blocks over `x` [samples, tokens, width]. With `lengths`, only that many tokens of
    /// each sample are attended to. The first `checkpointed` blocks save only their input.
    pub fn forward(
        &self,
        tape: &Tape,
        x: Value,
        lengths: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let mut x = x;
        for (i, block) in self.blocks.iter().enumerate() {
            // A frozen block before the first trained one saves nothing anyway.
            let has_gradient = x.needs_gradient() || tape.trains_under(&format!("blocks.{i}."));
            x = if i < checkpointed && has_gradient {
                let (block, lengths) = (block.clone(), lengths.clone());
                tape.checkpoint_samples(&x, move |tape, x, samples| {
                    let lengths = lengths.as_ref().map(|lengths| &lengths[samples]);
                    block.deferred(tape, x, lengths)
                })?
            } else {
                block.forward(tape, &x, lengths.as_deref())?
            };
        }
        Ok(x)
    }

    /// Runs all blocks over tokens that follow those in `cache`, which they join.
    pub fn forward_cached(&self, tape: &Tape, x: Value, cache: &mut KvCache) -> Result<Value> {
        let blocks = self.blocks.iter().zip(cache.blocks());
        blocks
            .into_iter()
            .try_fold(x, |x, (block, cache)| block.forward_cached(tape, &x, cache))
    }
}
