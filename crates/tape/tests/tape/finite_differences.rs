//! Every operation, fused and composed: both forms agree with finite differences and with each
//! other.

use candle_core::{DType, Device};
use tape::Kernels;
use tape::check::{cases, finite_difference_error, large_cases, run};

#[test]
fn every_gradient_agrees_with_finite_differences() {
    for kernels in [Kernels::Fused, Kernels::Composed] {
        for case in cases(3).unwrap() {
            let error = finite_difference_error(&case, kernels).unwrap();
            assert!(
                error < 1e-7,
                "{} ({kernels:?}) is off by {error:.1e}",
                case.name
            );
        }
    }
}

#[test]
fn both_forms_agree_for_every_micro_batch() {
    for micro_batch in [1, 2, 3, 8] {
        let all = cases(micro_batch).unwrap().into_iter();
        for case in all.chain(large_cases(micro_batch).unwrap()) {
            let composed = run(&case, &Device::Cpu, DType::F64, Kernels::Composed).unwrap();
            let fused = run(&case, &Device::Cpu, DType::F64, Kernels::Fused).unwrap();
            let (error, what) = fused.difference(&composed);
            assert!(
                error < 1e-12,
                "{} at {micro_batch}: {what} differs by {error:.1e}",
                case.name
            );
            let single = run(&case, &Device::Cpu, DType::F32, Kernels::Fused).unwrap();
            let (error, what) = single.difference(&composed);
            assert!(
                error < 1e-5,
                "{} in f32 at {micro_batch}: {what} differs by {error:.1e}",
                case.name
            );
        }
    }
}
