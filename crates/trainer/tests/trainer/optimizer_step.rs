//! One optimizer step: it matches a readable reference, is skipped if a gradient is not finite,
//! and is not changed by a micro-batch that fails. Also the queue of samples behind it.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::{self, build, plan, samples, task, train_state, values, whole};
use candle_core::{DType, Device, Tensor};
use dataset::{ImageSample, Order, SampleError};
use std::sync::atomic::{AtomicUsize, Ordering};
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape, TapeError, Value};
use trainer::internals::{EffectiveBatch, OptimizerState, SampleQueue, Schedule};
use trainer::{ModelId, OptimizerKind, TrainError};

/// The reference for one value: Loshchilov and Hutter 2019, algorithm 2, and the momentum of
/// Sutskever et al. 2013.
#[derive(Default)]
struct Reference {
    first: f64,
    second: f64,
    momentum: f64,
}

impl Reference {
    fn adamw(&mut self, p: f64, g: f64, rate: f64, decay: f64, step: i32) -> f64 {
        self.first = 0.9 * self.first + 0.1 * g;
        self.second = 0.999 * self.second + 0.001 * g * g;
        let mean = self.first / (1.0 - 0.9f64.powi(step));
        let square = self.second / (1.0 - 0.999f64.powi(step));
        p - rate * (mean / (square.sqrt() + 1e-8) + decay * p)
    }

    fn sgd(&mut self, p: f64, g: f64, rate: f64, decay: f64) -> f64 {
        self.momentum = 0.9 * self.momentum + (g + decay * p);
        p - rate * self.momentum
    }

    fn lion(&mut self, p: f64, g: f64, rate: f64, decay: f64) -> f64 {
        let direction = (0.9 * self.momentum + 0.1 * g).signum();
        self.momentum = 0.99 * self.momentum + 0.01 * g;
        p - rate * (direction + decay * p)
    }
}

const SHAPES: [&[usize]; 3] = [&[7, 13], &[13], &[2, 3, 3, 3]];

/// Random values for each shape.
fn drawn(stream: Rng, deviation: f64) -> Vec<Vec<f64>> {
    let shapes = SHAPES.iter().zip(0..);
    let values = |(shape, i): (&&[usize], u64)| {
        let stream = stream.at(i);
        stream.truncated_normal(shape.iter().product(), deviation)
    };
    shapes.map(values).collect()
}

fn check_reference(kind: OptimizerKind) {
    let start = drawn(Rng::new(1), 1.0);
    let mut parameters = Parameters::default();
    for (i, (shape, values)) in SHAPES.iter().zip(&start).enumerate() {
        let name = format!("p{i}");
        parameters
            .add(name, values.clone(), shape, DType::F64, &Device::Cpu)
            .unwrap();
    }
    let mut optimizer = OptimizerState::new(kind, 0.05, &parameters).unwrap();
    let mut expected = start.clone();
    let references = |values: &Vec<f64>| values.iter().map(|_| Reference::default()).collect();
    let mut references: Vec<Vec<Reference>> = start.iter().map(references).collect();
    for step in 1..=50u64 {
        let (rate, factor) = (0.02 / step as f64, 0.125);
        let gradients = drawn(Rng::new(2).at(step), 3.0);
        for (i, gradient) in gradients.iter().enumerate() {
            // Norms and biases, which have one axis, do not decay.
            let decay = if SHAPES[i].len() > 1 { 0.05 } else { 0.0 };
            for ((p, r), g) in expected[i].iter_mut().zip(&mut references[i]).zip(gradient) {
                *p = match kind {
                    OptimizerKind::AdamW | OptimizerKind::AdamW8bit => {
                        r.adamw(*p, g * factor, rate, decay, step as i32)
                    }
                    OptimizerKind::Sgd => r.sgd(*p, g * factor, rate, decay),
                    OptimizerKind::Lion => r.lion(*p, g * factor, rate, decay),
                };
            }
        }
        let gradients: Vec<Tensor> = gradients
            .into_iter()
            .zip(SHAPES)
            .map(|(values, shape)| Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
            .collect();
        optimizer
            .update(&mut parameters, &gradients, rate, factor, step)
            .unwrap();
    }
    let worst = values(&parameters)
        .concat()
        .iter()
        .zip(expected.concat())
        .fold(0.0f64, |w, (a, b)| w.max((a - b).abs()));
    println!("{}: {worst:.1e} from the reference", kind.name());
    assert!(worst <= 1e-12, "{}: {worst:e}", kind.name());
    assert_ne!(values(&parameters), start);
}

#[test]
fn adamw_matches_the_paper_for_50_steps() {
    check_reference(OptimizerKind::AdamW);
}

/// Small parameters keep full moments.
#[test]
fn adamw8bit_matches_the_paper_on_small_parameters() {
    check_reference(OptimizerKind::AdamW8bit);
}

#[test]
fn sgd_matches_its_formula_for_50_steps() {
    check_reference(OptimizerKind::Sgd);
}

#[test]
fn lion_matches_the_paper_for_50_steps() {
    check_reference(OptimizerKind::Lion);
}

#[test]
fn lion_has_one_state_tensor_of_four_bytes_per_value() {
    let mut parameters = Parameters::default();
    let values = vec![1.0; 30];
    parameters
        .add("p".to_owned(), values, &[5, 6], DType::F32, &Device::Cpu)
        .unwrap();
    let optimizer = OptimizerState::new(OptimizerKind::Lion, 0.0, &parameters).unwrap();
    assert_eq!(optimizer.bytes(), 4 * 30);
    let names: Vec<_> = optimizer.named(&parameters).unwrap().into_keys().collect();
    assert_eq!(names, ["p.momentum"]);
}

#[test]
fn gradients_are_clipped_by_their_global_norm() {
    let moved = |clip_norm| {
        let mut plan = plan(ModelId::CONV_NET, OptimizerKind::Sgd, DType::F64, 10);
        (plan.clip_norm, plan.weight_decay) = (clip_norm, 0.0);
        let mut train_state = train_state(&plan);
        let before = values(&train_state.parameters).concat();
        let batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples(4, 8),
            &[4],
        );
        let update = train_state.update(&batch, 0).unwrap();
        let way = support::distance(&values(&train_state.parameters).concat(), &before);
        (way / update.learning_rate, update.gradient_norm)
    };
    let (way, norm) = moved(1e9);
    assert!(
        (way / norm - 1.0).abs() < 1e-9,
        "unclipped: {way} for {norm}"
    );
    let (way, _) = moved(norm / 4.0);
    assert!(
        (way / norm - 0.25).abs() < 1e-9,
        "clipped: {way} for {norm}"
    );
}

#[test]
fn a_non_finite_gradient_changes_nothing_and_five_end_the_run() {
    let mut train_state = train_state(&plan(
        ModelId::CONV_NET,
        OptimizerKind::AdamW,
        DType::F32,
        10,
    ));
    let before = values(&train_state.parameters);
    let moments = |l: &trainer::internals::TrainState| {
        let named = l.optimizer.named(&l.parameters).unwrap();
        let values = named.into_iter().map(|(n, t)| (n, to_f64(&t).unwrap()));
        values.collect::<std::collections::BTreeMap<_, _>>()
    };
    let still = moments(&train_state);
    let name = train_state.parameters.at(2).name.clone();
    for times in 1..=5 {
        let mut batch = whole(
            &train_state.forward_context(Cancel::default()),
            &samples(2, 8),
            &[2],
        );
        batch.gradients[2] = (&batch.gradients[2] * f64::NAN).unwrap();
        match train_state.update(&batch, 3) {
            Ok(update) => {
                assert!(times < 5);
                let skipped = update.skipped.unwrap();
                assert_eq!(skipped.item, format!("the gradient of {name}"));
                let [found] = &skipped.gradients[..] else {
                    panic!("{skipped:?}");
                };
                let count = batch.gradients[2].elem_count() as u64;
                assert_eq!(
                    (&found.parameter, found.nan, found.infinite),
                    (&name, count, 0)
                );
                assert!(train_state.is_skipping());
            }
            Err(TrainError::Diverged {
                step,
                times: reported,
                item: what,
                ..
            }) => {
                assert_eq!((times, reported, step), (5, 5, 3));
                assert!(what.contains(&name), "{what}");
            }
            Err(other) => panic!("{other}"),
        }
        assert!(values(&train_state.parameters) == before);
        assert!(moments(&train_state) == still);
    }
}

#[test]
fn a_cancelled_micro_batch_keeps_parameters_and_samples() {
    for kind in ModelId::SMALL {
        let model = build(kind, DType::F32);
        let before = values(&model.1);
        let cancel = Cancel::default();
        let task = task(&model, DType::F32, cancel.clone());
        let mut batch = EffectiveBatch::new(4);
        batch
            .pending
            .deliver(samples(4, 5).into_iter().map(Ok).collect());
        let result = task.gradients(batch.pending.micro_batch(1)).unwrap();
        batch.add(result).unwrap();
        cancel.store(true, Ordering::Relaxed);
        let error = task.gradients(batch.pending.micro_batch(2)).err().unwrap();
        assert!(error.is_cancelled() && error.device_fault().is_none());
        assert_eq!((batch.pending.remaining(), batch.micro_batches()), (3, 1));
        cancel.store(false, Ordering::Relaxed);
        assert_eq!(batch.pending.micro_batch(9).len(), 3);
        let result = task.gradients(batch.pending.micro_batch(3)).unwrap();
        batch.add(result).unwrap();
        let expected = whole(&task, &samples(4, 5), &[1, 3]);
        let redone = batch.finish().unwrap();
        assert_eq!(redone.loss.to_bits(), expected.loss.to_bits());
        assert!(values(&model.1) == before);
    }
}

/// The whole model is one checkpointed block, so that the flag can rise in the forward pass and
/// around its recomputation.
#[test]
fn cancelling_forward_or_backward_keeps_the_parameters() {
    for kind in ModelId::SMALL {
        let (network, parameters) = build(kind, DType::F32);
        let before = values(&parameters);
        for (run, after) in [(0, false), (0, true), (1, false), (1, true), (9, true)] {
            let cancel = Cancel::default();
            let tape = Tape::record(&parameters, cancel.clone(), Kernels::Fused);
            let (calls, network) = (AtomicUsize::new(0), network.clone());
            let side = support::SIDE;
            let images = Tensor::ones((2, 3, side, side), DType::F32, &Device::Cpu).unwrap();
            let ended = tape
                .checkpoint(&Value::constant(images), move |t, x| {
                    let raise = calls.fetch_add(1, Ordering::Relaxed) == run;
                    cancel.fetch_or(raise && !after, Ordering::Relaxed);
                    let scores = network.forward(t, x, 0);
                    cancel.fetch_or(raise && after, Ordering::Relaxed);
                    scores
                })
                .and_then(|scores| tape.cross_entropy(&scores, &[0, 1], 0.0))
                .and_then(|loss| tape.backward(vec![(loss.sum, 1.0)]));
            match run {
                9 => assert!(ended.is_ok()),
                _ => assert!(matches!(ended, Err(TapeError::Cancelled)), "{run} {after}"),
            }
            assert!(values(&parameters) == before);
        }
    }
}

#[test]
fn a_label_outside_the_classes_is_an_error() {
    let model = build(ModelId::CONV_NET, DType::F32);
    let mut samples = samples(3, 1);
    samples[1].label = support::CLASSES as u32;
    let error = task(&model, DType::F32, Cancel::default())
        .gradients(&samples)
        .err()
        .unwrap();
    assert!(error.device_fault().is_none() && !error.is_cancelled());
    assert_eq!(
        error.to_string(),
        "label 5 of sample 1 is outside the range 0..5"
    );
}

fn lost(file: &str) -> Result<ImageSample, SampleError> {
    Err(SampleError {
        file: file.into(),
        reason: "cut short".to_owned(),
    })
}

#[test]
fn unreadable_samples_shorten_the_batch_and_are_named() {
    let mut pending = SampleQueue::new(5);
    let mut all = samples(5, 1).into_iter().map(Ok);
    assert_eq!((pending.missing(3), pending.missing(9)), (3, 5));
    let named = pending.deliver(vec![all.next().unwrap(), lost("b.jpg"), lost("c.jpg")]);
    let files: Vec<_> = named.iter().map(|e| e.file.display().to_string()).collect();
    assert_eq!(files, ["b.jpg", "c.jpg"]);
    assert_eq!((pending.remaining(), pending.missing(3)), (3, 2));
    assert_eq!(pending.micro_batch(3).len(), 1, "only what has arrived");
    pending.deliver(all.by_ref().skip(2).collect());
    let order: Vec<u32> = pending.micro_batch(3).iter().map(|s| s.index).collect();
    assert_eq!(order, [0, 3, 4]);
    pending.done(2);
    assert_eq!(
        (pending.remaining(), pending.micro_batch(3)[0].index),
        (1, 4)
    );
    pending.done(1);
    assert_eq!((pending.remaining(), pending.missing(9)), (0, 0));
}

#[test]
fn a_batch_without_a_readable_sample_has_no_sums() {
    let mut batch = EffectiveBatch::new(2);
    batch.pending.deliver(vec![lost("a.jpg"), lost("b.jpg")]);
    assert_eq!(batch.pending.remaining(), 0);
    assert!(batch.finish().is_none());
}

/// Twenty samples in effective batches of eight make three steps. The last one has four samples,
/// and its mean is over four.
#[test]
fn the_short_last_batch_of_an_epoch_has_its_own_weight() {
    let order = Order {
        seed: 3,
        len: 20,
        effective_batch: 8,
    };
    assert_eq!(order.steps_per_epoch(), 3);
    let steps: Vec<_> = (0..4).map(|step| order.step(step)).collect();
    let sizes: Vec<_> = steps.iter().map(|(epoch, s)| (*epoch, s.len())).collect();
    assert_eq!(sizes, [(0, 8), (0, 8), (0, 4), (1, 8)]);
    let model = build(ModelId::CONV_NET, DType::F64);
    let task = task(&model, DType::F64, Cancel::default());
    let all = samples(20, 4);
    let short: Vec<ImageSample> = steps[2]
        .1
        .iter()
        .map(|&i| all[i as usize].clone())
        .collect();
    let batch = whole(&task, &short, &[3, 1]);
    assert_eq!(batch.weight, 4.0);
    let mean = short
        .iter()
        .map(|s| task.gradients(std::slice::from_ref(s)).unwrap().loss)
        .sum::<f64>()
        / 4.0;
    assert!((batch.loss - mean).abs() < 1e-12);
}

#[test]
fn a_schedule_without_warm_up_stays_finite_below_its_peak() {
    for (warmup, steps) in [(0, 1), (1, 1), (5, 5), (9, 3), (3, 50)] {
        let schedule = Schedule {
            lr_schedule: trainer::internals::LrSchedule::Cosine,
            peak: 0.3,
            warmup,
            steps,
        };
        for step in 0..2 * steps + 10 {
            let rate = schedule.rate(step);
            assert!(
                rate > 0.0 && rate <= 0.3 + 1e-15,
                "{warmup} {steps} {step}: {rate}"
            );
        }
    }
}
