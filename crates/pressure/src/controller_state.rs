//! What the controller remembers between two decisions: what it has observed, and the state that
//! each rule owns. There is no clock; every time comes from a sample.

use crate::decision::{Action, MicroBatchKind, Prefetch};
use crate::decision_context::{Failure, VoluntaryChanges};
use crate::forecast_other_apps::History;
use crate::memory_sample::{Level, MemorySample};
use crate::micro_batch_sizes::Tracks;
use crate::policy::Policy;
use crate::pressure_level::{self, Reading};
use crate::recovery_steps::RecoveryReserve;
use crate::{
    cache_release_rules, checkpoint_before_suspend, end_run_rules, fallback_rules,
    micro_batch_growth, pause_and_suspend, prefetch_rules, recovery_steps,
};

/// The controller's memory. Start with `ControllerState::default()`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ControllerState {
    pub(crate) signal: pressure_level::State,
    /// Other apps' use over the last minute.
    pub(crate) history: History,
    /// Since when all processes together have used more than the budget line allows.
    pub(crate) over_limit_since_ms: Option<u64>,
    /// When the pressure of memory was last above normal.
    pub(crate) pressed_ms: Option<u64>,
    pub(crate) rules: Rules,
}

/// The state that each rule owns, and what they share.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rules {
    pub(crate) tracks: Tracks,
    /// A micro-batch that failed and has not been answered yet.
    pub(crate) failure: Option<Failure>,
    /// Why it was cancelled, if it was.
    pub(crate) cancel_reason: Option<String>,
    pub(crate) changes: VoluntaryChanges,
    pub(crate) last: LastDecision,
    pub(crate) stop: end_run_rules::State,
    pub(crate) recovery: recovery_steps::State,
    pub(crate) wait: pause_and_suspend::State,
    pub(crate) prefetch: prefetch_rules::State,
    pub(crate) growth: micro_batch_growth::State,
    pub(crate) caches: cache_release_rules::State,
    pub(crate) fallback: fallback_rules::State,
    pub(crate) checkpoint: checkpoint_before_suspend::State,
}

/// The decision before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastDecision {
    pub(crate) kind: Option<MicroBatchKind>,
    pub(crate) action: Action,
    pub(crate) prefetch: Prefetch,
    /// Samples of the micro-batch, which can be fewer than its size.
    pub(crate) micro_batch: u32,
    /// When it was made.
    pub(crate) at_ms: u64,
    /// When its micro-batch should have ended; `None` if its duration is not known.
    pub(crate) ends_ms: Option<u64>,
}

impl ControllerState {
    /// The same state for a run that can give up `reserve` besides samples.
    #[must_use]
    pub fn with_reserve(mut self, reserve: RecoveryReserve) -> Self {
        self.rules.recovery = recovery_steps::State::new(reserve);
        self
    }

    /// Sets the free space of the disk that checkpoints go to, in bytes, if it is known. The
    /// sample's own reading counts as well.
    pub fn set_disk_free(&mut self, bytes: Option<u64>) {
        self.rules.stop.set_disk_free(bytes);
    }

    /// Reports that a checkpoint was written in `write_ms` milliseconds; `at_ms` is on the sample's
    /// clock.
    pub fn checkpoint_written(&mut self, at_ms: u64, write_ms: f64) {
        self.rules.checkpoint.record_written(at_ms, write_ms);
    }

    /// Reports why a micro-batch was cancelled: the answer of `should_cancel` then. The next
    /// decision gives this reason.
    pub fn cancelled(&mut self, reason: String) {
        self.rules.cancel_reason = Some(reason);
    }

    /// Reports that the moments cannot move to a file after all.
    pub fn disable_mapped_moments(&mut self) {
        self.rules.recovery.disable_mapped_moments();
    }

    /// Number of blocks that a micro-batch of this kind checkpoints now: those asked for, or more.
    pub fn checkpoint_blocks(&self, kind: MicroBatchKind) -> u32 {
        self.rules.recovery.current_kind(kind).checkpoint_blocks
    }

    /// The pressure level, with hysteresis.
    pub fn level(&self) -> Level {
        self.signal.level.level()
    }

    /// The newest pressure and its cause.
    pub fn reading(&self) -> Reading {
        self.signal.reading
    }

    /// The micro-batch of this kind; 0 before its first decision.
    pub fn micro_batch(&self, kind: MicroBatchKind) -> u32 {
        self.rules.tracks.get(kind).map_or(0, |track| track.size)
    }

    /// Takes a sample without deciding anything.
    pub(crate) fn record(&mut self, policy: &Policy, sample: &MemorySample) {
        self.signal.record(sample);
        // Calm is measured on the reading itself: the level stays high for a while after a warning.
        if self.signal.memory.level() != Level::Normal {
            self.rules.tracks.end_calm();
            self.pressed_ms = Some(sample.at_ms);
        }
        if !sample.is_unreadable() {
            self.history.record(policy, sample);
            let is_over = sample.used_bytes() > policy.limit_bytes(sample);
            let since = self.over_limit_since_ms.unwrap_or(sample.at_ms);
            self.over_limit_since_ms = is_over.then_some(since);
        }
    }
}
