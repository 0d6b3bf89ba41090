//! Attention on the joint projection, in the shapes of a text encoder, of both language models and
//! of a vision transformer.

use crate::inputs_and_timing::{tensor, time};
use criterion::Criterion;
use tape::AttentionShape;

pub fn attention(c: &mut Criterion) {
    for (samples, tokens, width, heads, causal) in [
        (16, 128, 256, 4, false),
        (8, 197, 192, 3, false),
        (8, 256, 384, 6, true),
        (1, 512, 768, 12, true),
    ] {
        let qkv = [tensor(&[samples, tokens, 3 * width], 4)];
        let shape = AttentionShape { heads, causal };
        time(c, "attention", &qkv, |tape, v| tape.attention(&v[0], shape));
    }
}
