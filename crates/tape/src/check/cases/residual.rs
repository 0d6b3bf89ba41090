//! Cases of residual branches: operations that add to the skip connection, norms whose input
//! already has a gradient, and checkpointed blocks that end in a deferred operation.

use super::Row;
use crate::deferred_block_output::DeferredOutput;
use crate::error::Result;
use crate::ops::{Conv2dShape, GeluLinear};
use crate::tape::{Tape, Value};

const DOWN: Conv2dShape = Conv2dShape {
    stride: 2,
    padding: 1,
    groups: 1,
};

/// `v`: [.., 4], [4], [3, 4], [3] and [.., 3].
fn operands(v: &[Value]) -> GeluLinear {
    GeluLinear {
        x: v[0].clone(),
        x_is_spent: false,
        x_bias: v[1].clone(),
        weight: v[2].clone(),
        bias: v[3].clone(),
        residual: v[4].clone(),
    }
}

/// A branch around `x` with norm, linear layer and activation; the second linear layer is deferred.
fn branch(t: &Tape, x: &Value, v: &[Value]) -> Result<DeferredOutput> {
    let y = t.layer_norm(x, &v[0], &v[1], 1e-5)?;
    let operands = GeluLinear {
        x: t.linear(&y, &v[2], None)?,
        x_is_spent: true,
        x_bias: v[3].clone(),
        weight: v[4].clone(),
        bias: v[5].clone(),
        residual: x.clone(),
    };
    Ok(DeferredOutput::GeluLinear(Box::new(operands)))
}

/// The cases for `n` samples.
// tidy: table
pub(super) fn rows(n: usize) -> Vec<Row> {
    vec![
        (
            "linear_add",
            vec![vec![n, 5, 7], vec![6, 7], vec![6], vec![n, 5, 6]],
            |t, v| t.linear_add(&v[0], &v[1], &v[2], &v[3]),
        ),
        (
            "linear_add whose input is also the residual",
            vec![vec![n, 5], vec![5, 5], vec![5]],
            |t, v| t.linear_add(&v[0], &v[1], &v[2], &v[0]),
        ),
        (
            "residual branch: gelu_linear",
            vec![vec![n, 2, 4], vec![4], vec![3, 4], vec![3], vec![n, 2, 3]],
            |t, v| t.gelu_linear(&operands(v)),
        ),
        (
            "residual branch: layer_norm",
            vec![
                vec![n, 2, 3],
                vec![3],
                vec![3],
                vec![4, 3],
                vec![4],
                vec![3, 4],
                vec![3],
            ],
            |t, v| branch(t, &v[0], &v[1..])?.finish(t),
        ),
        (
            "checkpoint that ends in a convolution",
            vec![vec![n, 2, 4, 5]],
            |t, v| {
                let kernel = super::values("kernel", 0, &[3, 2, 3, 3])?;
                let x = v[0].tensor();
                let kernel = kernel.to_device(x.device())?.to_dtype(x.dtype())?;
                t.checkpoint(&v[0], move |t, x| {
                    let kernel = Value::constant(kernel.clone());
                    Ok(DeferredOutput::Conv2d(t.gelu(x)?, kernel, DOWN))
                })
            },
        ),
        (
            "checkpoint that ends in gelu_linear",
            vec![vec![n, 2, 3]],
            |t, v| {
                let shapes: [&[usize]; 6] = [&[3], &[3], &[4, 3], &[4], &[3, 4], &[3]];
                let x = v[0].tensor();
                let frozen = |(i, shape): (usize, &&[usize])| {
                    let values = super::values("frozen branch", i, shape)?;
                    let values = values.to_device(x.device())?.to_dtype(x.dtype())?;
                    Ok(Value::constant(values))
                };
                let frozen = shapes.iter().enumerate().map(frozen);
                let frozen = frozen.collect::<Result<Vec<Value>>>()?;
                t.checkpoint(&v[0], move |t, x| branch(t, x, &frozen))
            },
        ),
    ]
}
