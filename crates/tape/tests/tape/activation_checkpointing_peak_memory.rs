//! Peak memory of the backward pass over checkpointed blocks, measured by the counting allocator:
//! their gradient exists only once.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device};
use tape::counting_allocator::{live_bytes, take_peak_bytes};
use tape::{Cancel, Kernels, Parameters, Tape};

const SAMPLES: usize = 64;
const WIDTH: usize = 16 * 1024;

#[test]
fn checkpointed_blocks_reuse_the_memory_of_the_output_gradient() {
    let mut parameters = Parameters::default();
    let added = parameters.add(
        "x".into(),
        vec![0.5; SAMPLES * WIDTH],
        &[SAMPLES, WIDTH],
        DType::F32,
        &Device::Cpu,
    );
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let mut x = tape.scale(&tape.parameter(added.unwrap()), 2.0).unwrap();
    for _ in 0..3 {
        let block = |tape: &Tape, x: &_, _| tape.gelu(x);
        x = tape.checkpoint_samples(&x, block).unwrap();
    }
    let root = tape.total(&x).unwrap().sum;
    drop(x);
    let before = live_bytes();
    take_peak_bytes();
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    let whole = (SAMPLES * WIDTH * size_of::<f32>()) as f64;
    let taken = (take_peak_bytes() - before) as f64 / whole;
    assert!(gradients[0].is_some());
    assert!(taken < 1.6, "{taken:.2} times the gradient at once");
}
