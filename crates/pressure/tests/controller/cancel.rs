//! A piece that is stopped while it runs, or refused its memory, and how it is tried again.

use crate::bench::{Bench, GB};
use pressure::{Change, Outcome, notice, should_cancel};

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

/// Others take 0.7 GB in each tenth of a second, six times; the machine is at 84 % then.
fn others_take_fast(bench: &mut Bench) {
    bench.own = 18 * GB;
    for _ in 0..6 {
        bench.others += 7 * GB / 10;
        bench.at_ms += 100;
        let sample = bench.sample();
        bench.state = notice(&bench.policy, std::mem::take(&mut bench.state), &sample);
    }
}

#[test]
fn a_piece_is_cancelled_before_the_last_memory_is_taken() {
    let mut bench = Bench::settled();
    others_take_fast(&mut bench);
    let used = (bench.own + bench.others) as f64 / (32 * GB) as f64;
    assert!(used < bench.policy.cancel_fraction, "{used}");
    let reason = should_cancel(&bench.policy, &bench.state, &bench.sample());
    assert!(reason.is_some_and(|reason| reason.contains("GB in")));
}

#[test]
fn a_single_sample_is_not_cancelled_for_what_may_come() {
    let mut bench = Bench::settled();
    bench.batch = 1;
    bench.policy.fixed_micro_batch = Some(1);
    bench.turns(1);
    bench.policy.fixed_micro_batch = None;
    others_take_fast(&mut bench);
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
