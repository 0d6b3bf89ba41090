//! What a tape saves and returns: bytes counted by hand, nothing for constants, gradients that own
//! their memory, and no changes by a cancelled backward pass.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tape::inplace::{add_assign, to_f64};
use tape::{
    Activation, Affine, AttentionShape, Cancel, Conv2dShape, Kernels, ParameterId, Parameters,
    Result, Rng, Tape, TapeError, Value,
};

const FORMS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];

fn tensor(name: &str, shape: &[usize]) -> Tensor {
    let stream = Rng::new(3).site(name);
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| stream.uniform(i) - 0.5).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn parameters(shapes: &[&[usize]]) -> (Parameters, Vec<ParameterId>) {
    let mut parameters = Parameters::default();
    let ids = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| {
            let values = to_f64(&tensor(&format!("parameter {i}"), shape)).unwrap();
            parameters
                .add(format!("p{i}"), values, shape, DType::F64, &Device::Cpu)
                .unwrap()
        })
        .collect();
    (parameters, ids)
}

/// The sum of all elements of a value, made of a cross-entropy.
fn scalar(tape: &Tape, x: &Value) -> Result<Value> {
    let rows = x.dims()[0];
    let flat = tape.reshape(x, &[rows, x.tensor().elem_count() / rows])?;
    Ok(tape.cross_entropy(&flat, &vec![0; rows], 0.0)?.sum)
}

type Operation = fn(&Tape, &Value, &[Value]) -> Result<Value>;

/// Runs one operation on a variable `x` and on parameters; it must save `expected` f64 values.
fn check_saved(op: Operation, x: &[usize], shapes: &[&[usize]], expected: usize) {
    for kernels in FORMS {
        let (parameters, ids) = parameters(shapes);
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let x = tape.variable(tensor("x", x));
        let p: Vec<Value> = ids.iter().map(|&id| tape.parameter(id)).collect();
        let _y = op(&tape, &x, &p).unwrap();
        assert_eq!(tape.saved_bytes(), 8 * expected as u64, "{kernels:?}");
        assert_eq!(tape.peak_saved_bytes(), 8 * expected as u64, "{kernels:?}");
    }
}

const CONV: Conv2dShape = Conv2dShape {
    stride: 2,
    padding: 1,
    groups: 1,
};
const HEADS: AttentionShape = AttentionShape {
    heads: 2,
    causal: false,
};

#[test]
fn a_linear_layer_saves_its_input_but_no_parameter() {
    check_saved(
        |t, x, p| t.linear(x, &p[0], Some(&p[1])),
        &[2, 5, 7],
        &[&[6, 7], &[6]],
        2 * 5 * 7,
    );
}

#[test]
fn a_layer_norm_saves_only_its_input() {
    check_saved(
        |t, x, p| t.layer_norm(x, &p[0], &p[1], 1e-5),
        &[3, 4, 9],
        &[&[9], &[9]],
        3 * 4 * 9,
    );
}

#[test]
fn a_convolution_saves_its_input_but_no_columns() {
    check_saved(
        |t, x, p| t.conv2d(x, &p[0], CONV),
        &[2, 3, 8, 7],
        &[&[5, 3, 3, 3]],
        2 * 3 * 8 * 7,
    );
}

#[test]
fn attention_saves_its_input_and_weights() {
    check_saved(
        |t, x, _| t.attention(x, HEADS),
        &[3, 5, 36],
        &[],
        3 * 5 * 36 + 3 * 2 * 5 * 5,
    );
}

/// Two heads with 2 and 9 tokens: the weights are larger than the output.
#[test]
fn attention_over_many_tokens_saves_no_weights() {
    let (parameters, _) = parameters(&[]);
    let saved = |kernels| {
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let _y = tape.attention(&tape.variable(tensor("x", &[3, 9, 12])), HEADS);
        tape.saved_bytes()
    };
    let (qkv, y, sums) = (3 * 9 * 12, 3 * 9 * 4, 3 * 9 * 2);
    assert_eq!(saved(Kernels::Fused), 8 * (qkv + y + sums));
    assert_eq!(saved(Kernels::Composed), 8 * qkv);
}

#[test]
fn outputs_of_norms_and_gelus_are_recomputed_not_saved() {
    check_saved(
        |t, x, p| {
            let y = t.linear(&t.layer_norm(x, &p[0], &p[1], 1e-5)?, &p[2], None)?;
            t.linear(&t.gelu(&y)?, &p[3], None)
        },
        &[2, 3, 5],
        &[&[5], &[5], &[8, 5], &[4, 8]],
        2 * 3 * 5 + 2 * 3 * 8,
    );
    check_saved(
        |t, x, p| {
            let affine = Affine {
                weight: &p[0],
                bias: &p[1],
            };
            let y = t.group_norm(x, 2, affine, 1e-5, Activation::Relu)?;
            t.conv2d(&y, &p[2], CONV)
        },
        &[2, 4, 8, 7],
        &[&[4], &[4], &[5, 4, 3, 3]],
        2 * 4 * 8 * 7 + 2 * 2 * 2,
    );
}

#[test]
fn two_operations_on_one_input_save_it_once() {
    check_saved(
        |t, x, p| t.add(&t.linear(x, &p[0], None)?, &t.linear(x, &p[1], None)?),
        &[4, 7],
        &[&[6, 7], &[6, 7]],
        4 * 7,
    );
}

#[test]
fn sums_factors_and_reshapes_save_nothing() {
    check_saved(
        |t, x, _| t.scale(&t.add(x, &t.reshape(x, &[6, 4])?)?, 2.0),
        &[6, 4],
        &[],
        0,
    );
}

/// A view would keep the whole allocation alive, so the row is copied even for one sample.
#[test]
fn the_first_token_does_not_keep_the_sequence_alive() {
    check_saved(
        |t, x, p| t.linear(&t.first_token(x)?, &p[0], None),
        &[1, 5, 7],
        &[&[6, 7]],
        7,
    );
}

#[test]
fn constants_record_and_save_nothing() {
    for kernels in FORMS {
        let (parameters, _) = parameters(&[&[3]]);
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let constant = |name: &str, shape: &[usize]| Value::constant(tensor(name, shape));
        let x = constant("x", &[2, 5, 12]);
        let y = tape
            .linear(&x, &constant("w", &[36, 12]), Some(&constant("b", &[36])))
            .unwrap();
        let y = tape.attention(&y, HEADS).unwrap();
        let y = tape
            .layer_norm(&y, &constant("g", &[12]), &constant("h", &[12]), 1e-5)
            .unwrap();
        let y = scalar(&tape, &tape.gelu(&y).unwrap()).unwrap();
        assert_eq!(tape.peak_saved_bytes(), 0);
        let gradients = tape.backward(vec![(y, 1.0)]).unwrap();
        assert!(gradients.iter().all(Option::is_none));
    }
}

#[test]
fn a_frozen_weight_passes_a_gradient_and_saves_no_input() {
    for kernels in FORMS {
        let (parameters, ids) = parameters(&[&[4, 7]]);
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let frozen = Value::constant(tensor("frozen", &[3, 7]));
        let y = tape.linear(&tape.parameter(ids[0]), &frozen, None).unwrap();
        assert_eq!(tape.saved_bytes(), 8 * 3 * 7, "only the frozen weight");
        let root = scalar(&tape, &y).unwrap();
        let gradient = tape.backward(vec![(root, 1.0)]).unwrap().remove(0).unwrap();
        assert!(to_f64(&gradient).unwrap().iter().all(|g| *g != 0.0));
    }
}

#[test]
fn a_tape_that_does_not_record_saves_nothing() {
    let (parameters, ids) = parameters(&[&[6, 7]]);
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let x = tape.variable(tensor("x", &[2, 7]));
    let y = tape.linear(&x, &tape.parameter(ids[0]), None).unwrap();
    assert_eq!((y.dims(), tape.peak_saved_bytes()), (&[2, 6][..], 0));
}

/// Sums write to the gradients of the first micro-batch, so no two gradients may share memory.
#[test]
fn every_gradient_owns_its_memory() {
    let check = |op: Operation, shapes: &[&[usize]]| {
        let (parameters, ids) = parameters(shapes);
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let p: Vec<Value> = ids.iter().map(|&id| tape.parameter(id)).collect();
        let y = op(&tape, &p[0], &p).unwrap();
        let root = scalar(&tape, &y).unwrap();
        let mut gradients: Vec<Tensor> = tape
            .backward(vec![(root, 1.0)])
            .unwrap()
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(gradients.len(), shapes.len());
        let before: Vec<Vec<f64>> = gradients.iter().map(|g| to_f64(g).unwrap()).collect();
        for gradient in &mut gradients {
            let ones = gradient.ones_like().unwrap();
            add_assign(gradient, &ones).unwrap();
        }
        for (after, before) in gradients.iter().zip(before) {
            let expected: Vec<f64> = before.iter().map(|v| v + 1.0).collect();
            assert_eq!(to_f64(after).unwrap(), expected);
        }
    };
    check(|t, _, p| t.add(&p[0], &p[1]), &[&[3, 4], &[3, 4]]);
    check(|t, _, p| t.concat(&[&p[0], &p[1]]), &[&[3, 4], &[2, 4]]);
    check(|t, _, p| t.prepend_token(&p[0], &p[1]), &[&[4], &[1, 3, 4]]);
    check(
        |t, _, p| t.add(&t.first_token(&p[0])?, &p[1]),
        &[&[2, 1, 4], &[2, 4]],
    );
}

/// `x` is used twice below an operation whose backward pass, for one sample, is a view of a shared
/// gradient.
#[test]
fn a_gradient_held_by_another_value_is_never_written_to() {
    let gradient = |samples: usize| {
        let (parameters, ids) = parameters(&[&[4], &[samples, 3, 4], &[samples, 4, 4]]);
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let p: Vec<Value> = ids.iter().map(|&id| tape.parameter(id)).collect();
        let again = tape.prepend_token(&p[0], &tape.scale(&p[1], 2.0).unwrap());
        let y = tape.prepend_token(&p[0], &p[1]).unwrap();
        let y = tape.add(&tape.add(&p[2], &y).unwrap(), &again.unwrap());
        let root = scalar(&tape, &y.unwrap()).unwrap();
        let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
        to_f64(gradients[2].as_ref().unwrap()).unwrap()
    };
    let one = gradient(1);
    // Softmax minus target: each sample's gradient sums to zero unless something has written to
    // it.
    assert!(one.iter().sum::<f64>().abs() < 1e-12, "{one:?}");
}

/// A block of three operations after a norm, plain or checkpointed.
fn block(tape: &Tape, x: &Value, ids: &[ParameterId]) -> Result<Value> {
    let p: Vec<Value> = ids.iter().map(|&id| tape.parameter(id)).collect();
    let y = tape.layer_norm(x, &p[0], &p[1], 1e-5)?;
    let y = tape.gelu(&tape.linear(&y, &p[2], Some(&p[3]))?)?;
    tape.add(x, &tape.linear(&y, &p[4], None)?)
}

const BLOCK: [&[usize]; 6] = [&[8], &[8], &[32, 8], &[32], &[8, 32], &[5, 8]];

#[test]
fn a_checkpointed_block_gives_the_same_bits_and_saves_less() {
    for kernels in FORMS {
        let (parameters, ids) = parameters(&BLOCK);
        let run = |checkpointed: usize| {
            let tape = Tape::record(&parameters, Cancel::default(), kernels);
            let mut x = tape
                .linear(
                    &Value::constant(tensor("x", &[5, 3, 8])),
                    &tape.parameter(ids[5]),
                    None,
                )
                .and_then(|y| tape.linear(&y, &Value::constant(tensor("up", &[8, 5])), None))
                .unwrap();
            for i in 0..2 {
                let ids = ids.clone();
                x = if i < checkpointed {
                    tape.checkpoint(&x, move |t, x| block(t, x, &ids)).unwrap()
                } else {
                    block(&tape, &x, &ids).unwrap()
                };
            }
            let root = scalar(&tape, &x).unwrap();
            let saved = tape.saved_bytes();
            let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
            let gradients: Vec<Vec<f64>> = gradients
                .iter()
                .map(|g| to_f64(g.as_ref().unwrap()).unwrap())
                .collect();
            (saved, gradients)
        };
        let (plain_bytes, plain) = run(0);
        let (one_bytes, one) = run(1);
        let (both_bytes, both) = run(2);
        assert!(
            both_bytes < one_bytes && one_bytes < plain_bytes,
            "{both_bytes} {one_bytes} {plain_bytes}"
        );
        assert!(one == plain, "{kernels:?}: one block changed the bits");
        assert!(both == plain, "{kernels:?}: two blocks changed the bits");
    }
}

/// When the flag is raised within a checkpointed block, and by which run.
#[test]
fn a_cancelled_micro_batch_leaves_the_parameters_unchanged() {
    let (parameters, ids) = parameters(&BLOCK);
    let before: Vec<Vec<f64>> = parameters
        .iter()
        .map(|p| to_f64(&p.tensor).unwrap())
        .collect();
    // Run 0 is forward, run 1 is the second run within backward; the flag is raised before or
    // after the block's work.
    for (run, after) in [(0, false), (0, true), (1, false), (1, true), (9, false)] {
        let cancel = Cancel::default();
        let tape = Tape::record(&parameters, cancel.clone(), Kernels::Fused);
        let (calls, flag, inner) = (AtomicUsize::new(0), cancel.clone(), ids.clone());
        let x = tape.variable(tensor("x", &[2, 3, 8]));
        let ended = tape
            .checkpoint(&x, move |t, x| {
                let raise = calls.fetch_add(1, Ordering::Relaxed) == run;
                flag.fetch_or(raise && !after, Ordering::Relaxed);
                let y = block(t, x, &inner);
                flag.fetch_or(raise && after, Ordering::Relaxed);
                y
            })
            .and_then(|y| scalar(&tape, &y))
            .and_then(|root| tape.backward(vec![(root, 1.0)]));
        match run {
            9 => assert!(ended.is_ok()),
            _ => assert!(
                matches!(ended, Err(TapeError::Cancelled)),
                "run {run}, after {after}"
            ),
        }
        let now = parameters.iter().map(|p| to_f64(&p.tensor).unwrap());
        assert!(now.eq(before.iter().cloned()));
    }
}

#[test]
fn a_cancelled_backward_pass_frees_saved_tensors() {
    let (parameters, _) = parameters(&[&[8]]);
    let cancel = Cancel::default();
    let tape = Tape::record(&parameters, cancel.clone(), Kernels::Fused);
    let x = tape.variable(tensor("x", &[2, 8]));
    let held = Arc::new(Mutex::new(()));
    let witness = held.clone();
    let y = tape
        .checkpoint(&x, move |t, x| {
            let _kept = &witness;
            t.gelu(x)
        })
        .unwrap();
    let root = scalar(&tape, &y).unwrap();
    assert_eq!(Arc::strong_count(&held), 2);
    cancel.store(true, Ordering::Relaxed);
    assert!(tape.backward(vec![(root, 1.0)]).is_err());
    assert_eq!(Arc::strong_count(&held), 1);
}
