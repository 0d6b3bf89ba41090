//! Cases too large for finite differences, for what a GPU only does when there is much of it: attention in several blocks of
//! queries, and heads whose width lets its products read them where they are.

use super::{Case, Row, lengths, made};
use crate::error::Result;
use crate::ops::{AttentionShape, Conv2dShape};

const BEFORE: AttentionShape = AttentionShape {
    heads: 2,
    causal: true,
};
const ALL: AttentionShape = AttentionShape {
    heads: 2,
    causal: false,
};

/// The cases for a micro-batch of `n` samples.
pub fn large_cases(n: usize) -> Result<Vec<Case>> {
    let table: Vec<Row> = vec![
        (
            "attention of many queries, causal",
            vec![vec![n, 150, 48]],
            |t, v| t.attention(&v[0], BEFORE),
        ),
        (
            "attention of many queries, causal, padded",
            vec![vec![n, 150, 48]],
            |t, v| t.attention_padded(&v[0], BEFORE, &lengths(v[0].dims()[0], 150)),
        ),
        (
            "attention of many queries",
            vec![vec![n, 61, 48]],
            |t, v| t.attention(&v[0], ALL),
        ),
        (
            "attention of many queries, padded",
            vec![vec![n, 61, 48]],
            |t, v| t.attention_padded(&v[0], ALL, &lengths(v[0].dims()[0], 61)),
        ),
        // Heads that begin on no whole word, and more tokens than any square is made of.
        (
            "attention of a long sequence",
            vec![vec![n, 520, 12]],
            |t, v| t.attention_padded(&v[0], BEFORE, &lengths(v[0].dims()[0], 520)),
        ),
        (
            "linear after attention of many queries",
            vec![vec![n, 61, 48], vec![5, 16]],
            |t, v| t.linear(&t.attention(&v[0], ALL)?, &v[1], None),
        ),
        // Enough of both for tensor cores: sums that several groups share, and sums that one makes alone.
        (
            "linear of many rows",
            vec![vec![n, 512, 512], vec![512, 512], vec![512]],
            |t, v| t.linear(&v[0], &v[1], Some(&v[2])),
        ),
        (
            "attention of many whole words, causal",
            vec![vec![n, 132, 192]],
            |t, v| t.attention(&v[0], BEFORE),
        ),
        (
            "conv2d of many pixels",
            vec![vec![n, 3, 33, 31], vec![4, 3, 3, 3]],
            |t, v| {
                let shape = Conv2dShape {
                    stride: 1,
                    padding: 1,
                    groups: 1,
                };
                t.conv2d(&v[0], &v[1], shape)
            },
        ),
    ];
    made(table)
}
