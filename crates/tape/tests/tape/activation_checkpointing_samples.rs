//! A checkpointed block with parameters that works on eight samples at a time, against the same
//! block without checkpointing.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{Cancel, DeferredOutput, Kernels, ParameterId, Parameters, Result, Rng, Tape, Value};

/// Two full chunks of eight, and a shorter one.
const SAMPLES: usize = 19;
const WIDTH: usize = 6;

fn drawn(name: &str, count: usize) -> Vec<f64> {
    let stream = Rng::new(4).site(name);
    (0..count as u64).map(|i| stream.normal(i)).collect()
}

/// The parameters of a block with a norm, and of a head after it that is not checkpointed.
fn parameters() -> (Parameters, Vec<ParameterId>) {
    let mut parameters = Parameters::default();
    let shapes: [(&str, &[usize]); 5] = [
        ("norm.weight", &[WIDTH]),
        ("norm.bias", &[WIDTH]),
        ("up.weight", &[WIDTH, WIDTH]),
        ("up.bias", &[WIDTH]),
        ("head.weight", &[3, WIDTH]),
    ];
    let ids = shapes.map(|(name, shape)| {
        let values = drawn(name, shape.iter().product());
        let added = parameters.add(name.to_owned(), values, shape, DType::F64, &Device::Cpu);
        added.unwrap()
    });
    (parameters, ids.to_vec())
}

fn block(tape: &Tape, x: &Value, ids: &[ParameterId]) -> Result<Value> {
    let p = |i: usize| tape.parameter(ids[i]);
    let y = tape.layer_norm(x, &p(0), &p(1), 1e-5)?;
    let y = tape.linear(&tape.gelu(&y)?, &p(2), Some(&p(3)))?;
    tape.add(x, &y)
}

/// Which of the two blocks are checkpointed.
#[derive(Debug, Clone, Copy)]
enum Checkpointed {
    Nothing,
    Each,
    /// Each block, and both together around them.
    Within,
}

fn blocks(tape: &Tape, x: &Value, ids: &[ParameterId], how: Checkpointed) -> Result<Value> {
    let mut x = x.clone();
    for _ in 0..2 {
        let ids = ids.to_vec();
        x = match how {
            Checkpointed::Nothing => block(tape, &x, &ids)?,
            _ => tape.checkpoint_samples(&x, move |tape, x, _| block(tape, x, &ids))?,
        };
    }
    Ok(x)
}

/// The output and the gradients of all parameters, for the block twice and the head.
fn run(kernels: Kernels, how: Checkpointed) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (parameters, ids) = parameters();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let x = Tensor::from_vec(
        drawn("x", SAMPLES * 2 * WIDTH),
        (SAMPLES, 2, WIDTH),
        &Device::Cpu,
    );
    let x = Value::constant(x.unwrap());
    let both = ids.clone();
    let x = match how {
        Checkpointed::Within => {
            tape.checkpoint_samples(&x, move |tape, x, _| blocks(tape, x, &both, how))
        }
        _ => blocks(&tape, &x, &ids, how),
    };
    let x = x.unwrap();
    let scores = tape.linear(&x, &tape.parameter(ids[4]), None).unwrap();
    let rows = tape.reshape(&scores, &[SAMPLES * 2, 3]).unwrap();
    let labels: Vec<u32> = (0..SAMPLES as u32 * 2).map(|row| row % 3).collect();
    let root = tape.cross_entropy(&rows, &labels, 0.1).unwrap().sum;
    let output = to_f64(scores.tensor()).unwrap();
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    let gradients = gradients.into_iter().map(|g| to_f64(&g.unwrap()).unwrap());
    (output, gradients.collect())
}

fn furthest(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(0f64, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0f64, |m, (a, b)| m.max((a - b).abs())) / scale
}

#[test]
fn chunks_of_eight_samples_give_the_same_gradients() {
    for kernels in [Kernels::Fused, Kernels::Composed] {
        let (whole, expected) = run(kernels, Checkpointed::Nothing);
        for how in [Checkpointed::Each, Checkpointed::Within] {
            let (output, gradients) = run(kernels, how);
            let case = format!("{kernels:?}, {how:?}");
            assert!(furthest(&output, &whole) <= 1e-12, "{case}: the output");
            let names = parameters().0;
            for (i, (found, expected)) in gradients.iter().zip(&expected).enumerate() {
                let error = furthest(found, expected);
                let name = &names.at(i).name;
                assert!(error <= 1e-12, "{case}: {name} differs by {error:.1e}");
            }
        }
    }
}

/// The output and the gradients of the parameters of two blocks over 2,700 rows, which are more
/// than one chunk.
fn run_by_rows(kernels: Kernels, is_by_rows: bool) -> (Vec<f64>, Vec<Vec<f64>>) {
    let (parameters, ids) = parameters();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let x = Tensor::from_vec(drawn("x", 3 * 900 * WIDTH), (3, 900, WIDTH), &Device::Cpu);
    let mut x = Value::constant(x.unwrap());
    for _ in 0..2 {
        let ids = ids.clone();
        x = tape
            .checkpoint_samples(&x, move |tape, x, _| {
                // The block does more than the function of rows.
                let x = tape.scale(x, 0.5)?;
                if !is_by_rows {
                    return Ok(block(tape, &x, &ids)?.into());
                }
                let ids = ids.clone();
                let part = move |tape: &Tape, x: &Value| block(tape, x, &ids);
                Ok(DeferredOutput::by_rows(x, part))
            })
            .unwrap();
    }
    let rows = tape.reshape(&x, &[3 * 900, WIDTH]).unwrap();
    let labels: Vec<u32> = (0..3 * 900).map(|row| row % WIDTH as u32).collect();
    let root = tape.cross_entropy(&rows, &labels, 0.1).unwrap().sum;
    let output = to_f64(x.tensor()).unwrap();
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    // The head is not used here.
    let gradients = gradients.into_iter().take(ids.len() - 1);
    let gradients = gradients.map(|g| to_f64(&g.unwrap()).unwrap());
    (output, gradients.collect())
}

#[test]
fn a_function_of_rows_gives_the_same_gradients_in_chunks() {
    for kernels in [Kernels::Fused, Kernels::Composed] {
        let (whole, expected) = run_by_rows(kernels, false);
        let (output, gradients) = run_by_rows(kernels, true);
        assert!(
            furthest(&output, &whole) <= 1e-12,
            "{kernels:?}: the output"
        );
        assert_eq!(gradients.len(), 4);
        for (found, expected) in gradients.iter().zip(&expected) {
            let error = furthest(found, expected);
            assert!(
                error <= 1e-12,
                "{kernels:?}: a gradient differs by {error:.1e}"
            );
        }
    }
}
