//! Products, and functions of one number.

use super::{N, Row, T, V, W, constant, row};

pub fn products() -> Vec<Row> {
    vec![
        row(
            "matmul: both operands",
            &[&[N, T, W], &[N, W, V]],
            |t, v| t.matmul(&v[0], &v[1]),
            N * T * W + N * W * V,
        ),
        row(
            "linear_add: x and the weight",
            &[&[N, T, W], &[V, W], &[V], &[N, T, V]],
            |t, v| t.linear_add(&v[0], &v[1], &v[2], &v[3]),
            N * T * W + V * W,
        ),
        row(
            "mul: both operands",
            &[&[N, W], &[N, W]],
            |t, v| t.mul(&v[0], &v[1]),
            2 * N * W,
        ),
        row(
            "mul with itself: the operand once",
            &[&[N, W]],
            |t, v| t.mul(&v[0], &v[0]),
            N * W,
        ),
        row(
            "broadcast_mul: both operands, the small one small",
            &[&[N, T, W], &[W]],
            |t, v| t.broadcast_mul(&v[0], &v[1]),
            N * T * W + W,
        ),
        row(
            "broadcast_mul by a constant: the constant",
            &[&[N, T, W]],
            |t, v| t.broadcast_mul(&v[0], &constant(&[N, 1, 1])),
            N,
        ),
        row(
            "broadcast_add: nothing",
            &[&[N, T, W], &[W]],
            |t, v| t.broadcast_add(&v[0], &v[1]),
            0,
        ),
    ]
}

pub fn functions() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, T, W]];
    let all = N * T * W;
    vec![
        row("sigmoid: y", shape, |t, v| t.sigmoid(&v[0]), all),
        row("tanh: y", shape, |t, v| t.tanh(&v[0]), all),
        row("silu: x", shape, |t, v| t.silu(&v[0]), all),
        row("gelu_erf: x", shape, |t, v| t.gelu_erf(&v[0]), all),
        row("softmax: y", shape, |t, v| t.softmax(&v[0]), all),
        row("log_softmax: y", shape, |t, v| t.log_softmax(&v[0]), all),
        row(
            "sigmoid and tanh of it: each its y",
            shape,
            |t, v| t.tanh(&t.sigmoid(&v[0])?),
            2 * all,
        ),
        row(
            "silu beside gelu_erf: their x once",
            shape,
            |t, v| t.broadcast_add(&t.silu(&v[0])?, &t.gelu_erf(&v[0])?),
            all,
        ),
        row(
            "silu of gelu_erf: the first x alone",
            shape,
            |t, v| t.silu(&t.gelu_erf(&v[0])?),
            all,
        ),
        row(
            "mul of silu and gelu_erf of one x: x alone",
            shape,
            |t, v| t.mul(&t.silu(&v[0])?, &t.gelu_erf(&v[0])?),
            all,
        ),
        row(
            "matmul of gelu_erf: its x and the other operand",
            &[&[N, T, W], &[N, W, V]],
            |t, v| t.matmul(&t.gelu_erf(&v[0])?, &v[1]),
            all + N * W * V,
        ),
    ]
}
