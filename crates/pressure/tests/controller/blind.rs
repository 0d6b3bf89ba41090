//! The rules that take over when memory or peaks cannot be read.

use crate::bench::{Bench, EVALUATE, TRAIN};
use pressure::{Change, Level, Outcome, Policy};

#[test]
fn blind_it_gives_caches_back_every_five_training_and_three_evaluation_pieces() {
    for (kind, every) in [(TRAIN, 5), (EVALUATE, 3)] {
        let mut bench = Bench {
            blind: true,
            kind,
            batch: 4,
            remaining: 4,
            ..Bench::default()
        };
        let released: Vec<usize> = bench
            .turns(16)
            .iter()
            .enumerate()
            .filter(|(_, decision)| decision.release_caches)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(released[..2], [every, 2 * every], "{kind:?}");
    }
}

#[test]
fn blind_it_shrinks_by_a_fifth_and_by_half_and_grows_by_one_split() {
    let mut bench = Bench {
        blind: true,
        policy: Policy {
            blind_start: 32,
            ..Policy::default()
        },
        ..Bench::default()
    };
    assert_eq!(bench.turn().micro_batch, 32);
    bench.level = Some(Level::Warning);
    assert_eq!(
        bench.decide().micro_batch,
        32,
        "not within five seconds of the last step"
    );
    bench.at_ms += 5_000;
    bench.remaining = 64;
    assert_eq!(
        bench.turn().micro_batch,
        22,
        "a fifth less than 32 is 25, and 64 in pieces of 25 are three pieces of 22"
    );
    bench.level = Some(Level::Critical);
    bench.at_ms += 1_000;
    bench.remaining = 64;
    assert_eq!(bench.turn().micro_batch, 11);
    bench.end(11, Outcome::Memory);
    bench.remaining = 64;
    assert_eq!(bench.turn().micro_batch, 5);
    bench.level = None;
    bench.remaining = 64;
    let sizes: Vec<u32> = (0..3)
        .map(|_| {
            bench.at_ms += 10_000;
            bench.remaining = 64;
            bench.turn().micro_batch
        })
        .collect();
    assert_eq!(sizes, [6, 7, 8]);
}

#[test]
fn without_measured_peaks_the_rules_take_over() {
    let mut bench = Bench {
        measured: false,
        ..Bench::default()
    };
    bench.turns(10);
    bench.level = Some(Level::Critical);
    let before = bench.state.micro_batch(TRAIN);
    bench.at_ms += 2_000;
    assert_eq!(bench.turn().micro_batch, before / 2);
    bench.level = None;
    bench.at_ms += 20_000;
    bench.remaining = 64;
    assert!(bench.turns(200).iter().any(|d| d.change == Change::Grow));
}
