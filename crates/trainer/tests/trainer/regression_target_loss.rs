//! Regression targets besides classes or alone: missing targets never count, and no split changes
//! the training.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{self, distance, norm, plan, samples, splits, train_state, values, whole};
use candle_core::DType;
use dataset::{ImageSample, TargetColumn};
use models::Balance;
use tape::fault_injection::Injection;
use tape::inplace::to_f64;
use tape::{Cancel, Rng};
use trainer::internals::{ImageTask, MetricInputs, MicroBatchResult, Task, TrainState};
use trainer::{ModelId, OptimizerKind, Plan};

/// Samples of the effective batch. Not a power of two, so that most splits do not divide it.
const BATCH: usize = 11;
/// Regression targets per sample.
const TARGETS: usize = 4;

fn column(name: &str) -> TargetColumn {
    TargetColumn {
        name: name.to_owned(),
        mean: 100.0,
        deviation: 50.0,
        present: 60,
        range: (0.0, 300.0),
    }
}

fn regression_plan(dtype: DType, balance: Balance, classes: usize) -> Plan {
    let plan = plan(ModelId::CONV_NET, OptimizerKind::AdamW, dtype, 100);
    Plan {
        columns: (0..TARGETS)
            .map(|k| column(&format!("number {k}")))
            .collect(),
        balance,
        classes: plan.classes[..classes].to_vec(),
        label_smoothing: 0.0,
        ..plan
    }
}

/// Samples in which each target is missing in about a third, and target 3 in all but one; with the
/// factors of the loader.
fn masked(count: usize, seed: u64) -> Vec<ImageSample> {
    let mut all = samples(count, seed);
    let stream = Rng::new(seed).site("numbers");
    for (i, sample) in all.iter_mut().enumerate() {
        let draw = stream.at(i as u64);
        let number = |k: usize| match k {
            3 => (i == 2).then_some(1.5),
            _ => (draw.uniform(2 * k as u64) > 0.33)
                .then(|| (4.0 * draw.uniform(2 * k as u64 + 1) - 2.0) as f32),
        };
        sample.targets = (0..TARGETS).map(number).collect();
    }
    let present = |k: usize| all.iter().filter(|s| s.targets[k].is_some()).count();
    let factors: Vec<f64> = (0..TARGETS)
        .map(|k| count as f64 / present(k).max(1) as f64)
        .collect();
    all.iter_mut()
        .for_each(|sample| sample.factors.clone_from(&factors));
    all
}

/// Random head weights: the outputs must differ from the mean for a split to matter.
fn shaken(plan: &Plan) -> TrainState {
    let mut train_state = train_state(plan);
    for index in 0..train_state.parameters.len() {
        let parameter = train_state.parameters.at(index);
        if parameter.name.starts_with("head") || parameter.name.starts_with("balance") {
            let stream = Rng::new(3).site(&parameter.name);
            let shake = stream.truncated_normal(parameter.tensor.elem_count(), 0.3);
            let shape = parameter.tensor.shape().clone();
            let dtype = parameter.tensor.dtype();
            let shaken =
                candle_core::Tensor::from_vec(shake, shape, &candle_core::Device::Cpu).unwrap();
            train_state
                .parameters
                .set(index, shaken.to_dtype(dtype).unwrap())
                .unwrap();
        }
    }
    train_state
}

#[test]
fn no_split_changes_gradients_of_targets_with_gaps() {
    for balance in [Balance::Fixed(1.0), Balance::Uncertainty] {
        for classes in [0, support::CLASSES] {
            for (dtype, limit) in [(DType::F64, 1e-13), (DType::F32, 2e-5)] {
                let train_state = shaken(&regression_plan(dtype, balance, classes));
                let task = train_state.forward_context(Cancel::default());
                let samples = masked(BATCH, 2);
                let expected = whole(&task, &samples, &[BATCH]);
                let mut worst = (0.0, String::new());
                for split in splits(BATCH, 5, 8) {
                    let batch = whole(&task, &samples, &split);
                    assert!(
                        (batch.loss - expected.loss).abs() / expected.loss.abs() <= limit,
                        "{split:?}"
                    );
                    for (i, (a, b)) in batch.gradients.iter().zip(&expected.gradients).enumerate() {
                        let (a, b) = (to_f64(a).unwrap(), to_f64(b).unwrap());
                        let error = distance(&a, &b) / norm(&b);
                        if error.is_nan() || error > worst.0 {
                            worst = (
                                error,
                                format!("{} in {split:?}", train_state.parameters.at(i).name),
                            );
                        }
                    }
                }
                println!(
                    "{balance:?}, {classes} classes, {dtype:?}: gradients differ by {:.1e} ({})",
                    worst.0, worst.1
                );
                assert!(
                    worst.0 <= limit,
                    "{balance:?}, {classes} classes, {dtype:?}: {worst:?}"
                );
            }
        }
    }
}

#[test]
fn the_loss_sums_the_class_loss_and_the_mean_over_targets() {
    let plan = regression_plan(DType::F64, Balance::Fixed(0.5), support::CLASSES);
    let train_state = shaken(&plan);
    let samples = masked(BATCH, 4);
    let trained = whole(
        &train_state.forward_context(Cancel::default()),
        &samples,
        &[4, 7],
    );
    let found = train_state
        .forward_context(Cancel::default())
        .evaluate(&samples)
        .unwrap();
    let inputs = MetricInputs {
        held_out_bytes: 0,
        heads: plan.heads(),
        columns: &plan.columns,
    };
    let metrics = ImageTask::metrics(&found, &inputs);
    assert!(
        (trained.loss - metrics.loss).abs() < 1e-12,
        "{} and {}",
        trained.loss,
        metrics.loss
    );
    let present = samples.iter().filter(|s| s.targets[0].is_some()).count();
    assert_eq!(found.targets[0].absolute.len(), present);
    assert_eq!(found.targets[3].absolute.len(), 1);
    assert!(metrics.get("mae.number 0").is_some_and(|error| error > 0.0));
}

#[test]
fn a_missing_target_is_never_read() {
    let train_state = shaken(&regression_plan(DType::F64, Balance::Fixed(1.0), 0));
    let mut nothing = masked(3, 1);
    for sample in &mut nothing {
        sample.targets = vec![None; TARGETS];
    }
    let result: MicroBatchResult = train_state.gradients(Cancel::default(), &nothing).unwrap();
    assert_eq!(result.loss, 0.0);
    for gradient in &result.gradients {
        assert_eq!(norm(&to_f64(gradient).unwrap()), 0.0);
    }
}

/// The gradient of each log variance equals a finite difference of the loss.
#[test]
fn learned_loss_weights_get_the_gradient_of_the_loss() {
    let mut train_state = shaken(&regression_plan(
        DType::F64,
        Balance::Uncertainty,
        support::CLASSES,
    ));
    let samples = masked(BATCH, 6);
    let place = train_state
        .parameters
        .iter()
        .position(|p| p.name == "balance.log_variances")
        .unwrap();
    let batch = whole(
        &train_state.forward_context(Cancel::default()),
        &samples,
        &[BATCH],
    );
    let gradient = to_f64(&batch.gradients[place]).unwrap();
    let at = values(&train_state.parameters)[place].clone();
    assert_eq!(gradient.len(), TARGETS + 1);
    let step = 1e-5;
    for (i, &expected) in gradient.iter().enumerate() {
        let mut loss_at = |shift: f64| {
            let mut moved = at.clone();
            moved[i] += shift;
            let moved = candle_core::Tensor::new(moved, &candle_core::Device::Cpu).unwrap();
            train_state.parameters.set(place, moved).unwrap();
            whole(
                &train_state.forward_context(Cancel::default()),
                &samples,
                &[BATCH],
            )
            .loss
                * BATCH as f64
        };
        let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        assert!(
            (slope - expected).abs() < 1e-6 * (1.0 + expected.abs()),
            "{i}: {slope} and {expected}"
        );
    }
}

/// Metal has no f64: the weights of the losses and their gradient, which the host computes in f64,
/// must not be converted on the device.
#[test]
fn learned_loss_weights_are_trained_on_a_device_without_f64() {
    let plan = regression_plan(DType::F32, Balance::Uncertainty, support::CLASSES);
    let samples = masked(BATCH, 2);
    let trained = || {
        let mut train_state = shaken(&plan);
        for step in 0..2 {
            let task = train_state.forward_context(Cancel::default());
            let batch = whole(&task, &samples, &[4, 7]);
            train_state.update(&batch, step).unwrap();
        }
        values(&train_state.parameters)
    };
    let expected = trained();
    let injection = Injection::install(Vec::new(), 7);
    injection.remove_f64();
    assert_eq!(trained(), expected);
}

#[test]
fn a_visible_target_is_learned_although_some_are_missing() {
    let plan = Plan {
        learning_rate: 3e-3,
        ..regression_plan(DType::F32, Balance::Uncertainty, 0)
    };
    let mut train_state = train_state(&plan);
    let mut all = samples(48, 9);
    for (i, sample) in all.iter_mut().enumerate() {
        // The brightness of the class determines the target; some are missing.
        let truth = f32::from(sample.label as u8) - 2.0;
        let there = |k: usize| !(i + k).is_multiple_of(5);
        sample.targets = (0..TARGETS).map(|k| there(k).then_some(truth)).collect();
    }
    let mean = |train_state: &TrainState| {
        let found = train_state
            .forward_context(Cancel::default())
            .evaluate(&all)
            .unwrap();
        found.targets.iter().map(|n| n.mean_absolute()).sum::<f64>() / TARGETS as f64
    };
    let before = mean(&train_state);
    for step in 0..100 {
        let at = (step as usize * 12) % 48;
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &all[at..at + 12],
            &[5, 7],
        );
        train_state.update(&batch, step).unwrap();
    }
    let after = mean(&train_state);
    assert!(after < 0.5 * before, "{before} before, {after} after");
}
