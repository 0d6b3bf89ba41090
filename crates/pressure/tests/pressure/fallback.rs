//! The fallback rules, for memory or peaks that cannot be read.

use crate::simulated_machine::{EVALUATE, Simulation, TRAIN};
use pressure::{Change, Level, Outcome, Policy};

#[test]
fn an_unreadable_machine_releases_caches_at_intervals() {
    for (kind, every) in [(TRAIN, 5), (EVALUATE, 3)] {
        let mut simulation = Simulation {
            unreadable: true,
            kind,
            batch: 4,
            remaining: 4,
            ..Simulation::default()
        };
        let released: Vec<usize> = simulation
            .steps(16)
            .iter()
            .enumerate()
            .filter(|(_, decision)| decision.release_caches)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(released[..2], [every, 2 * every], "{kind:?}");
    }
}

#[test]
fn an_unreadable_machine_changes_the_size_slowly() {
    let mut simulation = Simulation {
        unreadable: true,
        policy: Policy {
            fallback_start: 32,
            ..Policy::default()
        },
        ..Simulation::default()
    };
    assert_eq!(simulation.step().micro_batch, 32);
    simulation.level = Some(Level::Warning);
    assert_eq!(
        simulation.decide().micro_batch,
        32,
        "not within five seconds of the last step"
    );
    simulation.at_ms += 5_000;
    simulation.remaining = 64;
    assert_eq!(
        simulation.step().micro_batch,
        22,
        "a fifth less than 32 is 25, and 64 in micro-batches of 25 are three of 22"
    );
    simulation.level = Some(Level::Critical);
    simulation.at_ms += 1_000;
    simulation.remaining = 64;
    assert_eq!(simulation.step().micro_batch, 11);
    simulation.end(11, Outcome::Memory);
    simulation.remaining = 64;
    assert_eq!(simulation.step().micro_batch, 5);
    simulation.level = None;
    simulation.remaining = 64;
    let sizes: Vec<u32> = (0..3)
        .map(|_| {
            simulation.at_ms += 10_000;
            simulation.remaining = 64;
            simulation.step().micro_batch
        })
        .collect();
    assert_eq!(sizes, [6, 7, 8]);
}

#[test]
fn without_measured_peaks_the_fallback_rules_apply() {
    let mut simulation = Simulation {
        measured: false,
        ..Simulation::default()
    };
    simulation.steps(10);
    simulation.level = Some(Level::Critical);
    let before = simulation.state.micro_batch(TRAIN);
    simulation.at_ms += 2_000;
    assert_eq!(simulation.step().micro_batch, before / 2);
    simulation.level = None;
    simulation.at_ms += 20_000;
    simulation.remaining = 64;
    assert!(
        simulation
            .steps(200)
            .iter()
            .any(|d| d.change == Change::Grow)
    );
}
