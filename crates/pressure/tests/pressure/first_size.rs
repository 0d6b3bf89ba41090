//! The first size of a run and of a phase.

use crate::simulated_machine::{EVALUATE, Simulation, TRAIN};
use pressure::Change;

#[test]
fn in_calm_the_first_steps_reach_the_final_size() {
    let mut simulation = Simulation::default();
    let decisions = simulation.steps(60);
    let changes: Vec<_> = decisions
        .iter()
        .filter(|d| d.change != Change::Hold)
        .map(|d| (d.change, d.micro_batch))
        .collect();
    assert_eq!(
        changes,
        [
            (Change::Start, 1),
            (Change::Grow, 2),
            (Change::Grow, 8),
            (Change::Grow, 32),
            (Change::Grow, 64)
        ]
    );
    let samples: u32 = decisions
        .iter()
        .map(|d| d.micro_batch)
        .take_while(|&m| m < 64)
        .sum();
    assert!(samples <= 3 * 64, "three steps, not {samples} samples");
    assert!(
        decisions
            .iter()
            .all(|d| d.predicted_peak_bytes <= d.budget_bytes)
    );
}

#[test]
fn a_trained_model_starts_at_its_answer() {
    let mut trained = Simulation {
        model: Simulation::settled().model,
        ..Simulation::default()
    };
    let first = trained.step();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 64));
}

#[test]
fn evaluation_is_learned_separately() {
    let mut simulation = Simulation::settled();
    (simulation.kind, simulation.batch, simulation.remaining) = (EVALUATE, 256, 256);
    let first = simulation.step();
    assert_eq!((first.change, first.micro_batch), (Change::Start, 1));
    simulation.steps(4);
    (simulation.kind, simulation.batch, simulation.remaining) = (TRAIN, 64, 64);
    let back = simulation.step();
    assert_eq!((back.change, back.micro_batch), (Change::Start, 64));
    assert!(
        back.release_caches,
        "buffers of the other phase are of no use"
    );
}
