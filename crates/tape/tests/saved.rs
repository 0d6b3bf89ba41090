//! What each operation keeps for its backward pass, by formula: numbers of the element type, counted by hand from the sizes.
//! A row of the table names the operation, runs it on variables, and says how many numbers it keeps.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::{
    Cancel, Choice, ClassRule, ClassTargets, Kernels, NoiseKey, NumberTargets, Parameters,
    PoolDivisor, PoolShape, Positions, Result, Tape, Value,
};

/// Sizes of the table: samples, tokens, width, and another width.
const N: usize = 3;
const T: usize = 5;
const W: usize = 7;
const V: usize = 2;

const KEY: NoiseKey = NoiseKey {
    seed: 1,
    step: 2,
    site: "here",
    samples: &[4, 5, 6],
    positions: Positions::Counted,
};
const POOL: PoolShape = PoolShape {
    kernel: 3,
    stride: 2,
    padding: 1,
};
const LABELS: [u32; N] = [0, 6, 3];
const SHARES: [f32; N * W] = [1.0 / W as f32; N * W];

struct Row {
    operation: &'static str,
    inputs: Vec<Vec<usize>>,
    run: fn(&Tape, &[Value]) -> Result<Value>,
    numbers: usize,
    bytes: usize,
}

impl Row {
    /// Bytes beside the numbers.
    fn and_bytes(self, bytes: usize) -> Self {
        Row { bytes, ..self }
    }
}

fn row(
    operation: &'static str,
    inputs: &[&[usize]],
    run: fn(&Tape, &[Value]) -> Result<Value>,
    numbers: usize,
) -> Row {
    Row {
        operation,
        inputs: inputs.iter().map(|shape| shape.to_vec()).collect(),
        run,
        numbers,
        bytes: 0,
    }
}

fn products() -> Vec<Row> {
    vec![
        row(
            "matmul: both operands",
            &[&[N, T, W], &[N, W, V]],
            |t, v| t.matmul(&v[0], &v[1]),
            N * T * W + N * W * V,
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

fn functions() -> Vec<Row> {
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
    ]
}

fn movers() -> Vec<Row> {
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

/// Operations that were there before the others, apart from those that compute again what they do not keep.
fn first_ones() -> Vec<Row> {
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

fn chances() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, T, W]];
    vec![
        row(
            "dropout: nothing",
            shape,
            |t, v| t.dropout(&v[0], 0.5, &KEY),
            0,
        ),
        row(
            "drop_path: nothing",
            shape,
            |t, v| t.drop_path(&v[0], 0.5, &KEY),
            0,
        ),
        row(
            "gumbel_softmax: p",
            shape,
            |t, v| t.gumbel_softmax(&v[0], 0.5, Choice::Soft, &KEY),
            N * T * W,
        ),
        row(
            "gumbel_softmax straight through: p",
            shape,
            |t, v| t.gumbel_softmax(&v[0], 0.5, Choice::Hard, &KEY),
            N * T * W,
        ),
    ]
}

fn losses() -> Vec<Row> {
    let shape: &[&[usize]] = &[&[N, W]];
    const TARGETS: NumberTargets = NumberTargets {
        values: &SHARES,
        present: None,
    };
    vec![
        row(
            "cross_entropy: dz",
            shape,
            |t, v| Ok(t.cross_entropy(&v[0], &LABELS, 0.1)?.sum),
            N * W,
        ),
        row(
            "cross_entropy of shares: dz",
            shape,
            |t, v| {
                let targets = ClassTargets::Probabilities(&SHARES);
                Ok(
                    t.class_cross_entropy(&v[0], targets, &ClassRule::default())?
                        .sum,
                )
            },
            N * W,
        ),
        row(
            "binary_cross_entropy: dz",
            shape,
            |t, v| Ok(t.binary_cross_entropy(&v[0], TARGETS)?.sum),
            N * W,
        ),
        row(
            "squared_error: dx",
            shape,
            |t, v| Ok(t.squared_error(&v[0], TARGETS)?.sum),
            N * W,
        ),
        row(
            "huber: dx",
            shape,
            |t, v| Ok(t.huber(&v[0], TARGETS, 1.0)?.sum),
            N * W,
        ),
    ]
}

fn constant(shape: &[usize]) -> Value {
    Value::constant(Tensor::ones(shape, DType::F64, &Device::Cpu).unwrap())
}

fn kept(row: &Row, dtype: DType, kernels: Kernels) -> u64 {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let variable = |shape: &Vec<usize>| {
        let ones = Tensor::ones(shape.as_slice(), dtype, &Device::Cpu).unwrap();
        tape.variable(ones)
    };
    let inputs: Vec<Value> = row.inputs.iter().map(variable).collect();
    (row.run)(&tape, &inputs).unwrap();
    assert_eq!(tape.saved_bytes(), tape.peak_saved_bytes());
    tape.saved_bytes()
}

#[test]
fn every_operation_keeps_what_it_says_and_no_more() {
    for table in [
        products(),
        functions(),
        movers(),
        first_ones(),
        chances(),
        losses(),
    ] {
        for row in table {
            for kernels in [Kernels::Fused, Kernels::Composed] {
                let bytes = kept(&row, DType::F64, kernels);
                assert_eq!(
                    bytes,
                    8 * row.numbers as u64,
                    "{} ({kernels:?})",
                    row.operation
                );
            }
        }
    }
}

#[test]
fn f32_keeps_half_of_what_f64_does() {
    for table in [functions(), chances(), losses()] {
        for row in table {
            let (single, double) = (
                kept(&row, DType::F32, Kernels::Fused),
                kept(&row, DType::F64, Kernels::Fused),
            );
            assert_eq!(2 * single, double, "{}", row.operation);
        }
    }
}

#[test]
fn an_operand_whose_partner_is_constant_is_not_kept() {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let x = tape.variable(constant(&[N, T]).tensor().clone());
    tape.matmul(&x, &constant(&[T, W])).unwrap();
    assert_eq!(tape.saved_bytes(), 8 * (T * W) as u64, "the constant alone");
}
