//! Decides which decisions are worth an event.

use pressure::{Action, Change, Decision, Phase};

/// The newest training decision.
#[derive(Default)]
pub(super) struct Changes {
    last: Option<(Phase, u32, Action)>,
}

/// A decision compared with the one before.
pub(super) struct Comparison {
    /// Whether the decision is worth an event.
    pub changed: bool,
    /// The steady micro-batch before.
    pub previous: u32,
}

impl Changes {
    /// The steady micro-batch of the newest training decision; 0 before the first decision.
    pub fn micro_batch(&self) -> u32 {
        self.last.map_or(0, |(_, size, _)| size)
    }

    /// Compares and remembers a decision. `size` is the steady micro-batch: a smaller last
    /// micro-batch of an effective batch is no change.
    pub fn compare(&mut self, phase: Phase, size: u32, decision: &Decision) -> Comparison {
        let now = (phase, size, decision.action);
        let (differs, previous) = match self.last {
            Some((last_phase, last_size, last_action)) if last_phase == phase => (
                (last_size, last_action) != (size, decision.action),
                last_size,
            ),
            // A return from the other phase is no change by itself.
            Some(_) => (
                phase == Phase::Train && decision.change != Change::Hold,
                size,
            ),
            None => (true, 0),
        };
        if phase == Phase::Train || self.last.is_none() {
            self.last = Some(now);
        }
        let always = matches!(
            decision.change,
            Change::Prefetch
                | Change::CheckpointMore
                | Change::CheckpointLess
                | Change::Moments
                | Change::Pause
                | Change::Suspend
                | Change::Continue
                | Change::Stop
        );
        Comparison {
            changed: always || differs && phase == Phase::Train,
            previous,
        }
    }
}
