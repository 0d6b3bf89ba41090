//! The fallback rules, for a machine whose memory cannot be read and for peaks that are not
//! measured: a fifth less at a warning, half at a critical level or a refusal, the next larger size
//! after ten seconds. Cruder than the other rules.

use crate::decision::Phase;
use crate::decision_context::{DecisionContext, RuleOutcome, VoluntaryChanges};
use crate::memory_sample::Level;
use crate::micro_batch_sizes::{Track, largest_up_to, sizes};

/// What the fallback rules remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    /// When the size last changed.
    changed_ms: Option<u64>,
    /// When the footprint was last over the user's cap.
    over_cap_ms: Option<u64>,
    /// Micro-batches since caches were released, while memory is unreadable.
    since_release: u32,
}

/// A size, and the reason for it.
struct Size {
    size: u32,
    reason: String,
    voluntary: bool,
}

impl Size {
    fn new(size: u32, reason: impl Into<String>) -> Self {
        Self {
            size,
            reason: reason.into(),
            voluntary: false,
        }
    }
}

/// The next size. `track` is that of the kind that runs.
pub(crate) fn step(
    ctx: &DecisionContext,
    own: &mut State,
    track: &Track,
    changes: &VoluntaryChanges,
) -> RuleOutcome {
    let now_ms = ctx.sample.at_ms;
    if is_over_cap(ctx) {
        own.over_cap_ms = Some(now_ms);
    }
    let next = after_failure(ctx, track)
        .or_else(|| first(ctx, own, track))
        .or_else(|| smaller(ctx, own, track))
        .or_else(|| larger(ctx, own, track, changes))
        .unwrap_or_else(|| {
            let reason = "Ebb cannot predict memory use here, so the micro-batch changes slowly";
            Size::new(track.size, reason)
        });
    let failed = ctx.failure_of_kind().is_some();
    // A shorter rest of the batch is below the new size anyway; the next whole micro-batch reports
    // the change.
    let postponed = !failed && next.size < track.size && next.size as usize >= ctx.samples.len();
    let size = if postponed { track.size } else { next.size };
    if size != track.size {
        own.changed_ms = Some(now_ms);
    }
    let release =
        size < track.size || failed || (ctx.sample.is_unreadable() && release_is_due(ctx, own));
    if release {
        own.since_release = 1; // the micro-batch that follows
    }
    RuleOutcome {
        voluntary: next.voluntary,
        ..RuleOutcome::run(size, ctx.pressure.cause, next.reason).releasing_caches(release)
    }
}

/// Half of a size that failed.
fn after_failure(ctx: &DecisionContext, track: &Track) -> Option<Size> {
    let failure = ctx.failure_of_kind()?;
    let reason = failure.cause.reason();
    let reason = reason.unwrap_or("the micro-batch was cancelled");
    let half = (failure.micro_batch / 2).max(1);
    Some(Size::new(largest_up_to(track.batch, half), reason))
}

/// The first size of a kind.
fn first(ctx: &DecisionContext, own: &mut State, track: &Track) -> Option<Size> {
    if track.size > 0 {
        return None;
    }
    own.changed_ms = Some(ctx.sample.at_ms);
    let (limit, reason) = if track.earlier_size == 0 {
        let reason =
            "this micro-batch size is a first guess, because Ebb cannot predict memory use yet";
        (ctx.policy.fallback_start, reason)
    } else {
        let reason =
            "the same micro-batch size as before, because Ebb cannot predict memory use here";
        (track.earlier_size, reason)
    };
    Some(Size::new(largest_up_to(track.batch, limit), reason))
}

/// A smaller size under pressure.
fn smaller(ctx: &DecisionContext, own: &State, track: &Track) -> Option<Size> {
    let policy = ctx.policy;
    let rested = |ms: u64| has_rested(ctx, own, ms);
    if track.size <= 1 {
        return None;
    }
    let level = level(ctx);
    if level == Level::Critical && rested(policy.critical_interval_ms) {
        let half = largest_up_to(track.batch, track.size / 2);
        return Some(Size::new(half, "memory is critical"));
    }
    if level == Level::Warning && rested(policy.fallback_warning_interval_ms) {
        let less = (policy.fallback_warning_factor * f64::from(track.size)) as u32;
        let reason = if is_over_cap(ctx) {
            "the memory cap is exceeded"
        } else {
            "memory is running low"
        };
        return Some(Size::new(largest_up_to(track.batch, less), reason));
    }
    None
}

/// The next larger size after calm.
fn larger(
    ctx: &DecisionContext,
    own: &State,
    track: &Track,
    changes: &VoluntaryChanges,
) -> Option<Size> {
    let (policy, now_ms) = (ctx.policy, ctx.sample.at_ms);
    let refused = track
        .refused
        .filter(|(_, at)| now_ms < at + policy.retry_refused_after_ms)
        .map_or(u32::MAX, |(size, _)| size);
    let size = sizes(track.batch)
        .take_while(|&m| m > track.size)
        .last()
        .filter(|&m| m < refused && m as usize <= ctx.samples.len())?;
    let rested = has_rested(ctx, own, policy.fallback_grow_interval_ms);
    let interval_ms = policy.fallback_grow_interval_ms;
    let was_pressed = ctx.pressed_ms.max(own.over_cap_ms);
    let calm =
        level(ctx) == Level::Normal && was_pressed.is_none_or(|at| now_ms >= at + interval_ms);
    if !calm || !rested || !changes.are_allowed(policy, now_ms) {
        return None;
    }
    let seconds = interval_ms / 1_000;
    Some(Size {
        voluntary: true,
        ..Size::new(size, format!("no sign of memory pressure for {seconds} s"))
    })
}

/// The level, at least a warning while Ebb is over the user's cap.
fn level(ctx: &DecisionContext) -> Level {
    let level = ctx.pressure.level();
    if is_over_cap(ctx) {
        level.max(Level::Warning)
    } else {
        level
    }
}

fn is_over_cap(ctx: &DecisionContext) -> bool {
    let cap = ctx.policy.cap_bytes(ctx.sample.total_bytes);
    cap.is_some_and(|cap| ctx.sample.own_bytes > cap)
}

fn has_rested(ctx: &DecisionContext, own: &State, ms: u64) -> bool {
    own.changed_ms.is_none_or(|at| ctx.sample.at_ms >= at + ms)
}

/// Counts a micro-batch. Without memory readings, caches are released at intervals.
fn release_is_due(ctx: &DecisionContext, own: &mut State) -> bool {
    let interval = match ctx.kind.phase {
        Phase::Train => ctx.policy.unreadable_train_release,
        Phase::Evaluate => ctx.policy.unreadable_evaluate_release,
    };
    own.since_release += 1;
    own.since_release > interval
}
