//! Rule: recovery steps besides the micro-batch. If memory has held the training to one sample per
//! micro-batch for long, or to none, blocks are checkpointed one by one, then the optimizer's
//! moments move to a file. After long calm the steps are undone one by one, the last first.
//!
//! No step changes the result of the training.

use crate::decision::{Action, Change, MicroBatchKind, Moments, Phase};
use crate::decision_context::{DecisionContext, FailureCause, VoluntaryChanges};
use crate::micro_batch_sizes::{Track, Tracks, largest_within};
use crate::policy::{Policy, RECOMPUTE_TIME_FRACTION, TRUSTED_SAVING};
use format::format_bytes;
use serde::{Deserialize, Serialize};

/// The reason to undo a step if the memory of the machine was never short.
const ROOM_AGAIN: &str = "there is enough memory now";

/// What a run can give up besides samples. It does not change during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryReserve {
    /// Number of blocks of the network; all of them can be checkpointed.
    pub blocks: u32,
    /// Bytes of the optimizer's moments that can move to a file; 0 if they cannot.
    pub moments_bytes: u64,
}

/// The recovery steps in effect, and since when there has been a reason for the next.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct State {
    reserve: RecoveryReserve,
    /// Checkpointed blocks, if that is more than was asked for.
    blocks: u32,
    moments: Moments,
    /// Since when memory has been short, and how this affects the training.
    shortage: Option<(u64, Shortage)>,
    /// Since when memory has not been short.
    calm_since_ms: Option<u64>,
    taken_ms: Option<u64>,
    undone_ms: Option<u64>,
    /// Calm required before a step is undone, in milliseconds; 0 means the policy's.
    calm_needed_ms: u64,
    /// Whether the memory of the machine was short at a step that is still in effect, rather than
    /// that of the device or the cap.
    by_others: bool,
}

/// How the lack of memory slows a run down or stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortage {
    /// Not even one sample was given memory.
    Refused,
    /// Not even one sample fits.
    NoSample,
    /// One sample fits, two do not.
    OneSample,
    /// Micro-batches of this size are so slow that recomputing blocks would be faster.
    Slow(u32),
}

impl Shortage {
    fn is_slow(self) -> bool {
        matches!(self, Shortage::Slow(_))
    }

    fn describe(self, seconds: u64) -> String {
        match self {
            Shortage::Refused => "the device refused the memory for a single sample".to_owned(),
            Shortage::NoSample => {
                format!("not even one sample has fitted in memory for {seconds} s")
            }
            Shortage::OneSample => {
                format!("only one sample at a time has fitted in memory for {seconds} s")
            }
            Shortage::Slow(size) => {
                format!("micro-batches of {size} have been slow for {seconds} s")
            }
        }
    }
}

/// A recovery step that a decision takes or undoes.
pub(crate) struct Step {
    pub(crate) change: Change,
    pub(crate) reason: String,
    /// What it frees before the next micro-batch, in bytes.
    pub(crate) freed_bytes: u64,
    /// Another kind of micro-batch from now on, and its size.
    pub(crate) switch: Option<(MicroBatchKind, u32)>,
    /// It undoes a step, which counts against the changes per minute.
    pub(crate) voluntary: bool,
}

impl State {
    pub(crate) fn new(reserve: RecoveryReserve) -> Self {
        Self {
            reserve,
            ..Self::default()
        }
    }

    /// The moments cannot move to a file after all.
    pub(crate) fn disable_mapped_moments(&mut self) {
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

    pub(crate) fn moments(&self) -> Moments {
        self.moments
    }

    #[cfg(test)]
    pub(crate) fn map_moments(&mut self) {
        self.moments = Moments::Mapped;
    }

    /// The kind that runs if `kind` is asked for. An evaluation saves nothing for a backward pass.
    pub(crate) fn current_kind(&self, kind: MicroBatchKind) -> MicroBatchKind {
        match kind.phase {
            Phase::Evaluate => kind,
            Phase::Train => MicroBatchKind {
                checkpoint_blocks: kind.checkpoint_blocks.max(self.blocks),
                ..kind
            },
        }
    }

    /// Counts a step that is taken. If one was undone shortly before, the required calm doubles.
    fn record_taken(&mut self, policy: &Policy, now_ms: u64) {
        let undone_lately = self
            .undone_ms
            .is_some_and(|at| now_ms <= at + 2 * policy.undo_after_ms);
        if undone_lately && self.taken_ms <= self.undone_ms {
            let doubled = 2 * self.calm_needed_ms.max(policy.undo_after_ms);
            self.calm_needed_ms = doubled.min(policy.max_undo_after_ms);
        }
        self.taken_ms = Some(now_ms);
    }
}

/// Takes the next step if memory has held the training down for long. `disk_free_bytes` is free
/// disk for the moments.
pub(crate) fn take(
    ctx: &DecisionContext,
    own: &mut State,
    tracks: &Tracks,
    disk_free_bytes: Option<u64>,
) -> Option<Step> {
    let now_ms = ctx.sample.at_ms;
    let (since_ms, shortage) = due_shortage(ctx, own)?;
    let reason = shortage.describe((now_ms - since_ms) / 1_000);
    let kind = ctx.kind;
    let step = if kind.checkpoint_blocks < own.reserve.blocks {
        let to = MicroBatchKind {
            checkpoint_blocks: kind.checkpoint_blocks + 1,
            ..kind
        };
        own.blocks = to.checkpoint_blocks;
        let size = tracks.get(kind).map_or(0, |track| track.size);
        Step {
            change: Change::CheckpointMore,
            reason,
            freed_bytes: 0,
            switch: Some((to, size)),
            voluntary: false,
        }
    } else {
        let track = tracks.get(kind);
        let bytes = useful_moments_bytes(ctx, own, track, shortage, disk_free_bytes)?;
        own.moments = Moments::Mapped;
        Step {
            change: Change::Moments,
            reason: format!("{reason}; moving them frees {}", format_bytes(bytes)),
            freed_bytes: bytes,
            switch: None,
            voluntary: false,
        }
    };
    own.record_taken(ctx.policy, now_ms);
    own.by_others |= ctx.machine_is_short();
    Some(step)
}

/// The shortage that calls for a step now, and since when it has lasted.
fn due_shortage(ctx: &DecisionContext, own: &State) -> Option<(u64, Shortage)> {
    let (now_ms, policy) = (ctx.sample.at_ms, ctx.policy);
    let failure = ctx.failure_of_kind();
    let refused = failure.filter(|failure| failure.cause == FailureCause::Refused);
    if refused.is_some_and(|failure| failure.micro_batch <= 1) {
        // Waiting would not make a device larger.
        return Some((now_ms, Shortage::Refused));
    }
    let (since_ms, shortage) = own.shortage?;
    let due_ms = match own.taken_ms.filter(|at| *at >= since_ms) {
        None => since_ms + policy.recovery_after_ms,
        Some(taken_ms) => taken_ms + policy.recovery_interval_ms,
    };
    (now_ms >= due_ms).then_some((since_ms, shortage))
}

/// Bytes of the moments, if one more sample would fit without them and they fit on the disk.
fn useful_moments_bytes(
    ctx: &DecisionContext,
    own: &State,
    track: Option<&Track>,
    shortage: Shortage,
    disk_free_bytes: Option<u64>,
) -> Option<u64> {
    let bytes = own.reserve.moments_bytes;
    if bytes == 0 || own.moments == Moments::Mapped {
        return None;
    }
    if disk_free_bytes.is_some_and(|free| free < bytes + ctx.policy.min_disk_bytes) {
        return None;
    }
    let track = track?;
    let (needed, limit) = match shortage {
        Shortage::NoSample | Shortage::Refused => {
            let needed = one_sample_bytes(ctx, own, track.cost(1))?;
            (needed, ctx.budget.pause_bytes)
        }
        Shortage::OneSample | Shortage::Slow(_) => {
            let next = track.cost(track.size + 1);
            (ctx.model.upper_bytes(ctx.kind, next)?, ctx.growth_bytes())
        }
    };
    (needed.saturating_sub(bytes) <= limit).then_some(bytes)
}

/// Undoes the last step after long calm, if the present micro-batch fits without it. `asked` is the
/// kind with the fewest checkpointed blocks.
pub(crate) fn undo(
    ctx: &DecisionContext,
    own: &mut State,
    tracks: &Tracks,
    changes: &VoluntaryChanges,
    asked: MicroBatchKind,
) -> Option<Step> {
    let (now_ms, kind) = (ctx.sample.at_ms, ctx.kind);
    let since = own.calm_since_ms?.max(own.undone_ms.unwrap_or(0));
    let needed_ms = own.calm_needed_ms.max(ctx.policy.undo_after_ms);
    if now_ms < since + needed_ms || !changes.are_allowed(ctx.policy, now_ms) {
        return None;
    }
    let track = tracks.get(kind)?;
    let (change, switch) = if own.moments == Moments::Mapped {
        let cost = track.cost(track.size.max(1));
        let needed = ctx.model.upper_bytes(kind, cost)?;
        if needed + own.reserve.moments_bytes > ctx.growth_bytes() {
            return None;
        }
        own.moments = Moments::Resident;
        (Change::Moments, None)
    } else {
        if kind.checkpoint_blocks <= asked.checkpoint_blocks {
            return None;
        }
        let fewer = MicroBatchKind {
            checkpoint_blocks: kind.checkpoint_blocks - 1,
            ..kind
        };
        let size = size_with_fewer_blocks(ctx, tracks, track, fewer)?;
        own.blocks = fewer.checkpoint_blocks;
        (Change::CheckpointLess, Some((fewer, size)))
    };
    own.undone_ms = Some(now_ms);
    let reason = if own.by_others {
        format!("memory has been free for {} s", (now_ms - since) / 1_000)
    } else {
        ROOM_AGAIN.to_owned()
    };
    own.by_others &= own.moments == Moments::Mapped || own.blocks > asked.checkpoint_blocks;
    Some(Step {
        change,
        reason,
        freed_bytes: 0,
        switch,
        voluntary: true,
    })
}

/// The micro-batch with fewer checkpointed blocks; `None` unless it is as large as now, or faster.
fn size_with_fewer_blocks(
    ctx: &DecisionContext,
    tracks: &Tracks,
    track: &Track,
    fewer: MicroBatchKind,
) -> Option<u32> {
    ctx.model.upper_bytes(fewer, track.cost(1))?;
    let fits = largest_within(ctx.model, fewer, track, ctx.growth_bytes());
    let size = track.size.min(fits);
    let as_good = size == track.size || is_faster(tracks.get(fewer), size, track);
    (size > 0 && as_good).then_some(size)
}

/// Records since when memory has held the training down, or has not, after a decision for `action`.
pub(crate) fn watch(
    ctx: &DecisionContext,
    own: &mut State,
    tracks: &Tracks,
    asked: MicroBatchKind,
    action: Action,
) {
    if ctx.kind.phase != Phase::Train {
        return;
    }
    let now_ms = ctx.sample.at_ms;
    let shortage = match action {
        Action::Pause => Some(Shortage::NoSample),
        Action::Run => shortage_while_running(ctx, tracks, asked),
        Action::Suspend | Action::Stop => None,
    };
    let before = own.shortage;
    own.shortage = shortage.map(|shortage| match before {
        Some((since, before)) if before.is_slow() == shortage.is_slow() => (since, shortage),
        _ => (now_ms, shortage),
    });
    let calm = shortage.is_none() && action == Action::Run && ctx.is_calm();
    let since = own.calm_since_ms.unwrap_or(now_ms);
    own.calm_since_ms = calm.then_some(since);
}

fn shortage_while_running(
    ctx: &DecisionContext,
    tracks: &Tracks,
    asked: MicroBatchKind,
) -> Option<Shortage> {
    let track = tracks.get(ctx.kind)?;
    let grows = ctx.largest_within(track, ctx.growth_bytes()) > track.size;
    if track.size == 0 || track.size >= track.batch || grows {
        return None;
    }
    match track.size {
        1 => Some(Shortage::OneSample),
        size => is_slow(tracks.get(asked)?, size).then_some(Shortage::Slow(size)),
    }
}

/// Footprint that one sample is expected to need, in bytes. Until they are measured, additional
/// checkpointed blocks are trusted to free part of their even share.
pub(crate) fn one_sample_bytes(ctx: &DecisionContext, own: &State, cost: u64) -> Option<u64> {
    let kind = ctx.kind;
    let upper = ctx.model.upper_bytes(kind, cost)?;
    let measured = ctx.model.nearest_measured(kind)?.checkpoint_blocks;
    let (more, all) = (kind.checkpoint_blocks - measured, own.reserve.blocks);
    if more == 0 || all == 0 {
        return Some(upper);
    }
    let state = ctx.model.state_bytes(kind).unwrap_or(upper);
    let activations = upper.saturating_sub(state) as f64;
    let freed = TRUSTED_SAVING * activations * f64::from(more.min(all)) / f64::from(all);
    Some(upper - freed as u64)
}

/// Whether micro-batches of `size` are so much slower than larger ones that recomputing all blocks
/// would be faster.
fn is_slow(track: &Track, size: u32) -> bool {
    let certain = (1.0 + RECOMPUTE_TIME_FRACTION).ln();
    track.compared.is_larger_faster(size, certain)
}

/// Whether micro-batches of `size` were faster with fewer checkpointed blocks than the present
/// ones.
fn is_faster(fewer: Option<&Track>, size: u32, now: &Track) -> bool {
    let before = fewer.and_then(|track| track.known_ms_per_cost(size));
    match (before, now.known_ms_per_cost(now.size)) {
        (Some(before), Some(now)) => before < now,
        _ => false,
    }
}
