//! Samples decoded ahead are given back before a piece gets smaller, and come back when there is nothing else to gain.

use crate::bench::{Bench, EVALUATE, GB, TRAIN};
use pressure::{Action, Change, Decision, Level, Prefetch, sentence};

/// A bench in calm that holds this much ahead.
fn settled(ahead: u64) -> Bench {
    let mut bench = Bench {
        ahead,
        ..Bench::default()
    };
    bench.turns(700);
    assert_eq!(bench.spare, ahead);
    bench
}

/// What changed while others took `bytes` more in sixty decisions; nothing was ever over the budget.
fn pressed(bench: &mut Bench, bytes: u64) -> Vec<Decision> {
    let mut changes = Vec::new();
    for _ in 0..60 {
        bench.others += bytes / 60;
        let decision = bench.turn();
        assert!(decision.predicted_peak_bytes <= decision.budget_bytes);
        if decision.change != Change::Hold {
            changes.push(decision);
        }
    }
    changes
}

fn kinds(changes: &[Decision]) -> Vec<Change> {
    changes.iter().map(|decision| decision.change).collect()
}

#[test]
fn prefetch_goes_before_the_micro_batch_and_says_why() {
    for ahead in [GB / 1024, GB] {
        let mut bench = settled(ahead);
        let changes = pressed(&mut bench, 15 * GB / 2);
        let first = &changes[0];
        assert_eq!(
            (first.action, first.change),
            (Action::Run, Change::Prefetch)
        );
        assert_eq!(first.prefetch, Prefetch::Short);
        assert!(first.release_caches);
        let told = sentence(64, first);
        assert!(
            told.starts_with("Decoding fewer samples ahead: another app took "),
            "{told}"
        );
        let after = kinds(&changes[1..]);
        assert!(
            after.iter().all(|change| *change == Change::Shrink),
            "{after:?}"
        );
        assert!(!after.is_empty() && bench.spare == 0);
    }
}

#[test]
fn what_prefetch_gives_back_is_the_piece_s_to_take() {
    let mut bench = settled(2 * GB);
    let mut least = 64;
    let mut changes = Vec::new();
    while changes.is_empty() {
        changes = pressed(&mut bench, GB);
    }
    for _ in 0..20 {
        least = least.min(bench.turn().micro_batch);
    }
    assert_eq!(kinds(&changes), [Change::Prefetch]);
    assert_eq!(changes[0].micro_batch, 64);
    assert_eq!(least, 64, "2 GB are more than others took since");
}

#[test]
fn prefetch_comes_back_last() {
    let mut bench = settled(GB);
    pressed(&mut bench, 15 * GB / 2);
    bench.others = 6 * GB;
    let changes: Vec<Decision> = bench
        .turns(1_200)
        .into_iter()
        .filter(|decision| decision.change != Change::Hold)
        .collect();
    let (last, before) = changes.split_last().expect("memory is free again");
    assert_eq!(
        (last.change, last.prefetch),
        (Change::Prefetch, Prefetch::Long)
    );
    let told = sentence(64, last);
    assert!(
        told.starts_with("Decoding further ahead again: memory has been free for "),
        "{told}"
    );
    let before = kinds(before);
    assert!(!before.is_empty() && before.iter().all(|change| *change == Change::Grow));
}

#[test]
fn a_critical_system_takes_both_at_once() {
    let mut bench = settled(GB);
    bench.level = Some(Level::Critical);
    let first = bench.turn();
    assert_eq!(
        (first.change, first.micro_batch, first.prefetch),
        (Change::Shrink, 32, Prefetch::Short)
    );
}

#[test]
fn without_anything_ahead_there_is_no_such_rung() {
    let mut bench = settled(0);
    let changes = kinds(&pressed(&mut bench, 15 * GB / 2));
    assert!(!changes.contains(&Change::Prefetch), "{changes:?}");
}

#[test]
fn the_first_piece_of_an_evaluation_may_be_the_one_that_shortens_and_says_so() {
    let mut bench = settled(GB);
    bench.kind = EVALUATE;
    bench.turns(40);
    bench.kind = TRAIN;
    bench.turns(40);
    bench.others += 3 * GB;
    bench.kind = EVALUATE;
    let first = bench.turn();
    assert_eq!(
        (first.change, first.prefetch),
        (Change::Prefetch, Prefetch::Short)
    );
}
