//! Cases too large for finite differences, for paths that a GPU takes only with large inputs:
//! attention in several blocks of queries, and heads whose width lets products read them in place.

use super::{Case, CaseSpec, Row, convolutions, labels, lengths, made, quantized, specs};
use crate::error::Result;
use crate::ops::{AttentionShape, Conv2dShape};
use crate::quantized::Bits;

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
    made(large_specs(n))
}

/// As [`large_cases`], without the inputs.
// tidy: table
pub fn large_specs(n: usize) -> Vec<CaseSpec> {
    let mut table: Vec<Row> = vec![
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
        // Heads that do not begin at multiples of 16 bytes, and more tokens than are computed
        // without blocks.
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
        // Large enough for tensor cores: sums that several groups share, and sums of a single
        // group.
        (
            "linear of many rows",
            vec![vec![n, 512, 512], vec![512, 512], vec![512]],
            |t, v| t.linear(&v[0], &v[1], Some(&v[2])),
        ),
        (
            "attention of many queries, head size 32, causal",
            vec![vec![n, 132, 192]],
            |t, v| t.attention(&v[0], BEFORE),
        ),
        // More classes than a group of 832 threads holds in registers.
        (
            "cross_entropy of many classes",
            vec![vec![n, 32_772]],
            |t, v| {
                let labels = labels(v[0].dims()[0], 32_772);
                Ok(t.cross_entropy(&v[0], &labels, 0.1)?.sum)
            },
        ),
        // A number of classes that is not a multiple of 4 is read value by value.
        (
            "cross_entropy of an odd number of classes",
            vec![vec![n, 32_771]],
            |t, v| {
                let labels = labels(v[0].dims()[0], 32_771);
                Ok(t.cross_entropy(&v[0], &labels, 0.0)?.sum)
            },
        ),
        // Words of four codes.
        (
            "quantized_linear 8 bits of wide rows",
            vec![vec![n, 3, 132], vec![100]],
            |t, v| quantized(t, v, Bits::Eight),
        ),
        (
            "quantized_linear 4 bits of wide rows",
            vec![vec![n, 3, 132], vec![100]],
            |t, v| quantized(t, v, Bits::Four),
        ),
        (
            "quantized_linear NF4 of wide rows",
            vec![vec![n, 3, 132], vec![100]],
            |t, v| quantized(t, v, Bits::Nf4),
        ),
        ("gather of many values", vec![vec![n, 2, 5]], |t, v| {
            let rows = 2 * v[0].dims()[0] as u32;
            let indices: Vec<u32> = (0..rows * 200).map(|i| i * i % 7 % 5).collect();
            t.gather(&v[0], &indices)
        }),
        // Tiles through shared memory, forward and backward.
        (
            "permute of many channels",
            vec![vec![n, 40, 7, 5]],
            |t, v| t.permute(&v[0], &[0, 2, 3, 1]),
        ),
        // Words of four values.
        (
            "concat_along of wide rows",
            vec![vec![n, 3, 8], vec![n, 3, 12]],
            |t, v| t.concat_along(&[&v[0], &v[1]], 2),
        ),
        ("narrow of wide rows", vec![vec![n, 3, 16]], |t, v| {
            t.narrow(&v[0], 2, 4..12)
        }),
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
    table.extend(convolutions::large_rows(n));
    specs(table)
}
