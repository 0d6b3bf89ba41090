//! What a language model keeps of the tokens that it has read, so that one more costs a pass over that one alone: keys and
//! values of each block. Forward only.
//!
//! Refuses to forget: whoever writes on longer than the model has room for begins a new one.

use candle_core::{D, DType, Tensor};
use tape::{AttentionShape, Result, Tape, Value};

/// Keys and values of all blocks, of one sequence.
#[derive(Debug, Default)]
pub struct Past {
    blocks: Vec<Seen>,
    tokens: usize,
}

/// Keys [heads, head width, tokens] and values [heads, tokens, head width] of one block; nothing before its first token.
#[derive(Debug, Default)]
pub(super) struct Seen(Option<(Tensor, Tensor)>);

impl Past {
    /// Nothing read yet, by a model of so many blocks.
    pub fn of(depth: usize) -> Self {
        Past {
            blocks: (0..depth).map(|_| Seen::default()).collect(),
            tokens: 0,
        }
    }

    /// Tokens read.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Bytes kept: two values a token, block and place of the width.
    pub fn bytes(&self) -> u64 {
        let bytes = |t: &Tensor| (t.elem_count() * t.dtype().size_in_bytes()) as u64;
        let seen = self.blocks.iter().filter_map(|block| block.0.as_ref());
        seen.map(|(keys, values)| bytes(keys) + bytes(values)).sum()
    }

    pub(super) fn blocks(&mut self) -> &mut [Seen] {
        &mut self.blocks
    }

    pub(super) fn read(&mut self, tokens: usize) {
        self.tokens += tokens;
    }
}

impl Seen {
    /// Attention of `qkv` [1, tokens, 3 width] behind what was seen, which it joins. Of a beginning there may be many tokens; one
    /// at a time follows.
    pub fn attention(&mut self, tape: &Tape, qkv: &Value, shape: AttentionShape) -> Result<Value> {
        let (_, tokens, width) = qkv.tensor().dims3()?;
        let (width, heads) = (width / 3, shape.heads);
        let parts = qkv.tensor().reshape((tokens, 3, heads, width / heads))?;
        let part = |place: usize| parts.narrow(1, place, 1)?.squeeze(1);
        let keys = part(1)?.permute((1, 2, 0))?.contiguous()?;
        let values = part(2)?.permute((1, 0, 2))?.contiguous()?;
        let Some((old_keys, old_values)) = self.0.take() else {
            self.0 = Some((keys, values));
            return tape.attention(qkv, shape);
        };
        let keys = Tensor::cat(&[&old_keys, &keys], 2)?;
        let values = Tensor::cat(&[&old_values, &values], 1)?;
        let query = part(0)?.permute((1, 0, 2))?.contiguous()?;
        let scale = (heads as f64 / width as f64).sqrt();
        let y = (query.matmul(&keys)? * scale)?;
        // In a half type the shares would not add up to one.
        let scores = y.to_dtype(match y.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        })?;
        let shares = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let shares = shares.broadcast_div(&shares.sum_keepdim(D::Minus1)?)?;
        let y = shares.to_dtype(y.dtype())?.contiguous()?.matmul(&values)?;
        self.0 = Some((keys, values));
        Ok(Value::constant(
            y.permute((1, 0, 2))?
                .contiguous()?
                .reshape((1, tokens, width))?,
        ))
    }
}
