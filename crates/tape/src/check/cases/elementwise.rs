//! Cases of products, pointwise functions and broadcasting.

use super::Row;

/// The cases for `n` samples.
// tidy: table
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        ("matmul", vec![vec![n, 3, 5], vec![n, 5, 7]], |t, v| {
            t.matmul(&v[0], &v[1])
        }),
        (
            "matmul of many heads",
            vec![vec![n, 3, 5, 4], vec![n, 3, 4, 6]],
            |t, v| t.matmul(&v[0], &v[1]),
        ),
        (
            "matmul of matrices",
            vec![vec![n, 5], vec![5, 7]],
            |t, v| t.matmul(&v[0], &v[1]),
        ),
        ("mul", vec![vec![n, 3, 7], vec![n, 3, 7]], |t, v| {
            t.mul(&v[0], &v[1])
        }),
        ("mul of a value and itself", vec![vec![n, 7]], |t, v| {
            t.mul(&v[0], &v[0])
        }),
        (
            "broadcast_add by row",
            vec![vec![n, 3, 7], vec![7]],
            |t, v| t.broadcast_add(&v[0], &v[1]),
        ),
        (
            "broadcast_add by sample and channel",
            vec![vec![n, 3, 5, 4], vec![n, 3, 1, 1]],
            |t, v| t.broadcast_add(&v[0], &v[1]),
        ),
        (
            "broadcast_mul by row",
            vec![vec![n, 3, 7], vec![7]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        (
            "broadcast_mul by token",
            vec![vec![n, 5, 7], vec![n, 5, 1]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        (
            "broadcast_mul by channel",
            vec![vec![n, 3, 5, 4], vec![3, 1, 1]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        (
            "broadcast_mul along two separate axes",
            vec![vec![n, 3, 5, 4], vec![n, 1, 5, 1]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        (
            "broadcast_mul by a single value",
            vec![vec![n, 3, 7], vec![1]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        (
            "broadcast_mul of wide rows",
            vec![vec![n, 2, 1031], vec![1, 1031]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
        ),
        ("sigmoid", vec![vec![n, 4, 9]], |t, v| t.sigmoid(&v[0])),
        ("tanh", vec![vec![n, 4, 9]], |t, v| t.tanh(&v[0])),
        ("silu", vec![vec![n, 4, 9]], |t, v| t.silu(&v[0])),
        ("gelu_erf", vec![vec![n, 4, 9]], |t, v| t.gelu_erf(&v[0])),
        (
            "y tanh(y) for y = silu(gelu_erf(x))",
            vec![vec![n, 4, 9]],
            |t, v| {
                let y = t.silu(&t.gelu_erf(&v[0])?)?;
                t.mul(&y, &t.tanh(&y)?)
            },
        ),
        ("softmax", vec![vec![n, 3, 19]], |t, v| t.softmax(&v[0])),
        ("log_softmax", vec![vec![n, 3, 19]], |t, v| {
            t.log_softmax(&v[0])
        }),
    ]
}
