//! A run that was suspended for too long, or whose system has hardly any disk space left for swap,
//! ends with a reason. A full disk of the run alone does not end it.

use crate::simulated_machine::{GB, Simulation};
use pressure::{Action, Change, Component, describe_decision};

/// A suspended simulation.
fn suspended() -> Simulation {
    let mut simulation = Simulation::settled();
    for others in [28, 29, 30, 31, 31, 31] {
        simulation.others = others * GB;
        if simulation.step().action == Action::Suspend {
            simulation.own = GB / 4;
        }
    }
    assert_eq!(simulation.decide().action, Action::Suspend);
    simulation
}

#[test]
fn a_run_suspended_for_longer_than_its_limit_ends() {
    let mut simulation = suspended();
    simulation.policy.max_suspended_ms = 30 * 60_000;
    simulation.step();
    simulation.at_ms += 29 * 60_000;
    assert_eq!(simulation.step().action, Action::Suspend);
    simulation.at_ms += 2 * 60_000;
    let end = simulation.step();
    assert_eq!((end.action, end.change), (Action::Stop, Change::Stop));
    assert_eq!(
        describe_decision(0, &end),
        "Stopping: other apps have needed the memory for 31 min, and a run may not stay suspended for longer"
    );
}

#[test]
fn a_run_that_resumes_in_time_may_be_suspended_again() {
    let mut simulation = suspended();
    simulation.policy.max_suspended_ms = 30 * 60_000;
    simulation.step();
    simulation.at_ms += 29 * 60_000;
    simulation.others = 6 * GB;
    simulation.steps(100);
    simulation.others = 31 * GB;
    while simulation.step().action != Action::Suspend {}
    simulation.own = GB / 4;
    simulation.at_ms += 2 * 60_000;
    assert_eq!(simulation.step().action, Action::Suspend);
}

#[test]
fn a_run_without_a_limit_stays_suspended() {
    let mut simulation = suspended();
    simulation.policy.max_suspended_ms = u64::MAX;
    simulation.step();
    simulation.at_ms += 1_000 * 3_600_000;
    assert_eq!(simulation.step().action, Action::Suspend);
}

#[test]
fn a_disk_without_space_for_swap_ends_the_run() {
    let mut simulation = Simulation {
        disk: Some(50 * GB),
        ..Simulation::default()
    };
    simulation.steps(100);
    simulation.disk = Some(2 * GB - 1);
    let shorter = simulation.steps(100);
    assert!(shorter.iter().all(|d| d.action == Action::Run));
    simulation.disk = Some(3 * GB);
    simulation.step();
    simulation.disk = Some(2 * GB - 1);
    let again = simulation.steps(102);
    let ends: Vec<_> = again.iter().filter(|d| d.action != Action::Run).collect();
    assert!((1..=2).contains(&ends.len()), "{}", ends.len());
    assert_eq!(
        (ends[0].action, ends[0].cause),
        (Action::Stop, Component::Disk)
    );
    assert_eq!(
        describe_decision(8, ends[0]),
        "Stopping: only 2.0 GB of disk space is left for swap"
    );
}

/// The run trains on without checkpoints if its disk holds no swap.
#[test]
fn a_full_disk_of_the_run_alone_does_not_end_it() {
    for swap_disk in [None, Some(50 * GB)] {
        let mut simulation = Simulation {
            disk: swap_disk,
            ..Simulation::default()
        };
        simulation.steps(100);
        simulation.state.set_disk_free(Some(0));
        let decisions = simulation.steps(200);
        assert!(decisions.iter().all(|d| d.action == Action::Run));
    }
}

#[test]
fn a_run_that_starts_on_a_small_disk_stops_at_half_of_it() {
    for (left, expected) in [(6, Action::Run), (3, Action::Stop)] {
        let mut simulation = Simulation {
            disk: Some(GB),
            ..Simulation::default()
        };
        simulation.step();
        simulation.disk = Some(left * GB / 8);
        assert_eq!(
            simulation.steps(200).last().map(|d| d.action),
            Some(expected)
        );
    }
}
