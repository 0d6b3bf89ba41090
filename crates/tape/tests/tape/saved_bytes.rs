//! The bytes that each operation saves for its backward pass, as formulas counted by hand from the
//! sizes. A row of the table names the operation, runs it on variables, and gives the number of
//! elements it saves.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

mod arithmetic;
mod movement;
mod basic_operations;
mod random_and_losses;

use candle_core::{DType, Device, Tensor};
use tape::{
    Cancel, GeluLinear, Kernels, NoiseKey, Parameters, PoolShape, Positions, Result, Tape, Value,
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
    /// Bytes besides the elements.
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

fn constant(shape: &[usize]) -> Value {
    Value::constant(Tensor::ones(shape, DType::F64, &Device::Cpu).unwrap())
}

fn saved(row: &Row, dtype: DType, kernels: Kernels) -> u64 {
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
fn every_operation_saves_exactly_the_documented_bytes() {
    for table in [
        arithmetic::products(),
        arithmetic::functions(),
        movement::movers(),
        basic_operations::rows(),
        random_and_losses::random_operations(),
        random_and_losses::losses(),
    ] {
        for row in table {
            for kernels in [Kernels::Fused, Kernels::Composed] {
                let bytes = saved(&row, DType::F64, kernels);
                let expected = 8 * row.numbers + row.bytes;
                assert_eq!(bytes, expected as u64, "{} ({kernels:?})", row.operation);
            }
        }
    }
}

#[test]
fn f32_saves_half_of_the_bytes_of_f64() {
    for table in [
        arithmetic::functions(),
        random_and_losses::random_operations(),
        random_and_losses::losses(),
    ] {
        for row in table {
            let (single, double) = (
                saved(&row, DType::F32, Kernels::Fused),
                saved(&row, DType::F64, Kernels::Fused),
            );
            assert_eq!(2 * single, double, "{}", row.operation);
        }
    }
}

#[test]
fn the_partner_of_a_constant_operand_is_not_saved() {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let x = tape.variable(constant(&[N, T]).tensor().clone());
    tape.matmul(&x, &constant(&[T, W])).unwrap();
    assert_eq!(tape.saved_bytes(), 8 * (T * W) as u64, "the constant alone");
}

#[test]
fn a_feed_forward_branch_saves_only_its_product() {
    for kernels in [Kernels::Fused, Kernels::Composed] {
        let mut parameters = Parameters::default();
        let mut parameter = |shape: &[usize]| {
            let ones = vec![1.0; shape.iter().product()];
            let added = parameters.add("p".into(), ones, shape, DType::F32, &Device::Cpu);
            added.unwrap()
        };
        let ids = [parameter(&[W]), parameter(&[V, W]), parameter(&[V])];
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let variable =
            |shape: &[usize]| tape.variable(Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap());
        let [x_bias, weight, bias] = ids.map(|id| tape.parameter(id));
        let operands = GeluLinear {
            x: variable(&[N, T, W]),
            x_is_spent: false,
            x_bias,
            weight,
            bias,
            residual: variable(&[N, T, V]),
        };
        tape.gelu_linear(&operands).unwrap();
        assert_eq!(tape.saved_bytes(), 4 * (N * T * W) as u64, "{kernels:?}");
    }
}
