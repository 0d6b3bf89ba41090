//! Low-rank adapters start without effect on a frozen map of any width, are the only trained
//! parameters, merge into one map with the same outputs, have the same gradient for every split,
//! and are saved separately.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use models::{
    AdaptedLinear, AdapterShape, FrozenLinear, ParameterBuilder, load_adapters, save_adapters,
};
use std::collections::HashMap;
use tape::inplace::to_f64;
use tape::{Bits, Cancel, Kernels, Parameters, Rng, SampleNoise, Tape, Value};

const INPUTS: usize = 70;
const OUTPUTS: usize = 9;
const SHAPE: AdapterShape = AdapterShape::new(4, 16.0);
const DECOMPOSED: AdapterShape = AdapterShape {
    is_weight_decomposed: true,
    ..SHAPE
};

fn tensor(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|i| Rng::new(seed).normal(i as u64))
        .collect();
    let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
    tensor.to_dtype(dtype).unwrap()
}

/// The frozen map, whole or in bits.
fn base(bits: Option<Bits>, dtype: DType) -> FrozenLinear {
    let weight = tensor(1, &[OUTPUTS, INPUTS], dtype);
    let bias = Some(tensor(2, &[OUTPUTS], dtype));
    match bits {
        None => FrozenLinear::new(weight, bias),
        Some(bits) => FrozenLinear::quantized(&weight, bias, bits).unwrap(),
    }
}

fn adapted(bits: Option<Bits>, dtype: DType) -> (AdaptedLinear, Parameters) {
    adapted_as(SHAPE, bits, dtype)
}

fn adapted_as(
    shape: AdapterShape,
    bits: Option<Bits>,
    dtype: DType,
) -> (AdaptedLinear, Parameters) {
    let mut parameters = Parameters::default();
    let b = &mut ParameterBuilder::new(&mut parameters, 5, dtype, &Device::Cpu);
    let layer = AdaptedLinear::build(b, "query", base(bits, dtype), shape).unwrap();
    (layer, parameters)
}

/// Parameters as after some training: no tensor of the adapter is zero.
fn trained(parameters: &mut Parameters) {
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let drawn = tensor(11 + index as u64, like.dims(), like.dtype());
        parameters.set(index, (drawn * 0.1).unwrap()).unwrap();
    }
}

fn apart(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (to_f64(a).unwrap(), to_f64(b).unwrap());
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(&b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

const BASES: [Option<Bits>; 4] = [None, Some(Bits::Eight), Some(Bits::Four), Some(Bits::Nf4)];

#[test]
fn a_new_adapter_does_not_change_the_output() {
    for bits in BASES {
        let (layer, parameters) = adapted(bits, DType::F32);
        let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        let x = Value::constant(tensor(3, &[6, INPUTS], DType::F32));
        let (y, frozen) = (
            layer.forward(&tape, &x).unwrap(),
            base(bits, DType::F32).forward(&tape, &x).unwrap(),
        );
        assert_eq!(apart(y.tensor(), frozen.tensor()), 0.0, "{bits:?}");
    }
    // A row of 70 values takes two blocks of 64, each with a scale of four bytes.
    let rows = [4 * 70, 2 * (64 + 4), 2 * (32 + 4), 2 * (32 + 4)];
    let bytes = BASES.map(|bits| base(bits, DType::F32).bytes());
    assert_eq!(bytes, rows.map(|row| OUTPUTS as u64 * row));
}

#[test]
fn merging_keeps_the_output() {
    for bits in BASES {
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let (layer, mut parameters) = adapted(bits, DType::F64);
            trained(&mut parameters);
            let tape = Tape::forward_only(&parameters, Cancel::default(), kernels);
            let x = Value::constant(tensor(3, &[2, 3, INPUTS], DType::F64));
            let y = layer.forward(&tape, &x).unwrap();
            let merged = layer.merged(&parameters).unwrap();
            let z = merged.forward(
                &tape,
                &Value::constant(x.tensor().to_dtype(y.tensor().dtype()).unwrap()),
            );
            let frozen = base(bits, DType::F64).forward(&tape, &x).unwrap();
            assert!(
                apart(y.tensor(), frozen.tensor()) > 0.1,
                "the adapter says something"
            );
            // A quantized weight has the precision of f32.
            let bar = if bits.is_some() { 1e-5 } else { 1e-12 };
            let distance = apart(y.tensor(), z.unwrap().tensor());
            assert!(distance < bar, "{bits:?} {kernels:?}: {distance:e}");
        }
    }
}

/// Gradients of the adapter, and of `x`, over these rows.
fn gradients(
    bits: Option<Bits>,
    rows: std::ops::Range<usize>,
) -> (HashMap<String, Vec<f64>>, usize) {
    let (layer, mut parameters) = adapted(bits, DType::F64);
    trained(&mut parameters);
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let x = tensor(3, &[12, INPUTS], DType::F64);
    let x = x.narrow(0, rows.start, rows.len()).unwrap();
    let labels: Vec<u32> = rows.map(|row| (row % OUTPUTS) as u32).collect();
    let y = layer.forward(&tape, &Value::constant(x)).unwrap();
    let loss = tape.cross_entropy(&y, &labels, 0.0).unwrap();
    let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
    let count = gradients.len();
    let named = parameters.iter().zip(gradients);
    let named = named.map(|(p, g)| (p.name.clone(), to_f64(&g.unwrap()).unwrap()));
    (named.collect(), count)
}

#[test]
fn only_adapters_have_gradients() {
    for bits in BASES {
        let (gradients, count) = gradients(bits, 0..12);
        let mut names: Vec<&String> = gradients.keys().collect();
        names.sort();
        assert_eq!(
            names,
            ["query.lora_A.weight", "query.lora_B.weight"],
            "{bits:?}"
        );
        assert_eq!(count, 2, "{bits:?}: nothing else is a parameter");
        for (name, gradient) in &gradients {
            assert!(gradient.iter().any(|g| g.abs() > 1e-6), "{name}");
        }
        let (_, parameters) = adapted(bits, DType::F32);
        assert_eq!(parameters.count(), SHAPE.rank * (INPUTS + OUTPUTS));
    }
}

#[test]
fn splitting_keeps_the_gradient() {
    for bits in BASES {
        let (whole, _) = gradients(bits, 0..12);
        let parts = [0..1, 1..6, 6..12].map(|rows| gradients(bits, rows).0);
        for (name, whole) in &whole {
            let size = whole.iter().map(|g| g.abs()).fold(0.0, f64::max);
            for (i, whole) in whole.iter().enumerate() {
                let sum: f64 = parts.iter().map(|part| part[name][i]).sum();
                assert!((sum - whole).abs() / size < 1e-12, "{bits:?} {name} {i}");
            }
        }
    }
}

#[test]
fn a_new_decomposed_adapter_does_not_change_the_output() {
    for bits in BASES {
        let (layer, parameters) = adapted_as(DECOMPOSED, bits, DType::F32);
        let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        let x = Value::constant(tensor(3, &[6, INPUTS], DType::F32));
        let y = layer.forward(&tape, &x).unwrap();
        let frozen = base(bits, DType::F32).forward(&tape, &x).unwrap();
        let distance = apart(y.tensor(), frozen.tensor());
        assert!(distance < 1e-4, "{bits:?}: {distance:e}");
        assert_eq!(
            parameters.count(),
            SHAPE.rank * (INPUTS + OUTPUTS) + OUTPUTS
        );
    }
}

#[test]
fn merging_keeps_the_output_of_a_decomposed_adapter() {
    for bits in BASES {
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let (layer, mut parameters) = adapted_as(DECOMPOSED, bits, DType::F64);
            trained(&mut parameters);
            let tape = Tape::forward_only(&parameters, Cancel::default(), kernels);
            let x = Value::constant(tensor(3, &[2, 3, INPUTS], DType::F64));
            let y = layer.forward(&tape, &x).unwrap();
            let merged = layer.merged(&parameters).unwrap();
            let z = merged.forward(&tape, &x).unwrap();
            let frozen = base(bits, DType::F64).forward(&tape, &x).unwrap();
            assert!(apart(y.tensor(), frozen.tensor()) > 0.1);
            // A quantized weight has the precision of f32.
            let bar = if bits.is_some() { 1e-5 } else { 1e-12 };
            let distance = apart(y.tensor(), z.tensor());
            assert!(distance < bar, "{bits:?} {kernels:?}: {distance:e}");
        }
    }
}

fn noise() -> SampleNoise {
    SampleNoise {
        seed: 1,
        step: 2,
        samples: [5, 6].into(),
    }
}

/// `W x + b + (m / n - 1) W d + (m / n) s B A d` under a fixed projection, with the norms `n` as
/// constants: the layer of PEFT.
fn decomposed_loss(inputs: [&Tensor; 2], values: &[Tensor], norms: &Tensor) -> f64 {
    let ([x, d], [down, up, m]) = (inputs, values) else {
        panic!("an adapter has three tensors");
    };
    let (weight, bias) = (
        tensor(1, &[OUTPUTS, INPUTS], DType::F64),
        tensor(2, &[OUTPUTS], DType::F64),
    );
    let times = |x: &Tensor, w: &Tensor| x.matmul(&w.t().unwrap()).unwrap();
    let factors = (m / norms).unwrap();
    let product = times(d, &weight);
    let term = (times(&times(d, down), up) * (SHAPE.alpha / SHAPE.rank as f64)).unwrap();
    let scaled = (&product + term).unwrap().broadcast_mul(&factors).unwrap();
    let y = times(x, &weight).broadcast_add(&bias).unwrap();
    let y = ((y - product).unwrap() + scaled).unwrap();
    let y = (y * tensor(21, &[6, OUTPUTS], DType::F64)).unwrap();
    to_f64(&y).unwrap().iter().sum()
}

#[test]
fn decomposed_adapters_have_the_gradients_of_their_formula() {
    for dropout in [0.0, 0.3] {
        let shape = AdapterShape {
            dropout,
            ..DECOMPOSED
        };
        let (layer, mut parameters) = adapted_as(shape, None, DType::F64);
        trained(&mut parameters);
        let x = Value::constant(tensor(3, &[2, 3, INPUTS], DType::F64));
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let tape = tape.with_sample_noise(noise());
        let y = layer.forward(&tape, &x).unwrap();
        let d = tape.sample_dropout(&x, dropout, "query").unwrap();
        let projection = tensor(21, &[2, 3, OUTPUTS], DType::F64);
        let y = tape.mul(&y, &Value::constant(projection)).unwrap();
        let sum = tape.total(&y).unwrap().sum;
        let found = to_f64(sum.tensor()).unwrap()[0];
        let gradients = tape.backward(vec![(sum, 1.0)]).unwrap();
        let values: Vec<Tensor> = parameters.iter().map(|p| p.tensor.clone()).collect();
        let rows = |x: &Value| x.tensor().reshape((6, INPUTS)).unwrap();
        let (x, d) = (rows(&x), rows(&d));
        let weight = tensor(1, &[OUTPUTS, INPUTS], DType::F64);
        let added = (values[1].matmul(&values[0]).unwrap() * 4.0).unwrap();
        let norms = (weight + added).unwrap().sqr().unwrap().sum(1).unwrap();
        let norms = norms.sqrt().unwrap();
        let loss = |values: &[Tensor]| decomposed_loss([&x, &d], values, &norms);
        let distance = (loss(&values) - found).abs();
        assert!(distance < 1e-10, "{dropout}: {distance:e}");
        for (index, gradient) in gradients.iter().enumerate() {
            let gradient = to_f64(gradient.as_ref().unwrap()).unwrap();
            let start = to_f64(&values[index]).unwrap();
            for place in 0..start.len() {
                let moved = |by: f64| {
                    let (mut values, mut numbers) = (values.clone(), start.clone());
                    numbers[place] += by;
                    let shape = values[index].shape().clone();
                    values[index] = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
                    loss(&values)
                };
                // The formula is linear in each value, so this is exact.
                let expected = moved(0.5) - moved(-0.5);
                let distance = (gradient[place] - expected).abs();
                let name = &parameters.at(index).name;
                assert!(distance < 1e-9, "{dropout} {name} {place}: {distance:e}");
            }
        }
    }
}

#[test]
fn adapters_are_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("adapters.safetensors");
    let mut parameters = Parameters::default();
    let b = &mut ParameterBuilder::new(&mut parameters, 5, DType::F32, &Device::Cpu);
    AdaptedLinear::build(b, "query", base(None, DType::F32), SHAPE).unwrap();
    b.constant("head.weight", &[3, 3], 1.0).unwrap();
    trained(&mut parameters);
    save_adapters(&parameters, &file).unwrap();
    let saved = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    assert_eq!(saved.len(), 2, "nothing but adapters: {:?}", saved.keys());
    let (_, mut other) = adapted(Some(Bits::Four), DType::F32);
    load_adapters(&mut other, &file).unwrap();
    for (a, b) in parameters.iter().zip(other.iter()) {
        assert_eq!((&a.name, apart(&a.tensor, &b.tensor)), (&b.name, 0.0));
    }
    let strange: HashMap<String, Tensor> = [
        ("query.lora_A.weight", tensor(1, &[2, INPUTS], DType::F32)),
        ("value.lora_A.weight", tensor(1, &[2, INPUTS], DType::F32)),
    ]
    .map(|(name, tensor)| (name.to_owned(), tensor))
    .into();
    candle_core::safetensors::save(&strange, &file).unwrap();
    let message = load_adapters(&mut other, &file).unwrap_err().to_string();
    for word in [
        "query.lora_A.weight has the shape [2, 70] instead of [4, 70]",
        "query.lora_B.weight is missing",
        "value.lora_A.weight is not known",
    ] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_tape_without_adapters_computes_the_frozen_map() {
    for shape in [SHAPE, DECOMPOSED] {
        let (layer, mut parameters) = adapted_as(shape, None, DType::F64);
        trained(&mut parameters);
        let x = Value::constant(tensor(3, &[4, INPUTS], DType::F64));
        let tape = || Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
        let adapted = layer.forward(&tape(), &x).unwrap();
        let frozen = layer.forward(&tape().without_adapters(), &x).unwrap();
        let expected = base(None, DType::F64).forward(&tape(), &x).unwrap();
        assert_eq!(apart(frozen.tensor(), expected.tensor()), 0.0);
        assert!(apart(adapted.tensor(), expected.tensor()) > 0.1);
    }
}
