//! The prefetch is shortened before the micro-batch shrinks, and lengthened after everything else
//! has recovered.

use crate::simulated_machine::{EVALUATE, GB, Simulation, TRAIN};
use pressure::{Action, Change, Decision, Level, Prefetch, describe_decision};

/// A simulation in calm that holds this much ahead.
fn settled(ahead: u64) -> Simulation {
    let mut simulation = Simulation {
        ahead,
        ..Simulation::default()
    };
    simulation.steps(700);
    assert_eq!(simulation.spare, ahead);
    simulation
}

/// What changed while others took `bytes` more in sixty decisions; nothing was ever over the
/// budget.
fn pressed(simulation: &mut Simulation, bytes: u64) -> Vec<Decision> {
    let mut changes = Vec::new();
    for _ in 0..60 {
        simulation.others += bytes / 60;
        let decision = simulation.step();
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
fn prefetch_is_shortened_before_the_micro_batch_shrinks() {
    for ahead in [GB / 1024, GB] {
        let mut simulation = settled(ahead);
        let changes = pressed(&mut simulation, 15 * GB / 2);
        let first = &changes[0];
        assert_eq!(
            (first.action, first.change),
            (Action::Run, Change::Prefetch)
        );
        assert_eq!(first.prefetch, Prefetch::Short);
        assert!(first.release_caches);
        let sentence = describe_decision(64, first);
        assert!(
            sentence.starts_with("Decoding fewer samples in advance: another app took "),
            "{sentence}"
        );
        let after = kinds(&changes[1..]);
        assert!(
            after.iter().all(|change| *change == Change::Shrink),
            "{after:?}"
        );
        assert!(!after.is_empty() && simulation.spare == 0);
    }
}

#[test]
fn memory_of_the_prefetch_goes_to_the_micro_batch() {
    let mut simulation = settled(2 * GB);
    let mut least = 64;
    let mut changes = Vec::new();
    while changes.is_empty() {
        changes = pressed(&mut simulation, GB);
    }
    for _ in 0..20 {
        least = least.min(simulation.step().micro_batch);
    }
    assert_eq!(kinds(&changes), [Change::Prefetch]);
    assert_eq!(changes[0].micro_batch, 64);
    assert_eq!(least, 64, "2 GB are more than others took since");
}

#[test]
fn prefetch_is_lengthened_last() {
    let mut simulation = settled(GB);
    pressed(&mut simulation, 15 * GB / 2);
    simulation.others = 6 * GB;
    let changes: Vec<Decision> = simulation
        .steps(1_200)
        .into_iter()
        .filter(|decision| decision.change != Change::Hold)
        .collect();
    let (last, before) = changes.split_last().expect("memory is free again");
    assert_eq!(
        (last.change, last.prefetch),
        (Change::Prefetch, Prefetch::Long)
    );
    let sentence = describe_decision(64, last);
    assert!(
        sentence.starts_with("Decoding more samples in advance again: memory has been free for "),
        "{sentence}"
    );
    let before = kinds(before);
    assert!(!before.is_empty() && before.iter().all(|change| *change == Change::Grow));
}

#[test]
fn a_critical_system_reduces_both_at_once() {
    let mut simulation = settled(GB);
    simulation.level = Some(Level::Critical);
    let first = simulation.step();
    assert_eq!(
        (first.change, first.micro_batch, first.prefetch),
        (Change::Shrink, 32, Prefetch::Short)
    );
}

#[test]
fn without_a_prefetch_there_is_nothing_to_shorten() {
    let mut simulation = settled(0);
    let changes = kinds(&pressed(&mut simulation, 15 * GB / 2));
    assert!(!changes.contains(&Change::Prefetch), "{changes:?}");
}

#[test]
fn the_first_decision_of_an_evaluation_may_shorten_it() {
    let mut simulation = settled(GB);
    simulation.kind = EVALUATE;
    simulation.steps(40);
    simulation.kind = TRAIN;
    simulation.steps(40);
    simulation.others += 3 * GB;
    simulation.kind = EVALUATE;
    let first = simulation.step();
    assert_eq!(
        (first.change, first.prefetch),
        (Change::Prefetch, Prefetch::Short)
    );
}
