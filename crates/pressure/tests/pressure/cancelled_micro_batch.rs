//! A micro-batch that is cancelled while it runs, or that gets no memory, is retried smaller.

use crate::simulated_machine::{GB, Simulation};
use pressure::{Change, Outcome, record_sample, should_cancel};

#[test]
fn a_cancelled_micro_batch_is_retried_smaller() {
    let mut simulation = Simulation::settled();
    simulation.own = 18 * GB;
    simulation.others = 13 * GB;
    let reason = should_cancel(&simulation.policy, &simulation.state, &simulation.sample());
    assert!(reason.is_some_and(|reason| !reason.is_empty()));
    simulation.end(64, Outcome::Cancelled);
    let retry = simulation.step();
    assert_eq!(retry.change, Change::Cancel);
    assert!(retry.micro_batch <= 32 && retry.release_caches);
}

#[test]
fn a_running_micro_batch_within_its_budget_is_left_alone() {
    let mut simulation = Simulation::settled();
    (simulation.own, simulation.others) = (18 * GB, 6 * GB);
    assert_eq!(
        should_cancel(&simulation.policy, &simulation.state, &simulation.sample()),
        None
    );
    // Others alone are over the line, and Ebb holds next to nothing.
    (simulation.own, simulation.others) = (0, 31 * GB);
    assert_eq!(
        should_cancel(&simulation.policy, &simulation.state, &simulation.sample()),
        None
    );
}

/// Others take 0.7 GB in each tenth of a second, six times; the machine is at 84 % then.
fn others_take_fast(simulation: &mut Simulation) {
    simulation.own = 18 * GB;
    for _ in 0..6 {
        simulation.others += 7 * GB / 10;
        simulation.at_ms += 100;
        let sample = simulation.sample();
        simulation.state = record_sample(
            &simulation.policy,
            std::mem::take(&mut simulation.state),
            &sample,
        );
    }
}

#[test]
fn a_micro_batch_is_cancelled_before_the_last_memory_is_taken() {
    let mut simulation = Simulation::settled();
    others_take_fast(&mut simulation);
    let used = (simulation.own + simulation.others) as f64 / (32 * GB) as f64;
    assert!(used < simulation.policy.cancel_fraction, "{used}");
    let reason = should_cancel(&simulation.policy, &simulation.state, &simulation.sample());
    assert!(reason.is_some_and(|reason| reason.contains("GB in")));
}

/// Whether a micro-batch of 64 is cancelled if the limit falls below what is in use when it begins.
fn is_cancelled_over_the_limit(pace: fn(u32) -> f64) -> bool {
    let mut simulation = Simulation {
        pace,
        ..Simulation::default()
    };
    simulation.steps(700);
    simulation.own = 18 * GB;
    assert_eq!(simulation.decide().micro_batch, 64);
    simulation.policy.max_system_fraction = 0.6;
    let until_ms = simulation.at_ms + pace(64) as u64;
    let mut cancelled = false;
    while simulation.at_ms < until_ms {
        let (policy, sample) = (&simulation.policy, simulation.sample());
        let state = std::mem::take(&mut simulation.state);
        simulation.state = record_sample(policy, state, &sample);
        cancelled |= should_cancel(policy, &simulation.state, &sample).is_some();
        simulation.at_ms += 50;
    }
    cancelled
}

#[test]
fn a_micro_batch_that_would_be_over_the_limit_for_700_ms_is_cancelled() {
    assert!(is_cancelled_over_the_limit(|m| 60.0 + 10.0 * f64::from(m)));
    assert!(!is_cancelled_over_the_limit(|m| 60.0 + 7.0 * f64::from(m)));
}

#[test]
fn a_single_sample_is_not_cancelled_for_what_may_come() {
    let mut simulation = Simulation::settled();
    simulation.batch = 1;
    simulation.policy.fixed_micro_batch = Some(1);
    simulation.steps(1);
    simulation.policy.fixed_micro_batch = None;
    others_take_fast(&mut simulation);
    assert_eq!(
        should_cancel(&simulation.policy, &simulation.state, &simulation.sample()),
        None
    );
}

#[test]
fn a_refused_size_is_halved_and_not_retried_soon() {
    let mut simulation = Simulation::settled();
    simulation.end(64, Outcome::Memory);
    let retry = simulation.step();
    assert_eq!((retry.change, retry.micro_batch), (Change::Cancel, 32));
    assert_eq!(retry.reason, "an allocation was refused");
    let later = simulation.steps(600);
    assert!(later.iter().all(|d| d.micro_batch <= 32), "within a minute");
}

#[test]
fn a_size_that_the_device_ended_is_halved_and_not_retried_soon() {
    let mut simulation = Simulation::settled();
    simulation.end(64, Outcome::TooLong);
    let retry = simulation.step();
    assert_eq!((retry.change, retry.micro_batch), (Change::Cancel, 32));
    assert_eq!(retry.reason, "the micro-batch held the GPU for too long");
    let later = simulation.steps(600);
    assert!(later.iter().all(|d| d.micro_batch <= 32), "within a minute");
}

#[test]
fn a_single_sample_that_the_device_ended_is_retried_without_a_recovery_step() {
    let mut simulation = Simulation::settled();
    simulation.end(1, Outcome::TooLong);
    let retry = simulation.step();
    assert_eq!((retry.change, retry.micro_batch), (Change::Cancel, 1));
    assert_eq!(retry.checkpoint_blocks, 0);
}
