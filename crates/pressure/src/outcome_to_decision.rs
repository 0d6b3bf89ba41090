//! Turns the outcome of a rule into the decision, and remembers it. Decides no size itself, except
//! that the next samples may be too costly for it.

use crate::controller_state::{LastDecision, Rules};
use crate::decision::{Action, Change, Decision};
use crate::decision_context::{DecisionContext, RuleOutcome};
use crate::recovery::Step;

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
    let micro_batch = if change == Change::Hold {
        evenly_split(ctx, most)
    } else {
        most // a change is reported with its size
    };
    rules.last.micro_batch = micro_batch;
    let reported_step = step.filter(|step| step.change == change);
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
        reason: reported_step.map_or(outcome.reason, |step| step.reason.clone()),
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
            },
        );
        let runs = outcome.action == Action::Run;
        let retried = rules
            .failure
            .take_if(|failure| failure.kind == ctx.kind && runs);
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

/// Splits the rest of the batch evenly, which needs no additional micro-batch.
fn evenly_split(ctx: &DecisionContext, most: u32) -> u32 {
    if most == 0 || ctx.policy.fixed_micro_batch.is_some() {
        return most;
    }
    ctx.remaining.div_ceil(ctx.remaining.div_ceil(most))
}
