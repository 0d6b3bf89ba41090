//! Growth: fast while everything is new, later only after calm, never above the knee. Knows nothing of shrinking by need.

use crate::sample::{Component, Level};
use crate::sizing::{Ceiling, PROBE, TRIES, at_most, ceiling, knee, largest_within};
use crate::state::{State, Track};
use crate::turn::{Turn, Verdict};

/// A growth that is not the whole growth must at least be so many times.
const WORTHWHILE: u32 = 4;
/// Why a size above the knee is not kept.
const NO_FASTER: &str = "a larger micro-batch is no faster here";

impl Turn<'_> {
    /// Growth, the knee, or no change.
    pub(crate) fn grow(&self, state: &mut State) -> Verdict {
        let (policy, now) = (self.policy, self.ask.sample.at_ms);
        let track = state.track_mut(self.ask.kind).clone();
        let (most, why) = ceiling(policy, self.model, self.ask.kind, &track, now);
        let fits = largest_within(self.model, self.ask.kind, &track, self.growth_bytes());
        let up = fits.min(most);
        if up <= track.size {
            self.settle(state);
            let memory_speaks = fits <= track.size && track.size < track.batch;
            if !memory_speaks && let Some(longer) = self.lengthen(state, &track) {
                return longer;
            }
            return match why {
                Ceiling::Knee if most < track.size => self.lower_to_knee(state, &track),
                _ if track.size >= track.batch => hold(&track, "the whole batch is one piece"),
                Ceiling::Knee if fits > most => hold(&track, NO_FASTER),
                Ceiling::Refused if fits > most => {
                    hold(&track, "a larger one was refused a short while ago")
                }
                _ => hold(&track, "a larger one would not fit"),
            };
        }
        // Only where a whole piece of the new size is left: a change is told with the size it has. For a size that
        // is far too small the end of the batch is not waited for.
        let now_possible = up.min(at_most(track.batch, self.remaining));
        let worthwhile = now_possible == up || now_possible / WORTHWHILE >= track.size;
        if !worthwhile || !state.may_change(policy, now) {
            return hold(&track, "memory is free");
        }
        let up = now_possible;
        if track.starting {
            return self.grow_at_start(state, &track, up);
        }
        self.grow_after_calm(state, &track, up)
    }

    /// The slow start waits for measurements only.
    fn grow_at_start(&self, state: &mut State, track: &Track, up: u32) -> Verdict {
        let tried = track
            .speeds
            .iter()
            .find(|speed| speed.size == track.size)
            .map_or(0, |speed| speed.pieces);
        let enough = if track.size <= PROBE { 1 } else { TRIES };
        let slowed = state.memory_reading.value >= self.policy.slowed_pressure;
        if track.pieces == 0 || (tried < enough && !slowed) {
            return hold(track, "measuring what it needs");
        }
        let reason = match self.model.is_ready(self.ask.kind) {
            true => "there is room for it",
            false => "to measure what each sample needs",
        };
        self.rise(state, up, reason.into())
    }

    /// Later, memory must have been free for a while.
    fn grow_after_calm(&self, state: &mut State, track: &Track, up: u32) -> Verdict {
        let now = self.ask.sample.at_ms;
        let normal = state.memory_reading.level() == Level::Normal;
        let rested = state
            .last_up_ms
            .is_none_or(|at| now >= at + self.policy.grow_apart_ms);
        let gain = gain(track, up);
        // A longer calm was asked for after growth that was undone; once it has been quiet for long, that is over.
        let quiet = |at: u64| now > at + self.policy.quiet_ms;
        if state.last_down_ms.is_none_or(quiet) {
            state.calm_needed_ms = 0;
        }
        let worth_ms = gain.map_or(u64::MAX, |gain| {
            (self.policy.change_cost_ms as f64 / gain.max(1e-3)) as u64
        });
        let needed_ms = state
            .calm_needed_ms
            .max(self.policy.grow_after_ms)
            .min(worth_ms.max(self.policy.grow_least_ms));
        let since = &mut state.track_mut(self.ask.kind).calm_since_ms;
        let calm_ms = if normal {
            now.saturating_sub(*since.get_or_insert(now))
        } else {
            0
        };
        if calm_ms < needed_ms || !rested {
            return hold(track, "waiting for memory to stay free");
        }
        self.rise(
            state,
            up,
            format!("memory has been free for {} s", calm_ms / 1_000),
        )
    }

    fn rise(&self, state: &mut State, size: u32, reason: String) -> Verdict {
        let now = self.ask.sample.at_ms;
        state.last_up_ms = Some(now);
        Verdict {
            voluntary: true,
            ..Verdict::run(size, Component::Headroom, reason)
        }
    }

    /// There is nothing to grow to: the calm is over, and so is the slow start once the model can say so.
    fn settle(&self, state: &mut State) {
        let ready = self.model.is_ready(self.ask.kind);
        let track = state.track_mut(self.ask.kind);
        track.calm_since_ms = None;
        track.starting &= !ready && track.size < track.batch;
    }

    /// A size above the knee costs memory for nothing. A third of the tolerance, so that noise does not go back and forth.
    fn lower_to_knee(&self, state: &mut State, track: &Track) -> Verdict {
        let now = self.ask.sample.at_ms;
        let clear =
            knee(track, self.policy.knee_fraction / 3.0).map(|knee| at_most(track.batch, knee));
        let rested = [state.last_up_ms, state.last_down_ms]
            .into_iter()
            .flatten()
            .all(|at| now >= at + self.policy.quiet_ms);
        match clear {
            Some(knee)
                if knee < track.size
                    && knee < self.remaining
                    && rested
                    && state.may_change(self.policy, now) =>
            {
                state.last_up_ms = Some(now);
                Verdict {
                    voluntary: true,
                    release: true,
                    ..Verdict::run(knee, Component::Speed, NO_FASTER)
                }
            }
            _ => hold(track, NO_FASTER),
        }
    }
}

/// By how much `up` is faster than the present size, as far as sizes near both were measured.
fn gain(track: &Track, up: u32) -> Option<f64> {
    let near = |size: u32| {
        let tried = track.speeds.iter().filter(|speed| speed.pieces >= 2);
        tried
            .min_by_key(|speed| speed.size.abs_diff(size))
            .filter(|speed| speed.size.abs_diff(size) <= size / 4)
    };
    let (now, then) = (near(track.size)?, near(up)?);
    Some(now.ms_per_cost / then.ms_per_cost - 1.0)
}

/// No change.
fn hold(track: &Track, reason: &str) -> Verdict {
    Verdict::run(track.size, Component::Headroom, reason)
}
