//! Ranks that die in a group whose connection tolerates deaths: the others continue without a
//! restart, and end on the weights of a run that was not disturbed. If they cannot continue, the
//! run ends with an error, and continues from its newest checkpoint.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    SAVED_STEPS, STEPS, Trained, distance, of_images, of_texts, saving_every, train, train_compared,
};
use distributed::ThreadOptions;
use runlog::{ExchangeChoice, PrecisionChoice, RunConfig, RunEvent, ShardingChoice};
use std::time::Duration;
use trainer::{Control, RunGroup};

/// A group in which `death` happens, with delays by `seed`.
fn tolerant(seed: u64, death: (usize, u64)) -> ThreadOptions {
    ThreadOptions {
        seed,
        max_delay: Duration::from_millis(3),
        // Long enough that no living rank is silent for this long on a busy machine.
        silence: Duration::from_secs(5),
        death: Some(death),
        second_death: None,
        tolerates_deaths: true,
    }
}

/// The steps in the order in which rank 0 completed them.
fn steps(trained: &Trained) -> Vec<u64> {
    let step = |event: &RunEvent| match event {
        RunEvent::Step { step, .. } => Some(*step),
        _ => None,
    };
    trained.events.iter().filter_map(step).collect()
}

/// The ranks that the events name: at the beginning, and after each loss.
fn members(trained: &Trained) -> Vec<Vec<u32>> {
    let ranks = |event: &RunEvent| match event {
        RunEvent::Group { members, .. } => Some(members.iter().map(|member| member.rank).collect()),
        _ => None,
    };
    trained.events.iter().filter_map(ranks).collect()
}

/// The largest difference of the weights after the last step, as a part of the way travelled.
fn drift(found: &Trained, alone: &Trained) -> f64 {
    let last = alone.weights(STEPS);
    let way = distance(&alone.weights(SAVED_STEPS), &last);
    assert!(way > 0.0);
    distance(&found.weights(STEPS), &last) / way
}

/// Checks that rank 0 has done every step once, in spite of deaths, and ends where `alone` does.
#[track_caller]
fn check_finished(rank_0: &Trained, alone: &Trained, most: f64) {
    assert_eq!(rank_0.outcome.as_ref().unwrap().step, STEPS);
    let expected: Vec<u64> = (1..=STEPS).collect();
    assert_eq!(steps(rank_0), expected, "no step is lost or done twice");
    let drift = drift(rank_0, alone);
    assert!(drift <= most, "{drift:e}");
}

#[test]
fn the_others_continue_and_end_on_the_weights_of_an_undisturbed_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = saving_every(SAVED_STEPS, of_texts(folder.path()));
    let alone = train(&config, RunGroup::default(), Control::default());
    let (mut continued, mut worst) = (0, 0.0f64);
    for seed in 0..10 {
        let dying = 1 + (seed % 2) as usize;
        // From the first steps to some before the last one.
        let options = tolerant(seed, (dying, 20 + 6 * seed));
        let ranks = train_compared(&config, 3, options);
        check_finished(&ranks[0], &alone, 1e-12);
        worst = worst.max(drift(&ranks[0], &alone));
        let members = members(&ranks[0]);
        if members.len() > 1 {
            let left = 3 - dying;
            assert_eq!(members[1..], [vec![0, left as u32]]);
            assert_eq!(ranks[left].outcome.as_ref().unwrap().step, STEPS);
            assert!(ranks[dying].outcome.is_err());
            continued += 1;
        }
    }
    println!("{continued} of 10 groups lost a rank; weights differ by at most {worst:.1e}");
    assert!(continued >= 8, "{continued}");
}

#[test]
fn the_event_names_who_left() {
    let folder = tempfile::tempdir().unwrap();
    let config = saving_every(SAVED_STEPS, of_texts(folder.path()));
    let ranks = train_compared(&config, 3, tolerant(2, (1, 50)));
    let mut left = ranks[0].events.iter().filter_map(|event| match event {
        RunEvent::Group { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let left = left.next_back().unwrap();
    assert!(
        left.contains("; rank 1 (") && left.contains(" ended, and the others continue at step "),
        "{left}"
    );
    // Later events have the numbers with which the ranks began.
    let ledger = ranks[0].events.iter().rev().find_map(|event| match event {
        RunEvent::Step { ledger, .. } => Some(ledger.clone()),
        _ => None,
    });
    let ledger = ledger.unwrap();
    assert!(ledger.iter().all(|(rank, ..)| [0, 2].contains(rank)));
    let newest = ranks[0].events.iter().rev().find_map(|event| match event {
        RunEvent::Machines { machines, .. } => {
            Some(machines.iter().map(|machine| machine.rank).collect())
        }
        _ => None,
    });
    assert_eq!(newest, Some(vec![0, 2]));
}

#[test]
fn a_group_continues_after_two_deaths_until_one_rank_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let config = saving_every(SAVED_STEPS, of_images(folder.path()));
    let alone = train(&config, RunGroup::default(), Control::default());
    for (seed, deaths) in [(1, [40, 60]), (2, [60, 40]), (3, [50, 51])] {
        let options = ThreadOptions {
            second_death: Some((2, deaths[1])),
            ..tolerant(seed, (1, deaths[0]))
        };
        let ranks = train_compared(&config, 3, options);
        check_finished(&ranks[0], &alone, 1e-12);
        assert_eq!(members(&ranks[0]).last(), Some(&vec![0]), "seed {seed}");
    }
}

#[test]
fn gradients_in_bf16_survive_a_death() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        exchange: Some(ExchangeChoice::Bf16),
        precision: Some(PrecisionChoice::F32),
        ..saving_every(SAVED_STEPS, of_texts(folder.path()))
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let ranks = train_compared(&config, 3, tolerant(4, (2, 90)));
    // The exchange rounds gradients, so the weights only resemble those of one machine.
    check_finished(&ranks[0], &alone, 0.1);
    assert_eq!(members(&ranks[0]).len(), 2);
}

/// Checks that a run ends with an error that names the rank which dies, and has a checkpoint.
#[track_caller]
fn check_ended(config: &RunConfig, death: (usize, u64)) {
    let dying = death.0;
    let ranks = train_compared(config, 3, tolerant(5, death));
    let living = ranks.iter().enumerate().filter(|(rank, _)| *rank != dying);
    for (_, rank) in living {
        let error = rank.error();
        assert!(error.contains(&format!("rank {dying} (")), "{error}");
        assert_eq!(members(rank).len(), 1, "no rank has continued");
    }
    let checkpoints = ranks[0].run.checkpoints().unwrap();
    assert!(!checkpoints.is_empty());
    // Between two synchronizations, no rank has weights that a checkpoint could have.
    let every = config.sync_every.unwrap_or(1);
    assert!(checkpoints.iter().all(|it| it.step.is_multiple_of(every)));
}

#[test]
fn a_group_that_cannot_continue_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = |sharding| RunConfig {
        sharding: Some(sharding),
        ..saving_every(SAVED_STEPS, of_texts(folder.path()))
    };
    // Rank 0 keeps the run, and the moments of a rank are nowhere else.
    check_ended(&config(ShardingChoice::None), (0, 60));
    // Divided moments are gathered before the first step, in many sums.
    check_ended(&config(ShardingChoice::Optimizer), (1, 250));
    // The steps of a rank since the newest synchronization are nowhere else, either.
    let rare = RunConfig {
        sync_every: Some(4),
        ..config(ShardingChoice::None)
    };
    check_ended(&rare, (1, 60));
}
