//! Rules: suspend if the training state itself does not fit, pause if not even one sample does, and
//! continue once it does.

use crate::decision::{Action, MicroBatchKind};
use crate::decision_context::{DecisionContext, FailureCause, RuleOutcome};
use crate::memory_model::MemoryModel;
use crate::memory_sample::Component;
use format::format_bytes;

/// What the rules remember of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    waiting: Waiting,
    /// Footprint without a micro-batch as read during a pause, in bytes; caches are released by
    /// then.
    idle_bytes: Option<u64>,
    /// A suspension has freed the state, which has not been restored yet.
    freed: bool,
}

/// What the controller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Waiting {
    #[default]
    No,
    Paused,
    Suspended,
}

impl State {
    pub(crate) fn is_suspended(&self) -> bool {
        self.waiting == Waiting::Suspended
    }

    /// Takes the footprint that is left once a pause has released caches. `last_action` is the
    /// decision before: a sample from before the pause would include caches.
    pub(crate) fn record_footprint(&mut self, last_action: Action, own_bytes: u64) {
        match last_action {
            Action::Suspend => self.freed = true,
            Action::Run => self.freed = false,
            Action::Pause if !self.freed => self.idle_bytes = Some(own_bytes),
            Action::Pause | Action::Stop => {}
        }
    }

    /// Footprint of the run without a micro-batch, in bytes. If only one size was measured, the
    /// model cannot separate it from the samples; then a pause measures it, and a pause precedes
    /// every suspension.
    pub(crate) fn state_bytes(&self, model: &MemoryModel, kind: MicroBatchKind) -> Option<u64> {
        let learned = model.state_bytes(kind);
        learned.filter(|bytes| *bytes > 0).or(self.idle_bytes)
    }

    /// Ends the wait and returns whether there was one.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::take(&mut self.waiting) != Waiting::No
    }

    fn begin(&mut self, waiting: Waiting, reason: String) -> RuleOutcome {
        let begins = self.waiting != waiting;
        self.waiting = waiting;
        let action = match waiting {
            Waiting::Suspended => Action::Suspend,
            Waiting::Paused | Waiting::No => Action::Pause,
        };
        RuleOutcome::wait(action, Component::Headroom, reason).releasing_caches(begins)
    }
}

/// Suspends if other apps need the memory of the training state itself.
pub(crate) fn suspend(ctx: &DecisionContext, own: &mut State) -> Option<RuleOutcome> {
    let policy = ctx.policy;
    let state = ctx.state_bytes?;
    let total = ctx.sample.total_bytes as f64;
    let others = ctx.sample.others_and_system_bytes() as f64;
    let is_due = if own.is_suspended() {
        others + state as f64 > policy.resume_fraction * total
    } else {
        let ahead = ctx
            .history
            .forecast_bytes(policy, others, policy.suspend_ahead_ms);
        ctx.sample.used_bytes() as f64 > policy.cancel_fraction * total
            && ahead + state as f64 > policy.suspend_fraction * total
    };
    let state = format_bytes(state);
    let reason = format!("other apps need so much memory that not even the model fits ({state})");
    is_due.then(|| own.begin(Waiting::Suspended, reason))
}

/// Pauses if not even one sample fits. `one_sample_bytes` is the footprint that one sample needs,
/// if it is known.
pub(crate) fn pause(
    ctx: &DecisionContext,
    own: &mut State,
    one_sample_bytes: Option<u64>,
) -> Option<RuleOutcome> {
    let sample = ctx.sample;
    let own_bytes = sample.own_bytes.saturating_sub(ctx.spare_bytes);
    let needed = one_sample_bytes.unwrap_or(own_bytes);
    let slack = (ctx.policy.continue_fraction * sample.total_bytes as f64) as u64;
    // A single sample that was cancelled is tried again only once it fits into the budget of the
    // machine.
    let was_cancelled = ctx.failure.is_some_and(|failure| {
        failure.micro_batch <= 1 && failure.cause == FailureCause::Cancelled
    });
    let most = ctx.budget.pause_bytes + ctx.budget.pause_margin_bytes;
    let to_continue = if was_cancelled {
        ctx.budget.machine_bytes
    } else {
        most.saturating_sub(slack)
    };
    let limit = if own.waiting == Waiting::No && !was_cancelled {
        most
    } else {
        to_continue
    };
    (needed > limit).then(|| {
        let reason = reason_to_pause(ctx, needed, to_continue);
        own.begin(Waiting::Paused, reason)
    })
}

/// Why `needed` bytes for one sample do not fit, and when they will. `to_continue` is the footprint
/// that Ebb may reach now after a pause.
fn reason_to_pause(ctx: &DecisionContext, needed: u64, to_continue: u64) -> String {
    let sample = ctx.sample;
    let without_others = ctx
        .policy
        .pause_fraction
        .max(ctx.policy.max_system_fraction)
        * sample.total_bytes as f64;
    if needed as f64 > without_others {
        let (needed, total) = (format_bytes(needed), format_bytes(sample.total_bytes));
        return format!("one sample needs {needed}, too much for a machine with {total} of memory");
    }
    let free = format_bytes((sample.available_bytes + needed).saturating_sub(to_continue));
    format!("other apps need the memory. Training continues when about {free} of memory is free")
}

/// Continues with `size` after a wait.
pub(crate) fn resume(ctx: &DecisionContext, has_waited: bool, size: u32) -> Option<RuleOutcome> {
    let free = format_bytes(ctx.sample.available_bytes);
    let reason = format!("{free} is free again");
    has_waited.then(|| RuleOutcome::run(size, Component::Headroom, reason))
}
