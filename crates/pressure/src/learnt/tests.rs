//! A pilot that is put away and taken up again, on machines whose truth is known.

use super::*;
use crate::controller::{decide, observe};
use crate::decision::{Ask, Change, Decision, Moments, Outcome, Piece, SampleCost};
use crate::memory_model::Allocator;
use crate::policy::Policy;
use crate::rungs::Reserve;
use crate::sample::MemorySample;

const MB: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 16 << 30;
const BATCH: usize = 64;
const PIXELS: u64 = 64 * 64;

/// The truth: what the process holds, and what a sample takes on top.
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

fn kind() -> PieceKind {
    PieceKind {
        element_bytes: 4,
        resolution: 64,
        ..PieceKind::default()
    }
}

/// One decision and its piece at `at_ms`.
fn turn(
    machine: Machine,
    at_ms: u64,
    state: State,
    model: MemoryModel,
) -> (State, MemoryModel, Decision) {
    let policy = Policy::default();
    let ask = Ask {
        sample: MemorySample {
            at_ms,
            total_bytes: TOTAL_BYTES,
            own_bytes: machine.own_bytes,
            available_bytes: TOTAL_BYTES - machine.others_bytes - machine.own_bytes,
            ..MemorySample::default()
        },
        remaining: &[SampleCost(PIXELS); BATCH],
        kind: kind(),
        spare_bytes: 0,
    };
    let (state, decision) = decide(&policy, state, &ask, &model);
    let piece = Piece {
        at_ms,
        kind: kind(),
        micro_batch: decision.micro_batch,
        cost: u64::from(decision.micro_batch) * PIXELS,
        peak_bytes: machine.own_bytes + u64::from(decision.micro_batch) * machine.sample_bytes,
        ms: 10.0 + 20.0 * f64::from(decision.micro_batch),
        outcome: Outcome::Ok,
    };
    let (state, model) = observe(&policy, state, model, &piece);
    (state, model, decision)
}

/// A whole life on a machine, a decision each 250 ms: its sizes, and what is kept of it.
fn life(machine: Machine, from: (State, MemoryModel)) -> (Vec<u32>, Learnt) {
    let (mut state, mut model) = from;
    let mut sizes = Vec::new();
    // The clock of each life begins where it likes.
    for turn_number in 0..80 {
        let at_ms = 1_000_000 + 250 * turn_number;
        let (next, taught, decision) = turn(machine, at_ms, state, model);
        (state, model) = (next, taught);
        sizes.push(decision.micro_batch);
    }
    (sizes, Learnt::of(&state, &model))
}

fn new() -> (State, MemoryModel) {
    (State::default(), MemoryModel::new(Allocator::Exact))
}

fn through_a_file(learnt: &Learnt) -> Learnt {
    let text = serde_json::to_string(learnt).expect("it can be written");
    serde_json::from_str(&text).expect("it can be read")
}

#[test]
fn the_next_life_begins_with_the_earlier_size() {
    let (sizes, learnt) = life(ROOMY, new());
    let last = sizes[sizes.len() - 1];
    assert!(sizes[..2] == [1, 2] && last > 8, "{sizes:?}");
    let (state, model) = through_a_file(&learnt).take_up();
    let (state, model, first) = turn(ROOMY, 7, state, model);
    assert_eq!((first.micro_batch, first.change), (last, Change::Start));
    assert!(first.reason.starts_with("as before, "), "{}", first.reason);
    let (again, learnt) = life(ROOMY, (state, model));
    assert_eq!(again, vec![last; again.len()], "nothing is tried again");
    assert_eq!(learnt.micro_batch(kind()), last);
}

#[test]
fn it_begins_with_what_fits_now_where_that_is_less() {
    let (sizes, learnt) = life(ROOMY, new());
    let crowded = Machine {
        others_bytes: 11 << 30,
        ..ROOMY
    };
    let (fits, _) = life(crowded, new());
    let (state, model) = learnt.take_up();
    let (_, _, first) = turn(crowded, 7, state, model);
    // The size that the slow start alone comes to, before a minute of calm has shown how little others move.
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

#[test]
fn nothing_of_the_moment_goes_into_the_next_life() {
    let (_, learnt) = life(ROOMY, new());
    let (mut state, _) = learnt.take_up();
    for (_, track) in &mut state.tracks {
        assert_eq!((track.size, track.batch), (0, 0));
        assert_eq!((track.calm_since_ms, track.refused), (None, None));
    }
    state.tracks.clear();
    assert_eq!(state, State::default());
}

#[test]
fn a_life_without_a_decision_keeps_what_the_life_before_knew() {
    let (sizes, learnt) = life(ROOMY, new());
    let (state, model) = learnt.take_up();
    let again = Learnt::of(&state, &model);
    assert_eq!(again.micro_batch(kind()), sizes[sizes.len() - 1]);
}

#[test]
fn what_another_process_holds_more_is_covered_after_its_first_peak() {
    let (_, learnt) = life(ROOMY, new());
    let heavier = Machine {
        own_bytes: ROOMY.own_bytes + 300 * MB,
        ..ROOMY
    };
    let (state, model) = learnt.take_up();
    let (_, model, first) = turn(heavier, 7, state, model);
    for size in [1, 4, first.micro_batch] {
        let upper = model.upper_bytes(kind(), u64::from(size) * PIXELS);
        let peak = heavier.own_bytes + u64::from(size) * heavier.sample_bytes;
        let off = upper.expect("known") as f64 / peak as f64 - 1.0;
        assert!((0.0..0.3).contains(&off), "{size}: {off}");
    }
}

#[test]
fn without_a_model_the_rules_begin_with_the_earlier_size() {
    let blind = |state, at_ms| {
        let ask = Ask {
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
    let (mut state, mut decision) = blind(State::default(), 0);
    let begun = decision.micro_batch;
    for second in 1..60 {
        (state, decision) = blind(state, 1_000 * second);
    }
    assert!(decision.micro_batch > begun);
    let (state, _) = Learnt::of(&state, &MemoryModel::default()).take_up();
    assert_eq!(blind(state, 0).1.micro_batch, decision.micro_batch);
}

#[test]
fn moments_in_a_file_are_counted_as_state_again_in_the_next_life() {
    const MOMENTS: u64 = 100 * MB;
    let (mut state, mut model) = (State::default(), MemoryModel::new(Allocator::Exact));
    for i in 0..20 {
        (state, model, _) = turn(ROOMY, i * 500, state, model);
    }
    let whole = model.state_bytes(kind()).expect("two sizes were measured");
    let resident = Learnt::of(&state, &model).take_up().1;
    assert_eq!(resident.state_bytes(kind()), Some(whole));
    state = state.with_reserve(Reserve {
        blocks: 0,
        moments_bytes: MOMENTS,
    });
    state.rungs.moments = Moments::Mapped;
    model.state_shrank(MOMENTS);
    assert_eq!(model.state_bytes(kind()), Some(whole - MOMENTS));
    let next = Learnt::of(&state, &model).take_up().1;
    assert_eq!(next.state_bytes(kind()), Some(whole));
}
