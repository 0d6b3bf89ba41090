//! Texts of different lengths in one micro-batch: each has the loss and the gradient that it has
//! alone, whatever its padding.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{distance, norm};
use candle_core::{DType, Device};
use models::{ParameterBuilder, SequenceShape, TextEncoder};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape};

const SHAPE: SequenceShape = SequenceShape {
    tokens: 19,
    vocabulary: 37,
    width: 24,
    depth: 2,
    heads: 4,
};
const CLASSES: usize = 5;
/// More texts than a checkpointed block computes at a time, with the longest and the shortest
/// length.
const LENGTHS: [usize; 11] = [4, 19, 1, 7, 12, 2, 18, 3, 9, 19, 5];

fn built() -> (TextEncoder, Parameters) {
    let mut parameters = Parameters::default();
    let b = &mut ParameterBuilder::new(&mut parameters, 7, DType::F64, &Device::Cpu);
    let network = TextEncoder::build(b, SHAPE, CLASSES).unwrap();
    (network, parameters)
}

/// Text `n` padded to `length` tokens with tokens drawn from `seed`.
fn text(n: usize, length: usize, seed: u64) -> Vec<u32> {
    let draw = |seed, i| {
        let stream = Rng::new(seed).at(n as u64);
        (stream.uniform(i as u64) * SHAPE.vocabulary as f64) as u32
    };
    (0..length)
        .map(|i| draw(if i < LENGTHS[n] { 1 } else { seed }, i))
        .collect()
}

/// Loss of each of these texts and the summed gradient, padded to `length`.
fn losses_and_gradient(
    texts: &[usize],
    length: usize,
    seed: u64,
    checkpointed: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (network, parameters) = built();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let ids: Vec<u32> = texts.iter().flat_map(|&n| text(n, length, seed)).collect();
    let lengths: Vec<usize> = texts.iter().map(|&n| LENGTHS[n]).collect();
    let labels: Vec<u32> = texts.iter().map(|n| (n % CLASSES) as u32).collect();
    let scores = network
        .forward(&tape, &ids, &lengths, checkpointed)
        .unwrap();
    let loss = tape.cross_entropy(&scores, &labels, 0.0).unwrap();
    let losses = to_f64(&loss.per_sample).unwrap();
    let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
    let gradients = gradients.into_iter().map(|g| to_f64(&g.unwrap()).unwrap());
    (losses, gradients.flatten().collect())
}

#[test]
fn a_text_is_independent_of_its_micro_batch() {
    let all: Vec<usize> = (0..LENGTHS.len()).collect();
    for checkpointed in [0, 1, SHAPE.depth] {
        let (losses, gradient) = losses_and_gradient(&all, SHAPE.tokens, 2, checkpointed);
        let mut sum = vec![0.0; gradient.len()];
        for (n, loss) in losses.iter().enumerate() {
            let (alone, own) = losses_and_gradient(&[n], LENGTHS[n], 0, checkpointed);
            assert!((loss - alone[0]).abs() <= 1e-13 * alone[0], "text {n}");
            let (padded, gradient) = losses_and_gradient(&[n], SHAPE.tokens, 3, checkpointed);
            assert!((padded[0] - alone[0]).abs() <= 1e-13 * alone[0], "{n}");
            let error = distance(&gradient, &own) / norm(&own);
            assert!(
                error <= 1e-12,
                "the gradient of text {n} differs by {error:.1e}"
            );
            sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
        }
        let error = distance(&gradient, &sum) / norm(&sum);
        assert!(error <= 1e-12, "{checkpointed} checkpointed: {error:.1e}");
    }
}

#[test]
fn padding_changes_no_bit() {
    let all: Vec<usize> = (0..LENGTHS.len()).collect();
    let bits = |seed| {
        let (losses, gradient) = losses_and_gradient(&all, SHAPE.tokens, seed, 1);
        let values = losses.into_iter().chain(gradient);
        values.map(f64::to_bits).collect::<Vec<_>>()
    };
    assert!(bits(2) == bits(3));
}

#[test]
fn texts_of_invalid_length_are_refused() {
    let (network, parameters) = built();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    for (ids, lengths, reason) in [
        (vec![1; 40], vec![20, 20], "at most 19"),
        (vec![1; 7], vec![3, 3], "equal length"),
        (vec![1; 8], vec![4, 5], "lengths"),
        (Vec::new(), Vec::new(), "sequences"),
    ] {
        let refused = network.forward(&tape, &ids, &lengths, 0).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}
