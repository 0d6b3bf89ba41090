//! Operations whose backward hands a gradient on, whole or in parts, lend it: nobody may write into what another holds, and
//! what leaves the tape owns its memory.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::{add_assign, to_f64};
use tape::{Cancel, Kernels, Parameters, Result, Tape, Value};

type Operation = fn(&Tape, &Value) -> Result<Value>;

/// Each keeps the shape [3, 1, 4] and only moves numbers, so that its gradient may be a view of the one that came.
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

/// Gradients of `sum w (op(a) + b + op(2 a))` by `a` and `b`: every number of `w`, three and one times.
fn gradients(operation: Operation, kernels: Kernels) -> Vec<Tensor> {
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
    let first = operation(&tape, &a).unwrap();
    let second = operation(&tape, &tape.scale(&a, 2.0).unwrap()).unwrap();
    let y = tape.add(&tape.add(&first, &b).unwrap(), &second).unwrap();
    let y = tape.mul(&y, &Value::constant(weights)).unwrap();
    let root = tape.total(&y).unwrap().sum;
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    gradients.into_iter().flatten().collect()
}

#[test]
fn a_lent_gradient_is_never_written_to() {
    for (name, operation) in MOVERS {
        for kernels in [Kernels::Fused, Kernels::Composed] {
            for (gradient, times) in gradients(operation, kernels).iter().zip([3.0, 1.0]) {
                let expected: Vec<f64> = (1..=12).map(|i| times * f64::from(i)).collect();
                assert_eq!(to_f64(gradient).unwrap(), expected, "{name} {kernels:?}");
            }
        }
    }
}

#[test]
fn no_two_gradients_that_leave_the_tape_share_memory() {
    for (name, operation) in MOVERS {
        let mut gradients = gradients(operation, Kernels::Fused);
        let before = to_f64(&gradients[1]).unwrap();
        let ones = gradients[0].ones_like().unwrap();
        add_assign(&mut gradients[0], &ones).unwrap();
        assert_eq!(to_f64(&gradients[1]).unwrap(), before, "{name}");
    }
}
