//! Keys and values of the tokens that a language model has read, so that generating one more token
//! only needs a forward pass over that token.
//!
//! Nothing is evicted. To generate beyond the model's context, start a new cache.

use candle_core::{D, DType, Tensor};
use tape::{AttentionShape, Result, Tape, Value};

/// Keys and values of all blocks for one sequence.
#[derive(Debug, Default)]
pub struct KvCache {
    blocks: Vec<BlockCache>,
    tokens: usize,
}

/// Keys [heads, head width, tokens] and values [heads, tokens, head width] of one block; `None`
/// before the first token.
#[derive(Debug, Default)]
pub(crate) struct BlockCache(Option<(Tensor, Tensor)>);

impl KvCache {
    /// An empty cache for a model of `depth` blocks.
    pub fn new(depth: usize) -> Self {
        KvCache {
            blocks: (0..depth).map(|_| BlockCache::default()).collect(),
            tokens: 0,
        }
    }

    /// Number of tokens read.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Size in bytes: one key and one value per token, block and channel.
    pub fn bytes(&self) -> u64 {
        let bytes = |t: &Tensor| (t.elem_count() * t.dtype().size_in_bytes()) as u64;
        let filled = self.blocks.iter().filter_map(|block| block.0.as_ref());
        filled
            .map(|(keys, values)| bytes(keys) + bytes(values))
            .sum()
    }

    pub(crate) fn blocks(&mut self) -> &mut [BlockCache] {
        &mut self.blocks
    }

    /// Counts tokens whose keys and values were added.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.tokens += tokens;
    }
}

impl BlockCache {
    /// Attention from `qkv` [1, tokens, 3 width] over the cached tokens and themselves, which are
    /// then cached. The first call may have many tokens, every later one exactly one.
    pub fn attention(&mut self, tape: &Tape, qkv: &Value, shape: AttentionShape) -> Result<Value> {
        let (_, tokens, width) = qkv.tensor().dims3()?;
        let (width, heads) = (width / 3, shape.heads);
        let parts = qkv.tensor().reshape((tokens, 3, heads, width / heads))?;
        let part = |index: usize| parts.narrow(1, index, 1)?.squeeze(1);
        let keys = tape.contiguous(&part(1)?.permute((1, 2, 0))?)?;
        let values = tape.contiguous(&part(2)?.permute((1, 0, 2))?)?;
        let Some((old_keys, old_values)) = self.0.take() else {
            self.0 = Some((keys, values));
            return tape.attention(qkv, shape);
        };
        let keys = tape.join(&[&old_keys, &keys], 2)?;
        let values = tape.join(&[&old_values, &values], 1)?;
        let query = tape.contiguous(&part(0)?.permute((1, 0, 2))?)?;
        let scale = (heads as f64 / width as f64).sqrt();
        let y = (query.matmul(&keys)? * scale)?;
        // In a half type the probabilities would not add up to one.
        let scores = y.to_dtype(match y.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        })?;
        let probabilities = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let probabilities = probabilities.broadcast_div(&probabilities.sum_keepdim(D::Minus1)?)?;
        let y = probabilities
            .to_dtype(y.dtype())?
            .contiguous()?
            .matmul(&values)?;
        self.0 = Some((keys, values));
        Ok(Value::constant(
            tape.contiguous(&y.permute((1, 0, 2))?)?
                .reshape((1, tokens, width))?,
        ))
    }
}
