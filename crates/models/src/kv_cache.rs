//! Keys and values of the tokens that a language model has read, so that generating one more token
//! only needs a forward pass over that token.
//!
//! The memory of a block grows by [`GROWTH`] tokens at a time, so that a token is written into its
//! row and all others stay where they are. A block whose tokens see only a window of tokens caches
//! this window and at most `GROWTH` older tokens. Otherwise nothing is evicted: to generate beyond
//! the model's context, start a new cache.

use candle_core::{D, DType, Tensor};
use tape::device::{contiguous, convert};
use tape::{GroupedAttention, Result, Tape, Value};

/// Tokens by which the memory of a block grows. The first tokens get no more memory than they need.
const GROWTH: usize = 64;

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

/// Keys and values of one block, of the tokens in its window; `None` before the first token.
#[derive(Debug, Default)]
pub(crate) struct BlockCache(Option<(Rows, Rows)>);

/// Keys or values [key heads, tokens, head width] in memory for more tokens, in order.
#[derive(Debug)]
struct Rows {
    /// [key heads, tokens that fit, head width].
    memory: Tensor,
    /// The token in memory that comes first.
    first: usize,
    /// Number of tokens.
    len: usize,
}

impl Rows {
    /// The newest of these tokens, at most `window`, without room for more.
    fn new(tape: &Tape, rows: &Tensor, window: Option<usize>) -> Result<Self> {
        let tokens = rows.dim(1)?;
        let len = window.unwrap_or(tokens).min(tokens);
        Ok(Rows {
            memory: tape.contiguous(&rows.narrow(1, tokens - len, len)?)?,
            first: 0,
            len,
        })
    }

    /// Adds one token, and drops the oldest one if there are more than `window`.
    fn push(&mut self, tape: &Tape, row: &Tensor, window: Option<usize>) -> Result<()> {
        let is_full = window.is_some_and(|window| self.len >= window);
        let (first, kept) = if is_full {
            (self.first + 1, self.len - 1)
        } else {
            (self.first, self.len)
        };
        if first + kept == self.memory.dim(1)? {
            let (heads, _, width) = self.memory.dims3()?;
            let shape = (heads, kept + GROWTH, width);
            let grown = Tensor::zeros(shape, self.memory.dtype(), self.memory.device())?;
            if kept > 0 {
                let rows = tape.contiguous(&self.memory.narrow(1, first, kept)?)?;
                grown.slice_set(&rows, 1, 0)?;
            }
            self.memory = grown;
            self.first = 0;
        } else {
            self.first = first;
        }
        self.memory.slice_set(row, 1, self.first + kept)?;
        self.len = kept + 1;
        Ok(())
    }

    /// The rows of the tokens. Their memory is shared.
    fn rows(&self) -> Result<Tensor> {
        Ok(self.memory.narrow(1, self.first, self.len)?)
    }

    /// Size of the memory in bytes.
    fn bytes(&self) -> u64 {
        (self.memory.elem_count() * self.memory.dtype().size_in_bytes()) as u64
    }
}

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
        let filled = self.blocks.iter().filter_map(|block| block.0.as_ref());
        filled
            .map(|(keys, values)| keys.bytes() + values.bytes())
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
        let rows = |first: usize| -> Result<Tensor> {
            tape.contiguous(&all.narrow(1, first, groups)?.permute((1, 0, 2))?)
        };
        let (new_keys, new_values) = (rows(shape.heads)?, rows(shape.heads + groups)?);
        let Some((mut keys, mut values)) = self.0.take() else {
            self.0 = Some((
                Rows::new(tape, &new_keys, shape.window)?,
                Rows::new(tape, &new_values, shape.window)?,
            ));
            return tape.grouped_attention(qkv, shape, None);
        };
        keys.push(tape, &new_keys, shape.window)?;
        values.push(tape, &new_values, shape.window)?;
        // The heads that share keys are the rows of one product.
        let query = tape.contiguous(&all.narrow(1, 0, shape.heads)?)?;
        let query = query.reshape((groups, shape.heads / groups, head))?;
        let y = attended(tape, &query, &keys.rows()?, &values.rows()?, shape)?;
        self.0 = Some((keys, values));
        let width = shape.heads * head;
        Ok(Value::constant(y.reshape((1, tokens, width))?))
    }
}

/// Attention of one token's queries [key heads, queries per key, head width] over all keys and
/// values [key heads, tokens, head width].
fn attended(
    tape: &Tape,
    query: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    shape: GroupedAttention,
) -> Result<Tensor> {
    let y = (tape.product(query, &keys.transpose(1, 2)?)? * shape.scale)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use tape::{Cancel, Kernels, Parameters};

    /// One token of two heads of width 3.
    fn row(token: usize) -> Tensor {
        let values: Vec<f32> = (0..6).map(|at| (10 * token + at) as f32).collect();
        Tensor::from_vec(values, (2, 1, 3), &Device::Cpu).expect("six values")
    }

    fn joined(tokens: std::ops::Range<usize>) -> Tensor {
        let rows: Vec<Tensor> = tokens.map(row).collect();
        Tensor::cat(&rows, 1).expect("rows of one shape")
    }

    fn values(tensor: &Tensor) -> Vec<Vec<Vec<f32>>> {
        tensor.to_vec3().expect("it has three axes")
    }

    #[test]
    fn rows_stay_in_order_while_the_memory_grows_or_the_window_moves() {
        let parameters = Parameters::default();
        let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        for window in [None, Some(1), Some(3), Some(GROWTH), Some(5 * GROWTH)] {
            for prompt in [1, 2, GROWTH + 3] {
                let mut rows = Rows::new(&tape, &joined(0..prompt), window).expect("a cache");
                for token in prompt..prompt + 3 * GROWTH {
                    rows.push(&tape, &row(token), window).expect("it has room");
                    let seen = window.unwrap_or(token + 1).min(token + 1);
                    let found = rows.rows().expect("it has rows");
                    let expected = joined(token + 1 - seen..token + 1);
                    assert_eq!(
                        values(&found),
                        values(&expected),
                        "{window:?} {prompt} {token}"
                    );
                    let limit = (seen + GROWTH) * 6 * 4;
                    assert!(rows.bytes() <= limit as u64, "{window:?} {prompt} {token}");
                }
            }
        }
    }

    #[test]
    fn a_token_is_written_into_the_memory_of_those_before_it() {
        let parameters = Parameters::default();
        let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        let mut rows = Rows::new(&tape, &joined(0..5), None).expect("a cache");
        assert_eq!(rows.bytes(), 5 * 6 * 4, "a prompt has no room for more");
        rows.push(&tape, &row(5), None).expect("it grows");
        let memory = rows.memory.clone();
        for token in 6..5 + GROWTH {
            rows.push(&tape, &row(token), None).expect("it has room");
        }
        assert_eq!(rows.bytes(), ((5 + GROWTH) * 6 * 4) as u64);
        assert_eq!(values(&memory), values(&rows.rows().expect("it has rows")));
        rows.push(&tape, &row(5 + GROWTH), None).expect("it grows");
        assert_eq!(rows.bytes(), ((5 + 2 * GROWTH) * 6 * 4) as u64);
    }
}
