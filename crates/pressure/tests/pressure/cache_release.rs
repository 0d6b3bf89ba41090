//! When caches are released, and how long samples keep them small.

use crate::simulated_machine::{GB, Simulation, TRAIN};
use pressure::{Change, Decision, DecisionInput, MemorySample, SampleCost, decide};

/// The next answer to a simulation whose device holds `allocated` of a working set of `limit`,
/// with samples of this cost.
fn asked(simulation: &Simulation, allocated: u64, limit: u64, cost: u64) -> Decision {
    let costs = vec![SampleCost(cost); 64];
    let sample = MemorySample {
        own_bytes: allocated,
        available_bytes: 32 * GB - simulation.others - allocated,
        device_limit_bytes: limit,
        device_allocated_bytes: allocated,
        device_live_bytes: 2 * GB,
        ..simulation.sample()
    };
    let ask = DecisionInput {
        spare_bytes: 0,
        sample,
        remaining: &costs,
        kind: TRAIN,
    };
    decide(
        &simulation.policy,
        simulation.state.clone(),
        &ask,
        &simulation.model,
    )
    .1
}

#[test]
fn unneeded_caches_above_the_soft_limit_are_released() {
    // Micro-batches of 64 need 18 GB.
    let simulation = Simulation::settled();
    for (allocated, limit, given_back) in [
        (18, 24, false), // above .70 of 24, but the next micro-batch needs it
        (21, 26, true),
        (21, 32, false), // below .70 of 32, and memory is not short
    ] {
        let decision = asked(&simulation, allocated * GB, limit * GB, 4096);
        assert_eq!(
            decision.release_caches, given_back,
            "{allocated} of {limit} GB: {decision:?}"
        );
        assert_eq!(decision.change, Change::Hold, "{decision:?}");
    }
}

#[test]
fn samples_twice_as_long_run_in_smaller_micro_batches() {
    let decision = asked(&Simulation::settled(), 18 * GB, 0, 8192);
    assert_eq!(
        (decision.change, decision.micro_batch),
        (Change::Hold, 32),
        "{decision:?}"
    );
}

/// 6 GB of others and 23 GB of caches are over the limit of 28.8 GB, and a micro-batch of 64 needs
/// 18 GB.
#[test]
fn caches_over_the_limit_are_released_again_before_a_second_has_passed() {
    let mut simulation = Simulation::settled();
    for _ in 0..4 {
        simulation.own = 23 * GB;
        let decision = simulation.decide();
        assert!(decision.release_caches, "at {} ms", simulation.at_ms);
        simulation.at_ms += 200;
    }
}
