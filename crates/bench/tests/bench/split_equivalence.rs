//! The split check over every model, in f32 and f64, with and without checkpointed blocks. It must
//! fail if anything depends on the split.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::small_models::{self, SmallModel, SmallModel::*};
use bench::split_equivalence::{
    BatchSplit, Comparison, ElementType, SplitSelection, compare, rounding_bound,
};
use candle_core::DType;
use std::ops::Range;
use tape::inplace::to_f64;
use tape::{Parameters, Rng};
use trainer::internals::{
    AccumulatedBatch, EffectiveBatch, MicroBatchResult, OptimizerState, Schedule,
};
use trainer::{OptimizerKind, TrainError};

/// Samples of the effective batch. Not a power of two, so that most splits do not divide it.
const BATCH: usize = 11;
/// Seeds of the samples and of the random splits.
const SEEDS: [u64; 3] = [1, 2, 3];

fn comparison(
    made: &small_models::Model,
    dtype: DType,
    checkpointed: usize,
    seed: u64,
) -> Comparison {
    let samples = made.samples(BATCH, seed);
    let splits = SplitSelection::Standard { random: 3 }
        .for_batch(BATCH, Rng::new(seed))
        .unwrap();
    let gradients = |range| Ok(made.micro_batch(&samples, range, dtype, checkpointed));
    compare(&made.parameters, BATCH, splits, gradients).unwrap()
}

fn check(kind: SmallModel) {
    for (dtype, element_type) in [
        (DType::F64, ElementType::Double),
        (DType::F32, ElementType::Single),
    ] {
        // Far below the bound for a trained network, whose gradients nearly cancel.
        let bound = rounding_bound(element_type).min(2e-5);
        let made = kind.build(dtype);
        for checkpointed in [0, 1, kind.blocks()] {
            for seed in SEEDS {
                let found = comparison(&made, dtype, checkpointed, seed);
                let worst = found.worst();
                println!(
                    "{kind:?} {dtype:?} {checkpointed} {seed}: {:.1e} {} {}",
                    worst.difference, worst.name, worst.split
                );
                assert!(
                    worst.difference <= bound,
                    "{kind:?} {dtype:?} {checkpointed}: {worst:?}"
                );
                assert!(
                    found.loss.difference <= bound.min(1e-5),
                    "{kind:?} {dtype:?}: {:?}",
                    found.loss
                );
                assert_eq!(found.parameters.len(), made.parameters.len());
                let all_learn = found.parameters.iter().all(|line| line.norm > 0.0);
                assert!(
                    all_learn,
                    "{kind:?}: a parameter without a gradient proves nothing"
                );
            }
        }
    }
}

#[test]
fn no_split_changes_the_gradient_of_the_convnet() {
    check(ConvNet);
}

#[test]
fn no_split_changes_the_gradient_of_a_pooled_resnet_with_relu() {
    check(ResNet18);
}

#[test]
fn no_split_changes_the_gradient_of_the_vit_micro() {
    check(VitMicro);
}

#[test]
fn no_split_changes_the_gradient_of_the_vit_tiny() {
    check(VitTiny);
}

#[test]
fn no_split_changes_the_gradient_of_the_language_model() {
    check(Gpt);
}

#[test]
fn no_split_changes_the_gradient_of_the_text_encoder() {
    check(TextEncoder);
}

#[test]
fn a_checkpointed_block_gives_the_same_bits() {
    for kind in SmallModel::ALL {
        let made = kind.build(DType::F32);
        let samples = made.samples(5, 4);
        let bits = |checkpointed| {
            let sums = made.micro_batch(&samples, 0..5, DType::F32, checkpointed);
            let gradients = sums.gradients.iter().map(|g| to_f64(g).unwrap());
            (
                sums.loss.to_bits(),
                gradients.flatten().map(f64::to_bits).collect::<Vec<_>>(),
            )
        };
        let saved = bits(0);
        for checkpointed in 1..=kind.blocks() {
            assert!(
                bits(checkpointed) == saved,
                "{kind:?}: {checkpointed} blocks"
            );
        }
    }
}

/// A comparison in which `wrong` changes the gradients of a range.
fn broken(wrong: impl Fn(&mut MicroBatchResult, Range<usize>)) -> Comparison {
    let made = Gpt.build(DType::F64);
    let samples = made.samples(BATCH, 1);
    let splits = SplitSelection::Standard { random: 2 }
        .for_batch(BATCH, Rng::new(1))
        .unwrap();
    let gradients = |range: Range<usize>| {
        let mut sums = made.micro_batch(&samples, range.clone(), DType::F64, 0);
        wrong(&mut sums, range);
        Ok(sums)
    };
    compare(&made.parameters, BATCH, splits, gradients).unwrap()
}

fn scale(micro_batch: &mut MicroBatchResult, factor: f64) {
    micro_batch
        .gradients
        .iter_mut()
        .for_each(|g| *g = (&*g * factor).unwrap());
}

#[test]
fn a_mean_of_means_is_detected() {
    let found = broken(|sums, _| {
        let weight = sums.weight;
        scale(sums, 1.0 / weight);
        (sums.loss, sums.weight) = (sums.loss / weight, 1.0);
    });
    assert!(found.worst().difference > 1e-4, "{:?}", found.worst());
    assert!(found.loss.difference > 1e-4, "{:?}", found.loss);
}

#[test]
fn a_statistic_of_the_micro_batch_is_attributed_to_its_parameter() {
    let found = broken(|sums, range| {
        let factor = 1.0 + 1e-9 * range.len() as f64;
        sums.gradients[2] = (&sums.gradients[2] * factor).unwrap();
    });
    let made = Gpt.build(DType::F64);
    assert_eq!(found.worst().name, made.parameters.at(2).name);
    assert!(
        (1e-9..2e-8).contains(&found.worst().difference),
        "{:?}",
        found.worst()
    );
    let others = found
        .parameters
        .iter()
        .filter(|line| line.name != found.worst().name);
    assert!(others.map(|line| line.difference).all(|d| d <= 1e-13));
    // The unsplit batch once more is one micro-batch, which has the same statistic.
    assert!(found.worst().split.sizes().len() > 1);
}

#[test]
fn lost_samples_and_non_finite_gradients_are_detected() {
    let lost = broken(|sums, range| {
        if range.start == 0 && range.len() < BATCH {
            sums.weight -= 1.0;
        }
    });
    assert!(lost.worst().difference > 1e-4);
    let not_finite = broken(|sums, range| {
        if range == (3..4) {
            sums.gradients[0] = (&sums.gradients[0] * f64::NAN).unwrap();
        }
    });
    assert!(not_finite.worst().difference.is_nan());
    assert_eq!(not_finite.worst().split, BatchSplit::even(BATCH, 1));
}

#[test]
fn an_error_of_a_micro_batch_ends_the_check() {
    let made = Gpt.build(DType::F32);
    let gradients = |_| Err(TrainError::Panicked("planted".to_owned()));
    let ended = compare(&made.parameters, 3, vec![BatchSplit::unsplit(3)], gradients);
    assert!(ended.is_err_and(|error| error.to_string().contains("planted")));
}

const STEPS: u64 = 200;
const PER_STEP: usize = 6;
/// Samples of the run: ten batches per epoch.
const SAMPLES: usize = 60;

/// The parameters after `STEPS` steps of AdamW, and the mean loss of each step. `split` gives the
/// split of each step.
fn trained(
    kind: SmallModel,
    dtype: DType,
    split: impl Fn(u64) -> BatchSplit,
) -> (Vec<f64>, Vec<f64>) {
    let mut losses = Vec::with_capacity(STEPS as usize);
    let parameters = train(kind, dtype, |step, batch_of| {
        let batch = batch_of(&split(step));
        losses.push(batch.loss);
        batch
    });
    (values(&parameters), losses)
}

/// Trains for `STEPS` steps of AdamW. `of_step` gives the sums of a step; it can compute them for
/// any split.
fn train(
    kind: SmallModel,
    dtype: DType,
    mut of_step: impl FnMut(u64, &dyn Fn(&BatchSplit) -> AccumulatedBatch) -> AccumulatedBatch,
) -> Parameters {
    let mut made = kind.build(dtype);
    let samples = made.samples(SAMPLES, 3);
    let mut optimizer = OptimizerState::new(OptimizerKind::AdamW, 0.05, &made.parameters).unwrap();
    let schedule = Schedule {
        lr_schedule: trainer::internals::LrSchedule::Cosine,
        peak: 1e-3,
        warmup: STEPS / 20,
        steps: STEPS,
    };
    for step in 0..STEPS {
        let (rate, first) = (schedule.rate(step), step as usize * PER_STEP % SAMPLES);
        let batch_of = |split: &BatchSplit| {
            let mut batch = EffectiveBatch::default();
            for range in split.ranges() {
                let range = first + range.start..first + range.end;
                let sums = made.micro_batch(&samples, range, dtype, 1);
                batch.add(MicroBatchResult { samples: 0, ..sums }).unwrap();
            }
            batch.finish().unwrap()
        };
        let batch = of_step(step, &batch_of);
        let norm = tape::optim::global_norm(&batch.gradients).unwrap() / batch.weight;
        let factor = (1.0 / norm).min(1.0) / batch.weight;
        optimizer
            .update(
                &mut made.parameters,
                &batch.gradients,
                rate,
                factor,
                step + 1,
            )
            .unwrap();
    }
    made.parameters
}

fn values(parameters: &Parameters) -> Vec<f64> {
    let values = parameters.iter().map(|p| to_f64(&p.tensor).unwrap());
    values.flatten().collect()
}

/// Norm of the difference.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

fn check_drift(kind: SmallModel) {
    check_drift_in(kind, &[(DType::F64, 1e-9), (DType::F32, 5e-4)]);
}

fn check_drift_in(kind: SmallModel, types: &[(DType, f64)]) {
    for &(dtype, limit) in types {
        let start = values(&kind.build(dtype).parameters);
        let (unsplit, losses) = trained(kind, dtype, |_| BatchSplit::unsplit(PER_STEP));
        let (split, split_losses) = trained(kind, dtype, |step| {
            BatchSplit::random(PER_STEP, Rng::new(9).at(step))
        });
        let way = distance(&unsplit, &start);
        let drift = distance(&split, &unsplit) / way;
        let losses = losses.iter().zip(&split_losses);
        let apart = losses.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{kind:?} {dtype:?}: {drift:.1e} of a way of {way:.2}, losses {apart:.1e} apart");
        assert!(way > 1.0, "nothing was learned: {way}");
        assert!(drift > 0.0, "nothing was split");
        assert!(drift <= limit, "{kind:?} {dtype:?}: {drift:e}");
        assert!(apart <= 1e-5, "{kind:?} {dtype:?}: losses {apart:e} apart");
    }
}

#[test]
fn two_hundred_split_steps_agree_for_a_pooled_resnet_with_relu() {
    check_drift_in(ResNet18, &[(DType::F64, 1e-9)]);
}

/// Two runs in f32 can part at a kink of ReLU or max pooling: which of two equal values is larger
/// depends on the last bit of the weights. So all splits of a step are computed with the same
/// weights here.
#[test]
fn every_step_of_a_pooled_resnet_with_relu_is_the_same_for_its_splits() {
    let mut worst: f64 = 0.0;
    train(ResNet18, DType::F32, |step, batch_of| {
        let unsplit = batch_of(&BatchSplit::unsplit(PER_STEP));
        let split = batch_of(&BatchSplit::random(PER_STEP, Rng::new(9).at(step)));
        let apart = (split.loss - unsplit.loss).abs();
        assert!(apart <= 1e-6, "step {step}: losses {apart:e} apart");
        let [a, b] = [&split, &unsplit].map(|batch| {
            let all = batch.gradients.iter().map(|g| to_f64(g).unwrap());
            all.flatten().collect::<Vec<_>>()
        });
        let apart = distance(&a, &b) / distance(&b, &vec![0.0; b.len()]);
        assert!(apart <= 1e-5, "step {step}: gradients {apart:e} apart");
        worst = worst.max(apart);
        unsplit
    });
    println!("gradients at most {worst:.1e} apart");
    assert!(worst > 0.0, "nothing was split");
}

#[test]
fn two_hundred_split_steps_agree_for_the_vit_tiny() {
    check_drift(VitTiny);
}

#[test]
fn two_hundred_split_steps_agree_for_the_language_model() {
    check_drift(Gpt);
}

#[test]
fn two_hundred_split_steps_agree_for_the_text_encoder() {
    check_drift(TextEncoder);
}

#[test]
fn texts_give_the_same_bits_on_any_number_of_threads() {
    for kind in [Gpt, TextEncoder] {
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let split = |step| BatchSplit::random(PER_STEP, Rng::new(6).at(step));
            let (values, losses) = pool.unwrap().install(|| trained(kind, DType::F32, split));
            values
                .into_iter()
                .chain(losses)
                .map(f64::to_bits)
                .collect::<Vec<_>>()
        };
        let once = bits(2);
        for threads in [2, 1, 3] {
            assert!(bits(threads) == once, "{kind:?} on {threads} threads");
        }
    }
}
