//! Peak memory of the backward pass over checkpointed blocks, measured by the counting allocator:
//! their gradient exists only once.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::counting_allocator::{live_bytes, take_peak_bytes};
use tape::{Cancel, DeferredOutput, Kernels, Parameters, Tape, Value};

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

/// Peak bytes of the backward pass over one checkpointed function of `rows` rows, which takes eight
/// times the memory of its input.
fn peak_of_rows(rows: usize) -> u64 {
    const NARROW: usize = 64;
    let mut parameters = Parameters::default();
    let mut add = |name: &str, shape: &[usize]| {
        let values = vec![0.01; shape.iter().product()];
        let added = parameters.add(name.into(), values, shape, DType::F32, &Device::Cpu);
        added.unwrap()
    };
    let (up, down) = (
        add("up", &[8 * NARROW, NARROW]),
        add("down", &[NARROW, 8 * NARROW]),
    );
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let x = Tensor::ones((1, rows, NARROW), DType::F32, &Device::Cpu).unwrap();
    let y = tape.checkpoint_samples(&Value::constant(x), move |_, x, _| {
        Ok(DeferredOutput::by_rows(x.clone(), move |tape, x| {
            let y = tape.gelu(&tape.linear(x, &tape.parameter(up), None)?)?;
            tape.linear(&y, &tape.parameter(down), None)
        }))
    });
    let root = tape.total(&y.unwrap()).unwrap().sum;
    let before = live_bytes();
    take_peak_bytes();
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    assert!(gradients.iter().all(Option::is_some));
    take_peak_bytes() - before
}

#[test]
fn the_memory_of_a_function_of_rows_does_not_grow_with_the_rows() {
    let (few, many) = (peak_of_rows(2_048), peak_of_rows(16_384));
    let input = 16_384 * 64 * size_of::<f32>() as u64;
    assert!(
        many < few + 2 * input,
        "{few} bytes for 2,048 rows, {many} for 16,384, of {input} each"
    );
}

#[test]
fn a_function_of_rows_inside_a_block_reuses_the_memory_of_the_output_gradient() {
    const ROWS: usize = 16_384;
    const NARROW: usize = 64;
    let mut parameters = Parameters::default();
    let values = vec![0.5; ROWS * NARROW];
    let added = parameters.add(
        "x".into(),
        values,
        &[1, ROWS, NARROW],
        DType::F32,
        &Device::Cpu,
    );
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let mut x = tape.scale(&tape.parameter(added.unwrap()), 2.0).unwrap();
    for _ in 0..2 {
        let block = |_: &Tape, x: &Value, _| {
            let part = |tape: &Tape, x: &Value| tape.gelu(x);
            Ok(DeferredOutput::by_rows(x.clone(), part))
        };
        x = tape.checkpoint_samples(&x, block).unwrap();
    }
    let root = tape.total(&x).unwrap().sum;
    drop(x);
    let before = live_bytes();
    take_peak_bytes();
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    let whole = (ROWS * NARROW * size_of::<f32>()) as f64;
    let taken = (take_peak_bytes() - before) as f64 / whole;
    println!("{taken:.2} times the gradient at once");
    assert!(gradients[0].is_some());
    assert!(taken < 1.6, "{taken:.2} times the gradient at once");
}
