//! The last rung: a run that has been parked for too long, or whose disk fills up, ends with a reason.

use crate::bench::{Bench, GB};
use pressure::{Action, Change, Component, sentence};

/// A bench that is parked.
fn parked() -> Bench {
    let mut bench = Bench::settled();
    for others in [28, 29, 30, 31, 31, 31] {
        bench.others = others * GB;
        if bench.turn().action == Action::Park {
            bench.own = GB / 4;
        }
    }
    assert_eq!(bench.decide().action, Action::Park);
    bench
}

#[test]
fn a_run_parked_for_longer_than_its_limit_ends() {
    let mut bench = parked();
    bench.policy.parked_most_ms = 30 * 60_000;
    bench.turn();
    bench.at_ms += 29 * 60_000;
    assert_eq!(bench.turn().action, Action::Park);
    bench.at_ms += 2 * 60_000;
    let end = bench.turn();
    assert_eq!((end.action, end.change), (Action::Stop, Change::Stop));
    assert_eq!(
        sentence(0, &end),
        "Stopping: other apps have needed the memory for 31 min, as long as a parked run may wait"
    );
}

#[test]
fn a_run_that_comes_back_in_time_may_park_as_long_again() {
    let mut bench = parked();
    bench.policy.parked_most_ms = 30 * 60_000;
    bench.turn();
    bench.at_ms += 29 * 60_000;
    bench.others = 6 * GB;
    bench.turns(100);
    bench.others = 31 * GB;
    while bench.turn().action != Action::Park {}
    bench.own = GB / 4;
    bench.at_ms += 2 * 60_000;
    assert_eq!(bench.turn().action, Action::Park);
}

#[test]
fn a_run_without_a_limit_stays_parked() {
    let mut bench = parked();
    bench.policy.parked_most_ms = u64::MAX;
    bench.turn();
    bench.at_ms += 1_000 * 3_600_000;
    assert_eq!(bench.turn().action, Action::Park);
}

#[test]
fn a_disk_that_stays_short_ends_the_run_while_a_checkpoint_fits() {
    let mut bench = Bench {
        disk: Some(50 * GB),
        ..Bench::default()
    };
    bench.turns(100);
    bench.disk = Some(2 * GB - 1);
    let shorter = bench.turns(100);
    assert!(shorter.iter().all(|d| d.action == Action::Run));
    bench.disk = Some(3 * GB);
    bench.turn();
    bench.disk = Some(2 * GB - 1);
    let again = bench.turns(102);
    let ends: Vec<_> = again.iter().filter(|d| d.action != Action::Run).collect();
    assert!((1..=2).contains(&ends.len()), "{}", ends.len());
    assert_eq!(
        (ends[0].action, ends[0].cause),
        (Action::Stop, Component::Disk)
    );
    assert_eq!(
        sentence(8, ends[0]),
        "Stopping: only 2.0 GB are free on the disk for checkpoints"
    );
}

#[test]
fn a_run_that_begins_on_a_small_disk_ends_at_half_of_what_it_found() {
    for (left, expected) in [(6, Action::Run), (3, Action::Stop)] {
        let mut bench = Bench {
            disk: Some(GB),
            ..Bench::default()
        };
        bench.turn();
        bench.disk = Some(left * GB / 8);
        assert_eq!(bench.turns(200).last().map(|d| d.action), Some(expected));
    }
}
