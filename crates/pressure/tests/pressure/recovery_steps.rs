//! Recovery steps besides the micro-batch: taken one by one if only one sample at a time fits,
//! undone one by one in calm.

use crate::simulated_machine::{GB, Simulation};
use pressure::{
    Action, Change, ControllerState, Decision, Moments, Outcome, RecoveryReserve, describe_decision,
};

/// A simulation of four blocks that has settled in calm; a sample takes this much.
fn settled(sample_bytes: u64, moments_bytes: u64) -> Simulation {
    let reserve = RecoveryReserve {
        blocks: 4,
        moments_bytes,
    };
    let mut simulation = Simulation {
        state: ControllerState::default().with_reserve(reserve),
        batch: 8,
        remaining: 8,
        sample_bytes,
        reserve,
        ..Simulation::default()
    };
    simulation.steps(900);
    assert_eq!(
        (simulation.blocks, simulation.moments),
        (0, Moments::Resident)
    );
    simulation
}

/// Others rise or fall to `gigabytes`, slowly.
fn drift(simulation: &mut Simulation, gigabytes: f64) -> Vec<Decision> {
    let to = (gigabytes * GB as f64) as u64;
    let mut decisions = Vec::new();
    while simulation.others != to {
        let step = simulation.others.abs_diff(to).min(GB / 20);
        if simulation.others < to {
            simulation.others += step;
        } else {
            simulation.others -= step;
        }
        decisions.push(simulation.step());
    }
    decisions
}

fn recovery_steps(decisions: &[Decision]) -> Vec<(Change, u32, Moments)> {
    let is_recovery_step = |d: &&Decision| {
        matches!(
            d.change,
            Change::CheckpointMore | Change::CheckpointLess | Change::Moments
        )
    };
    decisions
        .iter()
        .filter(is_recovery_step)
        .map(|d| (d.change, d.checkpoint_blocks, d.moments))
        .collect()
}

fn nothing_is_predicted_over_the_budget(decisions: &[Decision]) {
    for d in decisions {
        assert!(
            d.micro_batch <= 1 || d.predicted_peak_bytes <= d.budget_bytes,
            "{d:?}"
        );
    }
}

const MORE: fn(u32) -> (Change, u32, Moments) =
    |blocks| (Change::CheckpointMore, blocks, Moments::Resident);
const LESS: fn(u32) -> (Change, u32, Moments) =
    |blocks| (Change::CheckpointLess, blocks, Moments::Resident);

#[test]
fn half_a_minute_at_one_sample_checkpoints_one_block_at_a_time() {
    let mut simulation = settled(2 * GB, 0);
    drift(&mut simulation, 23.0);
    let begun = simulation.at_ms;
    let mut decisions = Vec::new();
    while recovery_steps(&decisions).is_empty() {
        decisions.push(simulation.step());
    }
    let waited = simulation.at_ms - begun;
    assert!((25_000..=40_000).contains(&waited), "{waited} ms");
    let first = decisions.last().expect("a recovery step");
    assert_eq!((first.action, first.micro_batch), (Action::Run, 1));
    let sentence = describe_decision(1, first);
    assert!(
        sentence.starts_with(
            "Recomputing the activations of 1 block to save memory: only one sample at a time has fitted in memory for 3"
        ),
        "{sentence}"
    );
    decisions.extend(simulation.steps(900));
    let taken = recovery_steps(&decisions);
    assert_eq!(taken[..2], [MORE(1), MORE(2)]);
    nothing_is_predicted_over_the_budget(&decisions);
}

#[test]
fn steps_end_once_two_samples_fit() {
    let mut simulation = settled(2 * GB, 0);
    drift(&mut simulation, 23.5);
    simulation.steps(2_000);
    assert!(
        (1..4).contains(&simulation.blocks),
        "{} blocks",
        simulation.blocks
    );
    assert!(simulation.steps(20).iter().any(|d| d.micro_batch == 2));
}

#[test]
fn a_shortage_of_less_than_half_a_minute_takes_no_step() {
    let mut simulation = settled(2 * GB, GB);
    let mut decisions = drift(&mut simulation, 23.0);
    decisions.extend(simulation.steps(100));
    assert!(decisions.iter().any(|d| d.micro_batch == 1));
    decisions.extend(drift(&mut simulation, 6.0));
    decisions.extend(simulation.steps(900));
    assert_eq!(recovery_steps(&decisions), []);
}

#[test]
fn steps_are_undone_one_by_one_after_long_calm() {
    let mut simulation = settled(2 * GB, GB);
    drift(&mut simulation, 26.9);
    simulation.steps(1_500);
    assert_eq!(
        (simulation.blocks, simulation.moments),
        (4, Moments::Mapped)
    );
    let free = simulation.at_ms;
    let mut decisions = drift(&mut simulation, 6.0);
    while simulation.moments == Moments::Mapped {
        decisions.push(simulation.step());
    }
    let waited = simulation.at_ms - free;
    assert!((60_000..=100_000).contains(&waited), "{waited} ms");
    decisions.extend(simulation.steps(3_000));
    let back = (Change::Moments, 4, Moments::Resident);
    assert_eq!(
        recovery_steps(&decisions),
        [back, LESS(3), LESS(2), LESS(1), LESS(0)]
    );
    assert_eq!(simulation.step().micro_batch, 8);
    nothing_is_predicted_over_the_budget(&decisions);
}

#[test]
fn moments_move_to_a_file_only_if_a_sample_fits_then() {
    for (moments_bytes, expected) in [(GB / 64, Moments::Resident), (GB, Moments::Mapped)] {
        let mut simulation = settled(2 * GB, moments_bytes);
        drift(&mut simulation, 26.9);
        simulation.steps(1_500);
        assert_eq!((simulation.blocks, simulation.moments), (4, expected));
    }
}

#[test]
fn moments_stay_in_memory_if_the_disk_is_too_full() {
    let mut simulation = settled(2 * GB, GB);
    simulation.disk = Some(5 * GB / 2);
    drift(&mut simulation, 26.9);
    simulation.steps(1_500);
    assert_eq!(
        (simulation.blocks, simulation.moments),
        (4, Moments::Resident)
    );
}

#[test]
fn a_paused_training_takes_steps_until_one_sample_fits() {
    let mut simulation = settled(4 * GB, 0);
    let decisions = drift(&mut simulation, 24.9);
    let last = decisions.last().expect("others rose");
    assert_eq!(last.action, Action::Pause);
    let waited = simulation.steps(900);
    let first = waited
        .iter()
        .find(|d| d.change == Change::CheckpointMore)
        .expect("a recovery step");
    let sentence = describe_decision(0, first);
    assert!(
        sentence.contains(": not even one sample has fitted in memory for 3"),
        "{sentence}"
    );
    assert_eq!(waited.last().map(|d| d.action), Some(Action::Run));
}

#[test]
fn one_sample_after_a_step_is_enough_to_predict() {
    let mut simulation = settled(2 * GB, 0);
    drift(&mut simulation, 23.0);
    while simulation.blocks == 0 {
        simulation.step();
    }
    simulation.step();
    let next = simulation.step();
    let truth = simulation.held() + u64::from(next.micro_batch) * simulation.each();
    let off = next.predicted_peak_bytes as f64 / truth as f64;
    assert!((1.0..1.05).contains(&off), "{off} of the truth");
}

#[test]
fn micro_batches_that_are_much_slower_take_a_step() {
    /// Milliseconds of a micro-batch by its size.
    type Pace = fn(u32) -> f64;
    let paces: [(Pace, bool); 2] = [
        (|m| 400.0 + 10.0 * f64::from(m), true),
        (|m| 20.0 + 400.0 * f64::from(m), false),
    ];
    for (pace, expected) in paces {
        let mut simulation = settled(2 * GB, 0);
        simulation.pace = pace;
        simulation.state = ControllerState::default().with_reserve(simulation.reserve);
        simulation.steps(900);
        drift(&mut simulation, 20.0);
        let decisions = simulation.steps(600);
        assert!(decisions.iter().all(|d| d.micro_batch > 1));
        assert_eq!(!recovery_steps(&decisions).is_empty(), expected);
    }
}

#[test]
fn a_refused_single_sample_takes_a_step_at_once() {
    let mut simulation = settled(2 * GB, 0);
    drift(&mut simulation, 23.0);
    simulation.steps(5);
    simulation.end(1, Outcome::Memory);
    let first = simulation.step();
    assert_eq!(
        (first.change, first.micro_batch),
        (Change::CheckpointMore, 1)
    );
    assert_eq!(
        describe_decision(1, &first),
        "Recomputing the activations of 1 block to save memory: the device refused the memory for a single sample"
    );
    assert!(
        simulation
            .steps(20)
            .iter()
            .all(|d| d.change == Change::Hold)
    );
}

#[test]
fn steps_for_a_memory_cap_are_not_undone_because_memory_has_been_free() {
    let mut simulation = settled(2 * GB, 0);
    simulation.policy.memory_cap_bytes = Some(5 * GB);
    assert_ne!(recovery_steps(&simulation.steps(600)), []);
    simulation.policy.memory_cap_bytes = None;
    let later = simulation.steps(2_000);
    let undone = later.iter().find(|d| d.change == Change::CheckpointLess);
    assert_eq!(
        undone.expect("the step is undone").reason,
        "there is enough memory now",
        "the machine was never short of memory"
    );
}

#[test]
fn no_steps_with_a_fixed_size_or_an_unreadable_machine() {
    for unreadable in [true, false] {
        let mut simulation = settled(2 * GB, GB);
        simulation.unreadable = unreadable;
        simulation.policy.fixed_micro_batch = (!unreadable).then_some(8);
        let mut decisions = drift(&mut simulation, 26.9);
        decisions.extend(simulation.steps(1_500));
        assert_eq!(recovery_steps(&decisions), []);
    }
}

#[test]
fn a_step_that_was_undone_too_early_waits_twice_as_long() {
    let mut simulation = settled(2 * GB, 0);
    let calm_until_undone = |simulation: &mut Simulation| {
        drift(simulation, 23.0);
        while simulation.blocks == 0 {
            simulation.step();
        }
        drift(simulation, 6.0);
        let begun = simulation.at_ms;
        while simulation.blocks > 0 {
            simulation.step();
        }
        simulation.at_ms - begun
    };
    let first = calm_until_undone(&mut simulation);
    let second = calm_until_undone(&mut simulation);
    assert!(second > first + 50_000, "{first} ms, then {second} ms");
}
