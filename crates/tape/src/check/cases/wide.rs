//! Cases as wide as real models: rows of 384 to 1,600 values, heads of 64 and 128, 2,048 tokens,
//! images of 224 pixels, and 128,000 classes. A GPU chooses its kernels by these sizes.

use super::language::GROUPS;
use super::{CaseSpec, Row, labels, specs};
use crate::error::Result;
use crate::ops::{
    Activation, AttentionShape, Conv2dShape, GeluLinear, GroupedAttention, PoolDivisor, PoolShape,
    RmsNormShape,
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

/// `v`: [.., 384], [384], [96, 384], [96] and [.., 96].
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

/// The wide cases.
// tidy: table
pub fn wide_specs() -> Vec<CaseSpec> {
    let table: Vec<Row> = vec![
        ("layer_norm of 192", norm_rows(192), layer_norm),
        ("layer_norm of 384", norm_rows(384), layer_norm),
        ("layer_norm of 768", norm_rows(768), layer_norm),
        ("layer_norm of 1,024", norm_rows(1024), layer_norm),
        ("layer_norm of 1,600", norm_rows(1600), layer_norm),
        (
            "linear of 768",
            vec![vec![1, 9, 768], vec![96, 768], vec![96]],
            |t, v| t.linear(&v[0], &v[1], Some(&v[2])),
        ),
        (
            "gelu_linear of 384",
            vec![
                vec![1, 9, 384],
                vec![384],
                vec![96, 384],
                vec![96],
                vec![1, 9, 96],
            ],
            gelu_linear,
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
            "attention over 2,048 tokens, head size 64",
            vec![vec![1, 2048, 192]],
            |t, v| t.attention(&v[0], CAUSAL),
        ),
        (
            "grouped_attention over 520 tokens, sliding window",
            vec![vec![1, 520, 4 * 64]],
            |t, v| {
                let shape = GroupedAttention {
                    heads: 2,
                    key_heads: 1,
                    head_width: 64,
                    scale: 0.125,
                    window: Some(300),
                    ..GROUPS
                };
                t.grouped_attention(&v[0], shape, None)
            },
        ),
        (
            "rms_norm of 1,600",
            vec![vec![1, 9, 1600], vec![1600]],
            |t, v| {
                let shape = RmsNormShape {
                    epsilon: 1e-5,
                    offset: 0.0,
                };
                t.rms_norm(&v[0], &v[1], shape)
            },
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
            |t, v| {
                let targets = labels(4, 32_768);
                Ok(t.linear_cross_entropy(&v[0], &v[1], &targets)?.sum)
            },
        ),
        (
            "embedding of 32,768 rows of 64 values",
            vec![vec![32_768, 64]],
            |t, v| t.embedding(&v[0], &[4, 0, 32_767, 4, 20_000, 4], &[2, 3]),
        ),
    ];
    specs(table)
}
