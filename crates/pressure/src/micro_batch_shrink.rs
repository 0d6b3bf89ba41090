//! Rule: shrink the micro-batch at once if it no longer fits, was refused or cancelled, or if the
//! system is critical.

use crate::decision_context::{DecisionContext, RuleOutcome};
use crate::memory_sample::Component;
use crate::micro_batch_sizes::{Track, largest_up_to};
use crate::{micro_batch_growth, prefetch_rules};

/// The present size, or less if it must be less. `critical`: the rule reacts to a critical level.
pub(crate) fn allowed_size(ctx: &DecisionContext, track: &Track, critical: bool) -> u32 {
    let half = |size: u32| largest_up_to(track.batch, (size / 2).max(1));
    let fits = ctx.largest_within(track, ctx.budget.bytes).max(1);
    let mut size = track.size.min(fits);
    let cause = ctx.pressure.cause;
    if critical && matches!(cause, Component::Kernel | Component::System) {
        size = size.min(half(track.size));
    }
    if let Some(failure) = ctx.failure_of_kind() {
        size = size.min(half(failure.micro_batch));
    }
    size
}

/// Whether the micro-batch must shrink to `size`. A shorter rest of the batch that fits anyway does
/// not change the size.
pub(crate) fn must_shrink(ctx: &DecisionContext, track: &Track, size: u32) -> bool {
    ctx.failure_of_kind().is_some() || (size < track.size && size < ctx.remaining)
}

/// Whether a shorter prefetch may replace the shrink: no failure or critical level is answered now.
pub(crate) fn may_be_avoided(ctx: &DecisionContext, critical: bool) -> bool {
    ctx.failure_of_kind().is_none() && !critical
}

/// Shrinks from `before` to `size`. Buffers are released if Ebb holds more than its budget.
/// Otherwise they stay in use, because the next micro-batch would touch the same memory again.
/// `critical`: the rule reacts to a critical level.
pub(crate) fn shrink(ctx: &DecisionContext, before: u32, size: u32, critical: bool) -> RuleOutcome {
    let is_over_budget = ctx.sample.own_bytes > ctx.budget.bytes + ctx.spare_bytes;
    let release = critical || is_over_budget || ctx.failure_of_kind().is_some();
    let failed = ctx.failure_of_kind().and_then(|f| f.cause.reason());
    let (cause, reason) = match failed {
        // Free memory would not help.
        Some(failed) => (Component::Device, failed.to_owned()),
        None => ctx.explain_shortage(before),
    };
    RuleOutcome::run(size, cause, reason).releasing_caches(release)
}

/// Records that lack of memory made the micro-batch smaller or made the run wait: the slow start
/// ends, and the prefetch is shortened too.
pub(crate) fn record(
    ctx: &DecisionContext,
    growth: &mut micro_batch_growth::State,
    prefetch: &mut prefetch_rules::State,
    track: &mut Track,
) {
    growth.record_shrink(ctx);
    if ctx.machine_is_short() {
        track.short_of = track.short_of.max(track.size);
    }
    prefetch.shorten(ctx);
    track.calm_since_ms = None;
    track.starting = false;
    track.recent_peak = None;
}
