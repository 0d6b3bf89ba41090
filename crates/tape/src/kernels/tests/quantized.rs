//! Quantized matrices: the kernel gives the bits of the composed form, for all rows and for chosen
//! ones, and a layer of several tiles equals the dequantized one.

use super::copies::bits;
use crate::cancel::Cancel;
use crate::inplace::to_f64;
use crate::kernels::emulator;
use crate::quantized::{Bits, Quantized};
use crate::rng::Rng;
use crate::tape::{Kernels, Tape, Value};
use crate::{IGNORED, OutputWeights, Parameters, Result};
use candle_core::{DType, Device, Tensor};

fn drawn(seed: u64, shape: &[usize]) -> Tensor {
    let values = Rng::new(seed).truncated_normal(shape.iter().product(), 1.0);
    let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("as many as the shape has")
}

const BITS: [Bits; 3] = [Bits::Eight, Bits::Four, Bits::Nf4];

#[test]
fn dequantized_tiles_have_the_bits_of_the_composed_form() {
    for bits_of in BITS {
        for columns in [1, 31, 40, 64, 70, 132, 200] {
            let weight = Quantized::from_weight(&drawn(1, &[9, columns]), bits_of).expect("finite");
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let found = emulator::with(|| weight.device_tile(2, 5, dtype)).expect("a tile");
                let expected = weight.tile(2, 5, dtype).expect("a tile");
                assert_eq!(found.dims(), expected.dims());
                let what = format!("{bits_of:?} {columns} {dtype:?}");
                assert_eq!(bits(&found), bits(&expected), "{what}");
            }
            let ids = [8, 0, 8, 3];
            let found = emulator::with(|| weight.device_rows(&ids)).expect("rows");
            let expected = weight.rows(&ids, false).expect("rows");
            assert_eq!(bits(&found), bits(&expected), "{bits_of:?} {columns} rows");
        }
    }
}

/// The output and the gradients of a layer [150, 60], which has three tiles.
fn layer(weight: &Quantized, kernels: Kernels) -> Result<[Vec<f64>; 3]> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let [x, b] = [drawn(2, &[7, 60]), drawn(3, &[150])].map(|t| tape.variable(t));
    let y = tape.quantized_linear(&x, weight, Some(&b))?;
    let (output, seed) = (to_f64(y.tensor())?, drawn(4, &[7, 150]));
    let inputs: [Value; 2] = [x, b];
    let gradients = tape.backward_from(vec![(y, seed)], &inputs)?.inputs;
    let values = |i: usize| to_f64(gradients[i].as_ref().expect("it took part"));
    Ok([output, values(0)?, values(1)?])
}

#[test]
fn a_layer_of_several_tiles_equals_the_composed_one() {
    for bits_of in BITS {
        let weight = Quantized::from_weight(&drawn(1, &[150, 60]), bits_of).expect("finite");
        assert_eq!(weight.device_tiles().count(), 3);
        let expected = layer(&weight, Kernels::Composed).expect("it fits");
        let found = emulator::with(|| layer(&weight, Kernels::Fused)).expect("it fits");
        for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() < 1e-4, "{bits_of:?} part {part}: {a} {b}");
            }
        }
    }
}

/// The loss of each row and the gradient of `x` [7, 60], with output weights [150, 60].
fn output_losses(weight: &Quantized, dtype: DType, kernels: Kernels) -> Result<[Vec<f64>; 2]> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let x = tape.variable(drawn(2, &[7, 60]).to_dtype(dtype)?);
    let targets = [0, 149, 60, IGNORED, 75, 3, 9];
    let loss = tape.linear_cross_entropy(&x, OutputWeights::Quantized(weight), &targets)?;
    let seed = loss.sum.tensor().ones_like()?;
    let rows = to_f64(&loss.per_sample)?;
    let gradients = tape.backward_from(vec![(loss.sum, seed)], &[x])?.inputs;
    Ok([rows, to_f64(gradients[0].as_ref().expect("it took part"))?])
}

#[test]
fn the_loss_of_output_weights_of_several_tiles_equals_the_composed_one() {
    for bits_of in BITS {
        let weight = Quantized::from_weight(&drawn(1, &[150, 60]), bits_of).expect("finite");
        for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::BF16, 0.1)] {
            let expected = output_losses(&weight, dtype, Kernels::Composed).expect("it fits");
            let found = emulator::with(|| output_losses(&weight, dtype, Kernels::Fused));
            let launched = emulator::launched();
            assert!(launched.iter().any(|name| name.starts_with("dequantize_")));
            for (found, expected) in found.expect("it fits").iter().zip(&expected) {
                assert_eq!(found.len(), expected.len());
                for (a, b) in found.iter().zip(expected) {
                    assert!((a - b).abs() < tolerance, "{bits_of:?} {dtype:?}: {a} {b}");
                }
            }
        }
    }
}

/// The gradient of the input of two layers, both of several tiles.
fn shared_input(weights: [&Quantized; 2], kernels: Kernels) -> Result<Vec<f64>> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let x = tape.variable(drawn(2, &[7, 60]));
    let layer = |(weight, seed): (&Quantized, u64)| -> Result<(Value, Tensor)> {
        let y = tape.quantized_linear(&x, weight, None)?;
        Ok((y, drawn(seed, &[7, weight.dims()[0]])))
    };
    let roots = weights.into_iter().zip([4, 5]).map(layer);
    let roots = roots.collect::<Result<Vec<_>>>()?;
    let gradients = tape.backward_from(roots, &[x])?.inputs;
    to_f64(gradients[0].as_ref().expect("it took part"))
}

#[test]
fn a_layer_adds_its_gradient_to_that_of_another_layer() {
    for bits_of in BITS {
        let weight = |seed, rows| Quantized::from_weight(&drawn(seed, &[rows, 60]), bits_of);
        let (a, b) = (
            weight(1, 150).expect("finite"),
            weight(6, 90).expect("finite"),
        );
        let expected = shared_input([&a, &b], Kernels::Composed).expect("it fits");
        let found = emulator::with(|| shared_input([&a, &b], Kernels::Fused)).expect("it fits");
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() < 1e-4, "{bits_of:?}: {a} {b}");
        }
    }
}

#[test]
fn a_frozen_matrix_is_dequantized_by_the_kernel() {
    let mut parameters = Parameters::default();
    let id = parameters
        .add_zeros("w".to_owned(), &[9, 70], DType::F32, &Device::Cpu)
        .expect("a matrix");
    parameters.freeze(|_| false);
    let weight = Quantized::from_weight(&drawn(1, &[9, 70]), Bits::Eight).expect("finite");
    parameters.put_quantized(id, weight).expect("it fits");
    let value = |kernels| {
        let tape = Tape::forward_only(&parameters, Cancel::default(), kernels);
        bits(tape.parameter(id).tensor())
    };
    let found = emulator::with(|| value(Kernels::Fused));
    assert!(emulator::launched().contains("dequantize_f32"));
    assert_eq!(found, value(Kernels::Composed));
}

#[test]
fn a_matrix_beyond_32_bits_is_not_given_to_the_kernel() {
    let weight = Quantized::from_weight(&drawn(1, &[2, 65]), Bits::Four).expect("finite");
    assert!(weight.is_indexable(0) && weight.is_indexable((1 << 24) - 1));
    // A row of 65 values has two blocks.
    assert!(!weight.is_indexable(1 << 24));
    assert!(!weight.is_indexable(usize::MAX));
}
