//! When the micro-batch grows again, how often, and when that is not worth it.

use crate::simulated_machine::{GB, Simulation, TRAIN};
use pressure::{
    Change, MemoryModel, MicroBatchRecord, Outcome, describe_decision, observe_separate_device,
};

#[test]
fn it_grows_back_after_calm_in_one_or_two_changes() {
    let mut simulation = Simulation::settled();
    simulation.others = 20 * GB;
    simulation.steps(20);
    assert!(simulation.state.micro_batch(TRAIN) < 64);
    simulation.others = 6 * GB;
    let decisions = simulation.steps(120);
    let grown: Vec<_> = decisions
        .iter()
        .filter(|d| d.change == Change::Grow)
        .collect();
    assert!(grown.len() <= 2, "{grown:?}");
    assert_eq!(grown.last().map(|d| d.micro_batch), Some(64));
    assert!(
        grown[0].reason.starts_with("memory has been free for "),
        "{}",
        grown[0].reason
    );
    let waited = decisions
        .iter()
        .position(|d| d.change == Change::Grow)
        .expect("it grew");
    assert!(waited <= 80, "8 s at most, not {waited} tenths");
}

#[test]
fn sizes_that_exceed_a_separate_gpu_are_not_tried() {
    let mut simulation = Simulation::default();
    let mut model = MemoryModel::default();
    let mut largest = 0;
    for _ in 0..300 {
        let decision = simulation.step();
        largest = largest.max(decision.micro_batch);
        let record = MicroBatchRecord {
            at_ms: simulation.at_ms,
            kind: TRAIN,
            micro_batch: decision.micro_batch,
            cost: u64::from(decision.micro_batch) * 4096,
            peak_bytes: GB + u64::from(decision.micro_batch) * GB,
            ms: 100.0,
            outcome: Outcome::Ok,
        };
        model.learn(&record);
        let state = std::mem::take(&mut simulation.state);
        simulation.state =
            observe_separate_device(&simulation.policy, state, &record, &model, 20 * GB);
    }
    assert_eq!(
        largest, 16,
        "22 samples would need 23 GB of the GPU's 20 GB"
    );
}

#[test]
fn growth_that_is_reverted_doubles_the_required_calm() {
    // The gain is small, so the full calm is required.
    let mut simulation = Simulation {
        pace: |m| 10.0 * f64::from(m) - f64::from(m * m) / 100.0,
        ..Simulation::default()
    };
    simulation.steps(700);
    let mut calms = Vec::new();
    for _ in 0..3 {
        simulation.others = 20 * GB;
        simulation.steps(10);
        simulation.others = 6 * GB;
        let turns = (0..400)
            .position(|_| simulation.step().change == Change::Grow)
            .expect("it grows back");
        calms.push(turns);
    }
    assert!(
        calms[1] > calms[0] + 30 && calms[2] > calms[1] + 60,
        "{calms:?}"
    );
}

#[test]
fn a_large_gain_needs_less_calm() {
    let mut simulation = Simulation {
        pace: |m| 200.0 + f64::from(m),
        ..Simulation::default()
    };
    simulation.steps(700);
    simulation.others = 20 * GB;
    simulation.steps(50);
    simulation.others = 6 * GB;
    let turns = (0..400)
        .position(|_| simulation.step().change == Change::Grow)
        .expect("it grows back");
    assert!((10..25).contains(&turns), "{turns} tenths of a second");
}

#[test]
fn the_size_returns_to_the_throughput_plateau() {
    let mut simulation = Simulation {
        pace: |m| 40.0 + 10.0 * f64::from(m.max(8)) + 60.0 * f64::from(m.saturating_sub(8)),
        ..Simulation::default()
    };
    let decisions = simulation.steps(900);
    let lowered = decisions.iter().find(|d| d.change == Change::Shrink);
    let lowered = lowered.expect("the size was lowered");
    assert_eq!(
        lowered.reason,
        "this size is as fast as a larger one and needs less memory"
    );
    let last = decisions.last().expect("there were decisions");
    assert_eq!(simulation.state.micro_batch(TRAIN), 8);
    assert_eq!(
        describe_decision(8, last),
        "Holding at a micro-batch of 8: a larger micro-batch is no faster here"
    );
}

#[test]
fn there_are_at_most_six_voluntary_changes_per_minute() {
    let mut simulation = Simulation::settled();
    // Growth almost without waiting would change twenty times per minute.
    (
        simulation.policy.grow_after_ms,
        simulation.policy.max_grow_after_ms,
        simulation.policy.grow_interval_ms,
    ) = (200, 200, 0);
    let mut grown = Vec::new();
    for second in 0..240 {
        simulation.others = if second % 6 < 1 { 20 * GB } else { 6 * GB };
        for _ in 0..10 {
            simulation.remaining = 64;
            let decision = simulation.step();
            if decision.change == Change::Grow {
                grown.push(simulation.at_ms);
            }
        }
    }
    let within = |from: &u64| {
        grown
            .iter()
            .filter(|at| (*from..=from + 60_000).contains(at))
            .count()
    };
    assert_eq!(grown.iter().map(within).max(), Some(6));
}
