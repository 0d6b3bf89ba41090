//! Casts round in the forward pass and cast the gradient back to the input's type.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Tape};

/// Twice the cast value, and the gradient of its sum, from `from` through `to` and back.
fn run(from: DType, to: DType, values: &[f64]) -> (Vec<f64>, DType, Vec<f64>) {
    let mut parameters = Parameters::default();
    let shape = [values.len()];
    let id = parameters
        .add("x".into(), values.to_vec(), &shape, from, &Device::Cpu)
        .unwrap();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let low = tape.cast(&tape.parameter(id), to).unwrap();
    assert_eq!(low.tensor().dtype(), to);
    let y = tape.cast(&tape.scale(&low, 2.0).unwrap(), from).unwrap();
    let output = to_f64(y.tensor()).unwrap();
    let root = tape.total(&y).unwrap().sum;
    let gradient = tape.backward(vec![(root, 1.0)]).unwrap().remove(0).unwrap();
    (output, gradient.dtype(), to_f64(&gradient).unwrap())
}

#[test]
fn a_cast_rounds_to_nearest_and_casts_its_gradient_back() {
    // 1 + 2^-9 is half way in bf16 (8 bits) and exact in f16 (11 bits); ties go to even.
    let value = 1.0 + 1.0 / 512.0;
    for from in [DType::F32, DType::F64] {
        for (to, expected) in [(DType::BF16, 1.0), (DType::F16, value)] {
            let (output, dtype, gradient) = run(from, to, &[value, -3.0]);
            assert_eq!(output, [2.0 * expected, -6.0], "{from:?} to {to:?}");
            assert_eq!(dtype, from);
            assert_eq!(gradient, [2.0, 2.0]);
        }
    }
}

#[test]
fn f32_casts_to_f64_and_back() {
    let (output, dtype, gradient) = run(DType::F64, DType::F32, &[0.1]);
    assert_eq!(output, [2.0 * f64::from(0.1f32)]);
    assert_eq!((dtype, gradient), (DType::F64, vec![2.0]));
}

#[test]
fn large_values_overflow_in_f16_but_not_in_bf16() {
    assert_eq!(run(DType::F32, DType::F16, &[1e5]).0, [f64::INFINITY]);
    assert!(run(DType::F32, DType::BF16, &[1e5]).0[0].is_finite());
}

#[test]
fn a_cast_to_the_same_type_records_nothing() {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let ones = candle_core::Tensor::ones(3, DType::F32, &Device::Cpu).unwrap();
    let x = tape.variable(ones);
    let y = tape.cast(&x, DType::F32).unwrap();
    assert_eq!(y.tensor().id(), x.tensor().id());
}
