//! Cases of the operations of today's language models: norms by the root mean square, rotated
//! heads, grouped-query attention, gated feed-forward branches, low-rank terms, and capped scores.

use super::{Row, labels};
use crate::convert_dtype::host_tensor;
use crate::error::Result;
use crate::ops::{
    Gate, GroupedAttention, IGNORED, JoinedHeads, LowRankTerm, RmsNormShape, Rotation,
};
use crate::tape::{Tape, Value};

const NORM: RmsNormShape = RmsNormShape {
    epsilon: 1e-5,
    offset: 0.0,
};
/// Four heads of queries that share two of keys.
pub(super) const GROUPS: GroupedAttention = GroupedAttention {
    heads: 4,
    key_heads: 2,
    head_width: 3,
    scale: 0.7,
    window: None,
    soft_cap: None,
};
const HEADS: JoinedHeads = JoinedHeads {
    heads: 3,
    key_heads: 1,
    head_width: 6,
};

/// Queries, keys and values, with `pairs` rotated pairs per head.
fn rotated(t: &Tape, v: &[Value], pairs: usize) -> Result<Value> {
    let (x, positions) = (v[0].tensor(), 2..2 + v[0].dims()[1]);
    let frequencies: Vec<f64> = (0..pairs).map(|i| 0.9 / (1.0 + i as f64)).collect();
    let rotation = Rotation::new(&frequencies, 1.1, positions, x.dtype(), x.device())?;
    t.rotary_embedding([&v[0], &v[1], &v[2]], HEADS, Some(&rotation))
}

fn grouped(t: &Tape, v: &[Value], shape: GroupedAttention) -> Result<Value> {
    t.grouped_attention(&v[0], shape, None)
}

/// The cases for `n` samples.
// tidy: table
pub(super) fn rows(n: usize) -> Vec<Row> {
    let heads = vec![vec![n, 5, 18], vec![n, 5, 6], vec![n, 5, 6]];
    vec![
        ("rms_norm", vec![vec![n, 3, 19], vec![19]], |t, v| {
            t.rms_norm(&v[0], &v[1], NORM)
        }),
        (
            "residual branch: rms_norm with an offset",
            vec![vec![n, 3, 7], vec![7], vec![7, 7]],
            |t, v| {
                let shape = RmsNormShape {
                    offset: 1.0,
                    ..NORM
                };
                let y = t.rms_norm(&v[0], &v[1], shape)?;
                t.add(&t.linear(&y, &v[2], None)?, &v[0])
            },
        ),
        ("gated silu", vec![vec![n, 4, 9], vec![n, 4, 9]], |t, v| {
            t.gated(&v[0], &v[1], Gate::Silu)
        }),
        (
            "linear after gated gelu",
            vec![vec![n, 4, 9], vec![n, 4, 9], vec![3, 9]],
            |t, v| t.linear(&t.gated(&v[0], &v[1], Gate::Gelu)?, &v[2], None),
        ),
        (
            "linear with a low-rank term",
            vec![vec![n, 5, 7], vec![6, 7], vec![3, 7], vec![6, 3]],
            |t, v| {
                let term = LowRankTerm {
                    down: &v[2],
                    up: &v[3],
                    factor: 1.7,
                };
                t.add_low_rank(t.linear(&v[0], &v[1], None)?, &v[0], &term)
            },
        ),
        ("rotary_embedding", heads.clone(), |t, v| rotated(t, v, 3)),
        (
            "rotary_embedding of a part of each head",
            heads.clone(),
            |t, v| rotated(t, v, 1),
        ),
        (
            "rotary_embedding that only joins the heads",
            heads,
            |t, v| t.rotary_embedding([&v[0], &v[1], &v[2]], HEADS, None),
        ),
        ("grouped_attention", vec![vec![n, 9, 24]], |t, v| {
            grouped(t, v, GROUPS)
        }),
        (
            "grouped_attention with one key head",
            vec![vec![n, 2, 18]],
            |t, v| {
                let shape = GroupedAttention {
                    key_heads: 1,
                    ..GROUPS
                };
                grouped(t, v, shape)
            },
        ),
        (
            "grouped_attention with a sliding window",
            vec![vec![n, 9, 24]],
            |t, v| {
                let shape = GroupedAttention {
                    window: Some(4),
                    ..GROUPS
                };
                grouped(t, v, shape)
            },
        ),
        (
            "grouped_attention with a soft cap",
            vec![vec![n, 9, 24]],
            |t, v| {
                let shape = GroupedAttention {
                    soft_cap: Some(0.8),
                    ..GROUPS
                };
                grouped(t, v, shape)
            },
        ),
        (
            "grouped_attention of packed documents",
            vec![vec![n, 9, 24]],
            |t, v| {
                let starts = [0, 0, 0, 3, 3, 5, 5, 5, 5].repeat(v[0].dims()[0]);
                t.grouped_attention(&v[0], GROUPS, Some(&starts))
            },
        ),
        (
            "grouped_attention of packed documents with a window and a soft cap",
            vec![vec![n, 13, 48]],
            |t, v| {
                let shape = GroupedAttention {
                    heads: 8,
                    head_width: 4,
                    window: Some(5),
                    soft_cap: Some(1.6),
                    ..GROUPS
                };
                let starts = [0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 10, 10, 10];
                let starts = starts.repeat(v[0].dims()[0]);
                t.grouped_attention(&v[0], shape, Some(&starts))
            },
        ),
        (
            "linear_cross_entropy_capped",
            vec![vec![n, 7], vec![9, 7]],
            |t, v| {
                let targets = labels(v[0].dims()[0], 9);
                let loss = t.linear_cross_entropy_capped(&v[0], &v[1], &targets, Some(1.3))?;
                Ok(loss.sum)
            },
        ),
        ("linear_cross_entropy_rows", vec![vec![n, 7]], |t, v| {
            let x = v[0].tensor();
            let weight = (0..63).map(|i| f64::from(i % 11) / 8.0 - 0.5).collect();
            let weight = host_tensor(weight, &[9, 7], x.dtype(), x.device())?;
            let mut targets = labels(v[0].dims()[0], 9);
            if targets.len() > 2 {
                targets[1] = IGNORED;
            }
            t.linear_cross_entropy_rows(&v[0], &Value::constant(weight), &targets, None)
        }),
    ]
}
