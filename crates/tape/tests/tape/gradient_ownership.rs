//! Operations whose backward pass passes a gradient on, whole or in parts, share it: nothing may
//! write to a gradient that another value holds, and gradients that leave the tape own their
//! memory.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::{add_assign, to_f64};
use tape::{Cancel, Kernels, Parameters, Result, Tape, Value};

type Operation = fn(&Tape, &Value) -> Result<Value>;

/// Each operation keeps the shape [3, 1, 4] and only moves values, so that its gradient may be a
/// view of the output's.
const MOVERS: [(&str, Operation); 6] = [
    ("permute", |t, x| {
        t.permute(&t.permute(x, &[1, 0, 2])?, &[1, 0, 2])
    }),
    ("narrow", |t, x| t.narrow(x, 1, 0..1)),
    ("concat_along", |t, x| t.concat_along(&[x], 1)),
    ("broadcast_add", |t, x| {
        t.broadcast_add(
            x,
            &Value::constant(Tensor::ones(4, DType::F64, &Device::Cpu)?),
        )
    }),
    ("broadcast_add as the second", |t, x| {
        t.broadcast_add(&Value::constant(x.tensor().zeros_like()?), x)
    }),
    ("select_rows", |t, x| t.select_rows(x, &[0, 1, 2])),
];

type Sum = fn(&Tape, Operation, [&Value; 2]) -> Result<Value>;

/// The gradients of `sum w y` by `a` and `b`, with `y` made of both.
fn gradients(sum: Sum, operation: Operation, kernels: Kernels) -> Vec<Tensor> {
    let mut parameters = Parameters::default();
    let ids = ["a", "b"].map(|name| {
        parameters
            .add(
                name.into(),
                vec![0.5; 12],
                &[3, 1, 4],
                DType::F64,
                &Device::Cpu,
            )
            .unwrap()
    });
    let weights: Vec<f64> = (1..=12).map(f64::from).collect();
    let weights = Tensor::from_vec(weights, (3, 1, 4), &Device::Cpu).unwrap();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let [a, b] = ids.map(|id| tape.parameter(id));
    let y = sum(&tape, operation, [&a, &b]).unwrap();
    let y = tape.mul(&y, &Value::constant(weights)).unwrap();
    let root = tape.total(&y).unwrap().sum;
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    gradients.into_iter().flatten().collect()
}

/// The first gradient of `a` is one that `b` also holds; then another is added to it.
#[test]
fn a_shared_gradient_is_never_written_to() {
    let sum: Sum = |t, operation, [a, b]| {
        let twice = operation(t, &t.scale(a, 2.0)?)?;
        let once = operation(t, a)?;
        t.add(&t.add(&twice, b)?, &once)
    };
    for (name, operation) in MOVERS {
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let found = gradients(sum, operation, kernels);
            for (gradient, times) in found.iter().zip([3.0, 1.0]) {
                let expected: Vec<f64> = (1..=12).map(|i| times * f64::from(i)).collect();
                assert_eq!(to_f64(gradient).unwrap(), expected, "{name} {kernels:?}");
            }
        }
    }
}

#[test]
fn returned_gradients_do_not_share_memory() {
    let sum: Sum = |t, operation, [a, b]| t.add(&operation(t, a)?, &operation(t, b)?);
    for (name, operation) in MOVERS {
        let mut found = gradients(sum, operation, Kernels::Fused);
        let before = to_f64(&found[1]).unwrap();
        let ones = found[0].ones_like().unwrap();
        add_assign(&mut found[0], &ones).unwrap();
        assert_eq!(to_f64(&found[1]).unwrap(), before, "{name}");
    }
}

/// A checkpointed block that works on some samples at a time writes its gradient over that of its
/// output, if it owns that.
#[test]
fn a_checkpointed_block_does_not_write_to_a_shared_gradient() {
    const SAMPLES: usize = 19;
    let mut parameters = Parameters::default();
    let ids = ["a", "b"].map(|name| {
        let ones = vec![1.0; SAMPLES];
        let added = parameters.add(name.into(), ones, &[SAMPLES, 1], DType::F64, &Device::Cpu);
        added.unwrap()
    });
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let [a, b] = ids.map(|id| tape.parameter(id));
    let doubled = tape.checkpoint_samples(&a, |tape, a, _| tape.scale(a, 2.0));
    let y = tape.add(&doubled.unwrap(), &b).unwrap();
    let root = tape.total(&y).unwrap().sum;
    let found = tape.backward(vec![(root, 1.0)]).unwrap();
    for (gradient, expected) in found.iter().flatten().zip([2.0, 1.0]) {
        assert_eq!(to_f64(gradient).unwrap(), vec![expected; SAMPLES]);
    }
}
