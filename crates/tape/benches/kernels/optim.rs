//! One optimizer step of one parameter.

use crate::inputs_and_timing::{constant, tensor};
use criterion::{BenchmarkId, Criterion, Throughput};
use tape::optim::{AdamWStep, adamw as pass};

pub fn adamw(c: &mut Criterion) {
    let rule = AdamWStep {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.01,
        step: 10,
        gradient_factor: 0.125,
    };
    let mut group = c.benchmark_group("adamw");
    for shape in [[384, 1536], [16_384, 768]] {
        let gradient = tensor(&shape, 12);
        let mut parameter = tensor(&shape, 13);
        let (mut first, mut second) = (constant(&shape, 0.0), constant(&shape, 1e-4));
        group.throughput(Throughput::Elements(gradient.elem_count() as u64));
        group.bench_function(BenchmarkId::from_parameter(format!("{shape:?}")), |b| {
            b.iter(|| {
                pass(&mut parameter, &mut first, &mut second, &gradient, rule)
                    .expect("four tensors of one shape");
            });
        });
    }
    group.finish();
}
