//! A micro-batch that is cancelled inside a long operation ends there, so that its memory is freed
//! at once.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use tape::{Cancel, Conv2dShape, Kernels, Parameters, Result, Tape, TapeError};

/// Samples of 64 channels. The convolution gives few channels, so that its gradient, which the sum
/// makes at once, takes little of the time.
const SAMPLES: usize = 24;
const SHAPE: Conv2dShape = Conv2dShape {
    stride: 1,
    padding: 1,
    groups: 1,
};

/// The convolution to 8 channels uses columns, that to 16 Winograd's method.
const OUTPUTS: [usize; 2] = [8, 16];

/// Runs a convolution, and its backward pass if `back`; the flag is raised `after` that part
/// began. Returns the duration of the part.
fn convolved(outputs: usize, back: bool, after: Option<Duration>) -> (Duration, Result<()>) {
    let (cancel, parameters) = (Cancel::default(), Parameters::default());
    let tape = Tape::record(&parameters, cancel.clone(), Kernels::Fused);
    let ones = |dims: [usize; 4]| Tensor::ones(&dims, DType::F32, &Device::Cpu).unwrap();
    let x = tape.variable(ones([SAMPLES, 64, 128, 128]));
    let weight = tape.variable(ones([outputs, 64, 3, 3]));
    let forward = || tape.conv2d(&x, &weight, SHAPE);
    let raise = || {
        after.map(|after| {
            thread::spawn(move || {
                thread::sleep(after);
                cancel.store(true, Ordering::Relaxed);
            })
        })
    };
    if !back {
        let _raised = raise();
        let begun = Instant::now();
        let ended = forward().map(|_| ());
        return (begun.elapsed(), ended);
    }
    let root = tape.total(&forward().unwrap()).unwrap().sum;
    let _raised = raise();
    let begun = Instant::now();
    let ended = tape.backward(vec![(root, 1.0)]).map(|_| ());
    (begun.elapsed(), ended)
}

/// Rounds in which a cancelled part may show that it ends early. Other tests share the processors,
/// so a single round may be slowed down.
const ROUNDS: usize = 10;

#[test]
fn a_cancelled_convolution_ends_within_a_sample() {
    for (outputs, back) in OUTPUTS.into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let (mut whole, mut cut) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let (took, ended) = convolved(outputs, back, None);
            ended.unwrap();
            whole = whole.min(took);
            let (took, ended) = convolved(outputs, back, Some(whole / 10));
            assert!(matches!(ended, Err(TapeError::Cancelled)), "{ended:?}");
            cut = cut.min(took);
            if cut < whole / 2 {
                break;
            }
        }
        assert!(
            cut < whole / 2,
            "cancelled after a tenth of {whole:?}, ended after {cut:?}; {outputs} channels, back: {back}"
        );
    }
}
