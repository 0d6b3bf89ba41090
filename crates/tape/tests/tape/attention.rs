//! Attention over many tokens: blocks of queries and keys against the composed form.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{AttentionShape, Cancel, Kernels, Parameters, Rng, Tape};

/// Output and gradient of attention over random values, with `lengths[n]` tokens in sample `n`.
fn run(
    kernels: Kernels,
    tokens: usize,
    causal: bool,
    lengths: Option<&[usize]>,
    samples: usize,
) -> (Vec<f64>, Vec<f64>) {
    let stream = Rng::new(5).site("attention");
    let values: Vec<f64> = (0..(samples * tokens * 12) as u64)
        .map(|i| 6.0 * stream.uniform(i) - 3.0)
        .collect();
    let mut parameters = Parameters::default();
    let id = parameters
        .add(
            "x".to_owned(),
            values,
            &[samples, tokens, 12],
            DType::F64,
            &Device::Cpu,
        )
        .unwrap();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let shape = AttentionShape { heads: 2, causal };
    let x = tape.parameter(id);
    let y = match lengths {
        Some(lengths) => tape.attention_padded(&x, shape, lengths),
        None => tape.attention(&x, shape),
    }
    .unwrap();
    let output = to_f64(y.tensor()).unwrap();
    let flat = tape.reshape(&y, &[samples, tokens * 4]).unwrap();
    let labels: Vec<u32> = (0..samples as u32).collect();
    let root = tape.cross_entropy(&flat, &labels, 0.1).unwrap().sum;
    let gradient = tape.backward(vec![(root, 1.0)]).unwrap().remove(0).unwrap();
    (output, to_f64(&gradient).unwrap())
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    let scale = b.iter().fold(0f64, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / scale
}

/// 700 tokens are six blocks of queries and two of keys.
#[test]
fn attention_in_blocks_equals_the_composed_form() {
    let check = |causal: bool, lengths: Option<&[usize]>, samples: usize| {
        let fused = run(Kernels::Fused, 700, causal, lengths, samples);
        let composed = run(Kernels::Composed, 700, causal, lengths, samples);
        assert!(
            furthest(&fused.0, &composed.0) < 1e-12,
            "{causal} {lengths:?}"
        );
        assert!(
            furthest(&fused.1, &composed.1) < 1e-12,
            "{causal} {lengths:?}"
        );
    };
    check(false, None, 1);
    check(true, None, 3);
    check(false, Some(&[700, 513, 129]), 3);
    check(true, Some(&[1, 640]), 2);
}

/// Padding is not part of the training: more of it changes no bit, and it gets no gradient.
#[test]
fn padding_does_not_change_attention() {
    for tokens in [5, 40, 200] {
        let (output, gradient) = run(Kernels::Fused, tokens, false, Some(&[3]), 1);
        assert!(output[3 * 4..].iter().all(|v| *v == 0.0), "{tokens}");
        assert!(gradient[3 * 12..].iter().all(|v| *v == 0.0), "{tokens}");
        let (alone, _) = run(Kernels::Fused, 3, false, None, 1);
        assert!(furthest(&output[..3 * 4], &alone) < 1e-14, "{tokens}");
    }
}

#[test]
fn invalid_lengths_are_refused() {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let x = tape.variable(Tensor::zeros((2, 4, 12), DType::F32, &Device::Cpu).unwrap());
    let shape = AttentionShape {
        heads: 2,
        causal: false,
    };
    for lengths in [&[4][..], &[4, 5]] {
        let error = tape.attention_padded(&x, shape, lengths).unwrap_err();
        assert!(error.to_string().contains("lengths"), "{error}");
    }
}
