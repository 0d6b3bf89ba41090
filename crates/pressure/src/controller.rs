//! Decide, before every piece, how many samples it may hold. Pure: time comes inside the sample, effects are the caller's.
//!
//! Down at once, by forecast; up only after calm, straight to the model's answer but not above the knee. Where even one
//! sample does not fit the pilot pauses; where the state itself does not fit it parks. Knows no tensor and no thread.

use crate::budget::{budget, refresh_margin, rise_bytes};
use crate::decision::{Ask, Decision, Outcome, Piece};
use crate::fallback::is_blind;
use crate::memory_model::MemoryModel;
use crate::policy::Policy;
use crate::sample::{Level, MemorySample};
use crate::signal::{memory_pressure, pressure};
use crate::sizing::cost;
use crate::state::{Setback, Speed, State};
use crate::turn::Turn;
use crate::words::why_less;

/// Duration of a piece before one was measured, milliseconds.
const PIECE_MS: f64 = 500.0;
/// Weight of the newest samples in the cost of an ordinary one.
const COST_WEIGHT: f64 = 1.0 / 16.0;
/// Weight of the newest piece in a speed.
const SPEED_WEIGHT: f64 = 1.0 / 16.0;
/// Pieces without a measured peak after which the model is given up for this kind.
const UNMEASURED_PIECES: u32 = 4;

/// Takes a sample in without deciding anything. Feed every sample of the monitor: the forecast lives on them.
pub fn notice(policy: &Policy, mut state: State, sample: &MemorySample) -> State {
    take_in(policy, &mut state, sample);
    state
}

/// The same where the state lies.
pub(crate) fn take_in(policy: &Policy, state: &mut State, sample: &MemorySample) {
    state.reading = pressure(sample);
    state.memory_reading = memory_pressure(sample);
    state.shown.update(sample.at_ms, state.reading.value);
    // Calm is measured on the reading itself: the shown level stays long after a warning.
    if state.memory_reading.level() != Level::Normal {
        state
            .tracks
            .iter_mut()
            .for_each(|(_, track)| track.calm_since_ms = None);
    }
    if !is_blind(sample) {
        state.remember(policy, sample);
        refresh_margin(policy, state, sample.at_ms);
    }
}

/// What to do next.
pub fn decide(policy: &Policy, state: State, ask: &Ask, model: &MemoryModel) -> (State, Decision) {
    let mut state = notice(policy, state, &ask.sample);
    let asked = ask;
    state.notice_held(ask.sample.own_bytes.saturating_sub(ask.spare_bytes));
    let ask = &state.rungs.ask(asked);
    let remaining = ask.remaining.len().max(1) as u32;
    let track = state.track_mut(ask.kind);
    track.batch = track.batch.max(remaining);
    if 2 * remaining >= track.batch && !ask.remaining.is_empty() {
        let total: u64 = ask.remaining.iter().map(|cost| cost.0).sum();
        let cost = total as f64 / f64::from(remaining);
        track.sample_cost = match track.pieces {
            _ if track.sample_cost == 0.0 => cost,
            0 => cost,
            _ => track.sample_cost + COST_WEIGHT * (cost - track.sample_cost),
        };
    }
    let unmeasured = track.pieces >= UNMEASURED_PIECES && model.largest(ask.kind) == 0;
    let piece_cost = cost(track, track.size.max(1));
    let horizon_ms =
        state.piece_ms(ask.kind, piece_cost).unwrap_or(PIECE_MS) as u64 + policy.horizon_extra_ms;
    let mut turn = Turn {
        policy,
        ask,
        model,
        remaining,
        // Peaks are learnt without what is spare, so what is spare takes its part of the budget first.
        budget: budget(policy, &state, &ask.sample, horizon_ms).less(ask.spare_bytes),
        moved: None,
    };
    let steers = policy.fixed_micro_batch.is_none() && !is_blind(&ask.sample) && !unmeasured;
    if steers {
        turn.moved = turn.move_rung(&mut state, asked.kind);
    }
    let ask = &state.rungs.ask(asked);
    let turn = Turn { ask, ..turn };
    let outcome = if let Some(stop) = turn.stop(&mut state) {
        stop
    } else if let Some(size) = policy.fixed_micro_batch {
        turn.fixed(&mut state, size)
    } else if steers {
        turn.steer(&mut state)
    } else {
        turn.by_rules(&mut state)
    };
    let mut decision = turn.answer(&mut state, outcome);
    decision.checkpoint_first = turn.keep(&mut state, decision.action);
    decision.release_caches |= decision.checkpoint_first;
    turn.watch(&mut state, asked.kind, decision.action);
    (state, decision)
}

/// Learns from a piece that ended. Report `Outcome::Cancelled` only where pressure cancelled it, not the user.
pub fn observe(
    policy: &Policy,
    mut state: State,
    mut model: MemoryModel,
    piece: &Piece,
) -> (State, MemoryModel) {
    model.learn(piece);
    let slowed = state.memory_reading.value >= policy.slowed_pressure;
    let track = state.track_mut(piece.kind);
    if piece.outcome == Outcome::Ok {
        track.pieces += 1;
        let keeps = |(peak, at): &(u64, u64)| {
            *peak > piece.peak_bytes && piece.at_ms < at + policy.quiet_ms
        };
        track.needed = track
            .needed
            .filter(keeps)
            .or(Some((piece.peak_bytes, piece.at_ms)));
        if !slowed && piece.cost > 0 && piece.ms > 0.0 {
            clock(
                &mut track.speeds,
                piece.micro_batch,
                piece.ms / piece.cost as f64,
            );
        }
        return (state, model);
    }
    let refused = piece.outcome == Outcome::Memory;
    if refused {
        track.refused = Some((piece.micro_batch, piece.at_ms));
    }
    state.setback = Some(Setback {
        kind: piece.kind,
        micro_batch: piece.micro_batch,
        refused,
    });
    (state, model)
}

/// Why the running piece should be cancelled, if it should: the machine is over the critical line and Ebb over its budget, or
/// others take memory so fast that nothing would be left before a cancelled piece could give its own back.
pub fn should_cancel(policy: &Policy, state: &State, sample: &MemorySample) -> Option<String> {
    if is_blind(sample) || policy.fixed_micro_batch.is_some() {
        return None;
    }
    let used = sample.total_bytes.saturating_sub(sample.available_bytes) as f64;
    let over_line = used > policy.cancel_fraction * sample.total_bytes as f64;
    let soon = used + rise_bytes(policy, state, policy.cancel_ahead_ms);
    // A single sample is cancelled for what is, not for what may come: there is nothing smaller to try instead.
    let gone_soon = state.last_micro_batch > 1 && soon > sample.total_bytes as f64;
    if !(over_line || gone_soon || sample.kernel_level == Some(Level::Critical)) {
        return None; // nearly always, ten times a second: the budget need not be worked out
    }
    let budget = budget(policy, state, sample, policy.horizon_extra_ms);
    (sample.own_bytes > budget.bytes).then(|| why_less(policy, state, sample, &budget).1)
}

/// Takes a piece's speed in. The first piece of a size touches new memory, so the second replaces it.
fn clock(speeds: &mut Vec<Speed>, size: u32, ms_per_cost: f64) {
    match speeds.iter_mut().find(|speed| speed.size == size) {
        None => speeds.push(Speed {
            size,
            ms_per_cost,
            pieces: 1,
        }),
        Some(speed) => {
            let weight = if speed.pieces == 1 {
                1.0
            } else {
                SPEED_WEIGHT.max(1.0 / f64::from(speed.pieces))
            };
            speed.ms_per_cost += weight * (ms_per_cost - speed.ms_per_cost);
            speed.pieces += 1;
        }
    }
}
