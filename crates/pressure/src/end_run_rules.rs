//! Rule: end the run with a reason if it was suspended for too long, or if the system has hardly
//! any disk space left for swap.

use crate::decision::Action;
use crate::decision_context::{DecisionContext, RuleOutcome};
use crate::memory_sample::{Component, MemorySample};
use crate::policy::Policy;
use format::{format_bytes, format_waiting_time};

/// Since when there has been a reason to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    suspended_since_ms: Option<u64>,
    swap_space_short_since_ms: Option<u64>,
    /// Free disk for checkpoints as reported by the run, in bytes.
    disk_free_bytes: Option<u64>,
    /// Free space for swap when the run began, in bytes.
    swap_space_at_start_bytes: Option<u64>,
}

impl State {
    pub(crate) fn set_disk_free(&mut self, bytes: Option<u64>) {
        self.disk_free_bytes = bytes;
    }

    /// Free space for swap and checkpoints, in bytes: the smaller of the two readings, if there is
    /// any.
    pub(crate) fn disk_free_bytes(&self, sample: &MemorySample) -> Option<u64> {
        let readings = [self.disk_free_bytes, sample.disk_free_bytes];
        readings.into_iter().flatten().min()
    }
}

/// Stops a run that has been suspended for too long.
pub(crate) fn suspended_too_long(
    policy: &Policy,
    own: &mut State,
    last_action: Action,
    now_ms: u64,
) -> Option<RuleOutcome> {
    if last_action != Action::Suspend {
        own.suspended_since_ms = None;
        return None;
    }
    let since = *own.suspended_since_ms.get_or_insert(now_ms);
    if now_ms < since.saturating_add(policy.max_suspended_ms) {
        return None;
    }
    let reason = format!(
        "other apps have needed the memory for {}, and a run may not stay suspended for longer",
        format_waiting_time(now_ms - since)
    );
    Some(RuleOutcome::wait(Action::Stop, Component::Headroom, reason))
}

/// Stops a run before the system has no disk space left for swap, because it then ends processes.
/// A full disk of the run alone is no reason: the run trains on without checkpoints.
pub(crate) fn swap_space_is_short(ctx: &DecisionContext, own: &mut State) -> Option<RuleOutcome> {
    let now_ms = ctx.sample.at_ms;
    let free = ctx.sample.disk_free_bytes?;
    let at_start = *own.swap_space_at_start_bytes.get_or_insert(free);
    if free >= ctx.policy.min_disk_bytes.min(at_start / 2) {
        own.swap_space_short_since_ms = None;
        return None;
    }
    let since = *own.swap_space_short_since_ms.get_or_insert(now_ms);
    if now_ms < since + ctx.policy.disk_after_ms {
        return None;
    }
    let free = format_bytes(free);
    let reason = format!("only {free} of disk space is left for swap");
    Some(RuleOutcome::wait(Action::Stop, Component::Disk, reason))
}
