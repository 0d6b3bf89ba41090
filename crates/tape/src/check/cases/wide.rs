//! Cases as wide as real models: rows of 384 to 1,600 values, heads of 64 and 128, 2,048 tokens,
//! images of 224 pixels, and 128,000 classes. A GPU chooses its kernels by these sizes.

use super::language::GROUPS;
use super::random::keyed;
use super::{CaseSpec, Row, labels, specs};
use crate::error::Result;
use crate::ops::{
    Activation, AttentionShape, Conv2dShape, Gate, GeluLinear, GroupedAttention, JoinedHeads,
    PoolDivisor, PoolShape, RmsNormShape, Rotation,
};
use crate::tape::{Tape, Value};

/// One head that sees the tokens before each token.
const CAUSAL: AttentionShape = AttentionShape {
    heads: 1,
    causal: true,
};
/// One head that sees all tokens.
const ALL: AttentionShape = AttentionShape {
    heads: 1,
    causal: false,
};
const POOL: PoolShape = PoolShape {
    kernel: 3,
    stride: 2,
    padding: 1,
};

fn layer_norm(t: &Tape, v: &[Value]) -> Result<Value> {
    t.layer_norm(&v[0], &v[1], &v[2], 1e-5)
}

fn cross_entropy(t: &Tape, v: &[Value]) -> Result<Value> {
    let (rows, classes) = (v[0].dims()[0], v[0].dims()[1]);
    Ok(t.cross_entropy(&v[0], &labels(rows, classes), 0.1)?.sum)
}

/// `v`: [.., width], [width], [96, width], [96] and [.., 96].
fn gelu_linear(t: &Tape, v: &[Value]) -> Result<Value> {
    t.gelu_linear(&GeluLinear {
        x: v[0].clone(),
        x_is_spent: false,
        x_bias: v[1].clone(),
        weight: v[2].clone(),
        bias: v[3].clone(),
        residual: v[4].clone(),
    })
}

fn norm_rows(width: usize) -> Vec<Vec<usize>> {
    vec![vec![1, 9, width], vec![width], vec![width]]
}

/// Inputs of a feed-forward layer of this width.
fn feed_forward(width: usize) -> Vec<Vec<usize>> {
    vec![
        vec![1, 9, width],
        vec![width],
        vec![96, width],
        vec![96],
        vec![1, 9, 96],
    ]
}

fn linear(t: &Tape, v: &[Value]) -> Result<Value> {
    t.linear(&v[0], &v[1], Some(&v[2]))
}

/// Inputs of a linear layer with rows of this width.
fn linear_of(width: usize) -> Vec<Vec<usize>> {
    vec![vec![1, 9, width], vec![96, width], vec![96]]
}

fn rms_norm(t: &Tape, v: &[Value]) -> Result<Value> {
    let shape = RmsNormShape {
        epsilon: 1e-5,
        offset: 0.0,
    };
    t.rms_norm(&v[0], &v[1], shape)
}

fn gated(t: &Tape, v: &[Value]) -> Result<Value> {
    t.gated(&v[0], &v[1], Gate::Silu)
}

/// Rotates whole heads of this width, of which two of queries share one of keys.
fn rotated(t: &Tape, v: &[Value], head_width: usize) -> Result<Value> {
    rotated_part(t, v, head_width, head_width)
}

/// Rotates the first `width` values of each head.
fn rotated_part(t: &Tape, v: &[Value], head_width: usize, width: usize) -> Result<Value> {
    let (x, tokens) = (v[0].tensor(), v[0].dims()[1]);
    let exponent = |i: usize| -2.0 * i as f64 / width as f64;
    let frequencies: Vec<f64> = (0..width / 2)
        .map(|i| 10_000.0_f64.powf(exponent(i)))
        .collect();
    let rotation = Rotation::new(&frequencies, 1.0, 0..tokens, x.dtype(), x.device())?;
    let heads = JoinedHeads {
        heads: 2,
        key_heads: 1,
        head_width,
    };
    t.rotary_embedding([&v[0], &v[1], &v[2]], heads, Some(&rotation))
}

/// Queries, keys and values of [`rotated`].
fn heads_of(width: usize) -> Vec<Vec<usize>> {
    vec![vec![1, 9, 2 * width], vec![1, 9, width], vec![1, 9, width]]
}

/// Two heads of queries that share one of keys.
fn shared_keys(head_width: usize, window: Option<usize>) -> GroupedAttention {
    GroupedAttention {
        heads: 2,
        key_heads: 1,
        head_width,
        scale: 0.125,
        window,
        ..GROUPS
    }
}

fn linear_cross_entropy(t: &Tape, v: &[Value]) -> Result<Value> {
    let targets = labels(v[0].dims()[0], v[1].dims()[0]);
    Ok(t.linear_cross_entropy(&v[0], &v[1], &targets)?.sum)
}

/// The wide cases.
// tidy: table
pub fn wide_specs() -> Vec<CaseSpec> {
    let table: Vec<Row> = vec![
        ("layer_norm of 192", norm_rows(192), layer_norm),
        ("layer_norm of 384", norm_rows(384), layer_norm),
        ("layer_norm of 768", norm_rows(768), layer_norm),
        ("layer_norm of 1,024", norm_rows(1024), layer_norm),
        ("layer_norm of 1,600", norm_rows(1600), layer_norm),
        ("linear of 384", linear_of(384), linear),
        ("linear of 768", linear_of(768), linear),
        ("linear of 1,024", linear_of(1024), linear),
        ("linear of 1,600", linear_of(1600), linear),
        (
            "linear_add of 1,600",
            vec![vec![1, 9, 96], vec![1600, 96], vec![1600], vec![1, 9, 1600]],
            |t, v| t.linear_add(&v[0], &v[1], &v[2], &v[3]),
        ),
        ("gelu_linear of 384", feed_forward(384), gelu_linear),
        ("gelu_linear of 768", feed_forward(768), gelu_linear),
        ("gelu_linear of 1,024", feed_forward(1024), gelu_linear),
        ("gelu_linear of 1,600", feed_forward(1600), gelu_linear),
        (
            "gated silu of 1,024",
            vec![vec![1, 9, 1024], vec![1, 9, 1024]],
            gated,
        ),
        (
            "gated silu of 1,600",
            vec![vec![1, 9, 1600], vec![1, 9, 1600]],
            gated,
        ),
        (
            "gated gelu of 1,024",
            vec![vec![1, 9, 1024], vec![1, 9, 1024]],
            |t, v| t.gated(&v[0], &v[1], Gate::Gelu),
        ),
        ("dropout of 768", vec![vec![1, 9, 768]], |t, v| {
            keyed(&v[0], |key| t.dropout(&v[0], 0.1, key))
        }),
        ("dropout of 1,600", vec![vec![1, 9, 1600]], |t, v| {
            keyed(&v[0], |key| t.dropout(&v[0], 0.1, key))
        }),
        ("rotary_embedding, head size 64", heads_of(64), |t, v| {
            rotated(t, v, 64)
        }),
        ("rotary_embedding, head size 128", heads_of(128), |t, v| {
            rotated(t, v, 128)
        }),
        (
            "rotary_embedding of a part of each head, head size 64",
            heads_of(64),
            |t, v| rotated_part(t, v, 64, 32),
        ),
        (
            "attention over 196 tokens, head size 64",
            vec![vec![1, 196, 192]],
            |t, v| t.attention(&v[0], ALL),
        ),
        (
            "attention over 500 tokens, head size 64",
            vec![vec![1, 500, 192]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "attention over 520 tokens, head size 64",
            vec![vec![1, 520, 192]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "attention over 520 tokens, head size 128",
            vec![vec![1, 520, 384]],
            |t, v| t.attention(&v[0], ALL),
        ),
        (
            "attention over 520 tokens, head size 128, causal",
            vec![vec![1, 520, 384]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "attention over 2,048 tokens, head size 64",
            vec![vec![1, 2048, 192]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "attention over 2,048 tokens, head size 128",
            vec![vec![1, 2048, 384]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "grouped_attention over 520 tokens, sliding window",
            vec![vec![1, 520, 4 * 64]],
            |t, v| t.grouped_attention(&v[0], shared_keys(64, Some(300)), None),
        ),
        (
            "grouped_attention over 520 tokens, head size 128",
            vec![vec![1, 520, 4 * 128]],
            |t, v| t.grouped_attention(&v[0], shared_keys(128, None), None),
        ),
        (
            "grouped_attention over 520 tokens, head size 256, documents and soft cap",
            vec![vec![1, 520, 4 * 256]],
            |t, v| {
                let starts: Vec<usize> = (0..520).map(|token| token / 130 * 130).collect();
                let shape = GroupedAttention {
                    soft_cap: Some(50.0),
                    ..shared_keys(256, None)
                };
                t.grouped_attention(&v[0], shape, Some(&starts))
            },
        ),
        (
            "grouped_attention over 2,048 tokens, head size 128",
            vec![vec![1, 2048, 4 * 128]],
            |t, v| t.grouped_attention(&v[0], shared_keys(128, None), None),
        ),
        (
            "grouped_attention over 2,048 tokens, sliding window",
            vec![vec![1, 2048, 4 * 64]],
            |t, v| t.grouped_attention(&v[0], shared_keys(64, Some(512)), None),
        ),
        ("rms_norm of 64", vec![vec![1, 9, 64], vec![64]], rms_norm),
        (
            "rms_norm of 128",
            vec![vec![1, 9, 128], vec![128]],
            rms_norm,
        ),
        (
            "rms_norm of 384",
            vec![vec![1, 9, 384], vec![384]],
            rms_norm,
        ),
        (
            "rms_norm of 768",
            vec![vec![1, 9, 768], vec![768]],
            rms_norm,
        ),
        (
            "rms_norm of 1,024",
            vec![vec![1, 9, 1024], vec![1024]],
            rms_norm,
        ),
        (
            "rms_norm of 1,600",
            vec![vec![1, 9, 1600], vec![1600]],
            rms_norm,
        ),
        (
            "rms_norm of 4,096",
            vec![vec![1, 9, 4096], vec![4096]],
            rms_norm,
        ),
        (
            "group_norm of 224 x 224 pixels",
            vec![vec![1, 4, 224, 224], vec![4], vec![4]],
            |t, v| t.group_norm(&v[0], 2, (&v[1], &v[2]), 1e-5, Activation::Relu),
        ),
        (
            "conv2d 7x7 stride 2 of 224 x 224 pixels",
            vec![vec![1, 3, 224, 224], vec![4, 3, 7, 7]],
            |t, v| {
                let shape = Conv2dShape {
                    stride: 2,
                    padding: 3,
                    groups: 1,
                };
                t.conv2d(&v[0], &v[1], shape)
            },
        ),
        (
            "max_pool of 112 x 112 pixels",
            vec![vec![1, 4, 112, 112]],
            |t, v| t.max_pool(&v[0], POOL),
        ),
        (
            "avg_pool of 112 x 112 pixels",
            vec![vec![1, 4, 112, 112]],
            |t, v| t.avg_pool(&v[0], POOL, PoolDivisor::Pixels),
        ),
        (
            "cross_entropy of 32,768 classes",
            vec![vec![3, 32_768]],
            cross_entropy,
        ),
        (
            "cross_entropy of 50,257 classes",
            vec![vec![2, 50_257]],
            cross_entropy,
        ),
        (
            "cross_entropy of 128,000 classes",
            vec![vec![2, 128_000]],
            cross_entropy,
        ),
        (
            "linear_cross_entropy of 32,768 classes",
            vec![vec![4, 32], vec![32_768, 32]],
            linear_cross_entropy,
        ),
        (
            "linear_cross_entropy of 128,000 classes",
            vec![vec![2, 8], vec![128_000, 8]],
            linear_cross_entropy,
        ),
        (
            "embedding of 128,000 rows of 8 values",
            vec![vec![128_000, 8]],
            |t, v| t.embedding(&v[0], &[4, 0, 127_999, 4, 90_000, 4], &[2, 3]),
        ),
        (
            "embedding of 32,768 rows of 64 values",
            vec![vec![32_768, 64]],
            |t, v| t.embedding(&v[0], &[4, 0, 32_767, 4, 20_000, 4], &[2, 3]),
        ),
    ];
    specs(table)
}
