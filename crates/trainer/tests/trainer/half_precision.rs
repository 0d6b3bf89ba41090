//! Half precision: bf16 and f16 learn as f32 does, on weights that stay f32. An overflow costs one
//! step and halves the loss scale.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{distance, norm, plan, samples, splits, train_state, values, whole};
use candle_core::{DType, Tensor};
use tape::Cancel;
use tape::inplace::to_f64;
use trainer::internals::LossScale;
use trainer::internals::TrainState;
use trainer::{ModelId, OptimizerKind, Plan, TrainError};

const HALVES: [DType; 2] = [DType::BF16, DType::F16];
const ADAMW: OptimizerKind = OptimizerKind::AdamW;

/// Distance from 1 to the next number.
fn spacing(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-7),
        _ => 2f64.powi(-10),
    }
}

/// A train state with a loss scale that has settled, if it has one. In f16, the first steps only
/// lower the scale.
fn settled(plan: &Plan) -> TrainState {
    let mut train_state = train_state(plan);
    let lower = |scale| (0..6).fold(scale, |scale: LossScale, _| scale.after_overflow());
    train_state
        .restored(train_state.loss_scale().map(lower), train_state.skipped())
        .unwrap();
    train_state
}

/// The losses of 30 steps over the same 36 samples.
fn losses(kind: ModelId, dtype: DType) -> Vec<f64> {
    let mut train_state = settled(&plan(kind, ADAMW, dtype, 30));
    let samples = samples(36, 3);
    (0..30)
        .map(|step| {
            let first = step as usize * 6 % 36;
            let batch = &samples[first..first + 6];
            let batch = whole(
                &train_state.forward_context(Cancel::default()),
                batch,
                &[4, 2],
            );
            let update = train_state.update(&batch, step).unwrap();
            assert_eq!(update.skipped, None, "{dtype:?} step {step}");
            batch.loss
        })
        .collect()
}

#[test]
fn both_halves_learn_as_f32_does() {
    for kind in ModelId::SMALL {
        let single = losses(kind, DType::F32);
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        for dtype in HALVES {
            let half = losses(kind, dtype);
            let apart = half.iter().zip(&single).map(|(a, b)| (a - b).abs());
            let apart = apart.fold(0.0, f64::max);
            let (begin, end) = (mean(&half[..6]), mean(&half[24..]));
            println!(
                "{} {dtype:?}: {begin:.3} to {end:.3}, {apart:.1e} from f32",
                kind.name()
            );
            assert!(
                end < 0.9 * begin,
                "{} {dtype:?}: {begin} to {end}",
                kind.name()
            );
            assert!(
                apart <= 4.0 * spacing(dtype),
                "{} {dtype:?}: {apart:e}",
                kind.name()
            );
        }
    }
}

#[test]
fn a_split_changes_a_half_by_no_more_than_its_rounding() {
    for kind in ModelId::SMALL {
        for dtype in HALVES {
            let train_state = settled(&plan(kind, ADAMW, dtype, 10));
            let (task, samples) = (
                train_state.forward_context(Cancel::default()),
                samples(11, 2),
            );
            let unsplit = whole(&task, &samples, &[11]);
            let (mut gradients, mut losses) = ((0.0, String::new()), 0.0f64);
            for split in splits(11, 5, 3) {
                let batch = whole(&task, &samples, &split);
                losses = losses.max((batch.loss - unsplit.loss).abs() / unsplit.loss);
                let pairs = batch.gradients.iter().zip(&unsplit.gradients);
                for ((a, b), parameter) in pairs.zip(train_state.parameters.iter()) {
                    assert_eq!(a.dtype(), DType::F32);
                    let (a, b) = (to_f64(a).unwrap(), to_f64(b).unwrap());
                    let error = distance(&a, &b) / norm(&b);
                    if error.is_nan() || error > gradients.0 {
                        gradients = (error, format!("{} in {split:?}", parameter.name));
                    }
                }
            }
            println!(
                "{} {dtype:?}: gradients differ by {gradients:?}, losses by {losses:.1e}",
                kind.name()
            );
            assert!(
                gradients.0 <= 2.0 * spacing(dtype),
                "{} {dtype:?}: {gradients:?}",
                kind.name()
            );
            assert!(
                losses <= 0.01 * spacing(dtype),
                "{} {dtype:?}: {losses:e}",
                kind.name()
            );
        }
    }
}

#[test]
fn weights_stay_f32_and_their_rounded_copy_follows_every_step() {
    for dtype in HALVES {
        let mut plan = plan(ModelId::VIT_MICRO, ADAMW, dtype, 10);
        plan.learning_rate = 1e-6;
        let mut train_state = train_state(&plan);
        let matrices: usize = train_state
            .parameters
            .iter()
            .filter(|p| p.decays)
            .map(|p| p.tensor.elem_count())
            .sum();
        let others = 2 * train_state.parameters.bytes() + train_state.optimizer.bytes();
        assert_eq!(train_state.state_bytes(), others + 2 * matrices as u64);
        assert_eq!(train_state.element_bytes(), 2);
        let computed = |l: &TrainState| values(l.forward_context(Cancel::default()).parameters);
        let (before, computed_before) = (
            values(&train_state.parameters).concat(),
            computed(&train_state).concat(),
        );
        for step in 0..3 {
            let batch = whole(
                &train_state.forward_context(Cancel::default()),
                &samples(4, step),
                &[4],
            );
            train_state.update(&batch, step).unwrap();
            let expected = train_state.parameters.rounded(dtype).unwrap();
            assert!(computed(&train_state) == values(&expected));
        }
        let moments = train_state
            .optimizer
            .named(&train_state.parameters)
            .unwrap();
        let mut tensors = train_state
            .parameters
            .iter()
            .map(|p| &p.tensor)
            .chain(moments.values());
        assert!(tensors.all(|t| t.dtype() == DType::F32));
        // The f32 weights add up steps that are too small for the half precision.
        let moved = |a: &[f64], b: &[f64]| a.iter().zip(b).filter(|(a, b)| a != b).count();
        let all = moved(&values(&train_state.parameters).concat(), &before);
        let seen = moved(&computed(&train_state).concat(), &computed_before);
        assert!(all > before.len() / 2 && seen < all / 2, "{seen} of {all}");
    }
}

/// Gradients of a mean over a very large batch are below the smallest number of f16.
#[test]
fn small_gradients_survive_f16_by_its_scale_alone() {
    let train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F16, 10));
    let lost = |loss_factor: f64| {
        let mut task = train_state.forward_context(Cancel::default());
        task.loss_factor = loss_factor;
        let gradients = whole(&task, &samples(2, 4), &[2]).gradients;
        let zeros = |t: &Tensor| to_f64(t).unwrap().iter().filter(|v| **v == 0.0).count();
        gradients.iter().map(zeros).sum::<usize>() as f64 / train_state.parameters.count() as f64
    };
    let (scaled, plain) = (
        lost(train_state.forward_context(Cancel::default()).loss_factor),
        lost(2f64.powi(-22)),
    );
    println!("zeros: {scaled:.3} scaled, {plain:.3} as they are");
    assert!(scaled < 0.05 && plain > 0.5, "{scaled} {plain}");
}

fn scale(train_state: &TrainState) -> f64 {
    train_state.loss_scale().unwrap().value()
}

#[test]
fn an_overflow_in_f16_only_halves_the_scale_down_to_its_floor() {
    let mut train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F16, 10));
    let good = whole(
        &train_state.forward_context(Cancel::default()),
        &samples(2, 8),
        &[2],
    );
    train_state.update(&good, 0).unwrap();
    let before = values(&train_state.parameters);
    let planted = |train_state: &TrainState| {
        let mut batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples(2, 8),
            &[2],
        );
        batch.gradients[2] = (&batch.gradients[2] * f64::INFINITY).unwrap();
        batch
    };
    let name = train_state.parameters.at(2).name.clone();
    for halvings in 0..16 {
        let update = train_state.update(&planted(&train_state), 3).unwrap();
        let skipped = update.skipped.unwrap();
        assert!(skipped.item.contains(&name));
        assert_eq!(skipped.overflowed_at, Some(65_536.0 / 2f64.powi(halvings)));
        assert_eq!(scale(&train_state), 32_768.0 / 2f64.powi(halvings));
        assert!(values(&train_state.parameters) == before);
    }
    for times in 1..=5 {
        match train_state.update(&planted(&train_state), 3) {
            Ok(update) => {
                let skipped = update.skipped.unwrap();
                assert_eq!((times < 5, skipped.overflowed_at), (true, None));
            }
            Err(TrainError::Diverged {
                times: reported, ..
            }) => assert_eq!((times, reported), (5, 5)),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(scale(&train_state), 1.0);
        assert!(values(&train_state.parameters) == before);
    }
}

#[test]
fn a_loss_that_is_not_finite_is_not_blamed_on_the_scale() {
    let mut train_state = train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F16, 10));
    let mut batch = whole(
        &train_state.forward_context(Cancel::default()),
        &samples(2, 8),
        &[2],
    );
    batch.loss = f64::NAN;
    for _ in 0..4 {
        let update = train_state.update(&batch, 3).unwrap();
        assert_eq!(update.skipped.unwrap().overflowed_at, None);
    }
    let error = train_state.update(&batch, 3).err().unwrap();
    assert_eq!(error.code(), "diverged");
    assert_eq!(scale(&train_state), 65_536.0);
}

/// The gradients carry the scale; the norm that is reported and the step that is made do not.
#[test]
fn the_scale_changes_neither_the_norm_nor_the_step() {
    let trained = |scaled: bool| {
        let mut train_state = train_state(&plan(
            ModelId::VIT_MICRO,
            OptimizerKind::Sgd,
            DType::F16,
            10,
        ));
        if scaled {
            let other = (0..4).fold(LossScale::START, |scale, _| scale.after_overflow());
            train_state
                .restored(Some(other), train_state.skipped())
                .unwrap();
        }
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples(4, 8),
            &[4],
        );
        let update = train_state.update(&batch, 0).unwrap();
        (
            update.gradient_norm,
            values(&train_state.parameters).concat(),
        )
    };
    let ((norm_1, weights_1), (norm_2, weights_2)) = (trained(false), trained(true));
    assert!((norm_1 / norm_2 - 1.0).abs() < 1e-3, "{norm_1} {norm_2}");
    let start =
        values(&train_state(&plan(ModelId::VIT_MICRO, ADAMW, DType::F16, 10)).parameters).concat();
    let way = distance(&weights_1, &start);
    assert!(distance(&weights_1, &weights_2) <= 2e-3 * way);
}
