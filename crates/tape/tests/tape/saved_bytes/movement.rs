//! Operations that move, select, join and average.

use super::{N, POOL, Row, T, V, W, row};
use candle_core::DType;
use tape::PoolDivisor;

pub fn movers() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, T, W]];
    vec![
        row("cast: nothing", shape, |t, v| t.cast(&v[0], DType::BF16), 0),
        row(
            "permute: nothing",
            shape,
            |t, v| t.permute(&v[0], &[2, 0, 1]),
            0,
        ),
        row(
            "concat_along: nothing",
            &[&[N, T, W], &[N, T, V]],
            |t, v| t.concat_along(&[&v[0], &v[1]], 2),
            0,
        ),
        row(
            "select_rows: nothing",
            shape,
            |t, v| t.select_rows(&v[0], &[2, 0, 2, 2]),
            0,
        ),
        row(
            "gather: nothing",
            shape,
            |t, v| t.gather(&v[0], &[1; N * T]),
            0,
        ),
        row("narrow: nothing", shape, |t, v| t.narrow(&v[0], 1, 1..3), 0),
        row(
            "narrow samples, then silu: the span alone",
            shape,
            |t, v| t.silu(&t.narrow(&v[0], 0, 1..2)?),
            T * W,
        ),
        row(
            "avg_pool: nothing",
            &[&[N, V, T, W]],
            |t, v| t.avg_pool(&v[0], POOL, PoolDivisor::Pixels),
            0,
        ),
        row("total: nothing", shape, |t, v| Ok(t.total(&v[0])?.sum), 0),
    ]
}
