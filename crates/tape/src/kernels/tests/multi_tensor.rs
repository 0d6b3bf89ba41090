//! Passes over many tensors: more tensors than a launch takes, longer than a group, with a single
//! value, and empty.

use crate::inplace::{add_assign_all, to_f64};
use crate::kernels::emulator;
use crate::optim::{
    AdamWStep, Member, SgdStep, adamw, adamw_together, average, average_together, health, sgd,
    sgd_together,
};
use crate::rng::Rng;
use candle_core::{DType, Device, Tensor};

const SIZES: [usize; 9] = [1, 4096, 4097, 7, 0, 9000, 33, 2, 5];

fn drawn(at: u64, dtype: DType) -> Vec<Tensor> {
    let stream = Rng::new(9).at(at);
    let tensor = |(i, &size): (usize, &usize)| {
        let values = (0..size as u64).map(|j| stream.at(i as u64).uniform(j) as f32);
        let values = Tensor::from_vec(values.collect(), size, &Device::Cpu);
        values
            .and_then(|t: Tensor| t.to_dtype(dtype))
            .expect("a vector")
    };
    SIZES.iter().enumerate().map(tensor).collect()
}

fn close(found: &[Tensor], expected: &[Tensor]) {
    for (found, expected) in found.iter().zip(expected) {
        let (a, b) = (
            to_f64(found).expect("numbers"),
            to_f64(expected).expect("numbers"),
        );
        assert_eq!(a.len(), b.len());
        let worst = a
            .iter()
            .zip(&b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst <= 1e-6, "{worst:e} of {} values", a.len());
    }
}

fn decay(i: usize) -> f64 {
    [0.0, 0.1][i % 2]
}

#[test]
fn multi_tensor_adamw_equals_adamw_of_each() {
    let rule = AdamWStep {
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        step: 3,
        gradient_factor: 0.25,
    };
    let state = |dtype| [drawn(1, dtype), drawn(2, dtype), drawn(3, dtype)];
    let ([p, m, v], g) = (state(DType::F32), drawn(4, DType::F32));
    let members: Vec<_> = (0..SIZES.len())
        .map(|i| Member {
            parameter: &p[i],
            first: &m[i],
            second: &v[i],
            gradient: &g[i],
            weight_decay: decay(i),
        })
        .collect();
    assert!(emulator::with(|| adamw_together(&members, rule)).expect("f32 vectors"));
    let ([mut p2, mut m2, mut v2], g2) = (state(DType::F64), drawn(4, DType::F64));
    for i in 0..SIZES.len() {
        let rule = AdamWStep {
            weight_decay: decay(i),
            ..rule
        };
        adamw(&mut p2[i], &mut m2[i], &mut v2[i], &g2[i], rule).expect("f64 vectors");
    }
    close(&p, &p2);
    close(&m, &m2);
    close(&v, &v2);
}

#[test]
fn multi_tensor_sgd_equals_sgd_of_each() {
    let rule = SgdStep {
        learning_rate: 0.1,
        momentum: 0.9,
        weight_decay: 0.0,
        gradient_factor: 0.5,
    };
    let ([p, b], g) = (
        [drawn(1, DType::F32), drawn(2, DType::F32)],
        drawn(4, DType::F32),
    );
    let members: Vec<_> = (0..SIZES.len())
        .map(|i| Member {
            parameter: &p[i],
            first: &b[i],
            second: &b[i],
            gradient: &g[i],
            weight_decay: decay(i),
        })
        .collect();
    assert!(emulator::with(|| sgd_together(&members, rule)).expect("f32 vectors"));
    let (mut p2, mut b2, g2) = (
        drawn(1, DType::F64),
        drawn(2, DType::F64),
        drawn(4, DType::F64),
    );
    for i in 0..SIZES.len() {
        let rule = SgdStep {
            weight_decay: decay(i),
            ..rule
        };
        sgd(&mut p2[i], &mut b2[i], &g2[i], rule).expect("f64 vectors");
    }
    close(&p, &p2);
    close(&b, &b2);
}

#[test]
fn multi_tensor_sums_are_added_in_place() {
    let (mut sums, others) = (drawn(1, DType::F32), drawn(2, DType::F32));
    emulator::with(|| add_assign_all(&mut sums, &others)).expect("f32 vectors");
    let expected: Vec<Tensor> = drawn(1, DType::F32)
        .iter()
        .zip(&others)
        .map(|(a, b)| (a + b).expect("one shape"))
        .collect();
    close(&sums, &expected);
}

#[test]
fn moving_averages_equal_the_average_of_each() {
    let (averages, parameters) = (drawn(1, DType::F32), drawn(2, DType::F32));
    let pairs: Vec<_> = averages.iter().zip(&parameters).collect();
    assert!(emulator::with(|| average_together(&pairs, 0.9)).expect("f32 vectors"));
    let (mut expected, parameters) = (drawn(1, DType::F64), drawn(2, DType::F64));
    for (expected, parameter) in expected.iter_mut().zip(&parameters) {
        average(expected, parameter, 0.9).expect("f64 vectors");
    }
    close(&averages, &expected);
    let doubles: Vec<_> = expected.iter().zip(&parameters).collect();
    let done = emulator::with(|| average_together(&doubles, 0.5)).expect("no kernel");
    assert!(!done, "there is no kernel for f64");
}

#[test]
fn the_gradient_norm_equals_f64_and_finds_non_finite_values() {
    let found = emulator::with(|| health(&drawn(1, DType::F32))).expect("f32 vectors");
    let exact = health(&drawn(1, DType::F64)).expect("f64 vectors");
    assert!((found.norm / exact.norm - 1.0).abs() < 1e-6);
    assert!(found.non_finite.is_empty());
    let mut torn = drawn(1, DType::F32);
    let mut values = vec![1f32; 9000];
    (values[3], values[8999]) = (f32::NAN, f32::INFINITY);
    torn[5] = Tensor::from_vec(values, 9000, &Device::Cpu).expect("a vector");
    let found = emulator::with(|| health(&torn)).expect("f32 vectors");
    let torn: Vec<_> = found
        .non_finite
        .iter()
        .map(|n| (n.index, n.nan, n.infinite))
        .collect();
    assert_eq!(torn, [(5, 1, 1)]);
    assert!(!found.norm.is_finite());
}

/// Runs every pass once.
pub(super) fn all() {
    let t = drawn(1, DType::F32);
    let members: Vec<_> = t
        .iter()
        .map(|t| Member {
            parameter: t,
            first: t,
            second: t,
            gradient: t,
            weight_decay: 0.0,
        })
        .collect();
    let rule = SgdStep {
        learning_rate: 0.0,
        momentum: 0.0,
        weight_decay: 0.0,
        gradient_factor: 0.0,
    };
    let adam = AdamWStep {
        learning_rate: 0.0,
        beta1: 0.5,
        beta2: 0.5,
        epsilon: 1.0,
        weight_decay: 0.0,
        step: 1,
        gradient_factor: 0.0,
    };
    emulator::with(|| {
        sgd_together(&members, rule).expect("f32 vectors");
        adamw_together(&members, adam).expect("f32 vectors");
        add_assign_all(&mut t.clone(), &t).expect("f32 vectors");
        health(&t).expect("f32 vectors");
        let pairs: Vec<_> = t.iter().zip(&t).collect();
        average_together(&pairs, 0.5).expect("f32 vectors");
    });
}
