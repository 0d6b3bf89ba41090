//! The rules without a model or without a reading: a fifth less at a warning, half at a critical sign or a refusal, one
//! split more after ten seconds. Cruder than the controller, and never asked where that one can see.

use crate::decision::{Ask, Phase};
use crate::policy::Policy;
use crate::sample::{Component, Level, MemorySample};
use crate::sizing::{at_most, sizes};
use crate::state::State;

/// What the rules say.
pub(crate) struct Step {
    pub(crate) size: u32,
    pub(crate) release: bool,
    pub(crate) cause: Component,
    pub(crate) reason: String,
    /// Upward steps are voluntary.
    pub(crate) voluntary: bool,
}

/// The machine cannot be read at all.
pub(crate) fn is_blind(sample: &MemorySample) -> bool {
    sample.total_bytes == 0 && sample.available_bytes == 0
}

/// The next size by the rules, from a state that has noticed the sample.
pub(crate) fn step(policy: &Policy, state: &mut State, ask: &Ask) -> Step {
    let now = ask.sample.at_ms;
    let setback = state.setback.filter(|setback| setback.kind == ask.kind);
    let track = state.track_mut(ask.kind).clone();
    let size = match track.size {
        0 if track.earlier_size > 0 => at_most(track.batch, track.earlier_size),
        0 => at_most(track.batch, policy.blind_start),
        size => size,
    };
    let over_cap = policy
        .cap_bytes(ask.sample.total_bytes)
        .is_some_and(|cap| ask.sample.own_bytes > cap);
    let level = state.memory_reading.level().max(if over_cap {
        Level::Warning
    } else {
        Level::Normal
    });
    let rested = |ms: u64| state.blind_step_ms.is_none_or(|at| now >= at + ms);
    let refused = track
        .refused
        .filter(|(_, at)| now < at + policy.refused_ms)
        .map_or(u32::MAX, |(size, _)| size);
    let larger = sizes(track.batch)
        .take_while(|&m| m > size)
        .last()
        .filter(|&m| m < refused);
    let cause = state.memory_reading.cause;

    let (size, reason, voluntary) = if let Some(setback) = setback {
        let why = if setback.refused {
            "an allocation was refused"
        } else {
            "the piece was cancelled"
        };
        (
            at_most(track.batch, (setback.micro_batch / 2).max(1)),
            why.to_string(),
            false,
        )
    } else if track.size == 0 {
        state.blind_step_ms = Some(now);
        let why = match track.earlier_size {
            0 => "a first guess, because memory cannot be predicted yet",
            _ => "as before, because memory cannot be predicted here",
        };
        (size, why.into(), false)
    } else if level == Level::Critical && size > 1 && rested(policy.critical_again_ms) {
        (
            at_most(track.batch, size / 2),
            "memory is critical".into(),
            false,
        )
    } else if level == Level::Warning && size > 1 && rested(policy.blind_warning_ms) {
        let less = (policy.blind_warning_factor * f64::from(size)) as u32;
        let why = if over_cap {
            "the memory cap is exceeded"
        } else {
            "memory is getting short"
        };
        (at_most(track.batch, less), why.into(), false)
    } else if let Some(larger) = larger
        && level == Level::Normal
        && rested(policy.blind_grow_ms)
        && larger as usize <= ask.remaining.len()
        && state.may_change(policy, now)
    {
        (
            larger,
            format!("no sign of pressure for {} s", policy.blind_grow_ms / 1_000),
            true,
        )
    } else {
        (
            size,
            "memory cannot be predicted, so the micro-batch moves slowly".into(),
            false,
        )
    };
    // A last, shorter piece is below the new size anyway; the next whole one will be told.
    let postponed = setback.is_none() && size < track.size && size >= ask.remaining.len() as u32;
    let size = if postponed { track.size } else { size };
    if size != track.size {
        state.blind_step_ms = Some(now);
    }
    let release = size < track.size
        || setback.is_some()
        || (is_blind(&ask.sample) && release_is_due(policy, state, ask));
    if release {
        state.pieces_since_release = 1; // the piece that follows
    }
    Step {
        size,
        release,
        cause,
        reason,
        voluntary,
    }
}

/// Counts pieces: nobody can say when memory is short, so caches are given back regularly.
fn release_is_due(policy: &Policy, state: &mut State, ask: &Ask) -> bool {
    let every = match ask.kind.phase {
        Phase::Train => policy.blind_train_pieces,
        Phase::Evaluate => policy.blind_evaluate_pieces,
    };
    state.pieces_since_release += 1;
    state.pieces_since_release > every
}
