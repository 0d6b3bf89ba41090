//! The input of the rules for one decision, and the answer of a rule.

use crate::budget::Budget;
use crate::decision::{Action, MicroBatchKind, Outcome, SampleCost};
use crate::explain_shortage::{Need, Shortage};
use crate::forecast_other_apps::History;
use crate::memory_model::MemoryModel;
use crate::memory_sample::{Component, Level, MemorySample};
use crate::micro_batch_sizes::{Track, largest_within};
use crate::policy::{CHANGES_WINDOW_MS, Policy};
use crate::pressure_level::Reading;
use std::collections::VecDeque;

/// Everything that a decision is based on. No rule changes it.
#[derive(Clone, Copy)]
pub(crate) struct DecisionContext<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) model: &'a MemoryModel,
    pub(crate) sample: &'a MemorySample,
    /// Pressure of memory alone, at this sample.
    pub(crate) pressure: Reading,
    pub(crate) history: &'a History,
    /// The kind that will run, with the blocks that the controller added.
    pub(crate) kind: MicroBatchKind,
    /// The samples that are still to be processed.
    pub(crate) samples: &'a [SampleCost],
    /// Their number, at least 1.
    pub(crate) remaining: u32,
    /// What a shorter prefetch would free, in bytes.
    pub(crate) spare_bytes: u64,
    /// The budget without `spare_bytes`: peaks are learned without them.
    pub(crate) budget: Budget,
    /// Footprint of the run without a micro-batch, in bytes. `None` if it is not known.
    pub(crate) state_bytes: Option<u64>,
    /// A failed micro-batch of any kind to which no rule has reacted yet.
    pub(crate) failure: Option<Failure>,
    /// When the pressure of memory was last above normal.
    pub(crate) pressed_ms: Option<u64>,
}

/// How the last micro-batch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: MicroBatchKind,
    pub(crate) micro_batch: u32,
    pub(crate) cause: FailureCause,
}

/// Why a micro-batch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// An allocation was refused.
    Refused,
    /// The device ended it.
    TooLong,
    /// The monitor cancelled it.
    Cancelled,
    /// It succeeded, but delayed the screen.
    Delayed,
}

impl FailureCause {
    /// The cause behind the outcome of a micro-batch; `None` if it succeeded.
    pub(crate) fn new(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Ok => None,
            Outcome::Memory => Some(FailureCause::Refused),
            Outcome::TooLong => Some(FailureCause::TooLong),
            Outcome::Cancelled => Some(FailureCause::Cancelled),
        }
    }

    /// The reason of the decision that answers the failure; `None` if the machine's memory is the
    /// reason.
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            FailureCause::Refused => Some("an allocation was refused"),
            FailureCause::TooLong => Some("the micro-batch held the GPU for too long"),
            FailureCause::Cancelled => None,
            FailureCause::Delayed => {
                Some("a larger micro-batch held the GPU so long that the screen could stutter")
            }
        }
    }
}

impl DecisionContext<'_> {
    /// Bytes that a larger micro-batch may reach.
    pub(crate) fn growth_bytes(&self) -> u64 {
        (self.policy.grow_fraction * self.budget.bytes as f64) as u64
    }

    /// The largest size of this kind within `bytes`.
    pub(crate) fn largest_within(&self, track: &Track, bytes: u64) -> u32 {
        largest_within(self.model, self.kind, track, bytes)
    }

    /// Cost of the next `micro_batch` samples.
    pub(crate) fn cost(&self, micro_batch: u32) -> u64 {
        let samples = self.samples.iter().take(micro_batch as usize);
        samples.map(|cost| cost.0).sum()
    }

    /// Predicted footprint with the next `micro_batch` samples, in bytes.
    pub(crate) fn predicted_bytes(&self, micro_batch: u32) -> Option<u64> {
        self.model
            .upper_bytes(self.kind, self.cost(micro_batch))
            .filter(|_| micro_batch > 0)
    }

    /// Why a micro-batch of `size` cannot run, and the component behind it.
    pub(crate) fn explain_shortage(&self, size: u32) -> (Component, String) {
        let needed_bytes = self.model.upper_bytes(self.kind, self.cost(size));
        let shortage = Shortage {
            history: self.history,
            sample: self.sample,
            pressure: self.pressure,
            budget: &self.budget,
            needed: needed_bytes.map(|bytes| Need { size, bytes }),
        };
        shortage.explain(self.policy)
    }

    /// Whether a shortage now is one of the machine's memory: not of the device, of the user's cap
    /// or of time.
    pub(crate) fn machine_is_short(&self) -> bool {
        let is_pressed = self.pressure.level() >= Level::Warning;
        match self.failure_of_kind().map(|failure| failure.cause) {
            Some(FailureCause::TooLong | FailureCause::Delayed) => false,
            // A device also refuses an allocation while the machine has free memory.
            Some(FailureCause::Refused) => is_pressed,
            Some(FailureCause::Cancelled) | None => {
                is_pressed || self.budget.cause == Some(Component::Headroom)
            }
        }
    }

    /// Since when memory has been free, if it was short at `since_ms`.
    pub(crate) fn free_since_ms(&self, since_ms: u64) -> u64 {
        since_ms.max(self.pressed_ms.unwrap_or(0))
    }

    pub(crate) fn failure_of_kind(&self) -> Option<Failure> {
        self.failure.filter(|failure| failure.kind == self.kind)
    }

    /// Whether the pressure of memory is normal now.
    pub(crate) fn is_calm(&self) -> bool {
        self.pressure.level() == Level::Normal
    }
}

/// The answer of a rule.
pub(crate) struct RuleOutcome {
    pub(crate) action: Action,
    /// The micro-batch from now on; 0 while waiting.
    pub(crate) size: u32,
    /// The change was not needed, so it counts against the changes per minute.
    pub(crate) voluntary: bool,
    pub(crate) release_caches: bool,
    pub(crate) cause: Component,
    pub(crate) reason: String,
}

impl RuleOutcome {
    /// Run micro-batches of `size` from now on.
    pub(crate) fn run(size: u32, cause: Component, reason: impl Into<String>) -> Self {
        Self::act(Action::Run, size, cause, reason)
    }

    /// Run nothing.
    pub(crate) fn wait(action: Action, cause: Component, reason: impl Into<String>) -> Self {
        Self::act(action, 0, cause, reason)
    }

    fn act(action: Action, size: u32, cause: Component, reason: impl Into<String>) -> Self {
        Self {
            action,
            size,
            voluntary: false,
            release_caches: false,
            cause,
            reason: reason.into(),
        }
    }

    /// This answer, with released caches if `release` is true.
    pub(crate) fn releasing_caches(self, release: bool) -> Self {
        Self {
            release_caches: self.release_caches || release,
            ..self
        }
    }
}

/// Voluntary changes of the last minute.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct VoluntaryChanges {
    at_ms: VecDeque<u64>,
}

impl VoluntaryChanges {
    /// Whether one more is allowed at `now_ms`.
    pub(crate) fn are_allowed(&self, policy: &Policy, now_ms: u64) -> bool {
        let recent = self.at_ms.iter().filter(|at| is_recent(**at, now_ms));
        (recent.count() as u32) < policy.max_changes_per_minute
    }

    /// Counts a change.
    pub(crate) fn record(&mut self, now_ms: u64) {
        self.at_ms.retain(|at| is_recent(*at, now_ms));
        self.at_ms.push_back(now_ms);
    }
}

fn is_recent(at_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(at_ms) <= CHANGES_WINDOW_MS
}
