//! Today's decoder-only language models: Llama, Mistral, Qwen, Gemma, Phi, SmolLM and OLMo. They
//! share norms by the root mean square, rotary positions, grouped-query attention and a gated
//! feed-forward branch, and differ in the rest of [`DecoderShape`].

use crate::error::naming;
use crate::kv_cache::{BlockCache, KvCache, cached_values, tokens_that_fit};
use crate::layers::LinearMap;
use crate::lora::{Adapter, BaseWeight};
use crate::parameter_builder::ParameterBuilder;
use crate::rope::Rope;
use crate::text_backbone::embedded;
use crate::transformer::DEVIATION;
use candle_core::Shape;
use std::ops::Range;
use std::sync::Arc;
use tape::{
    DeferredOutput, Gate, GroupedAttention, JoinedHeads, ParameterId, Result, RmsNormShape,
    Rotation, Tape, TapeError, Value,
};

/// Sizes and features of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecoderShape {
    /// Most tokens per sequence.
    pub tokens: usize,
    pub vocabulary: usize,
    /// Width of a token.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys, and of values.
    pub key_heads: usize,
    pub head_width: usize,
    /// Width of the feed-forward branch.
    pub hidden: usize,
    pub norm: RmsNormShape,
    pub norms: DecoderNorms,
    pub query_key_norm: QueryKeyNorm,
    pub biases: DecoderBiases,
    /// Whether queries, keys and values are one map, and gate and up another one.
    pub has_joint_maps: bool,
    /// Activation of the gate.
    pub gate: Gate,
    /// Factor on the embeddings.
    pub embedding_scale: f64,
    /// Whether the output weights are the embeddings.
    pub has_tied_embeddings: bool,
    /// Factor on attention scores.
    pub attention_scale: f64,
    /// Bound of the attention scores.
    pub attention_cap: Option<f64>,
    /// Bound of the scores of the next token.
    pub score_cap: Option<f64>,
    /// One per block.
    pub layers: Vec<DecoderLayer>,
    /// The rotary embeddings that the layers name.
    pub ropes: Vec<Rope>,
}

/// Where a block has its norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecoderNorms {
    /// Before attention and before the feed-forward branch.
    Before,
    /// After both, before the residual sum: OLMo 2.
    After,
    /// Before and after both: Gemma.
    Both,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryKeyNorm {
    None,
    /// Of each head: Qwen 3, Gemma 3.
    PerHead,
    /// Of all heads together: OLMo 2.
    Whole,
}

/// The linear maps that have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecoderBiases {
    /// Queries, keys and values.
    pub queries: bool,
    /// The output of attention.
    pub projection: bool,
    /// Gate, up and down.
    pub feed_forward: bool,
}

/// What differs from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DecoderLayer {
    /// Tokens that a token sees; `None` for all before it.
    pub window: Option<usize>,
    /// Index of its rotary embedding; `None` for no positions.
    pub rope: Option<usize>,
}

/// A linear map that has a bias or not. A frozen one may be quantized and have an adapter.
#[derive(Debug, Clone)]
struct Map {
    name: Arc<str>,
    weight: ParameterId,
    bias: Option<ParameterId>,
    adapter: Option<Adapter>,
}

impl Map {
    fn build(
        b: &mut ParameterBuilder,
        name: &str,
        sizes: [usize; 2],
        has_bias: bool,
    ) -> Result<Self> {
        let [inputs, outputs] = sizes;
        b.within(name, |b| {
            Ok(Map {
                name: b.prefix(),
                weight: b.normal("weight", &[outputs, inputs], DEVIATION)?,
                bias: if has_bias {
                    Some(b.constant("bias", &[outputs], 0.0)?)
                } else {
                    None
                },
                adapter: Adapter::for_map(b, outputs, inputs)?,
            })
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let bias = self.bias.map(|bias| tape.parameter(bias));
        let map = LinearMap {
            name: &self.name,
            weight: self.weight,
            adapter: self.adapter.as_ref(),
        };
        map.forward(tape, x, bias.as_ref())
    }

    /// Whether the adapter draws noise.
    fn drops(&self, tape: &Tape) -> bool {
        let adapter = self.adapter.as_ref();
        adapter.is_some_and(|adapter| adapter.drops(tape))
    }
}

/// A norm by the root mean square.
#[derive(Debug, Clone)]
struct RmsNorm {
    name: Arc<str>,
    weight: ParameterId,
    shape: RmsNormShape,
}

impl RmsNorm {
    fn build(
        b: &mut ParameterBuilder,
        name: &str,
        width: usize,
        shape: RmsNormShape,
    ) -> Result<Self> {
        b.within(name, |b| {
            Ok(RmsNorm {
                name: b.prefix(),
                weight: b.constant("weight", &[width], 1.0 - shape.offset)?,
                shape,
            })
        })
    }

    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let weight = tape.parameter(self.weight);
        naming(&self.name, tape.rms_norm(x, &weight, self.shape))
    }
}

/// The maps to queries, keys and values.
#[derive(Debug, Clone)]
enum QueryMaps {
    Joint(Map),
    Separate(Box<[Map; 3]>),
}

/// The maps to the gate and to what it gates.
#[derive(Debug, Clone)]
enum GateMaps {
    Joint(Map),
    Separate(Box<[Map; 2]>),
}

impl QueryMaps {
    fn build(b: &mut ParameterBuilder, s: &DecoderShape) -> Result<Self> {
        let (queries, keys) = (s.heads * s.head_width, s.key_heads * s.head_width);
        let mut map =
            |name: &str, outputs: usize| Map::build(b, name, [s.width, outputs], s.biases.queries);
        if s.has_joint_maps {
            return Ok(QueryMaps::Joint(map("qkv", queries + 2 * keys)?));
        }
        let maps = [
            map("query", queries)?,
            map("key", keys)?,
            map("value", keys)?,
        ];
        Ok(QueryMaps::Separate(Box::new(maps)))
    }
}

impl GateMaps {
    fn build(b: &mut ParameterBuilder, s: &DecoderShape) -> Result<Self> {
        let mut map = |name: &str, outputs: usize| {
            Map::build(b, name, [s.width, outputs], s.biases.feed_forward)
        };
        if s.has_joint_maps {
            return Ok(GateMaps::Joint(map("gate_up", 2 * s.hidden)?));
        }
        let maps = [map("gate", s.hidden)?, map("up", s.hidden)?];
        Ok(GateMaps::Separate(Box::new(maps)))
    }
}

/// The norms of queries and of keys, if the decoder has them.
fn query_key_norms(b: &mut ParameterBuilder, s: &DecoderShape) -> Result<Option<[RmsNorm; 2]>> {
    let (queries, keys) = match s.query_key_norm {
        QueryKeyNorm::None => return Ok(None),
        QueryKeyNorm::PerHead => (s.head_width, s.head_width),
        QueryKeyNorm::Whole => (s.heads * s.head_width, s.key_heads * s.head_width),
    };
    Ok(Some([
        RmsNorm::build(b, "query_norm", queries, s.norm)?,
        RmsNorm::build(b, "key_norm", keys, s.norm)?,
    ]))
}

/// One block: attention, then the gated feed-forward branch, each with a residual connection.
#[derive(Debug, Clone)]
struct DecoderBlock {
    norms_before: Option<[RmsNorm; 2]>,
    norms_after: Option<[RmsNorm; 2]>,
    queries: QueryMaps,
    /// Of queries and of keys.
    query_key_norms: Option<[RmsNorm; 2]>,
    query_key_norm: QueryKeyNorm,
    projection: Map,
    gates: GateMaps,
    down: Map,
    gate: Gate,
    hidden: usize,
    attention: GroupedAttention,
}

impl DecoderBlock {
    fn build(b: &mut ParameterBuilder, s: &DecoderShape, layer: DecoderLayer) -> Result<Self> {
        let queries = s.heads * s.head_width;
        let both = |b: &mut ParameterBuilder, first: &str, second: &str| -> Result<[RmsNorm; 2]> {
            Ok([
                RmsNorm::build(b, first, s.width, s.norm)?,
                RmsNorm::build(b, second, s.width, s.norm)?,
            ])
        };
        Ok(DecoderBlock {
            norms_before: match s.norms {
                DecoderNorms::Before | DecoderNorms::Both => Some(both(b, "norm1", "norm2")?),
                DecoderNorms::After => None,
            },
            norms_after: match s.norms {
                DecoderNorms::After | DecoderNorms::Both => Some(both(b, "norm3", "norm4")?),
                DecoderNorms::Before => None,
            },
            queries: QueryMaps::build(b, s)?,
            query_key_norms: query_key_norms(b, s)?,
            query_key_norm: s.query_key_norm,
            projection: Map::build(b, "projection", [queries, s.width], s.biases.projection)?,
            gates: GateMaps::build(b, s)?,
            down: Map::build(b, "down", [s.hidden, s.width], s.biases.feed_forward)?,
            gate: s.gate,
            hidden: s.hidden,
            attention: GroupedAttention {
                heads: s.heads,
                key_heads: s.key_heads,
                head_width: s.head_width,
                scale: s.attention_scale,
                window: layer.window,
                soft_cap: s.attention_cap,
            },
        })
    }

    /// The block with `attend` as its attention from the heads of queries, keys and values.
    fn forward(
        &self,
        tape: &Tape,
        x: &Value,
        rotation: Option<&Rotation>,
        attend: impl FnOnce(&Value) -> Result<Value>,
    ) -> Result<Value> {
        self.feed_forward(tape, &self.attended(tape, x, rotation, attend)?)
    }

    /// The attention branch with its residual connection.
    fn attended(
        &self,
        tape: &Tape,
        x: &Value,
        rotation: Option<&Rotation>,
        attend: impl FnOnce(&Value) -> Result<Value>,
    ) -> Result<Value> {
        let heads = JoinedHeads {
            heads: self.attention.heads,
            key_heads: self.attention.key_heads,
            head_width: self.attention.head_width,
        };
        let [query, key, value] = self.queries_keys_values(tape, &self.before(tape, 0, x)?)?;
        let qkv = tape.rotary_embedding([&query, &key, &value], heads, rotation)?;
        drop([query, key, value]);
        let y = self.projection.forward(tape, &attend(&qkv)?)?;
        tape.add(&self.after(tape, 0, y)?, x)
    }

    /// The feed-forward branch with its residual connection. It treats each token separately.
    fn feed_forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let y = self.gated(tape, &self.before(tape, 1, x)?)?;
        let y = self.down.forward(tape, &y)?;
        tape.add(&self.after(tape, 1, y)?, x)
    }

    /// [`DecoderBlock::feed_forward`] for a checkpointed block, some tokens at a time: its
    /// intermediate values are several times as wide as its input. Noise depends on the place in
    /// the whole sample, so a branch that draws noise is not divided.
    fn feed_forward_in_parts(&self, tape: &Tape, x: Value) -> Result<DeferredOutput> {
        let maps = match &self.gates {
            GateMaps::Joint(map) => std::slice::from_ref(map),
            GateMaps::Separate(maps) => maps.as_slice(),
        };
        if maps.iter().chain([&self.down]).any(|map| map.drops(tape)) {
            return Ok(self.feed_forward(tape, &x)?.into());
        }
        let block = self.clone();
        Ok(DeferredOutput::by_rows(x, move |tape, x| {
            block.feed_forward(tape, x)
        }))
    }

    /// The input of branch `branch` (0: attention, 1: feed-forward).
    fn before(&self, tape: &Tape, branch: usize, x: &Value) -> Result<Value> {
        match &self.norms_before {
            Some(norms) => norms[branch].forward(tape, x),
            None => Ok(x.clone()),
        }
    }

    /// The output of a branch.
    fn after(&self, tape: &Tape, branch: usize, y: Value) -> Result<Value> {
        match &self.norms_after {
            Some(norms) => norms[branch].forward(tape, &y),
            None => Ok(y),
        }
    }

    fn queries_keys_values(&self, tape: &Tape, x: &Value) -> Result<[Value; 3]> {
        let GroupedAttention {
            heads,
            key_heads,
            head_width,
            ..
        } = self.attention;
        let [query, key, value] = match &self.queries {
            QueryMaps::Separate(maps) => [
                maps[0].forward(tape, x)?,
                maps[1].forward(tape, x)?,
                maps[2].forward(tape, x)?,
            ],
            QueryMaps::Joint(map) => {
                let all = map.forward(tape, x)?;
                let (queries, keys) = (heads * head_width, key_heads * head_width);
                [
                    tape.narrow(&all, 2, 0..queries)?,
                    tape.narrow(&all, 2, queries..queries + keys)?,
                    tape.narrow(&all, 2, queries + keys..queries + 2 * keys)?,
                ]
            }
        };
        let Some([of_query, of_key]) = &self.query_key_norms else {
            return Ok([query, key, value]);
        };
        let query = self.normed(tape, of_query, query)?;
        let key = self.normed(tape, of_key, key)?;
        Ok([query, key, value])
    }

    /// Queries or keys after their norm.
    fn normed(&self, tape: &Tape, norm: &RmsNorm, x: Value) -> Result<Value> {
        if self.query_key_norm == QueryKeyNorm::Whole {
            return norm.forward(tape, &x);
        }
        let shape = x.dims().to_vec();
        let width = self.attention.head_width;
        let rows = x.tensor().elem_count() / width.max(1);
        let y = norm.forward(tape, &tape.reshape(&x, &[rows, width])?)?;
        tape.reshape(&y, &shape)
    }

    /// The feed-forward branch before its last map.
    fn gated(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let [gate, up] = match &self.gates {
            GateMaps::Separate(maps) => [maps[0].forward(tape, x)?, maps[1].forward(tape, x)?],
            GateMaps::Joint(map) => {
                let both = map.forward(tape, x)?;
                let axis = both.dims().len() - 1;
                [
                    tape.narrow(&both, axis, 0..self.hidden)?,
                    tape.narrow(&both, axis, self.hidden..2 * self.hidden)?,
                ]
            }
        };
        tape.gated(&gate, &up, self.gate)
    }
}

/// A decoder. It holds the ids of its parameters, not their values.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    shape: Arc<DecoderShape>,
    embedding: ParameterId,
    blocks: Vec<DecoderBlock>,
    norm: RmsNorm,
    /// `None` if the embeddings are the output weights.
    output: Option<ParameterId>,
    /// Checkpointed blocks per saved input.
    segment: usize,
}

/// Consecutive checkpointed blocks, of which only the input of the first is saved.
struct Segment {
    /// Each with its rotation.
    blocks: Vec<(DecoderBlock, Option<Rotation>)>,
    starts: Option<Arc<[usize]>>,
    /// Per sample.
    tokens: usize,
}

impl Segment {
    /// Runs all blocks. Each saves its input on a recording tape.
    fn forward(&self, tape: &Tape, x: &Value) -> Result<Value> {
        let mut x = x.clone();
        for (block, rotation) in &self.blocks {
            let (block, rotation) = (block.clone(), rotation.clone());
            let (starts, tokens) = (self.starts.clone(), self.tokens);
            x = tape.checkpoint_samples(&x, move |tape, x, samples| {
                let span = samples.start * tokens..samples.end * tokens;
                let starts = starts.as_ref().map(|starts| &starts[span]);
                let attention = block.attention;
                let x = block.attended(tape, x, rotation.as_ref(), |qkv| {
                    tape.grouped_attention(qkv, attention, starts)
                })?;
                block.feed_forward_in_parts(tape, x)
            })?;
        }
        Ok(x)
    }
}

impl Decoder {
    /// Builds a decoder.
    pub fn build(b: &mut ParameterBuilder, shape: &DecoderShape) -> Result<Self> {
        let table = [shape.vocabulary, shape.width];
        let embedding = b.normal("embedding.weight", &table, DEVIATION)?;
        let layers = shape.layers.iter().enumerate();
        let blocks = layers.map(|(i, &layer)| {
            b.within(&format!("blocks.{i}"), |b| {
                DecoderBlock::build(b, shape, layer)
            })
        });
        let blocks = blocks.collect::<Result<_>>()?;
        Ok(Decoder {
            embedding,
            blocks,
            norm: RmsNorm::build(b, "norm", shape.width, shape.norm)?,
            output: if shape.has_tied_embeddings {
                None
            } else {
                Some(b.normal("output.weight", &table, DEVIATION)?)
            },
            shape: Arc::new(shape.clone()),
            segment: 1,
        })
    }

    /// Number of blocks.
    pub fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// Saves the input of only every `blocks`-th checkpointed block. The blocks after it run one
    /// more time in the backward pass.
    pub fn set_segment(&mut self, blocks: usize) {
        self.segment = blocks.max(1);
    }

    /// Keys and values that the blocks cache for `tokens` tokens.
    pub fn cached_values(&self, tokens: usize) -> usize {
        let blocks = self.blocks.iter();
        blocks
            .map(|block| 2 * cached_values(block.attention, tokens))
            .sum()
    }

    /// The output weights [vocabulary, width].
    pub fn output<'a>(&self, tape: &Tape<'a>) -> BaseWeight<'a> {
        BaseWeight::from_parameter(tape, self.output.unwrap_or(self.embedding))
    }

    /// The bound of the scores of the next token.
    pub fn score_cap(&self) -> Option<f64> {
        self.shape.score_cap
    }

    /// Maps `ids`, `samples` sequences of equal length one after the other, to [samples, tokens,
    /// width]. A token sees no token before its document, whose first position `starts` has for
    /// each token. Of the first `checkpointed` blocks, only the input of each segment is saved.
    pub fn forward(
        &self,
        tape: &Tape,
        ids: &[u32],
        samples: usize,
        starts: Option<Arc<[usize]>>,
        checkpointed: usize,
    ) -> Result<Value> {
        let tokens = ids.len() / samples.max(1);
        if ids.is_empty() || ids.len() != samples * tokens || tokens > self.shape.tokens {
            let most = self.shape.tokens;
            let expected =
                format!("{samples} sequences of equal length, at most {most} tokens each");
            return Err(misfit(expected, ids));
        }
        let mut x = self.embed(tape, ids, [samples, tokens])?;
        let rotations = self.rotations(&x, 0..tokens)?;
        let rotation = |i: usize| self.shape.layers[i].rope.map(|rope| &rotations[rope]);
        for span in self.spans(checkpointed) {
            // Frozen blocks before the first trained one save nothing anyway.
            let trains = |i: usize| tape.trains_under(&format!("blocks.{i}."));
            let has_gradient = x.needs_gradient() || span.clone().any(trains);
            if span.end > checkpointed || !has_gradient {
                for i in span {
                    let block = &self.blocks[i];
                    x = block.forward(tape, &x, rotation(i), |qkv| {
                        tape.grouped_attention(qkv, block.attention, starts.as_deref())
                    })?;
                }
                continue;
            }
            let single = span.len() == 1;
            let blocks = span.map(|i| (self.blocks[i].clone(), rotation(i).cloned()));
            let segment = Segment {
                blocks: blocks.collect(),
                starts: starts.clone(),
                tokens,
            };
            x = if single {
                segment.forward(tape, &x)?
            } else {
                tape.checkpoint(&x, move |tape, x| segment.forward(tape, x))?
            };
        }
        self.norm.forward(tape, &x)
    }

    /// Like [`Decoder::forward`] for one sequence whose `ids` follow those in `cache`, which they
    /// join: any number for an empty cache, then one at a time.
    pub fn forward_cached(&self, tape: &Tape, ids: &[u32], cache: &mut KvCache) -> Result<Value> {
        let (from, to) = (cache.tokens(), cache.tokens() + ids.len());
        if ids.is_empty() || to > self.shape.tokens || (from > 0 && ids.len() != 1) {
            return Err(misfit(tokens_that_fit(from, self.shape.tokens), ids));
        }
        let mut x = self.embed(tape, ids, [1, ids.len()])?;
        let rotations = self.rotations(&x, from..to)?;
        let caches: &mut [BlockCache] = cache.blocks();
        for ((block, layer), cache) in self.blocks.iter().zip(&self.shape.layers).zip(caches) {
            let rotation = layer.rope.map(|rope| &rotations[rope]);
            x = block.forward(tape, &x, rotation, |qkv| {
                cache.attention(tape, qkv, block.attention)
            })?;
        }
        cache.advance(ids.len());
        self.norm.forward(tape, &x)
    }

    /// The blocks in order: the checkpointed ones by segment, then each of the others.
    fn spans(&self, checkpointed: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (depth, segment) = (self.blocks.len(), self.segment);
        let checkpointed = checkpointed.min(depth);
        let segments = (0..checkpointed).step_by(segment);
        let segments = segments.map(move |first| first..(first + segment).min(checkpointed));
        segments.chain((checkpointed..depth).map(|i| i..i + 1))
    }

    fn embed(&self, tape: &Tape, ids: &[u32], sizes: [usize; 2]) -> Result<Value> {
        let x = embedded(tape, self.embedding, self.norm.weight, ids, sizes)?;
        if self.shape.embedding_scale == 1.0 {
            return Ok(x);
        }
        tape.scale(&x, self.shape.embedding_scale)
    }

    /// The rotations of all rotary embeddings for tokens at `positions`.
    /// As [`Rope::longest_unstretched`], of all blocks.
    pub fn longest_unstretched(&self) -> Option<usize> {
        let ropes = self.shape.ropes.iter();
        ropes.filter_map(Rope::longest_unstretched).min()
    }

    fn rotations(&self, x: &Value, positions: Range<usize>) -> Result<Vec<Rotation>> {
        let (dtype, device) = (x.tensor().dtype(), x.tensor().device());
        let ropes = self.shape.ropes.iter();
        ropes
            .map(|rope| rope.rotation(positions.clone(), dtype, device))
            .collect()
    }
}

/// The error for ids that do not fit.
fn misfit(expected: String, ids: &[u32]) -> TapeError {
    TapeError::Shape {
        op: "embedding",
        what: "ids".to_owned(),
        expected,
        found: Shape::from(ids.len()),
    }
}
