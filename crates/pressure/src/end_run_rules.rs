//! Rule: end the run with a reason while its checkpoint is on disk, or still fits there.

use crate::decision::Action;
use crate::decision_context::{DecisionContext, RuleOutcome};
use crate::memory_sample::{Component, MemorySample};
use crate::policy::Policy;
use format::{format_bytes, format_waiting_time};

/// Since when there has been a reason to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    suspended_since_ms: Option<u64>,
    disk_short_since_ms: Option<u64>,
    /// Free disk for checkpoints as reported by the run, in bytes.
    disk_free_bytes: Option<u64>,
    /// Free disk when the run began, in bytes.
    disk_at_start_bytes: Option<u64>,
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
        "other apps have needed the memory for {}, the longest time that a run may be suspended",
        format_waiting_time(now_ms - since)
    );
    Some(RuleOutcome::wait(Action::Stop, Component::Headroom, reason))
}

/// Stops a run while its checkpoint still fits on the disk.
pub(crate) fn disk_is_short(ctx: &DecisionContext, own: &mut State) -> Option<RuleOutcome> {
    let now_ms = ctx.sample.at_ms;
    let free = own.disk_free_bytes(ctx.sample)?;
    let at_start = *own.disk_at_start_bytes.get_or_insert(free);
    if free >= ctx.policy.min_disk_bytes.min(at_start / 2) {
        own.disk_short_since_ms = None;
        return None;
    }
    let since = *own.disk_short_since_ms.get_or_insert(now_ms);
    if now_ms < since + ctx.policy.disk_after_ms {
        return None;
    }
    let free = format_bytes(free);
    let reason = format!("only {free} of disk space is left for checkpoints");
    Some(RuleOutcome::wait(Action::Stop, Component::Disk, reason))
}
