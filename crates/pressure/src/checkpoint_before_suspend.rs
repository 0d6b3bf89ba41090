//! Rule: when to write the checkpoint that a suspension will rely on. Writing is slow once memory
//! is short, so it happens before: when the system is critical, when others leave little beside the
//! training state, when they are forecast to need even that before a write would be done, and when
//! waiting begins. At most every half minute, and so seldom that writing takes little of the time.
//! A state that takes seconds to write is also written now and then without any danger, and never
//! when a suspension begins: the run then resumes from an earlier step. The older the run, the
//! longer are the intervals, so that a suspension loses at most two thirds of a young run.

use crate::decision::Action;
use crate::decision_context::DecisionContext;
use crate::memory_sample::Level;
use crate::policy::{
    CHEAP_WRITE_MS, CHECKPOINT_AHEAD, DISK_BYTES_PER_MS, HEADROOM_EDGES, MIN_WRITE_INTERVAL,
    SLOW_WRITE_AGE_FACTOR, SLOW_WRITE_INTERVALS, SLOW_WRITE_MS,
};

/// What is known of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct State {
    /// Whether the decision before had a reason.
    warned: bool,
    /// When the first decision was made.
    started_ms: Option<u64>,
    /// When a checkpoint was last asked for, or written for any reason.
    at_ms: Option<u64>,
    /// How long the last one took, in milliseconds.
    write_ms: Option<f64>,
}

impl State {
    /// A checkpoint was written in `write_ms` milliseconds, for any reason.
    pub(crate) fn record_written(&mut self, at_ms: u64, write_ms: f64) {
        self.at_ms = Some(at_ms);
        self.write_ms = Some(write_ms);
    }

    /// Whether writing takes so long that other apps could take all memory meanwhile.
    fn is_slow(&self, ctx: &DecisionContext) -> bool {
        let limit_ms = match self.write_ms {
            Some(_) => SLOW_WRITE_MS,
            // The assumed speed is that of a slow disk.
            None => 3.0 * SLOW_WRITE_MS,
        };
        self.expected_write_ms(ctx).is_some_and(|ms| ms > limit_ms)
    }

    /// How long the next one will take, in milliseconds.
    fn expected_write_ms(&self, ctx: &DecisionContext) -> Option<f64> {
        let by_size = || Some(ctx.state_bytes? as f64 / DISK_BYTES_PER_MS);
        self.write_ms.or_else(by_size)
    }
}

/// Whether the last complete step is to be checkpointed before `action`, which follows `previous`.
/// Called once per decision.
pub(crate) fn is_due(
    ctx: &DecisionContext,
    own: &mut State,
    previous: Action,
    action: Action,
) -> bool {
    let now_ms = ctx.sample.at_ms;
    own.started_ms.get_or_insert(now_ms);
    let waits = action != Action::Run;
    let suspends = action == Action::Suspend && previous != Action::Suspend;
    // A warning that a smaller micro-batch answers needs no checkpoint.
    let critical = ctx.sample.kernel_level == Some(Level::Critical);
    let warns = waits || critical || little_is_left(ctx);
    let warned_before = std::mem::replace(&mut own.warned, warns);
    let newly_warned = warns && !warned_before;
    let write_ms = own.write_ms.unwrap_or(0.0);
    let interval_ms = (MIN_WRITE_INTERVAL * write_ms) as u64;
    let interval_ms = interval_ms.max(ctx.policy.checkpoint_interval_ms);
    let rested = own.at_ms.is_none_or(|at| now_ms >= at + interval_ms);
    let is_slow = own.is_slow(ctx);
    let is_due = if is_slow {
        // Memory would be gone before it is written; an older one must do.
        !waits && !state_is_in_danger(ctx, own) && (rested && newly_warned || is_outdated(ctx, own))
    } else {
        // A checkpoint of a small state costs less than repeating any steps.
        let is_cheap = own.write_ms.is_some_and(|ms| ms <= CHEAP_WRITE_MS);
        suspends && is_cheap || rested && (newly_warned || !waits && state_is_in_danger(ctx, own))
    };
    if is_due {
        own.at_ms = Some(now_ms);
    }
    is_due
}

/// Whether a state that takes long to write needs a newer checkpoint. The first one waits until
/// there is something to lose.
fn is_outdated(ctx: &DecisionContext, own: &State) -> bool {
    let now_ms = ctx.sample.at_ms;
    let started_ms = own.started_ms.unwrap_or(now_ms);
    let Some(at_ms) = own.at_ms else {
        return now_ms >= started_ms + ctx.policy.checkpoint_interval_ms;
    };
    let write_ms = own.expected_write_ms(ctx).unwrap_or(0.0);
    let [shortest_ms, longest_ms] = SLOW_WRITE_INTERVALS.map(|writes| writes * write_ms);
    let age_ms = at_ms.saturating_sub(started_ms) as f64;
    let interval_ms = (SLOW_WRITE_AGE_FACTOR * age_ms).clamp(shortest_ms, longest_ms);
    now_ms as f64 >= at_ms as f64 + interval_ms
}

/// Whether others and the training state together reach the warning level.
fn little_is_left(ctx: &DecisionContext) -> bool {
    let limit = HEADROOM_EDGES[1] * ctx.sample.total_bytes as f64;
    let others = ctx.sample.others_and_system_bytes() as f64;
    ctx.state_bytes
        .is_some_and(|state| others + state as f64 > limit)
}

/// Whether others may need the memory of the training state before a checkpoint could be written.
fn state_is_in_danger(ctx: &DecisionContext, own: &State) -> bool {
    let Some(state) = ctx.state_bytes.map(|bytes| bytes as f64) else {
        return false;
    };
    let others = ctx.sample.others_and_system_bytes() as f64;
    let write_ms = own.expected_write_ms(ctx).unwrap_or(0.0);
    let horizon_ms = ctx.policy.suspend_ahead_ms as f64 + CHECKPOINT_AHEAD * write_ms;
    let ahead = ctx
        .history
        .forecast_bytes(ctx.policy, others, horizon_ms as u64);
    ahead + state > ctx.policy.suspend_fraction * ctx.sample.total_bytes as f64
}
