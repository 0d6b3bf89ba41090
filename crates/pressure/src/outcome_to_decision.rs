//! Turns the outcome of a rule into the decision, and remembers it. Decides no size itself, except
//! that the next samples may be too costly for it.

use crate::controller_state::{LastDecision, Rules};
use crate::decision::{Action, Change, Decision, SampleCost};
use crate::decision_context::{DecisionContext, FailureCause, RuleOutcome};
use crate::micro_batch_sizes::{Track, growth_limit, sizes};
use crate::policy::PACKED_FRACTION;
use crate::recovery_steps::Step;

/// The decision for `outcome` and, if one was taken, the recovery step `step`.
pub(crate) fn answer(
    ctx: &DecisionContext,
    rules: &mut Rules,
    outcome: RuleOutcome,
    step: Option<&Step>,
) -> Decision {
    let now_ms = ctx.sample.at_ms;
    let transition = Transition::record(ctx, rules, &outcome, step);
    let change = transition.change();
    let track = rules.tracks.get_mut(ctx.kind);
    let batch = track.batch;
    if outcome.action == Action::Run {
        track.size = outcome.size;
    }
    let ordinary_cost = track.cost(outcome.size);
    if outcome.voluntary {
        rules.changes.record(now_ms);
    }
    let release_caches = outcome.release_caches || transition.is_new_kind && transition.before > 0;
    if release_caches {
        rules.caches.record_release(now_ms);
    }
    // What is freed before this micro-batch is available to it.
    let freed = rules.prefetch.freed_bytes(now_ms) + step.map_or(0, |step| step.freed_bytes);
    let most = affordable(ctx, outcome.size, freed, ordinary_cost);
    let micro_batch = if can_pack(ctx, most) && change != Change::Cancel {
        let largest_cost = largest_packed_cost(ctx, rules.tracks.get_mut(ctx.kind), outcome.size);
        packed(ctx, freed, ordinary_cost, largest_cost)
    } else if change == Change::Hold {
        evenly_split(ctx, most, batch)
    } else {
        most // a change is reported with its size
    };
    rules.last.micro_batch = micro_batch;
    let duration_ms = rules
        .tracks
        .get_mut(ctx.kind)
        .duration_ms(ctx.cost(micro_batch));
    rules.last.ends_ms = duration_ms.map(|ms| now_ms + ms as u64);
    let reason = reason(rules, &outcome, change, step);
    let predicted = ctx.predicted_bytes(micro_batch);
    Decision {
        action: outcome.action,
        micro_batch,
        change,
        release_caches,
        checkpoint_first: false,
        prefetch: rules.last.prefetch,
        checkpoint_blocks: ctx.kind.checkpoint_blocks,
        moments: rules.recovery.moments(),
        predicted_peak_bytes: predicted
            .map_or(0, |peak| (peak + ctx.spare_bytes).saturating_sub(freed)),
        budget_bytes: ctx.budget.bytes + ctx.spare_bytes,
        cause: outcome.cause,
        reason,
    }
}

/// The reason of the decision: that of the recovery step if it reports one, and that of a cancelled
/// micro-batch at that moment, because what was short then may be free by now.
fn reason(rules: &mut Rules, outcome: &RuleOutcome, change: Change, step: Option<&Step>) -> String {
    let cancelled = match outcome.action {
        Action::Run => rules.cancel_reason.take(),
        Action::Pause | Action::Suspend | Action::Stop => None,
    };
    let reported_step = step.filter(|step| step.change == change);
    let own = reported_step.map_or(&outcome.reason, |step| &step.reason);
    match cancelled {
        Some(reason) if change == Change::Cancel => reason,
        _ => own.clone(),
    }
}

/// The difference between a decision and the one before it.
struct Transition {
    before: u32,
    size: u32,
    action: Action,
    last_action: Action,
    is_retry: bool,
    is_new_kind: bool,
    prefetch_changed: bool,
    step: Option<Change>,
}

impl Transition {
    /// Replaces the last decision by this one, and takes the failure that it answers.
    fn record(
        ctx: &DecisionContext,
        rules: &mut Rules,
        outcome: &RuleOutcome,
        step: Option<&Step>,
    ) -> Self {
        let before = rules.tracks.get_mut(ctx.kind).size;
        let prefetch = rules.prefetch.prefetch();
        let last = std::mem::replace(
            &mut rules.last,
            LastDecision {
                kind: Some(ctx.kind),
                action: outcome.action,
                prefetch,
                micro_batch: 0,
                at_ms: ctx.sample.at_ms,
                ends_ms: None,
            },
        );
        let runs = outcome.action == Action::Run;
        let answered = rules
            .failure
            .take_if(|failure| failure.kind == ctx.kind && runs);
        let retried = answered.filter(|failure| failure.cause != FailureCause::Delayed);
        Self {
            before,
            size: outcome.size,
            action: outcome.action,
            last_action: last.action,
            is_retry: retried.is_some(),
            is_new_kind: last.kind != Some(ctx.kind),
            prefetch_changed: last.prefetch != prefetch,
            step: step.map(|step| step.change),
        }
    }

    fn change(&self) -> Change {
        let stays = self.last_action == self.action;
        match self.action {
            Action::Pause if stays && self.step.is_none() => Change::Hold,
            Action::Suspend if stays => Change::Hold,
            Action::Suspend => Change::Suspend,
            Action::Stop => Change::Stop,
            Action::Run | Action::Pause if let Some(step) = self.step => step,
            Action::Pause => Change::Pause,
            Action::Run if self.last_action != Action::Run => Change::Continue,
            Action::Run if self.is_retry => Change::Cancel,
            Action::Run if self.prefetch_changed && self.size == self.before => Change::Prefetch,
            Action::Run if self.is_new_kind => Change::Start,
            Action::Run if self.size < self.before => Change::Shrink,
            Action::Run if self.size > self.before => Change::Grow,
            Action::Run => Change::Hold,
        }
    }
}

/// The samples of the next micro-batch: `size`, the rest of the batch if that is shorter, and fewer
/// if these samples are costly.
fn affordable(ctx: &DecisionContext, size: u32, freed_bytes: u64, ordinary_cost: u64) -> u32 {
    let most = size.min(ctx.remaining);
    if ctx.policy.fixed_micro_batch.is_some() || ctx.sample.is_unreadable() {
        return most;
    }
    let limit = ctx.budget.bytes + freed_bytes;
    let max_cost = (ctx.policy.heavy_factor * ordinary_cost as f64) as u64;
    let fits = |m: &u32| {
        let is_light = ctx.cost(*m) <= max_cost;
        *m == 1 || is_light && ctx.predicted_bytes(*m).is_none_or(|peak| peak <= limit)
    };
    (1..=most).rev().find(fits).unwrap_or(most)
}

/// Whether the samples left have different costs, and their memory can be predicted.
fn can_pack(ctx: &DecisionContext, most: u32) -> bool {
    let predictable = ctx.policy.fixed_micro_batch.is_none() && ctx.model.is_ready(ctx.kind);
    let differ = |pair: &[SampleCost]| pair[0] != pair[1];
    most > 0 && predictable && !ctx.sample.is_unreadable() && ctx.samples.windows(2).any(differ)
}

/// The cost up to which a micro-batch of `size` may be filled if memory allows it. If only memory
/// keeps the size from the next useful one, the memory between the two can be used as well.
fn largest_packed_cost(ctx: &DecisionContext, track: &Track, size: u32) -> u64 {
    let (most, _) = growth_limit(ctx.policy, ctx.model, ctx.kind, track, ctx.sample.at_ms);
    let next = sizes(track.batch)
        .take_while(|larger| *larger > size)
        .last();
    match next {
        Some(next) if next <= most && !track.starting => track.cost(next).saturating_sub(1),
        _ => track.cost(size),
    }
}

/// The most samples that together cost no more than `size` ordinary ones: more short samples, or
/// fewer long ones. Micro-batches of equal cost need equal buffers. If the budget leaves room, they
/// may cost up to `largest_cost`.
fn packed(ctx: &DecisionContext, freed_bytes: u64, ordinary_cost: u64, largest_cost: u64) -> u32 {
    let budget = ctx.budget.bytes + freed_bytes;
    let mut cost = 0;
    let fits = |sample: &&SampleCost| {
        cost += sample.0;
        let limit = if cost <= ordinary_cost {
            budget
        } else {
            (PACKED_FRACTION * budget as f64) as u64
        };
        let peak = ctx.model.upper_bytes(ctx.kind, cost);
        cost <= largest_cost && peak.is_none_or(|peak| peak <= limit)
    };
    let count = ctx.samples.iter().take_while(fits).count();
    count.max(1) as u32
}

/// Smaller sizes than this do not alternate.
const MIN_ALTERNATING: u32 = 6;

/// Splits the rest of the batch evenly, which needs no additional micro-batch. Larger and smaller
/// parts alternate, so that the buffers of the larger ones stay in use.
fn evenly_split(ctx: &DecisionContext, most: u32, batch: u32) -> u32 {
    if most == 0 || ctx.policy.fixed_micro_batch.is_some() {
        return most;
    }
    let parts = ctx.remaining.div_ceil(most);
    if ctx.remaining == batch || most < MIN_ALTERNATING {
        return ctx.remaining.div_ceil(parts);
    }
    (ctx.remaining + parts / 2) / parts
}
