//! Rungs beside the micro-batch, taken when memory has held the training to one sample a piece for long, or to none: blocks
//! are checkpointed one by one, then the optimizer's moments go to a file. Undone one by one, last first, after long calm.
//! No rung changes the mathematics. Knows no network and no file.

use crate::decision::{Action, Ask, Change, Moments, Phase, PieceKind};
use crate::sample::Level;
use crate::sizing::{TRIES, cost, largest_within};
use crate::state::{State, Track, Waiting};
use crate::turn::Turn;
use crate::words::gb;
use serde::{Deserialize, Serialize};

/// What checkpointing all blocks costs: one forward more, a third of a step.
const RECOMPUTE: f64 = 1.0 / 3.0;
/// The part of a block's even share of the activations that checkpointing it is trusted to free, before that is measured.
const TRUSTED: f64 = 0.5;

/// What a run can give beside samples. Facts of the run, told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reserve {
    /// Blocks of the network, all of which can be checkpointed.
    pub blocks: u32,
    /// Bytes of the optimizer's moments, which can go to a file; 0 where they cannot.
    pub moments_bytes: u64,
}

/// Where the run stands on these rungs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rungs {
    reserve: Reserve,
    /// Blocks that are checkpointed where that is more than was asked for.
    blocks: u32,
    pub(crate) moments: Moments,
    /// Since when memory has held the training down, and how.
    held: Option<(u64, Held)>,
    /// Since when nothing has.
    calm_since_ms: Option<u64>,
    /// When a rung was last taken, and when one was last undone.
    taken_ms: Option<u64>,
    undone_ms: Option<u64>,
    /// Calm asked for before a rung is undone, milliseconds; 0 stands for the policy's.
    calm_needed_ms: u64,
}

/// How memory holds a training down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Not even one sample was given memory.
    Refused,
    /// Not even one sample fits.
    None,
    /// One sample fits, two do not.
    One,
    /// Pieces are so small that computing blocks twice would be faster.
    Slow(u32),
}

impl Held {
    fn is_slow(self) -> bool {
        matches!(self, Held::Slow(_))
    }
}

/// A rung that a decision takes or undoes.
pub(crate) struct Moved {
    pub(crate) change: Change,
    pub(crate) reason: String,
    /// What it gives back before the next piece, in bytes.
    pub(crate) freed_bytes: u64,
}

impl Rungs {
    pub(crate) fn of(reserve: Reserve) -> Self {
        Self {
            reserve,
            ..Self::default()
        }
    }

    pub(crate) fn give_no_moments(&mut self) {
        self.reserve.moments_bytes = 0;
        self.moments = Moments::Resident;
    }

    /// Bytes of the moments that are in a file.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        match self.moments {
            Moments::Resident => 0,
            Moments::Mapped => self.reserve.moments_bytes,
        }
    }

    /// Blocks that a piece of this kind checkpoints.
    pub(crate) fn blocks_of(&self, kind: PieceKind) -> u32 {
        self.kind(kind).checkpoint_blocks
    }

    /// The kind as it is worked now. An evaluation keeps nothing for a backward pass.
    fn kind(&self, kind: PieceKind) -> PieceKind {
        match kind.phase {
            Phase::Evaluate => kind,
            Phase::Train => PieceKind {
                checkpoint_blocks: kind.checkpoint_blocks.max(self.blocks),
                ..kind
            },
        }
    }

    /// The question about the kind as it is worked now.
    pub(crate) fn ask<'a>(&self, ask: &Ask<'a>) -> Ask<'a> {
        Ask {
            kind: self.kind(ask.kind),
            ..*ask
        }
    }
}

impl Turn<'_> {
    /// The rung that is due, taken or undone. `asked` is the kind with the fewest blocks.
    pub(crate) fn move_rung(&self, state: &mut State, asked: PieceKind) -> Option<Moved> {
        if self.ask.kind.phase != Phase::Train || state.waiting == Waiting::Parked {
            return None;
        }
        self.take(state).or_else(|| self.undo(state, asked))
    }

    fn take(&self, state: &mut State) -> Option<Moved> {
        let (now, policy) = (self.ask.sample.at_ms, self.policy);
        let refused = state.setback.is_some_and(|setback| {
            setback.kind == self.ask.kind && setback.refused && setback.micro_batch <= 1
        });
        let (since, held) = match refused {
            true => (now, Held::Refused),
            false => state.rungs.held?,
        };
        let taken = state.rungs.taken_ms.filter(|at| *at >= since);
        let due = match (held, taken) {
            // Waiting would not make a device larger.
            (Held::Refused, _) => now,
            (_, None) => since + policy.rung_after_ms,
            (_, Some(at)) => at + policy.rung_apart_ms,
        };
        if now < due {
            return None;
        }
        let seconds = (now - since) / 1_000;
        let reason = match held {
            Held::Refused => "even one sample was refused".to_owned(),
            Held::None => format!("not even one sample a piece has fitted for {seconds} s"),
            Held::One => format!("only one sample a piece has fitted for {seconds} s"),
            Held::Slow(size) => format!("pieces of {size} have been slow for {seconds} s"),
        };
        let kind = self.ask.kind;
        let moved = if kind.checkpoint_blocks < state.rungs.reserve.blocks {
            let to = PieceKind {
                checkpoint_blocks: kind.checkpoint_blocks + 1,
                ..kind
            };
            let size = state.track_mut(kind).size;
            self.work_as(state, to, size);
            Moved {
                change: Change::CheckpointMore,
                reason,
                freed_bytes: 0,
            }
        } else {
            let bytes = self.moments_would_do(state, held)?;
            state.rungs.moments = Moments::Mapped;
            Moved {
                change: Change::Moments,
                reason: format!("{reason}; that frees {}", gb(bytes)),
                freed_bytes: bytes,
            }
        };
        let rungs = &mut state.rungs;
        let early = rungs
            .undone_ms
            .is_some_and(|at| now <= at + 2 * policy.rung_calm_ms);
        if early && rungs.taken_ms <= rungs.undone_ms {
            let longer = 2 * rungs.calm_needed_ms.max(policy.rung_calm_ms);
            rungs.calm_needed_ms = longer.min(policy.rung_calm_most_ms);
        }
        rungs.taken_ms = Some(now);
        Some(moved)
    }

    /// Bytes of the moments, where without them one sample more would fit and the disk has room for them.
    fn moments_would_do(&self, state: &State, held: Held) -> Option<u64> {
        let bytes = state.rungs.reserve.moments_bytes;
        if bytes == 0 || state.rungs.moments == Moments::Mapped {
            return None;
        }
        let room = state.ending.disk_free(&self.ask.sample);
        if room.is_some_and(|free| free < bytes + self.policy.disk_least_bytes) {
            return None;
        }
        let track = state.track(self.ask.kind)?;
        let (needed, limit) = match held {
            Held::None | Held::Refused => (self.one_sample_bytes(state)?, self.budget.pause_bytes),
            Held::One | Held::Slow(_) => {
                let next = cost(track, track.size + 1);
                let needed = self.model.upper_bytes(self.ask.kind, next)?;
                (needed, self.growth_bytes())
            }
        };
        (needed.saturating_sub(bytes) <= limit).then_some(bytes)
    }

    /// After long calm the rung taken last is undone, where the present micro-batch fits without it.
    fn undo(&self, state: &mut State, asked: PieceKind) -> Option<Moved> {
        let (now, kind) = (self.ask.sample.at_ms, self.ask.kind);
        let rungs = &state.rungs;
        let since = rungs.calm_since_ms?.max(rungs.undone_ms.unwrap_or(0));
        let needed_ms = rungs.calm_needed_ms.max(self.policy.rung_calm_ms);
        if now < since + needed_ms || !state.may_change(self.policy, now) {
            return None;
        }
        let reason = format!("memory has been free for {} s", (now - since) / 1_000);
        let track = state.track(kind)?.clone();
        let room = self.growth_bytes();
        if rungs.moments == Moments::Mapped {
            let needed = self
                .model
                .upper_bytes(kind, cost(&track, track.size.max(1)))?;
            if needed + rungs.reserve.moments_bytes > room {
                return None;
            }
            state.rungs.moments = Moments::Resident;
            return Some(self.undone(state, Change::Moments, reason));
        }
        if kind.checkpoint_blocks <= asked.checkpoint_blocks {
            return None;
        }
        let fewer = PieceKind {
            checkpoint_blocks: kind.checkpoint_blocks - 1,
            ..kind
        };
        self.model.upper_bytes(fewer, cost(&track, 1))?;
        let fits = largest_within(self.model, fewer, &track, room);
        let size = track.size.min(fits);
        let as_good = size == track.size || is_faster(state.track(fewer), size, &track);
        if size == 0 || !as_good {
            return None;
        }
        self.work_as(state, fewer, size);
        Some(self.undone(state, Change::CheckpointLess, reason))
    }

    fn undone(&self, state: &mut State, change: Change, reason: String) -> Moved {
        let now = self.ask.sample.at_ms;
        state.rungs.undone_ms = Some(now);
        state.count_change(now);
        Moved {
            change,
            reason,
            freed_bytes: 0,
        }
    }

    /// From now on pieces are of kind `to`; what is known of sizes goes over.
    fn work_as(&self, state: &mut State, to: PieceKind, size: u32) {
        let from = self.ask.kind;
        state.rungs.blocks = to.checkpoint_blocks;
        let before = state.track_mut(from).clone();
        let track = state.track_mut(to);
        *track = Track {
            size,
            starting: false,
            calm_since_ms: None,
            speeds: std::mem::take(&mut track.speeds),
            refused: track.refused,
            ..before
        };
        if let Some(setback) = state.setback.as_mut().filter(|s| s.kind == from) {
            setback.kind = to;
        }
    }

    /// Remembers since when memory has held the training down, or has not.
    pub(crate) fn watch(&self, state: &mut State, asked: PieceKind, action: Action) {
        if self.ask.kind.phase != Phase::Train {
            return;
        }
        let now = self.ask.sample.at_ms;
        let held = match action {
            Action::Pause => Some(Held::None),
            Action::Run => self.held(state, asked),
            Action::Park | Action::Stop => None,
        };
        let before = state.rungs.held;
        state.rungs.held = held.map(|held| match before {
            Some((since, before)) if before.is_slow() == held.is_slow() => (since, held),
            _ => (now, held),
        });
        let calm = held.is_none()
            && action == Action::Run
            && state.memory_reading.level() == Level::Normal;
        let since = state.rungs.calm_since_ms.unwrap_or(now);
        state.rungs.calm_since_ms = calm.then_some(since);
    }

    fn held(&self, state: &State, asked: PieceKind) -> Option<Held> {
        let track = state.track(self.ask.kind)?;
        let grows = self.fitting(track, self.growth_bytes()) > track.size;
        if track.size == 0 || track.size >= track.batch || grows {
            return None;
        }
        match track.size {
            1 => Some(Held::One),
            size => is_slow(state.track(asked)?, size).then_some(Held::Slow(size)),
        }
    }

    /// What one sample is expected to need, in bytes. More checkpointed blocks than were measured are trusted to free part of
    /// their even share.
    pub(crate) fn one_sample_bytes(&self, state: &State) -> Option<u64> {
        let kind = self.ask.kind;
        let one = state.track(kind).map_or(1, |track| cost(track, 1));
        let upper = self.model.upper_bytes(kind, one)?;
        let measured = self.model.measured(kind)?.checkpoint_blocks;
        let (more, all) = (
            kind.checkpoint_blocks - measured,
            state.rungs.reserve.blocks,
        );
        if more == 0 || all == 0 {
            return Some(upper);
        }
        let kept = self.model.state_bytes(kind).unwrap_or(upper);
        let activations = upper.saturating_sub(kept) as f64;
        let freed = TRUSTED * activations * f64::from(more.min(all)) / f64::from(all);
        Some(upper - freed as u64)
    }
}

/// Pieces of `size` were so much slower than larger ones that computing all blocks twice would have been faster.
fn is_slow(track: &Track, size: u32) -> bool {
    let larger = track.speeds.iter().filter(|speed| speed.size > size);
    let best = larger
        .filter_map(|speed| ms_per_cost(track, speed.size))
        .reduce(f64::min);
    match (ms_per_cost(track, size), best) {
        (Some(now), Some(best)) => now > (1.0 + RECOMPUTE) * best,
        _ => false,
    }
}

/// With fewer checkpointed blocks pieces of `size` were faster than the present ones.
fn is_faster(fewer: Option<&Track>, size: u32, now: &Track) -> bool {
    let before = fewer.and_then(|track| ms_per_cost(track, size));
    match (before, ms_per_cost(now, now.size)) {
        (Some(before), Some(now)) => before < now,
        _ => false,
    }
}

fn ms_per_cost(track: &Track, size: u32) -> Option<f64> {
    let tried = track
        .speeds
        .iter()
        .find(|speed| speed.size == size && speed.pieces >= TRIES);
    tried.map(|speed| speed.ms_per_cost)
}
