//! The optimizer's state: 8-bit moments train as well as f32 ones, norms and biases do not decay,
//! the moving average of the weights is evaluated, and skipped steps are not counted.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{self, build, distance, norm, plan, samples, train_state, values, whole};
use candle_core::{DType, Device, Tensor};
use tape::{Cancel, Parameters};
use trainer::internals::{OptimizerState, TrainState};
use trainer::{ModelId, OptimizerKind};

const STEPS: u64 = 120;

/// Trains on sixty samples in batches of six. Returns the mean loss of the first and of the last
/// ten steps.
fn losses(kind: ModelId, optimizer: OptimizerKind) -> (f64, f64) {
    let mut train_state = train_state(&plan(kind, optimizer, DType::F32, STEPS));
    let samples = samples(60, 3);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let first = step as usize * 6 % 60;
        let task = train_state.forward_context(Cancel::default());
        let batch = whole(&task, &samples[first..first + 6], &[6]);
        losses.push(batch.loss);
        train_state.update(&batch, step).unwrap();
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    (mean(&losses[..10]), mean(&losses[losses.len() - 10..]))
}

#[test]
fn eight_bit_adamw_reaches_the_loss_of_adamw() {
    for kind in ModelId::SMALL {
        let (begun, full) = losses(kind, OptimizerKind::AdamW);
        let (_, bytes) = losses(kind, OptimizerKind::AdamW8bit);
        println!("{}: {begun:.4}, then {full:.4} and {bytes:.4}", kind.name());
        assert!(begun - full > 0.2, "the loss did not fall: {begun} {full}");
        let difference = (bytes - full).abs() / (begun - full);
        assert!(difference < 0.05, "{}: {full} against {bytes}", kind.name());
    }
}

#[test]
fn eight_bit_state_is_about_a_quarter() {
    for kind in ModelId::SMALL {
        let (_, parameters) = build(kind, DType::F32);
        let bytes = |kind| OptimizerState::new(kind, 0.0, &parameters).unwrap().bytes();
        let expected = |p: &Tensor| match p.elem_count() as u64 {
            count if count < 4096 => 8 * count,
            count => 2 * count + 8 * count.div_ceil(256),
        };
        let expected: u64 = parameters.iter().map(|p| expected(&p.tensor)).sum();
        assert_eq!(bytes(OptimizerKind::AdamW8bit), expected);
        let share = expected as f64 / bytes(OptimizerKind::AdamW) as f64;
        println!("{}: {share:.3} of AdamW's state", kind.name());
        assert!((0.25..0.28).contains(&share), "{}: {share}", kind.name());
    }
}

#[test]
fn norms_and_biases_do_not_decay() {
    for kind in ModelId::SMALL {
        let (_, mut parameters) = build(kind, DType::F64);
        let mut optimizer = OptimizerState::new(OptimizerKind::AdamW, 0.05, &parameters).unwrap();
        let [decaying, spared] = optimizer.groups() else {
            panic!("two groups");
        };
        assert_eq!((decaying.weight_decay, spared.weight_decay), (0.05, 0.0));
        let mut all = [decaying.parameters.clone(), spared.parameters.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..parameters.len()).collect::<Vec<_>>());
        let spared = spared.parameters.clone();
        for (index, parameter) in parameters.iter().enumerate() {
            let name = &parameter.name;
            let is_vector = name.ends_with("bias") || name.contains("norm");
            assert!(!is_vector || spared.contains(&index), "{name}");
            assert!(
                parameter.tensor.rank() == 1 || !spared.contains(&index),
                "{name}"
            );
        }
        // With zero gradients only the decay changes a weight.
        let before = values(&parameters);
        let zeros = parameters.iter().map(|p| p.tensor.zeros_like().unwrap());
        let zeros: Vec<Tensor> = zeros.collect();
        optimizer
            .update(&mut parameters, &zeros, 0.1, 1.0, 1)
            .unwrap();
        for (index, (after, before)) in values(&parameters).iter().zip(&before).enumerate() {
            let keep = if spared.contains(&index) {
                1.0
            } else {
                1.0 - 0.1 * 0.05
            };
            let expected: Vec<f64> = before.iter().map(|v| v * keep).collect();
            assert_eq!(*after, expected, "{}", parameters.at(index).name);
        }
    }
}

fn averaging(decay: Option<f64>) -> TrainState {
    let mut plan = plan(ModelId::VIT_MICRO, OptimizerKind::AdamW, DType::F64, 40);
    plan.ema_decay = decay;
    train_state(&plan)
}

#[test]
fn the_average_follows_the_weights_and_is_evaluated() {
    let mut train_state = averaging(Some(0.9));
    let mut expected = values(&train_state.parameters);
    let samples = samples(6, 5);
    for step in 0..12u64 {
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples,
            &[6],
        );
        train_state.update(&batch, step).unwrap();
        let t = step as f64 + 1.0;
        let decay = 0.9f64.min((1.0 + t) / (10.0 + t));
        for (a, p) in expected.iter_mut().zip(values(&train_state.parameters)) {
            a.iter_mut()
                .zip(p)
                .for_each(|(a, p)| *a = decay * *a + (1.0 - decay) * p);
        }
    }
    let average: &Parameters = &train_state.average.as_ref().unwrap().parameters;
    for (a, e) in values(average).iter().zip(&expected) {
        assert!(support::distance(a, e) <= 1e-12 * (1.0 + norm(e)));
    }
    let evaluated =
        |task: trainer::internals::ForwardContext| task.evaluate(&samples).unwrap().loss;
    let by_average = evaluated(train_state.evaluation_context(Cancel::default()));
    let by_weights = evaluated(train_state.forward_context(Cancel::default()));
    assert_ne!(by_average, by_weights);
    let mut moved = averaging(None);
    assert_eq!(
        train_state.state_bytes(),
        moved.state_bytes() + moved.parameters.bytes()
    );
    for (index, parameter) in average.iter().enumerate() {
        moved
            .parameters
            .set(index, parameter.tensor.clone())
            .unwrap();
    }
    let without = evaluated(moved.evaluation_context(Cancel::default()));
    assert_eq!(without.to_bits(), by_average.to_bits());
}

#[test]
fn a_skipped_step_leaves_the_average() {
    let mut train_state = averaging(Some(0.5));
    let mut batch = whole(
        &train_state.forward_context(Cancel::default()),
        &samples(3, 5),
        &[3],
    );
    train_state.update(&batch, 0).unwrap();
    let average =
        |train_state: &TrainState| values(&train_state.average.as_ref().unwrap().parameters);
    let before = average(&train_state);
    let nan = vec![f64::NAN; batch.gradients[0].elem_count()];
    let shape = batch.gradients[0].shape().clone();
    batch.gradients[0] = Tensor::from_vec(nan, shape, &Device::Cpu).unwrap();
    assert!(train_state.update(&batch, 1).unwrap().skipped.is_some());
    assert_eq!(average(&train_state), before);
}

/// NaN compares as neither larger nor smaller: a NaN score must not count as a correct answer.
#[test]
fn nan_scores_are_never_correct() {
    let mut train_state = train_state(&plan(
        ModelId::VIT_MICRO,
        OptimizerKind::AdamW,
        DType::F32,
        10,
    ));
    let weight = (&train_state.parameters.at(0).tensor * f64::NAN).unwrap();
    train_state.parameters.set(0, weight).unwrap();
    let result = train_state
        .forward_context(Cancel::default())
        .evaluate(&samples(7, 3))
        .unwrap();
    assert_eq!((result.samples, result.correct, result.in_top_5), (7, 0, 0));
}

/// The bias correction of the moments counts only steps that changed the weights.
#[test]
fn the_optimizer_does_not_count_skipped_steps() {
    let plan = plan(ModelId::VIT_MICRO, OptimizerKind::AdamW, DType::F64, 40);
    // The change of the weights by one update, divided by its learning rate, after `skipped`
    // steps.
    let moved = |skipped: u64| {
        let mut train_state = train_state(&plan);
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples(8, 2),
            &[8],
        );
        let before = values(&train_state.parameters);
        for _ in 0..skipped {
            let mut batch = whole(
                &train_state.forward_context(Cancel::default()),
                &samples(8, 2),
                &[8],
            );
            batch.gradients[1] = (&batch.gradients[1] * f64::NAN).unwrap();
            assert!(train_state.update(&batch, 20).unwrap().skipped.is_some());
        }
        assert_eq!(train_state.skipped().total, skipped);
        let rate = train_state
            .update(&batch, 20 + skipped)
            .unwrap()
            .learning_rate;
        assert_eq!(train_state.skipped().in_a_row, 0);
        let after = values(&train_state.parameters).into_iter().flatten();
        let pairs = after.zip(before.into_iter().flatten());
        pairs.map(|(a, b)| (a - b) / rate).collect::<Vec<_>>()
    };
    assert!(distance(&moved(4), &moved(0)) <= 1e-9 * norm(&moved(0)));
}
