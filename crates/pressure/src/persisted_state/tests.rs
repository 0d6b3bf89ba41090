//! A controller that is saved and restored, on simulated machines.

use super::*;
use crate::controller::{decide, observe};
use crate::decision::{Change, Decision, DecisionInput, MicroBatchRecord, Outcome, SampleCost};
use crate::memory_model::Allocator;
use crate::memory_sample::MemorySample;
use crate::policy::Policy;
use crate::recovery_steps::RecoveryReserve;

const MB: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 16 << 30;
const BATCH: usize = 64;
const PIXELS: u64 = 64 * 64;

/// The state of the process, the memory per sample, and the use of others.
#[derive(Clone, Copy)]
struct Machine {
    own_bytes: u64,
    sample_bytes: u64,
    others_bytes: u64,
}

const ROOMY: Machine = Machine {
    own_bytes: 500 * MB,
    sample_bytes: 200 * MB,
    others_bytes: 6 << 30,
};

fn kind() -> MicroBatchKind {
    MicroBatchKind {
        element_bytes: 4,
        input_size: 64,
        ..MicroBatchKind::default()
    }
}

/// One decision and its micro-batch at `at_ms`.
fn step(
    machine: Machine,
    at_ms: u64,
    state: ControllerState,
    model: MemoryModel,
) -> (ControllerState, MemoryModel, Decision) {
    step_of(&Policy::default(), BATCH, machine, at_ms, state, model)
}

/// One decision about `remaining` samples and its micro-batch at `at_ms`.
fn step_of(
    policy: &Policy,
    remaining: usize,
    machine: Machine,
    at_ms: u64,
    state: ControllerState,
    model: MemoryModel,
) -> (ControllerState, MemoryModel, Decision) {
    let ask = DecisionInput {
        sample: MemorySample {
            at_ms,
            total_bytes: TOTAL_BYTES,
            own_bytes: machine.own_bytes,
            available_bytes: TOTAL_BYTES - machine.others_bytes - machine.own_bytes,
            ..MemorySample::default()
        },
        remaining: &vec![SampleCost(PIXELS); remaining],
        kind: kind(),
        spare_bytes: 0,
    };
    let (state, decision) = decide(policy, state, &ask, &model);
    let record = MicroBatchRecord {
        at_ms,
        kind: kind(),
        micro_batch: decision.micro_batch,
        cost: u64::from(decision.micro_batch) * PIXELS,
        peak_bytes: machine.own_bytes + u64::from(decision.micro_batch) * machine.sample_bytes,
        ms: 10.0 + 20.0 * f64::from(decision.micro_batch),
        outcome: Outcome::Ok,
    };
    let (state, model) = observe(policy, state, model, &record);
    (state, model, decision)
}

/// A run on a machine, with a decision every 250 ms: its sizes, and its saved state.
fn run(machine: Machine, from: (ControllerState, MemoryModel)) -> (Vec<u32>, PersistedState) {
    let (mut state, mut model) = from;
    let mut sizes = Vec::new();
    // The clock of each run starts anywhere.
    for number in 0..80 {
        let at_ms = 1_000_000 + 250 * number;
        let (next, learned, decision) = step(machine, at_ms, state, model);
        (state, model) = (next, learned);
        sizes.push(decision.micro_batch);
    }
    (sizes, PersistedState::new(&state, &model))
}

fn new() -> (ControllerState, MemoryModel) {
    (
        ControllerState::default(),
        MemoryModel::new(Allocator::Exact),
    )
}

fn through_json(saved: &PersistedState) -> PersistedState {
    let text = serde_json::to_string(saved).expect("it can be written");
    serde_json::from_str(&text).expect("it can be read")
}

#[test]
fn the_next_run_starts_with_the_earlier_size() {
    let (sizes, saved) = run(ROOMY, new());
    let last = sizes[sizes.len() - 1];
    assert!(sizes[..2] == [1, 2] && last > 8, "{sizes:?}");
    let (state, model) = through_json(&saved).restore();
    let (state, model, first) = step(ROOMY, 7, state, model);
    assert_eq!((first.micro_batch, first.change), (last, Change::Start));
    assert!(
        first.reason.starts_with("same size as before, "),
        "{}",
        first.reason
    );
    let (again, saved) = run(ROOMY, (state, model));
    assert_eq!(again, vec![last; again.len()], "no size is tried again");
    assert_eq!(saved.micro_batch(kind()), last);
}

#[test]
fn the_next_run_starts_smaller_if_less_fits() {
    let (sizes, saved) = run(ROOMY, new());
    let crowded = Machine {
        others_bytes: 11 << 30,
        ..ROOMY
    };
    let (fits, _) = run(crowded, new());
    let (state, model) = saved.restore();
    let (_, _, first) = step(crowded, 7, state, model);
    // The size that a slow start reaches, before a minute of calm has shown how little others
    // change.
    let expected = fits[6];
    assert!(
        expected > 8 && first.micro_batch == expected && expected < sizes[sizes.len() - 1],
        "{} after {sizes:?}, alone {fits:?}",
        first.micro_batch
    );
    assert!(
        first.predicted_peak_bytes <= first.budget_bytes,
        "{first:?}"
    );
}

/// The sizes of three decisions after a restart: about the short last batch of an epoch with `rest`
/// samples, and about two whole batches. With each the size that later micro-batches have.
fn sizes_after_restart(saved: PersistedState, policy: &Policy, rest: usize) -> Vec<(u32, u32)> {
    let (mut state, mut model) = saved.restore();
    let mut sizes = Vec::new();
    for (at_ms, remaining) in [(0, rest), (250, BATCH), (500, BATCH)] {
        let (next, learned, decision) = step_of(policy, remaining, ROOMY, at_ms, state, model);
        sizes.push((decision.micro_batch, next.micro_batch(kind())));
        (state, model) = (next, learned);
    }
    sizes
}

#[test]
fn a_short_first_batch_does_not_lower_the_size() {
    let (sizes, saved) = run(ROOMY, new());
    let last = sizes[sizes.len() - 1];
    for rest in [1, 7, last as usize - 1] {
        let after = sizes_after_restart(saved.clone(), &Policy::default(), rest);
        assert_eq!(after[0], (rest as u32, last), "the rest of {rest}");
        assert_eq!(after[1..], [(last, last); 2], "the rest of {rest}");
    }
}

#[test]
fn a_short_first_batch_does_not_lower_a_fixed_size() {
    let (_, saved) = run(ROOMY, new());
    let policy = Policy {
        fixed_micro_batch: Some(16),
        ..Policy::default()
    };
    let after = sizes_after_restart(saved, &policy, 1);
    assert_eq!(after, [(1, 16), (16, 16), (16, 16)]);
}

#[test]
fn a_state_without_a_batch_is_restored_with_its_size() {
    let (sizes, saved) = run(ROOMY, new());
    let last = sizes[sizes.len() - 1];
    let mut json = serde_json::to_value(&saved).expect("it can be written");
    for track in json["tracks"].as_array_mut().expect("a list") {
        let track = track[1].as_object_mut().expect("a table");
        assert!(track.remove("batch").is_some());
        assert!(track.remove("sample_cost").is_some());
    }
    let old: PersistedState = serde_json::from_value(json).expect("it can be read");
    let after = sizes_after_restart(old, &Policy::default(), 1);
    assert_eq!(after[0], (1, last));
    assert_eq!(after[1].0, last, "{after:?}");
}

#[test]
fn growth_without_an_earlier_shortage_does_not_speak_of_one() {
    let crowded = Machine {
        others_bytes: 11 << 30,
        ..ROOMY
    };
    let (_, saved) = run(crowded, new());
    let (mut state, mut model) = saved.restore();
    for number in 0..80 {
        let (next, learned, decision) = step(ROOMY, 250 * number, state, model);
        (state, model) = (next, learned);
        if decision.change == Change::Grow {
            assert_eq!(decision.reason, "there is memory for a larger micro-batch");
            return;
        }
    }
    panic!("it did not grow");
}

#[test]
fn temporary_state_is_not_saved() {
    let (_, saved) = run(ROOMY, new());
    let (mut state, _) = saved.restore();
    for (_, track) in state.rules.tracks.iter() {
        assert_eq!(track.size, 0);
        assert_eq!((track.calm_since_ms, track.refused), (None, None));
    }
    state.rules.tracks = Tracks::default();
    assert_eq!(state, ControllerState::default());
}

#[test]
fn a_run_without_a_decision_saves_what_was_restored() {
    let (sizes, saved) = run(ROOMY, new());
    let (state, model) = saved.restore();
    let again = PersistedState::new(&state, &model);
    assert_eq!(again.micro_batch(kind()), sizes[sizes.len() - 1]);
}

#[test]
fn a_larger_process_is_covered_after_its_first_peak() {
    let (_, saved) = run(ROOMY, new());
    let heavier = Machine {
        own_bytes: ROOMY.own_bytes + 300 * MB,
        ..ROOMY
    };
    let (state, model) = saved.restore();
    let (_, model, first) = step(heavier, 7, state, model);
    for size in [1, 4, first.micro_batch] {
        let upper = model.upper_bytes(kind(), u64::from(size) * PIXELS);
        let peak = heavier.own_bytes + u64::from(size) * heavier.sample_bytes;
        let off = upper.expect("known") as f64 / peak as f64 - 1.0;
        assert!((0.0..0.3).contains(&off), "{size}: {off}");
    }
}

#[test]
fn the_fallback_rules_start_with_the_earlier_size() {
    let unreadable = |state, at_ms| {
        let ask = DecisionInput {
            sample: MemorySample {
                at_ms,
                ..MemorySample::default()
            },
            remaining: &[SampleCost(PIXELS); BATCH],
            kind: kind(),
            spare_bytes: 0,
        };
        decide(&Policy::default(), state, &ask, &MemoryModel::default())
    };
    let (mut state, mut decision) = unreadable(ControllerState::default(), 0);
    let begun = decision.micro_batch;
    for second in 1..60 {
        (state, decision) = unreadable(state, 1_000 * second);
    }
    assert!(decision.micro_batch > begun);
    let (state, _) = PersistedState::new(&state, &MemoryModel::default()).restore();
    assert_eq!(unreadable(state, 0).1.micro_batch, decision.micro_batch);
}

#[test]
fn mapped_moments_count_as_state_in_the_next_run() {
    const MOMENTS: u64 = 100 * MB;
    let (mut state, mut model) = (
        ControllerState::default(),
        MemoryModel::new(Allocator::Exact),
    );
    for i in 0..20 {
        (state, model, _) = step(ROOMY, i * 500, state, model);
    }
    let whole = model.state_bytes(kind()).expect("two sizes were measured");
    let resident = PersistedState::new(&state, &model).restore().1;
    assert_eq!(resident.state_bytes(kind()), Some(whole));
    state = state.with_reserve(RecoveryReserve {
        blocks: 0,
        moments_bytes: MOMENTS,
    });
    state.rules.recovery.map_moments();
    model.state_shrank(MOMENTS);
    assert_eq!(model.state_bytes(kind()), Some(whole - MOMENTS));
    let next = PersistedState::new(&state, &model).restore().1;
    assert_eq!(next.state_bytes(kind()), Some(whole));
}

#[test]
fn a_file_of_an_older_version_can_be_read() {
    let json = r#"{"model":{"allocator":"exact","fits":[[
        {"phase":"train","checkpoint_blocks":0,"element_bytes":4,"resolution":64},
        {"unit_cost":4096.0,"line":{"state_bytes":1e9,"sample_bytes":1e8,"covariance":[1.0,0.0,1.0]},
         "stairs":[],"residual":0.0,"seen":[[1.0,1.1e9],[2.0,1.2e9]],"pieces":5,"largest":2}]]},
        "tracks":[[{"phase":"train","checkpoint_blocks":0,"element_bytes":4,"resolution":64},
        {"size":2,"starting":false,"pieces":5,"speeds":[{"size":2,"ms_per_cost":0.5,"pieces":4}]}]]}"#;
    let saved: PersistedState = serde_json::from_str(json).expect("the old keys are accepted");
    assert_eq!(saved.micro_batch(kind()), 2);
    let (state, model) = saved.restore();
    assert!(model.is_ready(kind()));
    let track = state.rules.tracks.get(kind()).expect("the track is there");
    assert_eq!((track.micro_batches, track.speeds[0].micro_batches), (5, 4));
}
