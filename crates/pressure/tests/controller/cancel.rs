//! A piece that is stopped while it runs, or refused its memory, and how it is tried again.

use crate::bench::{Bench, GB};
use pressure::{Change, Outcome, should_cancel};

#[test]
fn a_cancelled_piece_is_retried_smaller() {
    let mut bench = Bench::settled();
    bench.own = 18 * GB;
    bench.others = 13 * GB;
    let reason = should_cancel(&bench.policy, &bench.state, &bench.sample());
    assert!(reason.is_some_and(|reason| !reason.is_empty()));
    bench.end(64, Outcome::Cancelled);
    let retry = bench.turn();
    assert_eq!(retry.change, Change::Cancel);
    assert!(retry.micro_batch <= 32 && retry.release_caches);
}

#[test]
fn a_running_piece_within_its_budget_is_left_alone() {
    let mut bench = Bench::settled();
    (bench.own, bench.others) = (18 * GB, 6 * GB);
    assert_eq!(
        should_cancel(&bench.policy, &bench.state, &bench.sample()),
        None
    );
    // Others alone are over the line, and Ebb holds next to nothing.
    (bench.own, bench.others) = (0, 31 * GB);
    assert_eq!(
        should_cancel(&bench.policy, &bench.state, &bench.sample()),
        None
    );
}

#[test]
fn a_refused_allocation_halves_and_the_size_is_not_tried_again_soon() {
    let mut bench = Bench::settled();
    bench.end(64, Outcome::Memory);
    let retry = bench.turn();
    assert_eq!((retry.change, retry.micro_batch), (Change::Cancel, 32));
    assert_eq!(retry.reason, "an allocation was refused");
    let later = bench.turns(600);
    assert!(later.iter().all(|d| d.micro_batch <= 32), "within a minute");
}
