//! Rules: when cached memory is released, and how often a critical level is answered.

use crate::decision_context::DecisionContext;
use crate::memory_sample::Level;
use crate::micro_batch_sizes::Track;
use crate::policy::{CACHE_FOOTPRINT_PART, OVER_LIMIT_RELEASE_MS, RELEASE_INTERVAL_MS};

/// When caches were last released, and a critical level last answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    released_ms: Option<u64>,
    critical_answered_ms: Option<u64>,
}

impl State {
    pub(crate) fn record_release(&mut self, now_ms: u64) {
        self.released_ms = Some(now_ms);
    }
}

/// Whether a critical level is to be answered: at once, then again at intervals while it stays.
/// Counts the answer.
pub(crate) fn answer_critical(ctx: &DecisionContext, own: &mut State) -> bool {
    let now_ms = ctx.sample.at_ms;
    let rested = own
        .critical_answered_ms
        .is_none_or(|at| now_ms >= at + ctx.policy.critical_interval_ms);
    let is_due = ctx.pressure.level() == Level::Critical && rested;
    if is_due {
        own.critical_answered_ms = Some(now_ms);
    }
    is_due
}

/// Whether caches are to be released: those over the limit of the machine, those above the budget,
/// and large ones at a warning or if the device holds more than its soft fraction. Memory that
/// recent micro-batches needed is not a cache, since the next one needs it again.
pub(crate) fn are_due(ctx: &DecisionContext, own: &State, track: &Track) -> bool {
    let (sample, policy) = (ctx.sample, ctx.policy);
    let cached = sample
        .device_allocated_bytes
        .saturating_sub(sample.device_live_bytes);
    let unneeded = match track.recent_peak {
        Some((peak, _)) => cached.min(sample.own_bytes.saturating_sub(peak)),
        None => cached,
    };
    let rested = |ms: u64| own.released_ms.is_none_or(|at| sample.at_ms >= at + ms);
    // Releasing what the next micro-batch touches again frees nothing for others.
    let steady = ctx.model.upper_bytes(ctx.kind, track.cost(track.size));
    let next = steady.unwrap_or(0) + ctx.spare_bytes;
    let budget = ctx.budget.bytes + ctx.spare_bytes;
    let slack = (policy.min_margin_fraction * sample.total_bytes as f64) as u64;
    let over_budget = sample.own_bytes > budget.max(next).min(budget + slack);
    let soft_limit = policy.device_soft_fraction * sample.device_limit_bytes as f64;
    let device_is_full =
        sample.device_limit_bytes > 0 && sample.device_allocated_bytes as f64 > soft_limit;
    let wanted = device_is_full || !ctx.is_calm();
    let large = unneeded
        > policy
            .cache_bytes
            .max(sample.own_bytes / CACHE_FOOTPRINT_PART);
    exceed_limit(ctx, track) && rested(OVER_LIMIT_RELEASE_MS)
        || over_budget && rested(policy.critical_interval_ms)
        || wanted && large && rested(RELEASE_INTERVAL_MS)
}

/// Whether all processes together exceed the limit of the machine while Ebb holds more than the
/// next micro-batch needs. A single long sample may exceed the limit, but what it leaves behind may
/// not.
fn exceed_limit(ctx: &DecisionContext, track: &Track) -> bool {
    let sample = ctx.sample;
    let cost = ctx.cost(track.size).min(track.cost(track.size));
    let needed = ctx.model.upper_bytes(ctx.kind, cost.max(ctx.cost(1)));
    let holds_more = needed.is_some_and(|bytes| sample.own_bytes > bytes + ctx.spare_bytes);
    holds_more && sample.used_bytes() > ctx.policy.limit_bytes(sample)
}
