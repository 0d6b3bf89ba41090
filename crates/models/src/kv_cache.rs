//! Keys and values of the tokens that a language model has read, so that generating one more token
//! only needs a forward pass over that token.
//!
//! A block whose tokens see only a window of tokens caches no more than this window. Otherwise
//! nothing is evicted: to generate beyond the model's context, start a new cache.

use candle_core::{D, DType, Tensor};
use tape::device::{contiguous, convert};
use tape::{GroupedAttention, Result, Tape, Value};

/// Keys or values that a block caches for `tokens` tokens.
pub(crate) fn cached_values(shape: GroupedAttention, tokens: usize) -> usize {
    tokens.min(shape.window.unwrap_or(tokens)) * shape.key_heads * shape.head_width
}

/// Keys and values of all blocks for one sequence.
#[derive(Debug, Default)]
pub struct KvCache {
    blocks: Vec<BlockCache>,
    tokens: usize,
}

/// Keys [key heads, head width, tokens] and values [key heads, tokens, head width] of one block,
/// of the tokens in its window; `None` before the first token.
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

    /// Size in bytes.
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
    /// Attention from `qkv` [1, tokens, (heads + 2 key heads) head width] over the cached tokens
    /// and themselves, which are then cached. The first call may have many tokens, every later one
    /// exactly one.
    pub fn attention(
        &mut self,
        tape: &Tape,
        qkv: &Value,
        shape: GroupedAttention,
    ) -> Result<Value> {
        let (_, tokens, _) = qkv.tensor().dims3()?;
        let (groups, head) = (shape.key_heads, shape.head_width);
        let rows = (tokens, shape.heads + 2 * groups, head);
        let all = qkv.tensor().reshape(rows)?;
        let keys = all.narrow(1, shape.heads, groups)?.permute((1, 2, 0))?;
        let values = all.narrow(1, shape.heads + groups, groups)?;
        let keys = tape.contiguous(&keys)?;
        let values = tape.contiguous(&values.permute((1, 0, 2))?)?;
        let Some((old_keys, old_values)) = self.0.take() else {
            self.0 = Some(within_window(tape, keys, values, shape)?);
            return tape.grouped_attention(qkv, shape, None);
        };
        let keys = tape.join(&[&old_keys, &keys], 2)?;
        let values = tape.join(&[&old_values, &values], 1)?;
        let (keys, values) = within_window(tape, keys, values, shape)?;
        // The heads that share keys are the rows of one product.
        let query = tape.contiguous(&all.narrow(1, 0, shape.heads)?)?;
        let query = query.reshape((groups, shape.heads / groups, head))?;
        let y = attended(tape, &query, &keys, &values, shape)?;
        self.0 = Some((keys, values));
        let width = shape.heads * head;
        Ok(Value::constant(y.reshape((1, tokens, width))?))
    }
}

/// The keys and values of the newest tokens, which the next token may see.
fn within_window(
    tape: &Tape,
    keys: Tensor,
    values: Tensor,
    shape: GroupedAttention,
) -> Result<(Tensor, Tensor)> {
    let cached = keys.dim(2)?;
    let seen = shape.window.unwrap_or(cached).min(cached);
    if seen == cached {
        return Ok((keys, values));
    }
    let keys = tape.contiguous(&keys.narrow(2, cached - seen, seen)?)?;
    let values = tape.contiguous(&values.narrow(1, cached - seen, seen)?)?;
    Ok((keys, values))
}

/// Attention of one token's queries [key heads, queries per key, head width] over all keys.
fn attended(
    tape: &Tape,
    query: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    shape: GroupedAttention,
) -> Result<Tensor> {
    let y = (tape.product(query, keys)? * shape.scale)?;
    // In a half type the probabilities would not add up to one.
    let mut scores = y.to_dtype(match y.dtype() {
        DType::F64 => DType::F64,
        _ => DType::F32,
    })?;
    if let Some(cap) = shape.soft_cap {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    let probabilities = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
        .exp()?;
    let probabilities = probabilities.broadcast_div(&probabilities.sum_keepdim(D::Minus1)?)?;
    let probabilities = contiguous(&convert(&probabilities, y.dtype())?)?;
    tape.product(&probabilities, values)
}

/// How many tokens may follow `cached` ones in a cache of `most`, as in "ids has shape [3] but 1
/// token after 5 cached ones is needed".
pub(crate) fn tokens_that_fit(cached: usize, most: usize) -> String {
    match cached {
        0 => format!("1 to {most} tokens"),
        _ if cached >= most => format!("no token, because the cache holds its maximum of {most},"),
        _ => format!("1 token after {cached} cached ones"),
    }
}
