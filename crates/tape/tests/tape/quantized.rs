//! Frozen weights, plain and quantized: the error of a quantized value, the equality of operations
//! on codes with operations on the decoded values, and the saved bytes.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use std::path::Path;
use tape::device::read;
use tape::inplace::to_f64;
use tape::{
    Bits, Cancel, Kernels, OutputWeights, ParameterId, Parameters, Quantized, Rng, Tape, Value,
};

const FORMS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];
const BITS: [Bits; 3] = [Bits::Eight, Bits::Four, Bits::Nf4];
/// The kinds with evenly spaced codes, and their largest code.
const EVEN: [(Bits, f64); 2] = [(Bits::Eight, 127.0), (Bits::Four, 7.0)];

/// Normal values whose scale differs from row to row.
fn matrix(seed: u64, rows: usize, columns: usize) -> Tensor {
    let mut values = Rng::new(seed).truncated_normal(rows * columns, 1.0);
    for (row, values) in values.chunks_exact_mut(columns).enumerate() {
        values
            .iter_mut()
            .for_each(|v| *v *= 10f64.powi(row as i32 % 5 - 2));
    }
    let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
    Tensor::from_vec(values, (rows, columns), &Device::Cpu).unwrap()
}

/// The levels of NF4, by decoding every code with a scale of 1.
fn nf4_levels() -> Vec<f64> {
    let codes: Vec<u8> = (0..32).map(|code| code % 16).collect();
    let codes = Tensor::from_vec(codes, (1, 32), &Device::Cpu).unwrap();
    let scales = Tensor::from_vec(vec![1.0f32], (1, 1), &Device::Cpu).unwrap();
    let weight = Quantized::restore(Bits::Nf4, [1, 16], codes, scales).unwrap();
    to_f64(&weight.whole(DType::F64).unwrap()).unwrap()
}

/// The quantile of the normal distribution at `fraction`, by bisection of its integral (Simpson).
fn normal_quantile(fraction: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let below = |x: f64| {
        let (steps, mut sum) = (400, density(0.0) + density(x));
        for step in 1..steps {
            let factor = if step % 2 == 1 { 4.0 } else { 2.0 };
            sum += factor * density(x * f64::from(step) / f64::from(steps));
        }
        0.5 + sum * x / f64::from(steps) / 3.0
    };
    let (mut low, mut high) = (-4.0, 4.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if below(middle) < fraction {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The levels by the formula of the QLoRA paper, as in bitsandbytes: quantiles at evenly spaced
/// fractions, 8 of them above and 7 below zero, divided by the largest. The outermost fraction is
/// the mean of `1 - 1/(2 * 15)` and `1 - 1/(2 * 16)`.
fn nf4_by_formula() -> Vec<f64> {
    let outermost = 1.0 - (1.0 / 30.0 + 1.0 / 32.0) / 2.0;
    let mut levels = vec![0.0];
    for (count, sign) in [(7, -1.0), (8, 1.0)] {
        levels.extend((0..count).map(|i| {
            let fraction = outermost + (0.5 - outermost) * f64::from(i) / f64::from(count);
            sign * normal_quantile(fraction)
        }));
    }
    levels.sort_by(f64::total_cmp);
    let largest = levels[15];
    levels.into_iter().map(|level| level / largest).collect()
}

#[test]
fn the_levels_of_nf4_are_those_of_the_papers_formula() {
    let (found, expected) = (nf4_levels(), nf4_by_formula());
    assert_eq!(found.len(), 16);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    assert_eq!((found[0], found[7], found[15]), (-1.0, 0.0, 1.0));
}

#[test]
fn nf4_rounds_each_value_to_the_nearest_level() {
    let levels = nf4_levels();
    let values: Vec<f32> = (0..=2_000).map(|i| i as f32 / 1_000.0 - 1.0).collect();
    // A block has 63 of the values, and 1, which is its scale.
    for part in values.chunks(63) {
        let block: Vec<f32> = part.iter().copied().chain([1.0]).collect();
        let weight = Tensor::from_vec(block, (1, part.len() + 1), &Device::Cpu).unwrap();
        let read = dense(&Quantized::from_weight(&weight, Bits::Nf4).unwrap());
        for (value, read) in part.iter().zip(to_f64(&read).unwrap()) {
            let error = (f64::from(*value) - read).abs();
            let mut errors = levels.iter().map(|l| (f64::from(*value) - l).abs());
            assert!(errors.all(|e| error <= e + 1e-12), "{value} as {read}");
        }
    }
}

/// The levels, the scales, the codes and the values that are read again are those of bitsandbytes
/// (`make_references.py`), bit by bit. Only the places of the codes in the bytes differ.
#[test]
fn nf4_is_that_of_bitsandbytes() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("../models/tests/fixtures/published/references/values.safetensors");
    let all = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    let expected = |part: &str| &all[&format!("nf4.{part}")];
    let floats = |tensor: &Tensor| read::<f32>(tensor).unwrap();
    let levels: Vec<f32> = nf4_levels().iter().map(|level| *level as f32).collect();
    assert_eq!(levels, floats(expected("levels")));
    let weight = Quantized::from_weight(expected("values"), Bits::Nf4).unwrap();
    let [(_, codes), (_, scales)] = weight.named("w");
    assert_eq!(floats(&scales), floats(expected("scales")));
    let codes = read::<u8>(&codes).unwrap();
    let blocks = codes.chunks_exact(32);
    let codes = blocks.flat_map(|block| {
        let (low, high) = (block.iter().map(|c| c % 16), block.iter().map(|c| c / 16));
        low.chain(high)
    });
    let codes: Vec<u8> = codes.collect();
    assert_eq!(codes, read::<u8>(expected("codes")).unwrap());
    assert!((0..16).all(|code| codes.contains(&code)));
    let values = floats(expected("read"));
    assert_eq!(floats(&weight.whole(DType::F32).unwrap()), values);
    let none = Parameters::default();
    let rows: Vec<u32> = (0..weight.dims()[0] as u32).collect();
    for kernels in FORMS {
        let tape = Tape::forward_only(&none, Cancel::default(), kernels);
        let found = tape.quantized_embedding(&weight, &rows, &[rows.len()]);
        assert_eq!(floats(found.unwrap().tensor()), values, "{kernels:?}");
    }
}

/// On normally distributed weights, NF4 has about 0.74 times the mean squared error of the evenly
/// spaced codes. So the guide recommends it.
#[test]
fn nf4_is_more_exact_than_even_codes_on_normal_weights() {
    let stream = Rng::new(11);
    let values: Vec<f32> = (0..64 * 512).map(|i| stream.normal(i) as f32).collect();
    let weight = Tensor::from_vec(values, (64, 512), &Device::Cpu).unwrap();
    let exact = to_f64(&weight).unwrap();
    let error = |bits| {
        let read = to_f64(&dense(&Quantized::from_weight(&weight, bits).unwrap())).unwrap();
        let errors = read.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b));
        errors.sum::<f64>() / exact.len() as f64
    };
    let (even, normal) = (error(Bits::Four), error(Bits::Nf4));
    assert!(normal < 0.8 * even, "{normal} {even}");
    assert!(normal > 0.6 * even, "{normal} {even}");
}

/// Decodes a quantized matrix value by value, from the tensors of a file.
fn dense(weight: &Quantized) -> Tensor {
    let ([(_, codes), (_, scales)], [rows, columns]) = (weight.named("w"), weight.dims());
    let width = codes.dims()[1];
    let (codes, scales) = (read::<u8>(&codes).unwrap(), read::<f32>(&scales).unwrap());
    let (codes, blocks) = (
        codes.chunks_exact(width).collect::<Vec<_>>(),
        scales.len() / rows,
    );
    let levels = nf4_levels();
    let value = |row: usize, column: usize| {
        let (block, at) = (column / 64, column % 64);
        let code = match weight.bits() {
            Bits::Nf4 if at < 32 => levels[usize::from(codes[row][32 * block + at] % 16)],
            Bits::Nf4 => levels[usize::from(codes[row][32 * block + at - 32] / 16)],
            Bits::Eight => f64::from(codes[row][column]) - 128.0,
            Bits::Four if at < 32 => f64::from(codes[row][32 * block + at] % 16) - 8.0,
            Bits::Four => f64::from(codes[row][32 * block + at - 32] / 16) - 8.0,
        };
        code * f64::from(scales[row * blocks + block])
    };
    let values = (0..rows * columns).map(|i| value(i / columns, i % columns));
    Tensor::from_vec(values.collect::<Vec<_>>(), (rows, columns), &Device::Cpu).unwrap()
}

#[test]
fn quantization_error_is_at_most_half_a_scale() {
    for (bits, top) in EVEN {
        for (rows, columns) in [(1, 1), (3, 64), (5, 65), (4, 95), (2, 129), (300, 257)] {
            let weight = matrix(1, rows, columns);
            let values = to_f64(&weight).unwrap();
            let read = to_f64(&dense(&Quantized::from_weight(&weight, bits).unwrap())).unwrap();
            for (row, read) in values.chunks(columns).zip(read.chunks(columns)) {
                for (block, read) in row.chunks(64).zip(read.chunks(64)) {
                    let scale = block.iter().fold(0.0f64, |l, v| l.max(v.abs())) / top;
                    for (value, read) in block.iter().zip(read) {
                        let error = (value - read).abs();
                        assert!(error <= 0.500_001 * scale, "{bits:?}: {value} as {read}");
                    }
                }
            }
        }
    }
}

#[test]
fn zeros_and_exact_codes_survive_quantization() {
    for bits in BITS {
        let zeros = Tensor::zeros((3, 70), DType::F32, &Device::Cpu).unwrap();
        let read = to_f64(&dense(&Quantized::from_weight(&zeros, bits).unwrap())).unwrap();
        assert!(read.iter().all(|v| *v == 0.0));
        let once = dense(&Quantized::from_weight(&matrix(2, 7, 150), bits).unwrap());
        let twice = to_f64(&dense(&Quantized::from_weight(&once, bits).unwrap())).unwrap();
        for (a, b) in to_f64(&once).unwrap().into_iter().zip(twice) {
            assert!((a - b).abs() <= 1e-6 * a.abs(), "{a} {b}");
        }
    }
}

/// `y`, and the gradients of `x` and `b`, for a linear layer on `x`.
type Mapped = Vec<Vec<f64>>;

fn mapped(
    kernels: Kernels,
    outputs: usize,
    inputs: usize,
    map: impl Fn(&Tape, &Value, &Value) -> tape::Result<Value>,
) -> (Mapped, u64) {
    let mut parameters = Parameters::default();
    let mut add = |name: &str, shape: &[usize]| -> ParameterId {
        let values = Rng::new(9)
            .site(name)
            .truncated_normal(shape.iter().product(), 1.0);
        let (dtype, device) = (DType::F64, &Device::Cpu);
        parameters
            .add(name.to_owned(), values, shape, dtype, device)
            .unwrap()
    };
    let (x, b) = (add("x", &[2, 3, inputs]), add("b", &[outputs]));
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let y = map(&tape, &tape.parameter(x), &tape.parameter(b)).unwrap();
    let (saved, out) = (tape.saved_bytes(), to_f64(y.tensor()).unwrap());
    let rows = tape.reshape(&y, &[6, outputs]).unwrap();
    let root = tape
        .cross_entropy(&rows, &[0, 1, 2, 0, 1, 2], 0.0)
        .unwrap()
        .sum;
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    let gradients = gradients
        .iter()
        .map(|g| to_f64(g.as_ref().unwrap()).unwrap());
    (std::iter::once(out).chain(gradients).collect(), saved)
}

fn check_alike(a: &Mapped, b: &Mapped, what: &str) {
    for (a, b) in a.iter().zip(b) {
        let size = b.iter().fold(1e-30f64, |s, v| s.max(v.abs()));
        let apart = a
            .iter()
            .zip(b)
            .fold(0.0f64, |w, (a, b)| w.max((a - b).abs()));
        assert!(
            a.len() == b.len() && apart <= 1e-12 * size,
            "{what}: {apart:e}"
        );
    }
}

/// The second shape takes four tiles, the last one short.
#[test]
fn a_quantized_linear_layer_equals_the_decoded_one() {
    for bits in BITS {
        for (outputs, inputs) in [(5, 70), (300, 700)] {
            let weight = Quantized::from_weight(&matrix(3, outputs, inputs), bits).unwrap();
            let plain = dense(&weight);
            for kernels in FORMS {
                let what = format!("{bits:?} {outputs} x {inputs} {kernels:?}");
                let (expected, _) = mapped(kernels, outputs, inputs, |t, x, b| {
                    t.linear(x, &Value::constant(plain.clone()), Some(b))
                });
                let (found, saved) = mapped(kernels, outputs, inputs, |t, x, b| {
                    t.quantized_linear(x, &weight, Some(b))
                });
                check_alike(&found, &expected, &what);
                // The cross-entropy has not saved its input yet: codes and scales are all.
                assert_eq!(saved, weight.bytes(), "{what}");
            }
            let (blocks, per_value) =
                (inputs.div_ceil(64), if bits == Bits::Eight { 2 } else { 1 });
            let expected = outputs * blocks * (32 * per_value + 4);
            assert_eq!(weight.bytes(), expected as u64);
        }
    }
}

/// The loss, the loss of each row, and the gradient of `x` [150, 700].
fn output_losses(
    kernels: Kernels,
    loss: impl Fn(&Tape, &Value) -> tape::Result<(Value, Tensor)>,
) -> Mapped {
    let mut parameters = Parameters::default();
    let (values, device) = (Rng::new(12).truncated_normal(150 * 700, 0.1), &Device::Cpu);
    let x = parameters.add("x".to_owned(), values, &[150, 700], DType::F64, device);
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let (losses, rows) = loss(&tape, &tape.parameter(x.unwrap())).unwrap();
    let found = [to_f64(losses.tensor()).unwrap(), to_f64(&rows).unwrap()];
    let gradients = tape.backward(vec![(losses, 1.0)]).unwrap();
    let gradient = to_f64(gradients[0].as_ref().unwrap()).unwrap();
    found.into_iter().chain([gradient]).collect()
}

/// There are several chunks of rows and several tiles, the last ones short.
#[test]
fn the_loss_of_quantized_output_weights_equals_that_of_the_decoded_ones() {
    let mut targets: Vec<u32> = (0..150).map(|row| row * 7 % 300).collect();
    targets[3] = tape::IGNORED;
    for bits in BITS {
        let weight = Quantized::from_weight(&matrix(3, 300, 700), bits).unwrap();
        let plain = Value::constant(dense(&weight));
        for (kernels, cap) in FORMS.into_iter().flat_map(|f| [(f, None), (f, Some(1.5))]) {
            let what = format!("{bits:?} {kernels:?} {cap:?}");
            let summed = |weight: OutputWeights| {
                output_losses(kernels, |tape, x| {
                    let loss = tape.linear_cross_entropy_capped(x, weight, &targets, cap)?;
                    Ok((loss.sum, loss.per_sample))
                })
            };
            let by_row = |weight: OutputWeights| {
                output_losses(kernels, |tape, x| {
                    let losses = tape.linear_cross_entropy_rows(x, weight, &targets, cap)?;
                    let tensor = losses.tensor().clone();
                    Ok((losses, tensor))
                })
            };
            let codes = OutputWeights::Quantized(&weight);
            check_alike(&summed(codes), &summed((&plain).into()), &what);
            check_alike(&by_row(codes), &by_row((&plain).into()), &what);
        }
    }
    let weight = Quantized::from_weight(&matrix(3, 300, 60), Bits::Eight).unwrap();
    let none = Parameters::default();
    let tape = Tape::forward_only(&none, Cancel::default(), Kernels::Fused);
    let x = Value::constant(Tensor::zeros((1, 70), DType::F32, &Device::Cpu).unwrap());
    let refused = tape.linear_cross_entropy(&x, OutputWeights::Quantized(&weight), &[0]);
    let message = refused.err().unwrap().to_string();
    assert!(
        message.contains("[1, 60]") && message.contains("[1, 70]"),
        "{message}"
    );
}

#[test]
fn a_frozen_weight_gives_the_input_gradient_of_a_trained_one() {
    let weight = matrix(4, 6, 9).to_dtype(DType::F64).unwrap();
    for kernels in FORMS {
        let (frozen, saved) = mapped(kernels, 6, 9, |t, x, b| {
            t.linear(&t.scale(x, 2.0)?, &Value::constant(weight.clone()), Some(b))
        });
        let (trained, more) = mapped(kernels, 6, 9, |t, x, b| {
            t.linear(&t.scale(x, 2.0)?, &t.variable(weight.clone()), Some(b))
        });
        check_alike(&frozen, &trained, "frozen");
        assert_eq!(saved, 8 * 6 * 9, "the weight alone");
        assert_eq!(more, 8 * (6 * 9 + 6 * 9), "the weight and the input");
    }
}

#[test]
fn frozen_embeddings_return_rows_and_record_nothing() {
    let (weight, ids) = (matrix(5, 11, 70), [4, 0, 4, 10, 2, 4]);
    for kernels in FORMS {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let plain = Value::constant(weight.clone());
        let rows = tape.embedding(&plain, &ids, &[2, 3]).unwrap();
        assert_eq!((rows.dims(), tape.peak_saved_bytes()), (&[2, 3, 70][..], 0));
        for bits in BITS {
            let quantized = Quantized::from_weight(&weight, bits).unwrap();
            let rows = tape.quantized_embedding(&quantized, &ids, &[2, 3]).unwrap();
            let plain = Value::constant(dense(&quantized).to_dtype(DType::F32).unwrap());
            let expected = tape.embedding(&plain, &ids, &[2, 3]);
            let expected = to_f64(expected.unwrap().tensor()).unwrap();
            assert_eq!(rows.dims(), [2, 3, 70]);
            assert!(
                to_f64(rows.tensor()).unwrap() == expected,
                "{bits:?} {kernels:?}"
            );
            let outside = tape.quantized_embedding(&quantized, &[3, 11], &[2]);
            let message = outside.err().unwrap().to_string();
            assert_eq!(message, "label 11 of sample 1 is outside the range 0..11");
        }
        assert_eq!(tape.peak_saved_bytes(), 0);
    }
}

#[test]
fn codes_and_scales_are_saved_by_name_and_restored() {
    let weight = Quantized::from_weight(&matrix(6, 5, 70), Bits::Four).unwrap();
    let [(codes_name, codes), (scales_name, scales)] = weight.named("head.weight");
    assert_eq!(
        (codes_name.as_str(), scales_name.as_str()),
        ("head.weight.codes", "head.weight.scales")
    );
    let again = Quantized::restore(Bits::Four, [5, 70], codes.clone(), scales.clone()).unwrap();
    assert!(to_f64(&dense(&again)).unwrap() == to_f64(&dense(&weight)).unwrap());
    let check = |bits, dims, words: &[&str]| {
        let result = Quantized::restore(bits, dims, codes.clone(), scales.clone());
        let message = result.err().unwrap().to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message}");
    };
    check(Bits::Eight, [5, 70], &["codes", "[5, 64]", "[5, 128]"]);
    check(Bits::Four, [6, 70], &["codes", "[5, 64]", "[6, 64]"]);
    check(Bits::Four, [5, 60], &["codes", "[5, 64]", "[5, 32]"]);
}

#[test]
fn invalid_weights_and_inputs_are_refused() {
    let check = |result: tape::Result<Quantized>, words: &[&str]| {
        let message = result.err().unwrap().to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message}");
    };
    let mut values = to_f64(&matrix(7, 3, 40)).unwrap();
    values[40 + 7] = f64::NAN;
    let torn = Tensor::from_vec(values, (3, 40), &Device::Cpu).unwrap();
    check(
        Quantized::from_weight(&torn, Bits::Eight),
        &["row 1", "NaN or infinite"],
    );
    let vector = torn.flatten_all().unwrap();
    check(
        Quantized::from_weight(&vector, Bits::Four),
        &["weight", "[120]", "one row and one column"],
    );
    let weight = Quantized::from_weight(&matrix(8, 3, 40), Bits::Eight).unwrap();
    let parameters = Parameters::default();
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let zeros =
        |n: usize| Value::constant(Tensor::zeros((2, n), DType::F32, &Device::Cpu).unwrap());
    let message = tape
        .quantized_linear(&zeros(41), &weight, None)
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("[3, 40]") && message.contains("[2, 41]"),
        "{message}"
    );
    let bias = tape.quantized_linear(&zeros(40), &weight, Some(&zeros(3)));
    assert!(bias.err().unwrap().to_string().contains("bias"));
}
