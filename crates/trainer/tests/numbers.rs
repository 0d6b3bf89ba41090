//! Numbers learnt beside classes, or alone: missing ones never count, and no split changes what is learnt.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use candle_core::DType;
use dataset::{Sample, TargetColumn};
use support::{distance, learner, norm, plan, samples, splits, values, whole};
use tape::inplace::to_f64;
use tape::{Cancel, Rng};
use trainer::rooms::{Learner, Work};
use trainer::{Balance, Metrics, ModelKind, OptimizerKind, Plan};

/// Samples of the effective batch: no power of two, so that most splits do not divide it.
const BATCH: usize = 11;
/// Numbers of a sample.
const NUMBERS: usize = 4;

fn column(name: &str) -> TargetColumn {
    TargetColumn {
        name: name.to_owned(),
        mean: 100.0,
        deviation: 50.0,
        present: 60,
        range: (0.0, 300.0),
    }
}

fn of_numbers(dtype: DType, balance: Balance, classes: usize) -> Plan {
    let plan = plan(ModelKind::ConvNet, OptimizerKind::AdamW, dtype, 100);
    Plan {
        columns: (0..NUMBERS)
            .map(|k| column(&format!("number {k}")))
            .collect(),
        balance,
        classes: plan.classes[..classes].to_vec(),
        label_smoothing: 0.0,
        ..plan
    }
}

/// Samples of which each number is missing in about a third, and number 3 in all but one; with what the feed adds.
fn masked(count: usize, seed: u64) -> Vec<Sample> {
    let mut all = samples(count, seed);
    let stream = Rng::new(seed).site("numbers");
    for (i, sample) in all.iter_mut().enumerate() {
        let draw = stream.at(i as u64);
        let number = |k: usize| match k {
            3 => (i == 2).then_some(1.5),
            _ => (draw.uniform(2 * k as u64) > 0.33)
                .then(|| (4.0 * draw.uniform(2 * k as u64 + 1) - 2.0) as f32),
        };
        sample.targets = (0..NUMBERS).map(number).collect();
    }
    let present = |k: usize| all.iter().filter(|s| s.targets[k].is_some()).count();
    let factors: Vec<f64> = (0..NUMBERS)
        .map(|k| count as f64 / present(k).max(1) as f64)
        .collect();
    all.iter_mut()
        .for_each(|sample| sample.factors.clone_from(&factors));
    all
}

/// The head's outputs must differ from the mean for a split to matter.
fn shaken(plan: &Plan) -> Learner {
    let mut learner = learner(plan);
    for index in 0..learner.parameters.len() {
        let parameter = learner.parameters.at(index);
        if parameter.name.starts_with("head") || parameter.name.starts_with("balance") {
            let stream = Rng::new(3).site(&parameter.name);
            let shake = stream.truncated_normal(parameter.tensor.elem_count(), 0.3);
            let shape = parameter.tensor.shape().clone();
            let dtype = parameter.tensor.dtype();
            let shaken =
                candle_core::Tensor::from_vec(shake, shape, &candle_core::Device::Cpu).unwrap();
            learner
                .parameters
                .set(index, shaken.to_dtype(dtype).unwrap())
                .unwrap();
        }
    }
    learner
}

#[test]
fn a_split_never_changes_what_is_learnt_of_numbers_with_gaps() {
    for balance in [Balance::Fixed(1.0), Balance::Uncertainty] {
        for classes in [0, support::CLASSES] {
            for (dtype, limit) in [(DType::F64, 1e-13), (DType::F32, 2e-5)] {
                let learner = shaken(&of_numbers(dtype, balance, classes));
                let task = learner.task(Cancel::default());
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
                                format!("{} in {split:?}", learner.parameters.at(i).name),
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
fn the_loss_is_the_class_loss_and_the_mean_over_the_numbers_that_are_there() {
    let plan = of_numbers(DType::F64, Balance::Fixed(0.5), support::CLASSES);
    let learner = shaken(&plan);
    let samples = masked(BATCH, 4);
    let trained = whole(&learner.task(Cancel::default()), &samples, &[4, 7]);
    let found = learner.task(Cancel::default()).evaluate(&samples).unwrap();
    let task = dataset::Task::ImageClassification;
    let metrics = Metrics::of(&found, task, 0, (plan.heads(), &plan.columns));
    assert!(
        (trained.loss - metrics.loss).abs() < 1e-12,
        "{} and {}",
        trained.loss,
        metrics.loss
    );
    let present = samples.iter().filter(|s| s.targets[0].is_some()).count();
    assert_eq!(found.numbers[0].absolute.len(), present);
    assert_eq!(found.numbers[3].absolute.len(), 1);
    assert!(metrics.get("mae.number 0").is_some_and(|error| error > 0.0));
}

#[test]
fn what_stands_in_the_place_of_a_missing_number_is_never_read() {
    let learner = shaken(&of_numbers(DType::F64, Balance::Fixed(1.0), 0));
    let mut nothing = masked(3, 1);
    for sample in &mut nothing {
        sample.targets = vec![None; NUMBERS];
    }
    let piece = learner.gradients_of(&nothing);
    assert_eq!(piece.loss, 0.0);
    for gradient in &piece.gradients {
        assert_eq!(norm(&to_f64(gradient).unwrap()), 0.0);
    }
}

/// The gradient of each log variance, against the loss a little to either side.
#[test]
fn learnt_weights_of_the_losses_get_the_gradient_of_the_loss() {
    let mut learner = shaken(&of_numbers(
        DType::F64,
        Balance::Uncertainty,
        support::CLASSES,
    ));
    let samples = masked(BATCH, 6);
    let place = learner
        .parameters
        .iter()
        .position(|p| p.name == "balance.log_variances")
        .unwrap();
    let batch = whole(&learner.task(Cancel::default()), &samples, &[BATCH]);
    let gradient = to_f64(&batch.gradients[place]).unwrap();
    let at = values(&learner.parameters)[place].clone();
    assert_eq!(gradient.len(), NUMBERS + 1);
    let step = 1e-5;
    for (i, &expected) in gradient.iter().enumerate() {
        let mut loss_at = |shift: f64| {
            let mut moved = at.clone();
            moved[i] += shift;
            let moved = candle_core::Tensor::new(moved, &candle_core::Device::Cpu).unwrap();
            learner.parameters.set(place, moved).unwrap();
            whole(&learner.task(Cancel::default()), &samples, &[BATCH]).loss * BATCH as f64
        };
        let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        assert!(
            (slope - expected).abs() < 1e-6 * (1.0 + expected.abs()),
            "{i}: {slope} and {expected}"
        );
    }
}

/// What a piece of these samples gives.
trait OfSamples {
    fn gradients_of(&self, samples: &[Sample]) -> trainer::rooms::TrainedPiece;
}

impl OfSamples for Learner {
    fn gradients_of(&self, samples: &[Sample]) -> trainer::rooms::TrainedPiece {
        let work: Work = self.work(Cancel::default());
        work.of_images().gradients(samples).unwrap()
    }
}

#[test]
fn a_number_that_the_image_tells_is_learnt_and_missing_ones_do_not_mislead() {
    let plan = Plan {
        learning_rate: 3e-3,
        ..of_numbers(DType::F32, Balance::Uncertainty, 0)
    };
    let mut learner = learner(&plan);
    let mut all = samples(48, 9);
    for (i, sample) in all.iter_mut().enumerate() {
        // The shade of the class tells the number; some are missing.
        let truth = f32::from(sample.label as u8) - 2.0;
        let there = |k: usize| !(i + k).is_multiple_of(5);
        sample.targets = (0..NUMBERS).map(|k| there(k).then_some(truth)).collect();
    }
    let mean = |learner: &Learner| {
        let found = learner.task(Cancel::default()).evaluate(&all).unwrap();
        found.numbers.iter().map(|n| n.mean_absolute()).sum::<f64>() / NUMBERS as f64
    };
    let before = mean(&learner);
    for step in 0..100 {
        let at = (step as usize * 12) % 48;
        let batch = whole(&learner.task(Cancel::default()), &all[at..at + 12], &[5, 7]);
        learner.update(&batch, step).unwrap();
    }
    let after = mean(&learner);
    assert!(after < 0.5 * before, "{before} before, {after} after");
}
