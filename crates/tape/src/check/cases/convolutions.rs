//! Convolutions without columns: sizes that no tile divides, strides, kernels larger than the
//! stride and smaller, and several tiles of every kind.

use super::{Row, conv};
use crate::error::Result;
use crate::tape::{Tape, Value};

fn direct(t: &Tape, v: &[Value], stride: usize, padding: usize) -> Result<Value> {
    t.conv2d_without_columns(&v[0], &v[1], conv(stride, padding, 1))
}

/// The cases for a micro-batch of `n` samples.
// tidy: table
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        (
            "conv2d 3x3 without columns",
            vec![vec![n, 3, 7, 6], vec![4, 3, 3, 3]],
            |t, v| direct(t, v, 1, 1),
        ),
        (
            "conv2d 3x3 stride 2 without columns",
            vec![vec![n, 2, 8, 7], vec![5, 2, 3, 3]],
            |t, v| direct(t, v, 2, 1),
        ),
        (
            "conv2d 1x1 without columns",
            vec![vec![n, 3, 4, 5], vec![6, 3, 1, 1]],
            |t, v| direct(t, v, 1, 0),
        ),
        (
            "conv2d 1x1 stride 2 without columns",
            vec![vec![n, 3, 5, 6], vec![6, 3, 1, 1]],
            |t, v| direct(t, v, 2, 0),
        ),
        (
            "conv2d 7x7 stride 2 without columns",
            vec![vec![n, 2, 9, 9], vec![3, 2, 7, 7]],
            |t, v| direct(t, v, 2, 3),
        ),
        (
            "conv2d in patches that leave pixels over, without columns",
            vec![vec![n, 3, 9, 6], vec![5, 3, 4, 4]],
            |t, v| direct(t, v, 4, 0),
        ),
    ]
}

/// The larger cases.
// tidy: table
pub(super) fn large_rows(n: usize) -> Vec<Row> {
    vec![
        // Several runs of channels, and the last of them in part.
        (
            "conv2d of many channels without columns",
            vec![vec![n, 40, 9, 11], vec![70, 40, 3, 3]],
            |t, v| direct(t, v, 1, 1),
        ),
        (
            "conv2d of many channels, stride 2, without columns",
            vec![vec![n, 48, 14, 13], vec![33, 48, 3, 3]],
            |t, v| direct(t, v, 2, 1),
        ),
        // The output and the input gradient have parts.
        (
            "conv2d of more channels without columns",
            vec![vec![n, 120, 5, 6], vec![118, 120, 3, 3]],
            |t, v| direct(t, v, 1, 1),
        ),
        // The weight gradient has parts.
        (
            "conv2d of many pixels without columns",
            vec![vec![n, 16, 37, 41], vec![8, 16, 1, 1]],
            |t, v| direct(t, v, 1, 0),
        ),
    ]
}
