//! Half precision: every composed form runs in bf16 and f16 and stays close to f64, operations
//! that should lose only one rounding do, and half types are accumulated in f32.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::check::{Case, cases, run};
use tape::inplace::{add_assign, to_f64};
use tape::{Cancel, Kernels, Parameters, Tape, Value, widened};

const HALVES: [DType; 2] = [DType::BF16, DType::F16];

/// Distance from 1 to the next number.
fn spacing(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-7),
        _ => 2f64.powi(-10),
    }
}

/// A case whose inputs the half type holds exactly, so that all differences come from the
/// operation.
fn exact(case: Case, dtype: DType) -> Case {
    let round = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
    let inputs: candle_core::Result<_> = case.inputs.iter().map(round).collect();
    Case {
        inputs: inputs.unwrap(),
        ..case
    }
}

#[test]
fn every_operation_in_half_precision_is_close_to_f64() {
    for dtype in HALVES {
        let mut worst = (0.0, String::new());
        for micro_batch in [1, 3] {
            for case in cases(micro_batch).unwrap() {
                let case = exact(case, dtype);
                let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed).unwrap();
                // There are no fused kernels for half types: asking for one gives the composed
                // form.
                for kernels in [Kernels::Fused, Kernels::Composed] {
                    let outcome = run(&case, &Device::Cpu, dtype, kernels);
                    let outcome =
                        outcome.unwrap_or_else(|e| panic!("{} in {dtype:?}: {e}", case.name));
                    let (error, what) = outcome.difference(&expected);
                    let what = format!("{what} of {} at {micro_batch}", case.name);
                    assert!(
                        error <= 2.0 * spacing(dtype),
                        "{dtype:?}: {what} differs by {error:.1e}"
                    );
                    if error > worst.0 {
                        worst = (error, what);
                    }
                }
            }
        }
        println!("{dtype:?}: {:.1e}, {}", worst.0, worst.1);
    }
}

/// Rounding the output costs half a spacing. Computed in the half type throughout, it would cost
/// several.
#[test]
fn norms_activations_and_losses_lose_only_one_rounding() {
    let precise = [
        "layer_norm",
        "group_norm",
        "gelu",
        "cross_entropy",
        "mean_pool",
        "mean_tokens",
    ];
    for dtype in HALVES {
        for case in cases(3).unwrap() {
            if !precise.iter().any(|name| case.name.starts_with(name)) {
                continue;
            }
            let case = exact(case, dtype);
            let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed)
                .unwrap()
                .output;
            let found = run(&case, &Device::Cpu, dtype, Kernels::Composed)
                .unwrap()
                .output;
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs() / expected.abs().max(spacing(dtype));
                assert!(
                    error <= 0.51 * spacing(dtype),
                    "{} in {dtype:?}: {found} for {expected}",
                    case.name
                );
            }
        }
    }
}

/// In bf16 a sum of ones stops at 256, in f16 at 2048.
#[test]
fn half_types_are_accumulated_in_f32() {
    for dtype in HALVES {
        let one = Tensor::ones((3, 5), dtype, &Device::Cpu).unwrap();
        let mut sum = widened(&one).unwrap();
        (0..4999).for_each(|_| add_assign(&mut sum, &one).unwrap());
        assert_eq!(sum.dtype(), DType::F32);
        assert_eq!(to_f64(&sum).unwrap(), vec![5000.0; 15]);
    }
}

#[test]
fn a_half_bias_gradient_over_many_rows_is_exact() {
    for dtype in HALVES {
        let tensor = |shape: &[usize], value: f64| {
            let ones = Tensor::ones(shape, dtype, &Device::Cpu).unwrap();
            (ones * value).unwrap()
        };
        let mut parameters = Parameters::default();
        let bias = parameters
            .add(
                "bias".to_owned(),
                vec![0.0; 4],
                &[4],
                DType::F32,
                &Device::Cpu,
            )
            .unwrap();
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let (x, w) = (
            Value::constant(tensor(&[5000, 3], 1.0)),
            Value::constant(tensor(&[4, 3], 0.0)),
        );
        let y = tape.linear(&x, &w, Some(&tape.parameter(bias))).unwrap();
        // With equal scores, each row gives a quarter to every class, minus one to its label.
        let loss = tape.cross_entropy(&y, &[0; 5000], 0.0).unwrap();
        let gradient = tape
            .backward(vec![(loss.sum, 1.0)])
            .unwrap()
            .remove(0)
            .unwrap();
        assert_eq!(
            to_f64(&gradient).unwrap(),
            [-3750.0, 1250.0, 1250.0, 1250.0]
        );
    }
}

#[test]
fn rounded_parameters_share_norms_and_biases() {
    let mut parameters = Parameters::default();
    for (name, shape) in [
        ("weight", &[4, 3][..]),
        ("bias", &[4]),
        ("kernel", &[2, 1, 3, 3]),
    ] {
        let values = vec![1.0 / 3.0; shape.iter().product()];
        parameters
            .add(name.to_owned(), values, shape, DType::F32, &Device::Cpu)
            .unwrap();
    }
    for dtype in HALVES {
        let rounded = parameters.rounded(dtype).unwrap();
        let types: Vec<_> = rounded.iter().map(|p| p.tensor.dtype()).collect();
        assert_eq!(types, [dtype, DType::F32, dtype]);
        assert_eq!(rounded.bytes_in(dtype), 2 * (12 + 18));
        assert_eq!(
            (parameters.bytes_in(dtype), parameters.bytes()),
            (0, 4 * (12 + 4 + 18))
        );
        // The bias is the same memory: a change of one shows in the other.
        let mut bias = parameters.at(1).tensor.clone();
        let one = Tensor::ones(4, DType::F32, &Device::Cpu).unwrap();
        let before = to_f64(&rounded.at(1).tensor).unwrap()[0];
        add_assign(&mut bias, &one).unwrap();
        assert_eq!(
            to_f64(&rounded.at(1).tensor).unwrap()[0] as f32,
            before as f32 + 1.0
        );
    }
}
