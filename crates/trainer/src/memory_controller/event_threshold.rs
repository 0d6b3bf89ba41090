//! Decides which decisions are worth an event, and what change the event reports.

use pressure::{Action, Change, Decision, Phase};

/// The newest training decision.
#[derive(Default)]
pub(super) struct Changes {
    last: Option<(u32, Action)>,
}

/// A decision compared with the one before.
pub(super) struct Comparison {
    /// Whether the decision is worth an event.
    pub changed: bool,
    /// The steady micro-batch of training before; 0 before its first decision.
    pub previous: u32,
    /// What the decision changes for the user.
    pub change: Change,
}

/// The micro-batch that the event of `decision` reports: `size` is the steady one. A run can start
/// or continue in the middle of an effective batch, of which fewer samples are left.
pub(super) fn reported_micro_batch(size: u32, remaining: usize, decision: &Decision) -> u32 {
    let begins = matches!(decision.change, Change::Start | Change::Continue);
    let is_rest = decision.micro_batch as usize == remaining;
    if begins && is_rest && decision.action == Action::Run {
        size.max(decision.micro_batch)
    } else {
        decision.micro_batch
    }
}

impl Changes {
    /// The steady micro-batch of the newest training decision; 0 before the first decision.
    pub fn micro_batch(&self) -> u32 {
        self.last.map_or(0, |(size, _)| size)
    }

    /// Compares and remembers a decision. `size` is the steady micro-batch: a smaller last
    /// micro-batch of an effective batch is no change.
    pub fn compare(&mut self, phase: Phase, size: u32, decision: &Decision) -> Comparison {
        let (differs, previous) = match (phase, self.last) {
            (Phase::Train, Some((last_size, last_action))) => {
                let differs = (last_size, last_action) != (size, decision.action);
                (differs, last_size)
            }
            (Phase::Train, None) => (decision.change != Change::Hold, 0),
            // The size of an evaluation is not the one in use for training.
            (Phase::Evaluate, last) => (false, last.map_or(0, |(size, _)| size)),
        };
        if phase == Phase::Train {
            self.last = Some((size, decision.action));
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
        let changed = always || differs;
        let change = if changed && previous > 0 && decision.change == Change::Start {
            // The first training decision after an evaluation: to the user this is a change of
            // size.
            if size > previous {
                Change::Grow
            } else {
                Change::Shrink
            }
        } else {
            decision.change
        };
        Comparison {
            changed,
            previous,
            change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(change: Change, micro_batch: u32) -> Decision {
        Decision {
            change,
            micro_batch,
            ..Decision::default()
        }
    }

    #[test]
    fn a_start_with_the_rest_of_a_batch_reports_the_steady_size() {
        let reported = |change, micro_batch, remaining| {
            reported_micro_batch(16, remaining, &decision(change, micro_batch))
        };
        assert_eq!(reported(Change::Start, 1, 1), 16);
        assert_eq!(reported(Change::Continue, 14, 14), 16);
        assert_eq!(reported(Change::Start, 16, 32), 16);
        assert_eq!(reported(Change::Start, 5, 32), 5, "less was affordable");
        assert_eq!(reported(Change::Cancel, 3, 3), 3);
    }

    #[test]
    fn the_first_training_decision_after_an_evaluation_is_a_start() {
        let mut changes = Changes::default();
        let evaluation = changes.compare(Phase::Evaluate, 8, &decision(Change::Start, 8));
        assert!(!evaluation.changed);
        assert_eq!(changes.micro_batch(), 0, "no size of training is known yet");
        let training = changes.compare(Phase::Train, 16, &decision(Change::Start, 16));
        assert_eq!((training.changed, training.previous), (true, 0));
        let later = changes.compare(Phase::Train, 8, &decision(Change::Shrink, 8));
        assert_eq!((later.changed, later.previous), (true, 16));
    }

    #[test]
    fn a_start_with_another_size_than_before_is_a_change_of_size() {
        let mut changes = Changes::default();
        let mut started = |size| {
            let compared = changes.compare(Phase::Train, size, &decision(Change::Start, size));
            compared.change
        };
        assert_eq!(started(16), Change::Start);
        assert_eq!(started(8), Change::Shrink);
        assert_eq!(started(12), Change::Grow);
        assert_eq!(started(12), Change::Start, "the size is the same");
    }

    #[test]
    fn an_evaluation_that_waits_does_not_report_its_size_as_that_of_training() {
        let mut changes = Changes::default();
        changes.compare(Phase::Train, 16, &decision(Change::Start, 16));
        let paused = changes.compare(Phase::Evaluate, 64, &decision(Change::Pause, 0));
        assert_eq!((paused.changed, paused.previous), (true, 16));
        let continued = changes.compare(Phase::Evaluate, 64, &decision(Change::Continue, 64));
        assert_eq!((continued.changed, continued.previous), (true, 16));
        let training = changes.compare(Phase::Train, 16, &decision(Change::Start, 16));
        assert!(!training.changed, "the size of training is the same");
    }

    #[test]
    fn every_change_of_the_size_in_use_is_reported() {
        let mut changes = Changes::default();
        let mut shown = 0;
        let sizes = [4, 4, 8, 8, 3, 3, 16, 2, 2, 7];
        for (number, size) in sizes.into_iter().enumerate() {
            for phase in [Phase::Train, Phase::Evaluate] {
                let change = if number == 0 {
                    Change::Start
                } else {
                    Change::Hold
                };
                let size = if phase == Phase::Train { size } else { 64 };
                let compared = changes.compare(phase, size, &decision(change, size));
                if compared.changed {
                    shown = size;
                }
            }
            assert_eq!(shown, size);
        }
    }
}
