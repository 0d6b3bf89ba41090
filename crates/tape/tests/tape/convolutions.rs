//! Convolutions in f32 on the CPU, each method against f64, which always uses columns. A sample's
//! results do not depend on the other samples of its micro-batch or on the number of threads.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use rayon::ThreadPoolBuilder;
use tape::inplace::to_f64;
use tape::{Cancel, Conv2dShape, Kernels, Parameters, Rng, Tape};

/// One convolution.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    samples: usize,
    inputs: usize,
    outputs: usize,
    height: usize,
    width: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    groups: usize,
}

/// With 3 x 3 kernels, stride 1 and one group.
const PLAIN: Sizes = Sizes {
    samples: 2,
    inputs: 16,
    outputs: 16,
    height: 8,
    width: 8,
    kernel: 3,
    stride: 1,
    padding: 1,
    groups: 1,
};

/// Convolutions by Winograd's method: channels that no panel divides, odd images, all paddings,
/// images in several strips, several samples in one job, and several blocks of filters.
fn winograd() -> Vec<Sizes> {
    let sizes = |samples, inputs, outputs, height, width, padding| Sizes {
        samples,
        inputs,
        outputs,
        height,
        width,
        padding,
        ..PLAIN
    };
    vec![
        PLAIN,
        sizes(5, 20, 37, 7, 9, 1),
        sizes(2, 33, 17, 13, 6, 0),
        sizes(2, 16, 20, 9, 9, 2),
        sizes(1, 24, 40, 30, 57, 1),
        sizes(9, 32, 64, 7, 7, 1),
        sizes(3, 300, 16, 14, 14, 1),
        sizes(2, 288, 272, 6, 6, 1),
    ]
}

/// Convolutions by columns, in one strip and in several.
fn by_columns() -> Vec<Sizes> {
    let few = Sizes {
        inputs: 3,
        outputs: 5,
        ..PLAIN
    };
    let of_kernel = |kernel, stride, padding| Sizes {
        kernel,
        stride,
        padding,
        ..few
    };
    let stem = Sizes {
        height: 101,
        width: 110,
        ..of_kernel(7, 2, 3)
    };
    vec![
        few,
        of_kernel(1, 1, 0),
        of_kernel(1, 2, 0),
        of_kernel(3, 2, 1),
        of_kernel(4, 4, 0),
        stem,
        Sizes { stride: 1, ..stem },
        Sizes {
            inputs: 4,
            outputs: 8,
            groups: 2,
            ..of_kernel(3, 2, 1)
        },
        Sizes {
            inputs: 6,
            outputs: 6,
            groups: 6,
            ..of_kernel(7, 1, 3)
        },
    ]
}

/// The output, and the gradients of the input and the weights.
struct Outcome {
    output: Vec<f64>,
    input: Vec<f64>,
    weight: Vec<f64>,
}

fn values(seed: u64, count: usize) -> Vec<f64> {
    let stream = Rng::new(seed);
    let value = |i: usize| f64::from((stream.uniform(i as u64) * 2.0 - 1.0) as f32);
    (0..count).map(value).collect()
}

/// Convolves `samples` samples from `first` on.
fn convolved(sizes: Sizes, first: usize, samples: usize, dtype: DType) -> Outcome {
    let shape = Conv2dShape {
        stride: sizes.stride,
        padding: sizes.padding,
        groups: sizes.groups,
    };
    let out = |size: usize| (size + 2 * sizes.padding - sizes.kernel) / sizes.stride + 1;
    let part = |seed, dims: [usize; 4]| {
        let sample = dims[1] * dims[2] * dims[3];
        let all = values(seed, (first + samples) * sample);
        let some = all[first * sample..].to_vec();
        let tensor = Tensor::from_vec(some, &dims, &Device::Cpu).unwrap();
        tensor.to_dtype(dtype).unwrap()
    };
    let x = part(1, [samples, sizes.inputs, sizes.height, sizes.width]);
    let (height, width) = (out(sizes.height), out(sizes.width));
    let dy = part(2, [samples, sizes.outputs, height, width]);
    let dims = [
        sizes.outputs,
        sizes.inputs / sizes.groups,
        sizes.kernel,
        sizes.kernel,
    ];
    let weight = Tensor::from_vec(values(3, dims.iter().product()), &dims, &Device::Cpu);
    let weight = weight.unwrap().to_dtype(dtype).unwrap();
    let parameters = Parameters::default();
    let [(output, input), (_, weight)] = [0, 1].map(|index| {
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let operands = [&x, &weight].map(|operand| tape.variable(operand.clone()));
        let y = tape.conv2d(&operands[0], &operands[1], shape).unwrap();
        let output = to_f64(y.tensor()).unwrap();
        let gradient = tape.input_gradient(y, dy.clone(), operands[index].clone());
        (output, to_f64(&gradient.unwrap().unwrap()).unwrap())
    });
    Outcome {
        output,
        input,
        weight,
    }
}

/// The largest difference, relative to the largest value.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0, |max: f64, v| max.max(v.abs()));
    let pairs = found.iter().zip(expected);
    let worst = pairs.fold(0.0, |worst: f64, (a, b)| {
        assert!(a.is_finite(), "{a}");
        worst.max((a - b).abs())
    });
    worst / scale
}

#[test]
fn convolutions_in_f32_agree_with_f64() {
    for sizes in winograd().into_iter().chain(by_columns()) {
        let found = convolved(sizes, 0, sizes.samples, DType::F32);
        let expected = convolved(sizes, 0, sizes.samples, DType::F64);
        for (name, found, expected) in [
            ("output", found.output, expected.output),
            ("input", found.input, expected.input),
            ("weight", found.weight, expected.weight),
        ] {
            let difference = difference(&found, &expected);
            assert!(difference < 1e-6, "{name}, {sizes:?}: {difference:e}");
        }
    }
}

#[test]
fn a_sample_has_the_same_bits_alone_and_in_a_batch() {
    for sizes in winograd().into_iter().chain(by_columns()) {
        let all = convolved(sizes, 0, sizes.samples, DType::F32);
        for sample in 0..sizes.samples {
            let one = convolved(sizes, sample, 1, DType::F32);
            let part = |values: &[f64]| {
                let length = values.len() / sizes.samples;
                values[sample * length..(sample + 1) * length].to_vec()
            };
            assert_eq!(part(&all.output), one.output, "output, {sizes:?}");
            assert_eq!(part(&all.input), one.input, "input, {sizes:?}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for sizes in winograd().into_iter().chain(by_columns()) {
        let [one, others @ ..] = [1, 2, 3, 7].map(|threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build();
            let run = || convolved(sizes, 0, sizes.samples, DType::F32);
            pool.unwrap().install(run)
        });
        for other in others {
            assert_eq!(one.output, other.output, "output, {sizes:?}");
            assert_eq!(one.input, other.input, "input, {sizes:?}");
            assert_eq!(one.weight, other.weight, "weight, {sizes:?}");
        }
    }
}

#[test]
fn a_nan_in_f32_reaches_every_output_that_reads_it() {
    let dims = [1, 16, 8, 8];
    let mut x = vec![1.0_f32; dims.iter().product()];
    x[8 * 3 + 4] = f32::NAN;
    let x = Tensor::from_vec(x, &dims, &Device::Cpu).unwrap();
    let weight = Tensor::ones(&[16, 16, 3, 3], DType::F32, &Device::Cpu).unwrap();
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let shape = Conv2dShape {
        stride: 1,
        padding: 1,
        groups: 1,
    };
    let y = tape.conv2d(&tape.variable(x), &tape.variable(weight), shape);
    let y = to_f64(y.unwrap().tensor()).unwrap();
    for channel in y.chunks(64) {
        for (row, column) in (2..5).flat_map(|row| (3..6).map(move |column| (row, column))) {
            assert!(channel[row * 8 + column].is_nan(), "{row}, {column}");
        }
        assert!(!channel[7 * 8].is_nan(), "far away");
    }
}
