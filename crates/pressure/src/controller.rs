//! The controller: before every micro-batch, [`decide`] says how many samples it may hold. Pure:
//! time comes with the sample, and effects are the caller's.
//!
//! It shrinks at once, by forecast, and grows only after calm, straight to what the memory model
//! allows but not beyond the throughput plateau. If not even one sample fits it pauses, and if the
//! training state itself does not fit it suspends. [`decide`] lists the rules in the order in which
//! they apply.

use crate::budget::Budget;
use crate::controller_state::{ControllerState, Rules};
use crate::decision::{Decision, DecisionInput, MicroBatchKind, MicroBatchRecord, Phase};
use crate::decision_context::{DecisionContext, Failure, FailureCause, RuleOutcome};
use crate::explain_shortage::Shortage;
use crate::memory_model::MemoryModel;
use crate::memory_sample::{Level, MemorySample};
use crate::micro_batch_sizes::{Track, sizes};
use crate::outcome_to_decision::answer;
use crate::policy::{DEFAULT_MICRO_BATCH_MS, Policy, UNMEASURED_MICRO_BATCHES};
use crate::{
    cache_release_rules, checkpoint_before_suspend, end_run_rules, fallback_rules,
    micro_batch_growth, micro_batch_shrink, pause_and_suspend, prefetch_rules, recovery_steps,
};

/// Decides what to do next. Pass the returned state to the next call.
pub fn decide(
    policy: &Policy,
    state: ControllerState,
    ask: &DecisionInput,
    model: &MemoryModel,
) -> (ControllerState, Decision) {
    let mut state = record_sample(policy, state, &ask.sample);
    record_ask(&mut state.rules, ask);
    let (mut ctx, rules) = new_context(policy, &mut state, ask, model);
    let predictable = is_predictable(&ctx, rules.tracks.get(ctx.kind));
    let step = if predictable {
        recover(&mut ctx, rules, ask.kind)
    } else {
        None
    };
    let last_action = rules.last.action;
    let now_ms = ctx.sample.at_ms;
    let outcome = end_run_rules::suspended_too_long(policy, &mut rules.stop, last_action, now_ms)
        .or_else(|| end_run_rules::swap_space_is_short(&ctx, &mut rules.stop))
        .or_else(|| fixed(&ctx, rules))
        .or_else(|| predictable.then(|| by_prediction(&ctx, rules)))
        .unwrap_or_else(|| by_fallback(&ctx, rules));
    let mut decision = answer(&ctx, rules, outcome, step.as_ref());
    decision.checkpoint_first = checkpoint_before_suspend::is_due(
        &ctx,
        &mut rules.checkpoint,
        last_action,
        decision.action,
    );
    decision.release_caches |= decision.checkpoint_first;
    let (own, tracks) = (&mut rules.recovery, &rules.tracks);
    recovery_steps::watch(&ctx, own, tracks, ask.kind, decision.action);
    (state, decision)
}

/// The rules with a memory model: wait, start, resume, shrink, or grow.
fn by_prediction(ctx: &DecisionContext, rules: &mut Rules) -> RuleOutcome {
    let track = rules.tracks.get_mut(ctx.kind);
    let waits = pause_and_suspend::suspend(ctx, &mut rules.wait).or_else(|| {
        let one_sample_bytes = recovery_steps::one_sample_bytes(ctx, &rules.recovery, ctx.cost(1));
        pause_and_suspend::pause(ctx, &mut rules.wait, one_sample_bytes)
    });
    if let Some(waits) = waits {
        micro_batch_shrink::record(ctx, &mut rules.growth, &mut rules.prefetch, track);
        track.size = track.size.min(1);
        return waits;
    }
    let has_waited = rules.wait.end();
    if let Some(starts) = micro_batch_growth::start(ctx, track) {
        return starts;
    }
    let critical = cache_release_rules::answer_critical(ctx, &mut rules.caches);
    let size = micro_batch_shrink::allowed_size(ctx, track, critical);
    if let Some(resumes) = pause_and_suspend::resume(ctx, has_waited, size) {
        return resumes.releasing_caches(critical);
    }
    if micro_batch_shrink::must_shrink(ctx, track, size) {
        let shortened = if micro_batch_shrink::may_be_avoided(ctx, critical) {
            prefetch_rules::shorten(ctx, &mut rules.prefetch, track)
        } else {
            None
        };
        return shortened.unwrap_or_else(|| {
            micro_batch_shrink::record(ctx, &mut rules.growth, &mut rules.prefetch, track);
            micro_batch_shrink::shrink(ctx, track.size, size, critical)
        });
    }
    let target = micro_batch_growth::Target::new(ctx, track);
    micro_batch_growth::settle(ctx, track, &target);
    let release = critical || cache_release_rules::are_due(ctx, &rules.caches, track);
    let (growth, changes) = (&mut rules.growth, &rules.changes);
    let resized_ms = growth.resized_ms();
    prefetch_rules::lengthen(ctx, &mut rules.prefetch, track, &target, resized_ms)
        .or_else(|| micro_batch_growth::lower_to_plateau(ctx, growth, track, &target, changes))
        .or_else(|| micro_batch_growth::grow(ctx, growth, track, &target, changes))
        .unwrap_or_else(|| micro_batch_growth::stay(track, &target))
        .releasing_caches(release)
}

/// The rules without a memory model, or without a reading of the machine.
fn by_fallback(ctx: &DecisionContext, rules: &mut Rules) -> RuleOutcome {
    let track = rules.tracks.get_mut(ctx.kind);
    let outcome = fallback_rules::step(ctx, &mut rules.fallback, track, &rules.changes);
    let critical = cache_release_rules::answer_critical(ctx, &mut rules.caches);
    outcome.releasing_caches(critical)
}

/// The user's own micro-batch.
fn fixed(ctx: &DecisionContext, rules: &mut Rules) -> Option<RuleOutcome> {
    let size = ctx.policy.fixed_micro_batch?.max(1);
    let critical = cache_release_rules::answer_critical(ctx, &mut rules.caches);
    let reason = "the micro-batch is fixed";
    let outcome = RuleOutcome::run(size, ctx.pressure.cause, reason);
    Some(outcome.releasing_caches(critical))
}

/// Takes or undoes a recovery step, from which on another kind of micro-batch may run. `asked` is
/// the kind asked for.
fn recover(
    ctx: &mut DecisionContext,
    rules: &mut Rules,
    asked: MicroBatchKind,
) -> Option<recovery_steps::Step> {
    if ctx.kind.phase != Phase::Train || rules.wait.is_suspended() {
        return None;
    }
    let disk_free = rules.stop.disk_free_bytes(ctx.sample);
    let (own, tracks) = (&mut rules.recovery, &rules.tracks);
    let step = recovery_steps::take(ctx, own, tracks, disk_free)
        .or_else(|| recovery_steps::undo(ctx, own, tracks, &rules.changes, asked))?;
    if step.voluntary {
        rules.changes.record(ctx.sample.at_ms);
    }
    if let Some((to, size)) = step.switch {
        rules.tracks.switch(ctx.kind, to, size);
        if let Some(failure) = rules.failure.as_mut().filter(|f| f.kind == ctx.kind) {
            failure.kind = to;
        }
        ctx.kind = to;
        ctx.failure = rules.failure;
        ctx.state_bytes = rules.wait.state_bytes(ctx.model, to);
    }
    Some(step)
}

/// Takes the footprint and the samples that come with a question.
fn record_ask(rules: &mut Rules, ask: &DecisionInput) {
    let own_bytes = ask.sample.own_bytes.saturating_sub(ask.spare_bytes);
    rules.wait.record_footprint(rules.last.action, own_bytes);
    let kind = rules.recovery.current_kind(ask.kind);
    rules.tracks.get_mut(kind).record_asked(ask.remaining);
}

/// The input of the rules, besides their own state.
fn new_context<'a>(
    policy: &'a Policy,
    state: &'a mut ControllerState,
    ask: &'a DecisionInput,
    model: &'a MemoryModel,
) -> (DecisionContext<'a>, &'a mut Rules) {
    let rules = &mut state.rules;
    let kind = rules.recovery.current_kind(ask.kind);
    let duration_ms = rules.tracks.get(kind).and_then(|track| {
        let cost = track.cost(track.size.max(1));
        track.duration_ms(cost)
    });
    let horizon_ms = duration_ms.unwrap_or(DEFAULT_MICRO_BATCH_MS) as u64 + policy.horizon_extra_ms;
    state.history.set_reaction_ms(horizon_ms);
    let history = &state.history;
    let ctx = DecisionContext {
        policy,
        model,
        sample: &ask.sample,
        pressure: state.signal.memory,
        history,
        kind,
        samples: ask.remaining,
        remaining: ask.remaining.len().max(1) as u32,
        spare_bytes: ask.spare_bytes,
        budget: Budget::new(policy, history, &ask.sample, horizon_ms).less(ask.spare_bytes),
        state_bytes: rules.wait.state_bytes(model, kind),
        failure: rules.failure,
        pressed_ms: state.pressed_ms,
    };
    (ctx, rules)
}

/// Whether the machine can be read and peaks are measured.
fn is_predictable(ctx: &DecisionContext, track: Option<&Track>) -> bool {
    let micro_batches = track.map_or(0, |track| track.micro_batches);
    let unmeasured = micro_batches >= UNMEASURED_MICRO_BATCHES && ctx.model.largest(ctx.kind) == 0;
    ctx.policy.fixed_micro_batch.is_none() && !ctx.sample.is_unreadable() && !unmeasured
}

/// Takes a sample without deciding anything. Pass every sample of the monitor: the forecast depends
/// on them.
pub fn record_sample(
    policy: &Policy,
    mut state: ControllerState,
    sample: &MemorySample,
) -> ControllerState {
    state.record(policy, sample);
    state
}

/// Learns from a micro-batch that ended. Report [`Outcome::Cancelled`] only if pressure cancelled
/// it, not the user.
pub fn observe(
    policy: &Policy,
    mut state: ControllerState,
    mut model: MemoryModel,
    record: &MicroBatchRecord,
) -> (ControllerState, MemoryModel) {
    model.learn(record);
    let slowed = state.signal.memory.value >= policy.slowed_pressure;
    let track = state.rules.tracks.get_mut(record.kind);
    let Some(cause) = FailureCause::new(record.outcome) else {
        track.micro_batches += 1;
        let stays = |(peak, at): &(u64, u64)| {
            *peak > record.peak_bytes && record.at_ms < at + policy.quiet_ms
        };
        let newest = (record.peak_bytes, record.at_ms);
        track.recent_peak = track.recent_peak.filter(stays).or(Some(newest));
        if !slowed && record.cost > 0 && record.ms > 0.0 {
            track.record_time(record.micro_batch, record.cost, record.ms);
        }
        return (state, model);
    };
    if cause != FailureCause::Cancelled {
        track.refused = Some((record.micro_batch, record.at_ms));
    }
    state.rules.failure = Some(Failure {
        kind: record.kind,
        micro_batch: record.micro_batch,
        cause,
    });
    (state, model)
}

/// Learns that a micro-batch ended, but held the GPU for so long that the screen could stutter. The
/// next one is smaller.
pub fn observe_delay(
    policy: &Policy,
    mut state: ControllerState,
    record: &MicroBatchRecord,
) -> ControllerState {
    if record.micro_batch > 1 && policy.fixed_micro_batch.is_none() {
        let track = state.rules.tracks.get_mut(record.kind);
        track.refused = Some((record.micro_batch, record.at_ms));
        state.rules.failure = Some(Failure {
            kind: record.kind,
            micro_batch: record.micro_batch,
            cause: FailureCause::Delayed,
        });
    }
    state
}

/// Learns from a confirmed micro-batch which sizes would not fit into a GPU with its own memory.
/// `model` has learned the peaks in that memory, of which `limit_bytes` can be used. Larger sizes
/// are not tried, as if the device had refused them.
pub fn observe_separate_device(
    policy: &Policy,
    mut state: ControllerState,
    record: &MicroBatchRecord,
    model: &MemoryModel,
    limit_bytes: u64,
) -> ControllerState {
    let track = state.rules.tracks.get_mut(record.kind);
    let needed = |size: u32| model.upper_bytes(record.kind, track.cost(size));
    let exceeds = |size: &u32| needed(*size).is_some_and(|bytes| bytes > limit_bytes);
    if let Some(smallest) = sizes(track.batch).take_while(exceeds).last() {
        // The device itself may have refused a smaller one.
        let is_refused = |(size, at): &(u32, u64)| {
            *size < smallest && record.at_ms < at + policy.retry_refused_after_ms
        };
        let now = (smallest, record.at_ms);
        track.refused = track.refused.filter(is_refused).or(Some(now));
    }
    state
}

/// The reason to cancel the running micro-batch, if there is one: the machine is over the critical
/// line and Ebb over its budget, or others take memory so fast that none would be left before a
/// cancelled micro-batch could free its own.
pub fn should_cancel(
    policy: &Policy,
    state: &ControllerState,
    sample: &MemorySample,
) -> Option<String> {
    if sample.is_unreadable() || policy.fixed_micro_batch.is_some() {
        return None;
    }
    let used = sample.used_bytes() as f64;
    let total = sample.total_bytes as f64;
    let over_line = used > policy.cancel_fraction * total;
    let history = &state.history;
    let soon = used + history.sudden_growth_bytes(policy, policy.cancel_ahead_ms);
    // A single sample is cancelled only for the present shortage, not for a forecast: nothing
    // smaller could be tried.
    let exhausted_soon = state.rules.last.micro_batch > 1 && soon > total;
    let late = is_late(policy, state, sample);
    if !(over_line || exhausted_soon || late || sample.kernel_level == Some(Level::Critical)) {
        return None; // almost always, ten times per second: skip the budget
    }
    let budget = Budget::new(policy, history, sample, policy.horizon_extra_ms);
    let shortage = Shortage {
        history,
        sample,
        pressure: state.signal.memory,
        budget: &budget,
        needed: None,
    };
    (sample.own_bytes > budget.bytes).then(|| shortage.explain(policy).1)
}

/// Whether waiting for the end of the running micro-batch would answer a shortage too late.
fn is_late(policy: &Policy, state: &ControllerState, sample: &MemorySample) -> bool {
    let last = &state.rules.last;
    let (Some(since), Some(ends_ms)) = (state.over_limit_since_ms, last.ends_ms) else {
        return false;
    };
    let waited_ms = sample.at_ms.saturating_sub(since.max(last.at_ms));
    let left_ms = ends_ms.saturating_sub(sample.at_ms);
    last.micro_batch > 1
        && waited_ms >= policy.max_reaction_ms / 2
        && waited_ms + left_ms > policy.max_reaction_ms
}

/// Footprint that Ebb allows itself over the next `horizon_ms`, in bytes.
pub fn budget_bytes(
    policy: &Policy,
    state: &ControllerState,
    sample: &MemorySample,
    horizon_ms: u64,
) -> u64 {
    Budget::new(policy, &state.history, sample, horizon_ms).bytes
}
