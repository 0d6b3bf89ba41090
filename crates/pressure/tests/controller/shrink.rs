//! Why a piece gets smaller before it runs: other apps, the system's own word, a cap.

use crate::bench::{Bench, GB};
use pressure::{Action, Change, Component, Level, sentence};

#[test]
fn others_that_grow_shrink_it_before_the_line_and_are_named() {
    let mut bench = Bench::settled();
    let mut told = None;
    for _ in 0..60 {
        bench.others += GB / 8;
        let decision = bench.turn();
        assert!(decision.predicted_peak_bytes <= decision.budget_bytes);
        assert!(
            bench.others + bench.own <= 32 * GB * 9 / 10,
            "over the line at {} ms",
            bench.at_ms
        );
        if decision.change == Change::Shrink {
            told.get_or_insert(sentence(64, &decision));
        }
    }
    let told = told.expect("7.5 GB more need a smaller piece");
    assert!(
        told.starts_with("Shrunk 64 to ")
            && told.contains("another app took ")
            && told.ends_with(" s"),
        "{told}"
    );
}

#[test]
fn a_critical_system_halves_at_once_and_again_each_second() {
    let mut bench = Bench::settled();
    bench.level = Some(Level::Critical);
    let first = bench.turn();
    assert_eq!(
        (first.change, first.micro_batch, first.cause),
        (Change::Shrink, 32, Component::System)
    );
    assert!(first.release_caches);
    assert_eq!(
        sentence(64, &first),
        "Shrunk 64 to 32: the system reports memory pressure"
    );
    let shrunk: Vec<u32> = bench
        .turns(25)
        .iter()
        .filter(|d| d.change == Change::Shrink)
        .map(|d| d.micro_batch)
        .collect();
    assert_eq!(shrunk, [16, 8], "two more seconds");
}

#[test]
fn a_cap_is_obeyed_and_named_but_never_waited_for() {
    let mut bench = Bench::settled();
    bench.policy.memory_cap_bytes = Some(6 * GB);
    let shrunk = bench.turn();
    assert!(shrunk.predicted_peak_bytes <= 6 * GB);
    assert_eq!(
        sentence(64, &shrunk),
        "Shrunk 64 to 13: the memory cap is 6.0 GB"
    );
    bench.policy.memory_cap_bytes = Some(GB);
    bench.turns(10);
    let decision = bench.turn();
    assert_eq!((decision.action, decision.micro_batch), (Action::Run, 1));
}
