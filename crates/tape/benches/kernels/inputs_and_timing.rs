//! Seeded inputs, and the timing of an operation: the forward pass on a tape that does not record,
//! then forward and backward.

use candle_core::{DType, Device, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use tape::{Cancel, Kernels, Parameters, Result, Rng, Tape, Value};

/// Normal values in f32.
pub fn tensor(shape: &[usize], seed: u64) -> Tensor {
    let count = shape.iter().product();
    let values = Rng::new(seed).truncated_normal(count, 1.0);
    let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("as many values as the shape holds")
}

pub fn constant(shape: &[usize], value: f64) -> Tensor {
    let ones = Tensor::ones(shape, DType::F32, &Device::Cpu);
    let values = ones.and_then(|ones| ones * value);
    values.expect("a small tensor")
}

/// Times `operation` on tensors that all get a gradient. The throughput counts the elements of the
/// first one.
pub fn time(
    c: &mut Criterion,
    name: &str,
    inputs: &[Tensor],
    operation: impl Fn(&Tape, &[Value]) -> Result<Value>,
) {
    let shape = format!("{:?}", inputs[0].dims());
    let parameters = Parameters::default();
    let run = |tape: &Tape| {
        let values: Vec<Value> = inputs.iter().map(|t| tape.variable(t.clone())).collect();
        operation(tape, &values).expect("shapes that fit")
    };
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(inputs[0].elem_count() as u64));
    group.bench_function(BenchmarkId::new("forward", &shape), |b| {
        b.iter(|| {
            let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
            black_box(run(&tape))
        });
    });
    group.bench_function(BenchmarkId::new("forward and backward", &shape), |b| {
        b.iter(|| {
            let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
            let y = run(&tape);
            black_box(tape.backward(vec![(y, 1.0)]).expect("it was recorded"))
        });
    });
    group.finish();
}
