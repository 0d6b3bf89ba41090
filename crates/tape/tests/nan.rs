//! NaN is never hidden: what it goes into comes out as NaN, in the fused form and in the composed
//! one, so that a broken sample or weight is seen where it happens.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::Kernels;
use tape::check::{Case, Outcome, cases, run};
use tape::inplace::to_f64;

/// Operations whose output need not show the first number of an input: it may be dropped, not
/// chosen, or cut away.
const MAY_MISS: [&str; 6] = ["drop", "gather", "select", "narrow", "gumbel", "embedding"];

/// The case with NaN as the first number of input `input`.
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
fn no_operation_hides_nan() {
    for case in cases(2).unwrap() {
        for input in 0..case.inputs.len() {
            let case = spoiled(&case, input);
            let name = format!("NaN in input {input} of {}", case.name);
            let fused = ran(&case, DType::F64, Kernels::Fused);
            let expected = places(&fused.output);
            let may_miss = MAY_MISS.iter().any(|word| case.name.contains(word));
            assert!(may_miss || !expected.is_empty(), "{name} is not seen");
            for dtype in [DType::F64, DType::F32, DType::BF16, DType::F16] {
                // A product with a matrix of zeros may spread it; it may not lose it.
                let found = places(&ran(&case, dtype, Kernels::Composed).output);
                let lost = expected.iter().find(|place| !found.contains(place));
                assert_eq!(lost, None, "{name}, composed, {dtype:?}");
            }
        }
    }
}

/// As elsewhere, the slope of NaN under ReLU is 1: a gradient is lost only where the value is known
/// not to count.
#[test]
fn relu_lets_nan_and_its_gradient_through() {
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
