//! The receipt over every model, in single and double precision, with and without checkpointed blocks, and seen to fail
//! where something depends on the split.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod models;
mod support;

use candle_core::DType;
use models::{Made, Made::*};
use std::ops::Range;
use support::distance;
use tape::inplace::to_f64;
use tape::{Parameters, Rng};
use trainer::receipt::{Compared, Precision, Split, Splits, compare};
use trainer::rooms::{EffectiveBatch, Optimizer, Schedule, TrainedPiece};
use trainer::{OptimizerKind, TrainError};

/// Samples of the effective batch: no power of two, so that most splits do not divide it.
const BATCH: usize = 11;
/// Seeds of the samples and of the random splits.
const SEEDS: [u64; 3] = [1, 2, 3];

fn compared(made: &models::Model, dtype: DType, checkpointed: usize, seed: u64) -> Compared {
    let samples = made.samples(BATCH, seed);
    let splits = Splits::Standard { random: 3 }
        .of(BATCH, Rng::new(seed))
        .unwrap();
    let piece = |range| Ok(made.piece(&samples, range, dtype, checkpointed));
    compare(&made.parameters, BATCH, splits, piece).unwrap()
}

fn check(kind: Made) {
    for (dtype, precision) in [
        (DType::F64, Precision::Double),
        (DType::F32, Precision::Single),
    ] {
        // Far below what the receipt allows a trained network, whose gradients nearly cancel.
        let bound = precision.bound().min(2e-5);
        let made = kind.build(dtype);
        for checkpointed in [0, 1, kind.blocks()] {
            for seed in SEEDS {
                let found = compared(&made, dtype, checkpointed, seed);
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
fn a_checkpointed_block_gives_the_bits_of_a_kept_one() {
    for kind in Made::ALL {
        let made = kind.build(DType::F32);
        let samples = made.samples(5, 4);
        let bits = |checkpointed| {
            let piece = made.piece(&samples, 0..5, DType::F32, checkpointed);
            let gradients = piece.gradients.iter().map(|g| to_f64(g).unwrap());
            (
                piece.loss.to_bits(),
                gradients.flatten().map(f64::to_bits).collect::<Vec<_>>(),
            )
        };
        let kept = bits(0);
        for checkpointed in 1..=kind.blocks() {
            assert!(
                bits(checkpointed) == kept,
                "{kind:?}: {checkpointed} blocks"
            );
        }
    }
}

/// What a broken law looks like: `wrong` spoils the honest piece of a range.
fn broken(wrong: impl Fn(&mut TrainedPiece, Range<usize>)) -> Compared {
    let made = Gpt.build(DType::F64);
    let samples = made.samples(BATCH, 1);
    let splits = Splits::Standard { random: 2 }
        .of(BATCH, Rng::new(1))
        .unwrap();
    let piece = |range: Range<usize>| {
        let mut piece = made.piece(&samples, range.clone(), DType::F64, 0);
        wrong(&mut piece, range);
        Ok(piece)
    };
    compare(&made.parameters, BATCH, splits, piece).unwrap()
}

fn scale(piece: &mut TrainedPiece, factor: f64) {
    piece
        .gradients
        .iter_mut()
        .for_each(|g| *g = (&*g * factor).unwrap());
}

#[test]
fn a_mean_of_means_is_seen() {
    let found = broken(|piece, _| {
        let weight = piece.weight;
        scale(piece, 1.0 / weight);
        (piece.loss, piece.weight) = (piece.loss / weight, 1.0);
    });
    assert!(found.worst().difference > 1e-4, "{:?}", found.worst());
    assert!(found.loss.difference > 1e-4, "{:?}", found.loss);
}

#[test]
fn a_statistic_of_the_piece_is_seen_by_the_parameter_it_reaches() {
    let found = broken(|piece, range| {
        let factor = 1.0 + 1e-9 * range.len() as f64;
        piece.gradients[2] = (&piece.gradients[2] * factor).unwrap();
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
    // The whole batch once more is one piece: only the split shows it.
    assert!(found.worst().split.sizes().len() > 1);
}

#[test]
fn a_lost_sample_and_a_gradient_that_is_not_finite_are_seen() {
    let lost = broken(|piece, range| {
        if range.start == 0 && range.len() < BATCH {
            piece.weight -= 1.0;
        }
    });
    assert!(lost.worst().difference > 1e-4);
    let not_finite = broken(|piece, range| {
        if range == (3..4) {
            piece.gradients[0] = (&piece.gradients[0] * f64::NAN).unwrap();
        }
    });
    assert!(not_finite.worst().difference.is_nan());
    assert_eq!(not_finite.worst().split, Split::even(BATCH, 1));
}

#[test]
fn an_error_of_a_piece_ends_the_receipt() {
    let made = Gpt.build(DType::F32);
    let piece = |_| Err(TrainError::Panicked("planted".to_owned()));
    let ended = compare(&made.parameters, 3, vec![Split::whole(3)], piece);
    assert!(ended.is_err_and(|error| error.to_string().contains("planted")));
}

const STEPS: u64 = 200;
const PER_STEP: usize = 6;
/// Different samples of the run: ten batches an epoch.
const SAMPLES: usize = 60;

/// The parameters after `STEPS` steps of AdamW, and the mean loss of each step; `split` gives the pieces of each.
fn trained(kind: Made, dtype: DType, split: impl Fn(u64) -> Split) -> (Vec<f64>, Vec<f64>) {
    let mut losses = Vec::with_capacity(STEPS as usize);
    let mut made = kind.build(dtype);
    let samples = made.samples(SAMPLES, 3);
    let mut optimizer = Optimizer::new(OptimizerKind::AdamW, 0.05, &made.parameters).unwrap();
    let schedule = Schedule {
        course: trainer::Course::Cosine,
        peak: 1e-3,
        warmup: STEPS / 20,
        steps: STEPS,
    };
    for step in 0..STEPS {
        let (rate, first) = (schedule.rate(step), step as usize * PER_STEP % SAMPLES);
        let mut batch = EffectiveBatch::default();
        for range in split(step).ranges() {
            let range = first + range.start..first + range.end;
            let piece = made.piece(&samples, range, dtype, 1);
            batch
                .add(TrainedPiece {
                    samples: 0,
                    ..piece
                })
                .unwrap();
        }
        let batch = batch.whole().unwrap();
        losses.push(batch.loss);
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
    (values(&made.parameters), losses)
}

fn values(parameters: &Parameters) -> Vec<f64> {
    support::values(parameters).concat()
}

fn check_drift(kind: Made) {
    for (dtype, limit) in [(DType::F64, 1e-9), (DType::F32, 5e-4)] {
        let start = values(&kind.build(dtype).parameters);
        let (unsplit, losses) = trained(kind, dtype, |_| Split::whole(PER_STEP));
        let (split, split_losses) = trained(kind, dtype, |step| {
            Split::random(PER_STEP, Rng::new(9).at(step))
        });
        let way = distance(&unsplit, &start);
        let drift = distance(&split, &unsplit) / way;
        let losses = losses.iter().zip(&split_losses);
        let apart = losses.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{kind:?} {dtype:?}: {drift:.1e} of a way of {way:.2}, losses {apart:.1e} apart");
        assert!(way > 1.0, "nothing was learnt: {way}");
        assert!(drift > 0.0, "the splits were none");
        assert!(drift <= limit, "{kind:?} {dtype:?}: {drift:e}");
        assert!(apart <= 1e-5, "{kind:?} {dtype:?}: losses {apart:e} apart");
    }
}

#[test]
fn two_hundred_split_steps_of_a_pooled_resnet_with_relu_end_where_unsplit_ones_do() {
    check_drift(ResNet18);
}

#[test]
fn two_hundred_split_steps_of_the_vit_tiny_end_where_unsplit_ones_do() {
    check_drift(VitTiny);
}

#[test]
fn two_hundred_split_steps_of_the_language_model_end_where_unsplit_ones_do() {
    check_drift(Gpt);
}

#[test]
fn two_hundred_split_steps_of_the_text_encoder_end_where_unsplit_ones_do() {
    check_drift(TextEncoder);
}

#[test]
fn two_trainings_of_texts_give_the_same_bits_on_any_number_of_threads() {
    for kind in [Gpt, TextEncoder] {
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let split = |step| Split::random(PER_STEP, Rng::new(6).at(step));
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
