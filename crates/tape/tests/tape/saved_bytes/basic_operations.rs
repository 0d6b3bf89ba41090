//! Activations, sums, copies, embeddings, means, pooling, and the loss of a linear layer.

use super::{LABELS, N, POOL, Row, T, V, W, row};

/// Most of these operations save nothing; ReLU and max pooling save what their gradients need.
// tidy: table
pub fn rows() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, T, W]];
    let image: &[&[usize]] = &[&[N, V, T, W]];
    vec![
        row("relu: y", shape, |t, v| t.relu(&v[0]), N * T * W),
        row("scale: nothing", shape, |t, v| t.scale(&v[0], 3.0), 0),
        row("add: nothing", shape, |t, v| t.add(&v[0], &v[0]), 0),
        row(
            "add_repeated: nothing",
            &[&[N, T, W], &[T, W]],
            |t, v| t.add_repeated(&v[0], &v[1]),
            0,
        ),
        row(
            "concat: nothing",
            shape,
            |t, v| t.concat(&[&v[0], &v[0]]),
            0,
        ),
        row(
            "prepend_token: nothing",
            &[&[W], &[N, T, W]],
            |t, v| t.prepend_token(&v[0], &v[1]),
            0,
        ),
        row(
            "first_token: nothing",
            shape,
            |t, v| t.first_token(&v[0]),
            0,
        ),
        row(
            "reshape: nothing",
            shape,
            |t, v| t.reshape(&v[0], &[N * T, W]),
            0,
        ),
        row(
            "mean_tokens: nothing",
            shape,
            |t, v| t.mean_tokens(&v[0]),
            0,
        ),
        row(
            "mean_tokens padded: nothing",
            shape,
            |t, v| t.mean_tokens_padded(&v[0], &[T, 1, 2]),
            0,
        ),
        row("mean_pool: nothing", image, |t, v| t.mean_pool(&v[0]), 0),
        row(
            "max_pool: a byte an output",
            image,
            |t, v| t.max_pool(&v[0], POOL),
            0,
        )
        .and_bytes(N * V * 3 * 4),
        row(
            "embedding: nothing",
            &[&[N, W]],
            |t, v| t.embedding(&v[0], &[1, 0, 1, 2], &[2, 2]),
            0,
        ),
        row(
            "linear_cross_entropy: dx and dW",
            &[&[N, V], &[W, V]],
            |t, v| Ok(t.linear_cross_entropy(&v[0], &v[1], &LABELS)?.sum),
            N * V + W * V,
        ),
    ]
}
