//! Every kernel, run by the emulator, against f64: in odd sizes, at kinks and in all element types.
//! Its source is also compiled by two more compilers.

mod copies;
mod kinks;
mod multi_tensor;
mod quantized;
mod sizes;
mod compile;
mod counted_operations;
mod device_check_coverage;

use super::{Grid, Kernel, emulator};
use crate::cancel::Cancel;
use crate::check::{Case, cases, large_cases, run};
use crate::parameters::Parameters;
use crate::tape::{Kernels, Tape};
use candle_core::{DType, Device, Tensor};

/// The largest relative difference of every case that uses a kernel, by name.
fn differences(micro_batch: usize, dtype: DType) -> Vec<(&'static str, f64)> {
    let exact = |t: &Tensor| t.to_dtype(dtype)?.to_dtype(DType::F64);
    let small = cases(micro_batch).expect("the table is sound");
    let large = large_cases(micro_batch).expect("the table is sound");
    let all = small.into_iter().chain(large);
    all.map(|case| {
        // Inputs that the type holds exactly, so that all differences come from the kernels.
        let inputs: candle_core::Result<_> = case.inputs.iter().map(exact).collect();
        let case = Case {
            inputs: inputs.expect("the types convert"),
            ..case
        };
        let expected = run(&case, &Device::Cpu, DType::F64, Kernels::Composed);
        let found = emulator::with(|| run(&case, &Device::Cpu, dtype, Kernels::Fused));
        let difference = match (found, expected) {
            (Ok(found), Ok(expected)) => found.difference(&expected).0,
            (found, _) => panic!("{}: {:?}", case.name, found.err()),
        };
        (case.name, difference)
    })
    .collect()
}

fn hold(micro_batch: usize, dtype: DType, allowed: f64) {
    let worst: Vec<_> = differences(micro_batch, dtype)
        .into_iter()
        .filter(|(_, difference)| difference.is_nan() || *difference > allowed)
        .collect();
    assert!(worst.is_empty(), "{dtype:?} {micro_batch}: {worst:?}");
}

#[test]
fn kernels_in_f32_agree_with_f64() {
    hold(1, DType::F32, 1e-5);
    hold(3, DType::F32, 1e-5);
}

#[test]
fn kernels_in_bf16_agree_with_f64() {
    hold(3, DType::BF16, 2.0 / 128.0);
}

#[test]
fn kernels_in_f16_agree_with_f64() {
    hold(3, DType::F16, 2.0 / 1024.0);
}

#[test]
fn threads_may_launch_kernels_at_the_same_time() {
    let case = || {
        let mut all = large_cases(3).expect("the table is sound").into_iter();
        let case = all.find(|case| case.name.contains("cross"));
        case.expect("one with barriers")
    };
    let found = || run(&case(), &Device::Cpu, DType::F32, Kernels::Fused).expect("it runs");
    let expected = emulator::with(found);
    std::thread::scope(|scope| {
        let launches = || {
            for _ in 0..8 {
                let (difference, _) = emulator::with(found).difference(&expected);
                assert_eq!(difference, 0.0);
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(launches)));
    });
}

#[test]
fn a_launch_wider_than_the_pipeline_is_an_error() {
    // 16,384 classes take sixteen simdgroups: 512 threads. The copy of the scores takes fewer.
    let loss = |allowed| {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let scores = Tensor::zeros((2, 16_384), DType::F32, &Device::Cpu)?;
        let scores = tape.variable(scores);
        emulator::with_allowed_threads(allowed, || tape.cross_entropy(&scores, &[7, 9], 0.0))
    };
    assert!(loss(512).is_ok());
    let error = loss(480).err().expect("the emulator would drop it");
    let text = error.to_string();
    assert!(
        text.contains("cross_entropy needs groups of 512 threads but this GPU allows 480"),
        "{text}"
    );
    assert!(error.device_fault().is_none());
}

#[test]
fn a_count_beyond_32_bits_is_refused_before_the_launch() {
    let launch = |groups, count| {
        let x = Tensor::zeros(4, DType::F32, &Device::Cpu).expect("small");
        let arguments = [
            super::Argument::In(&x),
            super::Argument::Out(&x),
            super::Argument::Count(count),
            super::Argument::Count(0),
        ];
        let kernel = Kernel::typed("gelu_tanh", &x);
        kernel.expect_indexable(Grid::groups(groups, 8), &arguments)
    };
    assert!(launch(1, u32::MAX as usize).is_ok());
    for (groups, count) in [(1, 1 << 32), (1 << 24, 4), (usize::MAX, 4)] {
        let error = launch(groups, count).expect_err("33 bits").to_string();
        assert!(error.contains("choose a smaller micro-batch"), "{error}");
    }
}

#[test]
fn a_tensor_that_32_bits_cannot_index_is_refused_before_the_launch() {
    use super::Argument::{Count, In, Out, Strided};
    let x = Tensor::zeros(4, DType::F32, &Device::Cpu).expect("small");
    // Views of one element.
    let one = Tensor::zeros((1, 1), DType::F32, &Device::Cpu).expect("small");
    let wide = |rows: usize| one.broadcast_as((rows, 1 << 16)).expect("a view");
    let kernel = Kernel::typed("softmax_backward", &x);
    let launch = |tensor| kernel.expect_indexable(Grid::rows(1 << 16), &[tensor, Count(1 << 16)]);
    let (most, beyond) = (wide((1 << 16) - 2), wide(1 << 16));
    assert!(launch(In(&most)).is_ok() && launch(Out(&most)).is_ok());
    for tensor in [In(&beyond), Out(&beyond)] {
        let error = launch(tensor).expect_err("33 bits");
        assert!(error.is_memory(), "a smaller micro-batch helps: {error}");
        assert!(!error.is_deferred_fault(), "nothing was launched");
    }
    // All its rows are the same element.
    assert!(launch(Strided(&beyond)).is_ok());
}

#[test]
fn attention_weights_that_32_bits_cannot_index_are_refused() {
    // One sample with 65,536 heads of 256 tokens has 2^32 weights. All tensors are views.
    let one = Tensor::zeros((1, 1, 1), DType::F32, &Device::Cpu).expect("small");
    let scores = one.broadcast_as((1 << 16, 1 << 8, 1 << 8)).expect("a view");
    let mask = super::row_kernels::AttentionMask {
        scale: 1.0,
        queries: (1 << 8, 0),
        keys: 1 << 8,
        heads: 1 << 16,
        causal: false,
        lengths: None,
    };
    let error = emulator::with(|| super::row_kernels::softmax(&scores, &mask));
    let error = error.expect_err("it would wrap around");
    assert!(error.is_memory(), "{error}");
}
