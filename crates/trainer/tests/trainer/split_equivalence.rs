//! Split equivalence: the split into micro-batches never changes the training. Compares gradients,
//! weights after many steps, and the bits of repeated runs. `EBB_SPLIT_STEPS` sets the number of
//! steps.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{
    build, distance, norm, plan, random_split, samples, splits, task, train_state, values, whole,
};
use candle_core::DType;
use dataset::ImageSample;
use tape::inplace::to_f64;
use tape::{Cancel, Rng};
use trainer::internals::TrainState;
use trainer::{ModelId, OptimizerKind};

/// Samples of the effective batch. Not a power of two, so that most splits do not divide it.
const BATCH: usize = 11;

#[test]
fn every_parameter_of_every_model_gets_a_gradient() {
    for kind in ModelId::SMALL {
        for dtype in [DType::F32, DType::F64] {
            let model = build(kind, dtype);
            let result = task(&model, dtype, Cancel::default()).gradients(&samples(3, 1));
            let gradients = result.unwrap().gradients;
            assert_eq!(gradients.len(), model.1.len());
            for (gradient, parameter) in gradients.iter().zip(model.1.iter()) {
                let name = format!("{} of {} in {dtype:?}", parameter.name, kind.name());
                assert_eq!(gradient.shape(), parameter.tensor.shape(), "{name}");
                let gradient = to_f64(gradient).unwrap();
                assert!(gradient.iter().all(|v| v.is_finite()), "{name}");
                assert!(norm(&gradient) > 0.0, "{name}: all zero");
            }
        }
    }
}

#[test]
fn no_split_changes_the_gradient() {
    for kind in ModelId::SMALL {
        for (dtype, limit) in [(DType::F64, 1e-13), (DType::F32, 1e-5)] {
            let model = build(kind, dtype);
            let task = task(&model, dtype, Cancel::default());
            let samples = samples(BATCH, 2);
            let expected = whole(&task, &samples, &[BATCH]);
            let (mut worst, mut losses) = ((0.0, String::new()), 0.0f64);
            for split in splits(BATCH, 5, 8) {
                let batch = whole(&task, &samples, &split);
                assert_eq!(batch.weight, BATCH as f64);
                let sizes: Vec<usize> = batch.micro_batches.iter().map(|&n| n as usize).collect();
                assert_eq!(sizes, split);
                losses = losses.max((batch.loss - expected.loss).abs() / expected.loss);
                for (i, (a, b)) in batch.gradients.iter().zip(&expected.gradients).enumerate() {
                    let (a, b) = (to_f64(a).unwrap(), to_f64(b).unwrap());
                    let error = distance(&a, &b) / norm(&b);
                    if error.is_nan() || error > worst.0 {
                        worst = (error, format!("{} in {split:?}", model.1.at(i).name));
                    }
                }
            }
            println!(
                "{} {dtype:?}: gradients differ by {:.1e} ({}), losses by {losses:.1e}",
                kind.name(),
                worst.0,
                worst.1
            );
            assert!(worst.0 <= limit, "{} {dtype:?}: {worst:?}", kind.name());
            assert!(losses <= limit, "{} {dtype:?}: {losses:e}", kind.name());
        }
    }
}

/// Steps in `make test`.
const STEPS: u64 = 100;
const PER_STEP: usize = 6;
/// Number of samples: ten batches per epoch.
const SAMPLES: usize = 60;

fn step_count() -> u64 {
    let steps = std::env::var("EBB_SPLIT_STEPS").ok();
    steps.map_or(STEPS, |steps| steps.parse().expect("a number"))
}

/// Trains some steps of AdamW; `split` returns the micro-batch sizes of each step.
fn trained(kind: ModelId, dtype: DType, split: impl Fn(u64) -> Vec<usize>) -> TrainState {
    let steps = step_count();
    let mut train_state = train_state(&plan(kind, OptimizerKind::AdamW, dtype, steps));
    let samples = samples(SAMPLES, 3);
    for step in 0..steps {
        let first = step as usize * PER_STEP % SAMPLES;
        let batch: &[ImageSample] = &samples[first..first + PER_STEP];
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            batch,
            &split(step),
        );
        assert_eq!(train_state.update(&batch, step).unwrap().skipped, None);
    }
    train_state
}

fn check_drift(kind: ModelId, dtype: DType, limit: f64) {
    let start = values(&build(kind, dtype).1).concat();
    let unsplit = values(&trained(kind, dtype, |_| vec![PER_STEP]).parameters).concat();
    let random = |step| random_split(PER_STEP, Rng::new(9).at(step));
    let split = values(&trained(kind, dtype, random).parameters).concat();
    let way = distance(&unsplit, &start);
    let drift = distance(&split, &unsplit) / way;
    println!(
        "{} {dtype:?}: {drift:.1e} of a distance of {way:.2}",
        kind.name()
    );
    assert!(way > 1.0, "nothing was learned: {way}");
    assert!(drift <= limit, "{} {dtype:?}: {drift:e}", kind.name());
}

#[test]
fn split_and_unsplit_convnet_agree_after_many_steps() {
    check_drift(ModelId::CONV_NET, DType::F64, 1e-9);
    check_drift(ModelId::CONV_NET, DType::F32, 5e-4);
}

#[test]
fn split_and_unsplit_vit_agree_after_many_steps() {
    check_drift(ModelId::VIT_MICRO, DType::F64, 1e-9);
    check_drift(ModelId::VIT_MICRO, DType::F32, 5e-4);
}

fn bits(kind: ModelId, optimizer: OptimizerKind, threads: usize) -> (Vec<u64>, Vec<u64>) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap().install(|| {
        let mut train_state = train_state(&plan(kind, optimizer, DType::F32, 5));
        let (samples, mut losses) = (samples(BATCH, 4), Vec::new());
        for step in 0..5 {
            let task = train_state.forward_context(Cancel::default());
            let split = random_split(BATCH, Rng::new(6).at(step));
            let batch = whole(&task, &samples, &split);
            losses.push(batch.loss.to_bits());
            train_state.update(&batch, step).unwrap();
        }
        let weights = values(&train_state.parameters).concat();
        (weights.into_iter().map(f64::to_bits).collect(), losses)
    })
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for kind in ModelId::SMALL {
        for &optimizer in OptimizerKind::ALL {
            let once = bits(kind, optimizer, 2);
            for threads in [2, 1, 3] {
                let again = bits(kind, optimizer, threads);
                let name = format!("{} {} {threads}", kind.name(), optimizer.name());
                assert_eq!(once.1, again.1, "{name} threads: losses");
                assert!(once.0 == again.0, "{name} threads: weights");
            }
        }
    }
}
