//! Pausing if one sample does not fit, suspending if the state does not, and continuing.

use crate::simulated_machine::{GB, Simulation};
use pressure::{Action, Change, Level, Outcome};

#[test]
fn it_pauses_if_one_sample_does_not_fit_and_then_continues() {
    let mut simulation = Simulation::settled();
    while simulation.others < 28 * GB {
        simulation.others += GB / 10; // slowly: a faster rise would suspend it
        simulation.step();
    }
    let paused = simulation.step();
    assert_eq!((paused.action, paused.micro_batch()), (Action::Pause, None));
    assert_eq!(paused.change, Change::Hold, "it began earlier");
    simulation.steps(700); // others hold still for a minute: no slope and no sudden growth are left
    let paused = simulation.step();
    let named = paused
        .reason
        .strip_prefix("other apps need the memory. Training continues when about ");
    let named = named
        .and_then(|rest| rest.strip_suffix(" GB of memory is free"))
        .expect("the amount is named");
    let free: f64 = named.parse().expect("a number");
    let with_free = |free: f64| 32 * GB - simulation.own - (free * GB as f64) as u64;
    let (less, more) = (with_free(free - 0.2), with_free(free + 0.2));
    simulation.others = less;
    assert_eq!(simulation.step().action, Action::Pause);
    simulation.others = more;
    let waited = simulation.steps(25);
    let back = waited
        .iter()
        .find(|d| d.action == Action::Run)
        .expect("it continues once its slope is forgotten");
    assert_eq!((back.change, back.micro_batch), (Change::Continue, 1));
    simulation.others = 6 * GB;
    assert!(
        simulation
            .steps(150)
            .iter()
            .any(|d| d.change == Change::Grow && d.micro_batch == 64)
    );
}

#[test]
fn it_suspends_if_the_state_does_not_fit_and_resumes() {
    let mut simulation = Simulation::settled();
    let mut changes = Vec::new();
    for others in [28, 29, 30, 31, 31, 31] {
        simulation.others = others * GB;
        let decision = simulation.step();
        if decision.action == Action::Suspend {
            simulation.own = GB / 4;
        }
        changes.push(decision.change);
    }
    assert!(changes.contains(&Change::Suspend), "{changes:?}");
    assert_eq!(simulation.decide().action, Action::Suspend);
    simulation.others = 6 * GB;
    simulation.at_ms += 3_000;
    assert_eq!(simulation.step().change, Change::Continue);
}

#[test]
fn a_run_of_one_sample_per_step_suspends_and_resumes() {
    let mut simulation = Simulation {
        batch: 1,
        remaining: 1,
        ..Simulation::default()
    };
    simulation.steps(700);
    let (mut changes, mut saved) = (Vec::new(), false);
    for others in [28, 29, 30, 31, 31, 31] {
        simulation.others = others * GB;
        let decision = simulation.step();
        saved |= decision.checkpoint_first;
        if decision.action == Action::Suspend {
            simulation.own = GB / 4;
        }
        changes.push(decision.change);
    }
    let at = |change| changes.iter().position(|it| *it == change);
    let (paused, suspended) = (at(Change::Pause), at(Change::Suspend));
    assert!(suspended.is_some() && paused < suspended, "{changes:?}");
    assert!(saved, "a suspension needs a checkpoint");
    assert_eq!(simulation.decide().action, Action::Suspend);
    // A pause after it must not take the footprint for the state, which is freed.
    simulation.others = 29 * GB;
    simulation.steps(60);
    simulation.others = 31 * GB;
    simulation.steps(20);
    assert_ne!(simulation.step().action, Action::Run);
    simulation.others = 6 * GB;
    simulation.at_ms += 3_000;
    let back = simulation.step();
    assert_eq!(
        (back.change, back.micro_batch()),
        (Change::Continue, Some(1))
    );
    simulation.others = 31 * GB;
    let again = simulation.steps(5);
    assert_eq!(again[4].action, Action::Suspend, "{:?}", again[4]);
}

/// The system warns again every ten seconds, for five minutes.
#[test]
fn repeated_warnings_ask_for_a_checkpoint_every_half_minute_at_most() {
    let mut simulation = Simulation::settled();
    let mut asked_at_ms = Vec::new();
    for tenth in 0..3000 {
        simulation.level = (tenth % 100 < 10).then_some(Level::Critical);
        let at_ms = simulation.at_ms;
        if simulation.step().checkpoint_first {
            asked_at_ms.push(at_ms);
        }
    }
    assert!(asked_at_ms.len() >= 3, "{asked_at_ms:?}");
    for pair in asked_at_ms.windows(2) {
        assert!(pair[1] >= pair[0] + 30_000, "{asked_at_ms:?}");
    }
}

/// Seconds at which checkpoints are asked for in ten calm minutes, each of which is then written in
/// `write_ms`.
fn checkpoints_in_calm(simulation: &mut Simulation, write_ms: f64) -> Vec<u64> {
    let mut asked_at_s = Vec::new();
    for _ in 0..6_000 {
        let at_ms = simulation.at_ms;
        if simulation.step().checkpoint_first {
            simulation.state.checkpoint_written(at_ms, write_ms);
            asked_at_s.push(at_ms / 1_000);
        }
    }
    asked_at_s
}

#[test]
fn a_state_that_is_slow_to_write_is_checkpointed_ever_more_rarely() {
    let mut simulation = Simulation::default();
    simulation.state.checkpoint_written(0, 3_000.0);
    let asked_at_s = checkpoints_in_calm(&mut simulation, 3_000.0);
    assert_eq!(asked_at_s, [30, 90, 270, 450]);
    let mut simulation = Simulation::default();
    simulation.state.checkpoint_written(0, 1_500.0);
    let asked_at_s = checkpoints_in_calm(&mut simulation, 1_500.0);
    assert!(
        asked_at_s.is_empty(),
        "such a write is fast: {asked_at_s:?}"
    );
}

/// 12 GB take more than 6 s at the assumed speed of the disk.
#[test]
fn the_first_checkpoint_of_a_large_state_waits_for_progress() {
    let mut simulation = Simulation::default();
    simulation.steps(20);
    simulation.model.state_grew(10 * GB);
    let mut first_ms = None;
    while first_ms.is_none() && simulation.at_ms < 100_000 {
        first_ms = simulation
            .decide()
            .checkpoint_first
            .then_some(simulation.at_ms);
        simulation.at_ms += 100;
    }
    assert_eq!(first_ms, Some(30_000));
}

#[test]
fn a_cancelled_single_sample_waits_until_it_fits() {
    let mut simulation = Simulation::settled();
    let drift = |simulation: &mut Simulation, to: f64| {
        for _ in 0..700 {
            let step = (to * GB as f64 - simulation.others as f64)
                .clamp(-0.05 * GB as f64, 0.05 * GB as f64);
            simulation.others = (simulation.others as f64 + step) as u64;
            simulation.step();
        }
    };
    drift(&mut simulation, 27.0);
    assert_eq!(
        simulation.step().micro_batch,
        1,
        "between the budget line and the pause line"
    );
    simulation.end(1, Outcome::Cancelled);
    assert_eq!(simulation.step().change, Change::Pause);
    drift(&mut simulation, 26.7);
    assert_eq!(simulation.step().action, Action::Pause);
    drift(&mut simulation, 25.5);
    assert_eq!(simulation.step().action, Action::Run);
}
