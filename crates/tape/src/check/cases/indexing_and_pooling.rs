//! Cases of indexing, joining, permuting and averaging.

use super::Row;
use crate::ops::{PoolDivisor, PoolShape};

const OVERLAPPING: PoolShape = PoolShape {
    kernel: 3,
    stride: 2,
    padding: 1,
};
const SIDE_BY_SIDE: PoolShape = PoolShape {
    kernel: 2,
    stride: 2,
    padding: 0,
};

/// The cases for `n` samples.
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        ("permute", vec![vec![n, 3, 5, 2]], |t, v| {
            t.permute(&v[0], &[2, 0, 3, 1])
        }),
        (
            "concat_along the last axis",
            vec![vec![n, 3, 4], vec![n, 3, 1], vec![n, 3, 6]],
            |t, v| t.concat_along(&[&v[0], &v[1], &v[2]], 2),
        ),
        ("select_rows", vec![vec![n, 3, 4]], |t, v| {
            let last = v[0].dims()[0] as u32 - 1;
            t.select_rows(&v[0], &[last, 0, last, last])
        }),
        ("gather", vec![vec![n, 3, 7]], |t, v| {
            let indices: Vec<u32> = (0..v[0].dims()[0] as u32 * 12)
                .map(|i| i * 5 % 7 / 2)
                .collect();
            t.gather(&v[0], &indices)
        }),
        ("narrow the first axis", vec![vec![n, 3, 5]], |t, v| {
            t.narrow(&v[0], 0, 0..v[0].dims()[0].div_ceil(2))
        }),
        ("narrow the last axis", vec![vec![n, 3, 7]], |t, v| {
            t.narrow(&v[0], 2, 2..5)
        }),
        ("avg_pool 3x3 stride 2", vec![vec![n, 2, 7, 6]], |t, v| {
            t.avg_pool(&v[0], OVERLAPPING, PoolDivisor::Window)
        }),
        (
            "avg_pool 3x3 stride 2, padding not counted",
            vec![vec![n, 2, 7, 6]],
            |t, v| t.avg_pool(&v[0], OVERLAPPING, PoolDivisor::Pixels),
        ),
        ("avg_pool 2x2", vec![vec![n, 3, 5, 7]], |t, v| {
            t.avg_pool(&v[0], SIDE_BY_SIDE, PoolDivisor::Pixels)
        }),
        ("total", vec![vec![n, 3, 5]], |t, v| Ok(t.total(&v[0])?.sum)),
    ]
}
