//! A run that follows the kinks of another one has the gradient of the same linear piece of the
//! network, and reports the values at which it would have diverged.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{
    Activation, Affine, Cancel, Kernels, KinkLog, ParameterId, Parameters, PoolShape, Result, Rng,
    Tape, TapeError, Value,
};

const SAMPLES: usize = 19;
const POOL: PoolShape = PoolShape {
    kernel: 3,
    stride: 2,
    padding: 1,
};

/// How the network saves the inputs of the backward pass: all of them, those of a few samples at a
/// time, or those of two nested blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Blocks {
    Kept,
    Parted,
    Nested,
}

const BLOCKS: [Blocks; 3] = [Blocks::Kept, Blocks::Parted, Blocks::Nested];

fn drawn(site: &str, count: usize) -> Vec<f64> {
    let stream = Rng::new(3).site(site);
    // Values that f32 holds exactly.
    let number = |i| f64::from(stream.normal(i) as f32);
    (0..count as u64).map(number).collect()
}

/// A ReLU in a norm, a max pooling, and a ReLU by itself.
fn block(tape: &Tape, x: &Value, ids: [ParameterId; 3]) -> Result<Value> {
    let [weight, bias, shift] = ids.map(|id| tape.parameter(id));
    let affine = Affine {
        weight: &weight,
        bias: &bias,
    };
    let y = tape.group_norm(x, 2, affine, 1e-5, Activation::Relu)?;
    let y = tape.max_pool(&y, POOL)?;
    tape.relu(&tape.add_repeated(&y, &shift)?)
}

/// The gradients of all parameters as one list, for the network with `moved` added to its norm's
/// bias.
fn run(
    dtype: DType,
    moved: f64,
    kernels: Kernels,
    blocks: Blocks,
    course: impl FnOnce(Tape) -> Tape,
) -> Result<Vec<f64>> {
    let mut parameters = Parameters::default();
    let mut add = |name: &str, shape: &[usize], shift: f64| {
        let values = drawn(name, shape.iter().product());
        let values = values.into_iter().map(|v| v + shift).collect();
        parameters.add(name.to_owned(), values, shape, dtype, &Device::Cpu)
    };
    let ids = [
        add("weight", &[4], 0.0)?,
        add("bias", &[4], moved)?,
        add("shift", &[4, 3, 4], -0.5)?,
    ];
    let tape = course(Tape::record(&parameters, Cancel::default(), kernels));
    let x = drawn("x", SAMPLES * 4 * 35);
    let x = Tensor::from_vec(x, (SAMPLES, 4, 5, 7), &Device::Cpu)?.to_dtype(dtype)?;
    let x = tape.relu(&tape.variable(x))?;
    let y = match blocks {
        Blocks::Kept => block(&tape, &x, ids)?,
        Blocks::Parted => tape.checkpoint_samples(&x, move |tape, x, _| block(tape, x, ids))?,
        Blocks::Nested => tape.checkpoint_samples(&x, move |tape, x, _| {
            tape.checkpoint(x, move |tape, x| block(tape, x, ids))
        })?,
    };
    let root = tape.total(&tape.gelu(&tape.relu(&y)?)?)?.sum;
    let gradients = tape.backward(vec![(root, 1.0)])?;
    let lists = gradients.into_iter().flatten().map(|g| to_f64(&g));
    Ok(lists.collect::<Result<Vec<_>>>()?.concat())
}

fn apart(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |v: f64| v * v;
    let differ: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    let length: f64 = expected.iter().map(|&b| square(b)).sum();
    (differ / length).sqrt()
}

#[test]
fn checkpointing_does_not_change_recorded_kinks() {
    let values = SAMPLES * 4 * (35 + 35 + 12 + 12 + 12);
    for kernels in [Kernels::Fused, Kernels::Composed] {
        for (recorded, followed) in BLOCKS.into_iter().flat_map(|a| BLOCKS.map(|b| (a, b))) {
            let branches = KinkLog::default();
            let found = run(DType::F32, 0.0, kernels, recorded, |tape| {
                tape.recording_kinks(&branches)
            });
            let followed = run(DType::F64, 0.0, Kernels::Fused, followed, |tape| {
                tape.following_kinks(&branches)
            });
            let apart = apart(&found.unwrap(), &followed.unwrap());
            let divergence = branches.divergence();
            assert_eq!(
                divergence.compared, values as u64,
                "{kernels:?} {recorded:?}"
            );
            assert!(
                apart < 1e-6 && divergence.farthest < 1e-6,
                "{apart} {divergence:?}"
            );
        }
    }
}

#[test]
fn following_its_own_kinks_changes_nothing() {
    let (kernels, blocks) = (Kernels::Fused, Blocks::Parted);
    let branches = KinkLog::default();
    let plain = run(DType::F64, 0.0, kernels, blocks, |tape| tape).unwrap();
    let recorded = run(DType::F64, 0.0, kernels, blocks, |tape| {
        tape.recording_kinks(&branches)
    });
    assert_eq!(recorded.unwrap(), plain, "recording changed the run");
    let followed = run(DType::F64, 0.0, kernels, blocks, |tape| {
        tape.following_kinks(&branches)
    })
    .unwrap();
    assert!(apart(&followed, &plain) < 1e-14);
    assert_eq!(branches.divergence().differing, 0);
}

#[test]
fn different_weights_diverge_far_from_kinks() {
    let (kernels, blocks) = (Kernels::Fused, Blocks::Kept);
    let branches = KinkLog::default();
    run(DType::F32, 0.5, kernels, blocks, |tape| {
        tape.recording_kinks(&branches)
    })
    .unwrap();
    run(DType::F64, 0.0, kernels, blocks, |tape| {
        tape.following_kinks(&branches)
    })
    .unwrap();
    let divergence = branches.divergence();
    assert!(
        divergence.differing > 100 && divergence.farthest > 0.1,
        "{divergence:?}"
    );
}

/// The gradients of four parameters of value 1 through a ReLU of `2^25 + b - 2^25`, which f32
/// cannot tell from 0, and through a max pooling over `2^25` and `2^25 + b`, which f32 cannot tell
/// apart.
fn at_kinks(dtype: DType, course: impl FnOnce(Tape) -> Tape) -> Result<Vec<f64>> {
    let shape = [1, 1, 2, 2];
    let mut parameters = Parameters::default();
    let b = parameters.add("b".to_owned(), vec![1.0; 4], &shape, dtype, &Device::Cpu)?;
    let tape = course(Tape::record(&parameters, Cancel::default(), Kernels::Fused));
    let large = 2f64.powi(25);
    let constant = |values: [f64; 4]| {
        let values = Tensor::new(&values, &Device::Cpu)?.reshape(&shape)?;
        Ok::<_, TapeError>(Value::constant(values.to_dtype(dtype)?))
    };
    let b = tape.parameter(b);
    let sum = tape.add(&constant([large; 4])?, &b)?;
    // The other three are far from the kink and set the scale.
    let difference = tape.add(&sum, &constant([-large, large, large, large])?)?;
    let rises = tape.relu(&difference)?;
    let second = tape.mul(&b, &constant([0.0, 1.0, 0.0, 0.0])?)?;
    let window = tape.add(&constant([large, large, 0.0, 0.0])?, &second)?;
    let whole = PoolShape {
        kernel: 2,
        stride: 2,
        padding: 0,
    };
    let largest = tape.max_pool(&window, whole)?;
    let roots = vec![
        (tape.total(&rises)?.sum, 1.0),
        (tape.total(&largest)?.sum, 3.0),
    ];
    let gradients = tape.backward(roots)?;
    to_f64(gradients[0].as_ref().expect("b took part"))
}

#[test]
fn following_kinks_gives_the_same_gradient_at_a_kink() {
    let branches = KinkLog::default();
    let found = at_kinks(DType::F32, |tape| tape.recording_kinks(&branches)).unwrap();
    let plain = at_kinks(DType::F64, |tape| tape).unwrap();
    let followed = at_kinks(DType::F64, |tape| tape.following_kinks(&branches)).unwrap();
    assert_eq!(plain, [1.0, 4.0, 1.0, 1.0]);
    assert_eq!(found, [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(followed, found);
    let divergence = branches.divergence();
    assert_eq!((divergence.compared, divergence.differing), (5, 2));
    // One, relative to the root mean square of 2^25, 2^25, 0 and 0.
    assert!(
        (divergence.farthest * 2f64.powi(25) - 2f64.sqrt()).abs() < 1e-6,
        "{divergence:?}"
    );
    assert_eq!(divergence.farthest_at, 1);
}

#[test]
fn following_another_network_is_refused() {
    let branches = KinkLog::default();
    at_kinks(DType::F32, |tape| tape.recording_kinks(&branches)).unwrap();
    let (kernels, blocks) = (Kernels::Fused, Blocks::Kept);
    let refused = run(DType::F64, 0.0, kernels, blocks, |tape| {
        tape.following_kinks(&branches)
    });
    assert!(
        matches!(refused, Err(TapeError::DifferentRun { at: 0 })),
        "{refused:?}"
    );
    let missing = at_kinks(DType::F64, |tape| tape.following_kinks(&KinkLog::default()));
    assert!(
        matches!(missing, Err(TapeError::DifferentRun { at: 0 })),
        "{missing:?}"
    );
}
