//! Decisions without a change: a shorter rest, costly samples, and a size fixed by the user.

use crate::simulated_machine::{GB, Simulation, TRAIN};
use pressure::{
    Action, Change, Decision, DecisionInput, Level, MemorySample, Outcome, Policy, SampleCost,
    decide, should_cancel,
};

/// A run after 100 steps in which Ebb may use 9 GB.
fn with_9_gb() -> Simulation {
    let mut simulation = Simulation {
        policy: Policy {
            memory_cap_bytes: Some(9 * GB),
            ..Policy::default()
        },
        ..Simulation::default()
    };
    simulation.steps(100);
    simulation
}

/// The decision for samples with these costs.
fn decision_for(simulation: &mut Simulation, costs: &[SampleCost]) -> Decision {
    let ask = DecisionInput {
        spare_bytes: 0,
        sample: simulation.sample(),
        remaining: costs,
        kind: TRAIN,
    };
    let state = simulation.state.clone();
    decide(&simulation.policy, state, &ask, &simulation.model).1
}

#[test]
fn the_rest_of_a_batch_is_split_evenly_without_a_change() {
    let mut simulation = with_9_gb();
    let decisions = simulation.steps(30);
    assert!(
        decisions.iter().all(|d| d.change == Change::Hold),
        "nothing changes"
    );
    let sizes: Vec<u32> = decisions.iter().map(|d| d.micro_batch).collect();
    assert!(
        sizes.windows(3).any(|w| w == [22, 21, 21]),
        "64 in micro-batches of 22: {sizes:?}"
    );
    assert!(
        decisions
            .iter()
            .all(|d| d.reason == "a larger micro-batch would not fit")
    );
}

#[test]
fn heavy_samples_run_in_fewer_without_a_change() {
    let mut simulation = with_9_gb();
    let costs: Vec<_> = (0..64)
        .map(|i| SampleCost(if i < 22 { 8192 } else { 2048 }))
        .collect();
    simulation.remaining = 64;
    let decision = decision_for(&mut simulation, &costs);
    assert_eq!(decision.change, Change::Hold);
    assert!((1..22).contains(&decision.micro_batch), "{decision:?}");
    assert!(decision.predicted_peak_bytes <= decision.budget_bytes);
}

/// 9 GB hold 25 ordinary samples, but the next useful size after 22 is 32.
#[test]
fn unequal_samples_fill_the_memory_between_two_useful_sizes() {
    let mut simulation = with_9_gb();
    let costs: Vec<_> = (0..64)
        .map(|i| SampleCost(if i % 2 == 0 { 2000 } else { 2096 }))
        .collect();
    let decision = decision_for(&mut simulation, &costs);
    assert_eq!(decision.change, Change::Hold);
    assert!(
        decision.micro_batch > 44,
        "more than 22 ordinary samples: {decision:?}"
    );
    assert!(decision.predicted_peak_bytes <= decision.budget_bytes * 93 / 100);
}

#[test]
fn a_fixed_micro_batch_is_always_used() {
    let policy = Policy {
        fixed_micro_batch: Some(6),
        ..Policy::default()
    };
    let mut simulation = Simulation {
        policy,
        ..Simulation::default()
    };
    for (others, level) in [
        (6, None),
        (25, Some(Level::Critical)),
        (31, Some(Level::Critical)),
        (6, None),
    ] {
        (simulation.others, simulation.level) = (others * GB, level);
        for decision in simulation.steps(22) {
            assert_eq!(decision.action, Action::Run);
            assert!(
                decision.micro_batch == 6 || decision.micro_batch == 4,
                "64 = 10 x 6 + 4"
            );
            assert!(matches!(decision.change, Change::Hold | Change::Start));
        }
    }
    simulation.end(6, Outcome::Memory);
    assert_eq!(simulation.step().change, Change::Cancel);
    assert_eq!(
        should_cancel(
            &simulation.policy,
            &simulation.state,
            &MemorySample {
                available_bytes: 0,
                ..simulation.sample()
            }
        ),
        None
    );
}
