//! The memory model on simulated machines.

use super::*;
use crate::decision::Phase;

const GB: f64 = (1u64 << 30) as f64;
const PIXELS: u64 = 64 * 64;

fn kind() -> MicroBatchKind {
    MicroBatchKind {
        element_bytes: 4,
        input_size: 64,
        ..MicroBatchKind::default()
    }
}

fn record(micro_batch: u32, peak: f64) -> MicroBatchRecord {
    MicroBatchRecord {
        at_ms: 0,
        kind: kind(),
        micro_batch,
        cost: u64::from(micro_batch) * PIXELS,
        peak_bytes: peak as u64,
        ms: 100.0,
        outcome: Outcome::Ok,
    }
}

fn trained(allocator: Allocator, truth: impl Fn(u32) -> f64, sizes: &[u32]) -> MemoryModel {
    let mut model = MemoryModel::new(allocator);
    for &size in sizes {
        model.learn(&record(size, truth(size)));
    }
    model
}

fn upper(model: &MemoryModel, micro_batch: u32) -> Option<f64> {
    model
        .upper_bytes(kind(), u64::from(micro_batch) * PIXELS)
        .map(|bytes| bytes as f64 / GB)
}

#[test]
fn two_probes_are_enough_for_a_straight_line() {
    let model = trained(
        Allocator::Exact,
        |m| (6.0 + 0.34 * f64::from(m)) * GB,
        &[1, 2],
    );
    for m in [1u32, 2, 8, 64] {
        let (upper, truth) = (
            upper(&model, m).expect("two sizes were measured"),
            6.0 + 0.34 * f64::from(m),
        );
        assert!(
            upper >= truth && upper < 1.03 * truth,
            "{m}: {upper}, truth {truth}"
        );
    }
    let state = model.state_bytes(kind()).expect("two sizes were measured") as f64 / GB;
    assert!((state - 6.0).abs() < 0.01, "{state}");
}

#[test]
fn one_size_does_not_predict_a_larger_one() {
    let model = trained(Allocator::Exact, |_| 2.0 * GB, &[4, 4, 4]);
    assert!(!model.is_ready(kind()));
    assert_eq!(upper(&model, 5), None);
    assert!(upper(&model, 3).expect("the size is not larger than a measured size") >= 2.0);
    assert_eq!(upper(&MemoryModel::default(), 1), None);
}

#[test]
fn memory_that_grows_at_powers_of_two_is_learned() {
    let rounded = |m: u32| (1.0 + 0.1 * f64::from(m.next_power_of_two())) * GB;
    let model = trained(Allocator::PowerOfTwo, rounded, &[1, 2, 4, 8]);
    for m in [9u32, 12, 16, 17, 32] {
        let upper = upper(&model, m).expect("measured");
        assert!(
            upper >= rounded(m) / GB && upper < 1.03 * rounded(m) / GB,
            "{m}: {upper}"
        );
    }
    let naive = trained(Allocator::Exact, rounded, &[1, 2, 4, 8]);
    assert!(
        super::tests::upper(&naive, 17).expect("measured") < rounded(17) / GB,
        "a straight line underestimates"
    );
}

/// Samples of varying length fall on both sides of a class edge, thousands of times.
#[test]
fn sizes_around_a_class_edge_are_predicted_well() {
    for edge in [1.0f64, 1.003, 1.0072, 1.4, 1.99] {
        let room = |samples: f64| edge * (samples / edge).log2().ceil().exp2();
        let truth = |samples: f64| (5.0 + 0.3 * room(samples)) * GB;
        let mut model = MemoryModel::new(Allocator::PowerOfTwo);
        let (mut under, mut over) = (0, 0);
        for i in 0..3_000u32 {
            let micro_batch = [1, 2, 4, 8, 32][(i as usize).min(4)];
            // An even spread of 10 % to both sides of the edge.
            let spread = f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
            let length = edge * (0.9 + 0.2 * spread);
            let record = MicroBatchRecord {
                cost: (1e4 * length) as u64 * u64::from(micro_batch),
                ..record(micro_batch, truth(f64::from(micro_batch) * length))
            };
            if let Some(error) = model.error_fraction(&record).filter(|_| i >= 12) {
                under += u32::from(error < -0.03);
                over += u32::from(error > 0.12);
            }
            model.learn(&record);
        }
        println!(
            "size classes that end at {edge} times a power of two: of 2,988 estimates, {under} are too low and {over} too high"
        );
        assert!(under <= 29, "edge {edge}: {under} too low");
        // A tenth of the spread cannot be told apart.
        assert!(over <= 600, "edge {edge}: {over} too high");
    }
}

#[test]
fn a_larger_micro_batch_never_looks_cheaper_than_an_observed_one() {
    let mut model = trained(
        Allocator::Exact,
        |m| (1.0 + 0.01 * f64::from(m)) * GB,
        &[1, 2, 4],
    );
    model.learn(&record(2, 3.0 * GB)); // an outlier
    let mut before = 0.0;
    for m in 1..=64 {
        let upper = upper(&model, m).expect("measured");
        assert!(upper >= before, "{m}: {upper} after {before}");
        before = upper;
    }
    assert!(upper(&model, 2).expect("measured") >= 3.0);
}

#[test]
fn falling_peaks_do_not_make_the_slope_negative() {
    let model = trained(
        Allocator::Exact,
        |m| (3.0 - 0.1 * f64::from(m)) * GB,
        &[1, 2, 4, 8],
    );
    assert!(upper(&model, 64) >= upper(&model, 8));
}

#[test]
fn phases_are_learned_separately() {
    let mut model = trained(Allocator::Exact, |m| f64::from(m) * GB, &[1, 2]);
    let evaluate = MicroBatchKind {
        phase: Phase::Evaluate,
        ..kind()
    };
    assert_eq!(model.upper_bytes(evaluate, PIXELS), None);
    model.learn(&MicroBatchRecord {
        kind: evaluate,
        ..record(1, 0.1 * GB)
    });
    assert!(model.upper_bytes(evaluate, PIXELS).expect("measured") < (0.2 * GB) as u64);
}

/// Its footprint includes caches that a later micro-batch of this size does not need.
#[test]
fn a_cancelled_micro_batch_changes_no_prediction() {
    for allocator in [Allocator::Exact, Allocator::PowerOfTwo] {
        let mut model = trained(allocator, |m| (1.0 + 0.1 * f64::from(m)) * GB, &[1, 2]);
        let needs = |model: &MemoryModel| [1, 2, 4, 8, 16].map(|m| upper(model, m));
        let before = (needs(&model), model.state_bytes(kind()));
        for micro_batch in [1, 8] {
            model.learn(&MicroBatchRecord {
                outcome: Outcome::Cancelled,
                ..record(micro_batch, 9.0 * GB)
            });
        }
        assert_eq!((needs(&model), model.state_bytes(kind())), before);
        assert_eq!(model.largest(kind()), 2);
    }
}

/// The device refused more than this footprint, so the micro-batch needs at least as much.
#[test]
fn a_refused_micro_batch_raises_only_the_bound() {
    let mut model = trained(
        Allocator::Exact,
        |m| (1.0 + 0.1 * f64::from(m)) * GB,
        &[1, 2],
    );
    let (four, state) = (upper(&model, 4), model.state_bytes(kind()));
    model.learn(&MicroBatchRecord {
        outcome: Outcome::Memory,
        ..record(8, 9.0 * GB)
    });
    assert_eq!((upper(&model, 4), model.state_bytes(kind())), (four, state));
    assert!(upper(&model, 8).expect("measured") >= 9.0);
    assert_eq!(model.largest(kind()), 2);
}

#[test]
fn the_bound_holds_after_twelve_noisy_micro_batches() {
    let noise = [
        0.4, -0.9, 0.7, -0.3, 1.0, -0.6, 0.1, -1.0, 0.5, -0.2, 0.8, -0.7,
    ]; // percent
    let truth = |m: u32| 6.0 + 0.34 * f64::from(m);
    let mut model = MemoryModel::new(Allocator::Exact);
    for (&m, noise) in [1, 2, 4, 4, 16, 16, 16, 32, 32, 22, 16, 13]
        .iter()
        .zip(noise)
    {
        model.learn(&record(m, truth(m) * (1.0 + noise / 100.0) * GB));
    }
    for m in [1u32, 8, 16, 22, 32] {
        let upper = upper(&model, m).expect("measured");
        assert!(
            upper > truth(m) && upper < 1.08 * truth(m),
            "{m}: {upper}, truth {}",
            truth(m)
        );
    }
}

#[test]
fn the_slope_survives_hours_at_one_size() {
    let truth = |m: u32| 6.0 + 0.34 * f64::from(m);
    let mut model = trained(Allocator::Exact, |m| truth(m) * GB, &[1, 2, 4, 16]);
    for i in 0..5_000 {
        model.learn(&record(
            16,
            truth(16) * (1.0 + 0.01 * f64::from(i % 3 - 1)) * GB,
        ));
    }
    let (eight, thirty_two) = (
        upper(&model, 8).expect("measured"),
        upper(&model, 32).expect("measured"),
    );
    assert!(
        eight > 0.95 * truth(8) && eight < 1.1 * truth(8),
        "{eight}, truth {}",
        truth(8)
    );
    assert!(
        thirty_two > 0.95 * truth(32) && thirty_two < 1.1 * truth(32),
        "{thirty_two}"
    );
}

#[test]
fn the_error_is_a_fraction_of_the_measured_peak() {
    let model = trained(Allocator::Exact, |m| f64::from(m) * GB, &[1, 2, 4]);
    let predicted = upper(&model, 4).expect("measured");
    for (measured, error) in [
        (predicted, 0.0),
        (predicted / 1.1, 0.1),
        (2.0 * predicted, -0.5),
    ] {
        let got = model.error_fraction(&record(4, measured * GB));
        assert!(
            (got.expect("predicted") - error).abs() < 1e-6,
            "{got:?}, not {error}"
        );
    }
    let cancelled = MicroBatchRecord {
        outcome: Outcome::Cancelled,
        ..record(4, GB)
    };
    assert_eq!(model.error_fraction(&cancelled), None);
    assert_eq!(model.error_fraction(&record(4, 0.0)), None, "not measured");
    assert_eq!(
        MemoryModel::default().error_fraction(&record(4, GB)),
        None,
        "not predicted"
    );
}

#[test]
fn a_model_survives_serialization() {
    let model = trained(Allocator::PowerOfTwo, |m| f64::from(m) * GB, &[1, 2, 4]);
    let text = serde_json::to_string(&model).expect("a model can be written");
    let read: MemoryModel = serde_json::from_str(&text).expect("a model can be read");
    for m in [1, 2, 16] {
        assert_eq!(upper(&read, m), upper(&model, m));
    }
}
