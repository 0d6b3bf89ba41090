//! The forward values of the tape's operations, against the layers and functions of candle-nn,
//! which share no code with the tape. Gradients are compared in `finite_differences.rs`.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]
// Without a gradient, candle's layers are good references.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Activation, Conv2d, Conv2dConfig, Embedding, GroupNorm, Module};
use tape::inplace::to_f64;
use tape::{Cancel, ClassRule, ClassTargets, Conv2dShape, Kernels, Parameters, Rng, Tape, Value};

const FORMS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];

/// Values between -2 and 2 in f64.
fn values(name: &str, shape: &[usize]) -> Tensor {
    let stream = Rng::new(17).site(name);
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count as u64)
        .map(|i| stream.uniform(i) * 4.0 - 2.0)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Fails unless `ours`, computed in each form of the kernels, equals `reference`.
fn agree(name: &str, reference: &Tensor, ours: impl Fn(&Tape) -> tape::Result<Value>) {
    let expected = to_f64(reference).unwrap();
    for kernels in FORMS {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let value = ours(&tape).unwrap();
        assert_eq!(
            value.tensor().dims(),
            reference.dims(),
            "{name} {kernels:?}"
        );
        let found = to_f64(value.tensor()).unwrap();
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let apart = (found - expected).abs() / expected.abs().max(1.0);
            assert!(
                apart <= 1e-12,
                "{name}[{index}] {kernels:?}: {found}, not {expected}"
            );
        }
    }
}

fn constant(tensor: &Tensor) -> Value {
    Value::constant(tensor.clone())
}

#[test]
fn activations_equal_those_of_candle_nn() {
    let x = values("x", &[3, 7]);
    let v = constant(&x);
    agree("gelu (erf)", &Activation::Gelu.forward(&x).unwrap(), |t| {
        t.gelu_erf(&v)
    });
    agree(
        "gelu (tanh)",
        &Activation::NewGelu.forward(&x).unwrap(),
        |t| t.gelu(&v),
    );
    agree("silu", &Activation::Silu.forward(&x).unwrap(), |t| {
        t.silu(&v)
    });
    agree("relu", &Activation::Relu.forward(&x).unwrap(), |t| {
        t.relu(&v)
    });
}

#[test]
fn rows_equal_those_of_candle_nn() {
    let x = values("x", &[4, 6]);
    let v = constant(&x);
    let softmax = candle_nn::ops::softmax(&x, D::Minus1).unwrap();
    agree("softmax", &softmax, |t| t.softmax(&v));
    let log_softmax = candle_nn::ops::log_softmax(&x, D::Minus1).unwrap();
    agree("log_softmax", &log_softmax, |t| t.log_softmax(&v));

    let (weight, bias) = (values("weight", &[6]), values("bias", &[6]));
    // The layer itself does not compute in f64.
    let norm = candle_nn::ops::layer_norm_slow(&x, &weight, &bias, 1e-5).unwrap();
    agree("layer_norm", &norm, |t| {
        t.layer_norm(&v, &constant(&weight), &constant(&bias), 1e-5)
    });
}

#[test]
fn image_operations_equal_those_of_candle_nn() {
    let x = values("x", &[2, 4, 5, 6]);
    let v = constant(&x);
    let (weight, bias) = (values("weight", &[4]), values("bias", &[4]));
    let norm = GroupNorm::new(weight.clone(), bias.clone(), 4, 2, 1e-5).unwrap();
    agree("group_norm", &norm.forward(&x).unwrap(), |t| {
        let none = tape::Activation::None;
        t.group_norm(&v, 2, (&constant(&weight), &constant(&bias)), 1e-5, none)
    });

    let kernels = values("kernels", &[6, 2, 3, 3]);
    let config = Conv2dConfig {
        padding: 1,
        stride: 2,
        groups: 2,
        ..Conv2dConfig::default()
    };
    let reference = Conv2d::new(kernels.clone(), None, config);
    let shape = Conv2dShape {
        stride: 2,
        padding: 1,
        groups: 2,
    };
    agree("conv2d", &reference.forward(&x).unwrap(), |t| {
        t.conv2d(&v, &constant(&kernels), shape)
    });
}

#[test]
fn embeddings_and_cross_entropy_equal_those_of_candle_nn() {
    let table = values("table", &[5, 3]);
    let ids = [4, 0, 2, 2];
    let tensor = Tensor::new(&ids, &Device::Cpu).unwrap();
    let reference = Embedding::new(table.clone(), 3).forward(&tensor).unwrap();
    agree("embedding", &reference, |t| {
        t.embedding(&constant(&table), &ids, &[4])
    });

    let logits = values("logits", &[4, 5]);
    let mean = candle_nn::loss::cross_entropy(&logits, &tensor).unwrap();
    let sum = (mean.to_dtype(DType::F64).unwrap() * 4.0).unwrap();
    agree("cross_entropy", &sum, |t| {
        let targets = ClassTargets::Labels(&ids);
        let loss = t.class_cross_entropy(&constant(&logits), targets, &ClassRule::default())?;
        Ok(loss.sum)
    });
}
