//! What a decision says about memory, speed and failures is true.

use crate::simulated_machine::{GB, Simulation, TRAIN};
use pressure::{
    Change, Component, Level, MicroBatchRecord, Outcome, describe_decision,
    describe_evaluation_decision, observe_delay, should_cancel,
};

#[test]
fn a_cancelled_micro_batch_gives_the_reason_of_that_moment() {
    let mut simulation = Simulation::settled();
    (simulation.own, simulation.others) = (18 * GB, 13 * GB);
    for _ in 0..3 {
        simulation.at_ms += 100;
        let sample = simulation.sample();
        let state = std::mem::take(&mut simulation.state);
        simulation.state = pressure::record_sample(&simulation.policy, state, &sample);
    }
    let reason = should_cancel(&simulation.policy, &simulation.state, &simulation.sample());
    let reason = reason.expect("memory is short");
    assert!(reason.starts_with("another app took "), "{reason}");
    simulation.state.cancelled(reason.clone());
    simulation.end(64, Outcome::Cancelled);
    // The other app has ended before the decision.
    simulation.others = 6 * GB;
    let retry = simulation.step();
    assert_eq!((retry.change, retry.reason), (Change::Cancel, reason));
}

#[test]
fn a_micro_batch_that_only_delays_the_screen_was_not_cancelled() {
    let mut simulation = Simulation::settled();
    let delayed = MicroBatchRecord {
        at_ms: simulation.at_ms,
        kind: TRAIN,
        micro_batch: 64,
        cost: 64 * 4096,
        peak_bytes: 18 * GB,
        ms: 900.0,
        outcome: Outcome::Ok,
    };
    let state = std::mem::take(&mut simulation.state);
    simulation.state = observe_delay(&simulation.policy, state, &delayed);
    let next = simulation.step();
    assert_eq!(
        describe_decision(64, &next),
        "Micro-batch reduced from 64 to 32: a larger micro-batch held the GPU so long that the screen could stutter"
    );
    let later = simulation.steps(2_000);
    let grown = later.iter().find(|d| d.change == Change::Grow);
    let grown = grown.expect("it is tried again after two minutes");
    assert_eq!(
        grown.reason, "there is memory for a larger micro-batch",
        "memory was never short"
    );
}

#[test]
fn growth_after_a_raised_cap_is_not_explained_by_free_memory() {
    let mut simulation = Simulation::settled();
    simulation.policy.memory_cap_bytes = Some(6 * GB);
    simulation.steps(100);
    simulation.policy.memory_cap_bytes = None;
    let later = simulation.steps(600);
    let grown = later.iter().find(|d| d.change == Change::Grow);
    assert_eq!(
        grown.expect("it grows back").reason,
        "there is memory for a larger micro-batch"
    );
    let waits = later.iter().find(|d| d.reason.contains("stay free"));
    assert_eq!(waits, None, "memory was never short");
}

#[test]
fn growth_after_a_refused_allocation_is_not_explained_by_free_memory() {
    let mut simulation = Simulation::settled();
    simulation.end(64, Outcome::Memory);
    let refused = simulation.step();
    assert_eq!(
        (refused.change, refused.reason.as_str()),
        (Change::Cancel, "an allocation was refused")
    );
    assert_eq!(refused.cause, Component::Device);
    let later = simulation.steps(2_000);
    let grown = later.iter().find(|d| d.change == Change::Grow);
    assert_eq!(
        grown.expect("it is tried again after two minutes").reason,
        "there is memory for a larger micro-batch",
        "the device refused it while the machine had free memory"
    );
}

#[test]
fn a_micro_batch_that_needs_more_than_before_is_the_reason_itself() {
    let mut simulation = Simulation::settled();
    // Each sample needs half as much again, and other apps have not moved for a minute.
    simulation.others = 9 * GB;
    simulation.steps(700);
    simulation.sample_bytes = GB * 3 / 8;
    let later = simulation.steps(50);
    let shrunk = later.iter().find(|d| d.change == Change::Shrink);
    let reason = &shrunk.expect("64 samples no longer fit").reason;
    assert!(
        reason.starts_with("a micro-batch of 64 needs ")
            && reason.ends_with(" more than Ebb may use now"),
        "{reason}"
    );
}

#[test]
fn the_fallback_rules_count_calm_from_the_last_pressure() {
    let mut simulation = Simulation {
        unreadable: true,
        ..Simulation::default()
    };
    simulation.steps(5);
    simulation.at_ms += 20_000;
    simulation.policy.fallback_warning_factor = 1.0;
    simulation.level = Some(Level::Warning);
    simulation.steps(1);
    simulation.level = None;
    simulation.at_ms += 3_000;
    simulation.remaining = 64;
    let soon = simulation.step();
    assert_ne!(soon.change, Change::Grow, "{}", soon.reason);
    simulation.at_ms += 10_000;
    simulation.remaining = 64;
    let later = simulation.step();
    assert_eq!(later.change, Change::Grow);
    assert_eq!(later.reason, "no sign of memory pressure for 10 s");
}

#[test]
fn a_lengthened_prefetch_counts_from_the_last_pressure() {
    let mut simulation = Simulation {
        ahead: GB,
        ..Simulation::default()
    };
    simulation.steps(700);
    simulation.others = 27 * GB / 2;
    simulation.steps(20);
    simulation.others = 6 * GB;
    let mut lengthened = None;
    for tenth in 0..2_000u64 {
        // The system reports pressure half a minute later, for a moment.
        simulation.level = (250..255).contains(&tenth).then_some(Level::Warning);
        let decision = simulation.step();
        if decision.change == Change::Prefetch {
            lengthened = Some((tenth, decision.reason));
            break;
        }
    }
    let (tenth, reason) = lengthened.expect("the prefetch is long again");
    let seconds = reason.strip_prefix("memory has been free for ");
    let seconds = seconds.and_then(|rest| rest.strip_suffix(" s"));
    let seconds: u64 = seconds.map_or(0, |text| text.parse().expect("a number"));
    assert!(
        10 * seconds <= tenth - 254,
        "{reason}, but only {tenth} tenths"
    );
}

#[test]
fn an_evaluation_is_named_as_such() {
    let mut simulation = Simulation::settled();
    let decision = simulation.step();
    let continued = pressure::Decision {
        change: Change::Continue,
        reason: "3.0 GB is free again".into(),
        ..decision
    };
    assert_eq!(
        describe_evaluation_decision(64, &continued),
        format!(
            "Continuing the evaluation with a micro-batch of {}: 3.0 GB is free again",
            continued.micro_batch
        )
    );
}
