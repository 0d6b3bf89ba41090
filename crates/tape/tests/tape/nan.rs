//! NaN is never hidden: an operation with a NaN input has a NaN output, in the fused and in the
//! composed form, so that a broken sample or weight is noticed at once.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::Kernels;
use tape::check::{Case, Outcome, cases, run};
use tape::inplace::to_f64;

/// Operations whose output need not depend on the first value of an input: it may be dropped, not
/// chosen, or cut off.
const MAY_MISS: [&str; 6] = ["drop", "gather", "select", "narrow", "gumbel", "embedding"];

/// The case with NaN as the first value of input `input`.
fn spoiled(case: &Case, input: usize) -> Case {
    let mut inputs = case.inputs.clone();
    let mut values = to_f64(&inputs[input]).unwrap();
    values[0] = f64::NAN;
    inputs[input] = Tensor::from_vec(values, inputs[input].dims(), &Device::Cpu).unwrap();
    Case {
        name: case.name,
        inputs,
        run: case.run,
    }
}

fn places(values: &[f64]) -> Vec<usize> {
    (0..values.len()).filter(|&i| values[i].is_nan()).collect()
}

fn ran(case: &Case, dtype: DType, kernels: Kernels) -> Outcome {
    run(case, &Device::Cpu, dtype, kernels).unwrap()
}

#[test]
fn every_operation_passes_nan_on() {
    for case in cases(2).unwrap() {
        for input in 0..case.inputs.len() {
            let case = spoiled(&case, input);
            let name = format!("NaN in input {input} of {}", case.name);
            let fused = ran(&case, DType::F64, Kernels::Fused);
            let expected = places(&fused.output);
            let may_miss = MAY_MISS.iter().any(|word| case.name.contains(word));
            assert!(may_miss || !expected.is_empty(), "{name} is not seen");
            for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
                // A product with a matrix of zeros may spread NaN, but not lose it.
                let found = places(&ran(&case, dtype, Kernels::Composed).output);
                let lost = expected.iter().find(|place| !found.contains(place));
                assert_eq!(lost, None, "{name}, composed, {dtype:?}");
            }
        }
    }
}

/// The slope of ReLU at NaN is 1, as elsewhere: a gradient is zero only if the value is known not
/// to count.
#[test]
fn relu_passes_nan_and_its_gradient() {
    for case in cases(2).unwrap() {
        if case.name != "relu" {
            continue;
        }
        let case = spoiled(&case, 0);
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let found = ran(&case, DType::F64, kernels);
            assert_eq!(places(&found.output), [0], "{kernels:?}");
            assert!(found.gradients[0][0] > 0.0, "{kernels:?}");
            let zeroes = found.output.iter().zip(&found.gradients[0]);
            assert!(zeroes.filter(|(y, _)| **y == 0.0).all(|(_, dx)| *dx == 0.0));
        }
    }
}
