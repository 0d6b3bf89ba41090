//! The size a piece starts at: cold, taught, and in a phase of its own.

use crate::bench::{Bench, EVALUATE, TRAIN};
use pressure::Change;

#[test]
fn in_calm_the_final_size_is_reached_within_the_first_steps_and_kept() {
    let mut bench = Bench::default();
    let decisions = bench.turns(60);
    let changes: Vec<_> = decisions
        .iter()
        .filter(|d| d.change != Change::Hold)
        .map(|d| (d.change, d.micro_batch))
        .collect();
    assert_eq!(
        changes,
        [
            (Change::Start, 1),
            (Change::Grow, 2),
            (Change::Grow, 8),
            (Change::Grow, 32),
            (Change::Grow, 64)
        ]
    );
    let samples: u32 = decisions
        .iter()
        .map(|d| d.micro_batch)
        .take_while(|&m| m < 64)
        .sum();
    assert!(samples <= 3 * 64, "three steps, not {samples} samples");
    assert!(
        decisions
            .iter()
            .all(|d| d.predicted_peak_bytes <= d.budget_bytes)
    );
}

#[test]
fn a_taught_model_starts_at_its_answer() {
    let mut taught = Bench {
        model: Bench::settled().model,
        ..Bench::default()
    };
    let first = taught.turn();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 64));
}

#[test]
fn evaluation_is_learnt_apart_under_the_same_pilot() {
    let mut bench = Bench::settled();
    (bench.kind, bench.batch, bench.remaining) = (EVALUATE, 256, 256);
    let first = bench.turn();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 1));
    bench.turns(4);
    (bench.kind, bench.batch, bench.remaining) = (TRAIN, 64, 64);
    let back = bench.turn();
    assert_eq!((back.change, back.micro_batch), (Change::Start, 64));
    assert!(
        back.release_caches,
        "buffers of the other phase are of no use"
    );
}
