//! Decides which decisions are worth an event, and what change the event reports.

use pressure::{Action, Change, Decision, Phase};

/// The newest decisions of training and of evaluations, whose micro-batches are unlike.
#[derive(Default)]
pub(super) struct Changes {
    last: Option<(u32, Action)>,
    /// The steady micro-batch of the newest evaluation; 0 before the first.
    evaluated: u32,
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

    /// Compares and remembers a decision. `size` is the steady micro-batch of this phase: a smaller
    /// last micro-batch of an effective batch is no change.
    pub fn compare(&mut self, phase: Phase, size: u32, decision: &Decision) -> Comparison {
        match phase {
            Phase::Train => self.compare_training(size, decision),
            Phase::Evaluate => self.compare_evaluation(size, decision),
        }
    }

    fn compare_training(&mut self, size: u32, decision: &Decision) -> Comparison {
        let now = (size, decision.action);
        let last = self.last.replace(now);
        let differs = match last {
            Some(last) => last != now,
            None => decision.change != Change::Hold,
        };
        let previous = last.map_or(0, |(size, _)| size);
        let changed = differs || is_always_reported(decision.change);
        Comparison {
            changed,
            previous,
            change: if changed {
                change_of_size(previous, size, decision.change)
            } else {
                decision.change
            },
        }
    }

    /// An evaluation is compared with the evaluation before, since its size is not the one in use
    /// for training.
    fn compare_evaluation(&mut self, size: u32, decision: &Decision) -> Comparison {
        let before = self.evaluated;
        let differs = decision.action == Action::Run && size != before;
        if differs {
            self.evaluated = size;
        }
        Comparison {
            changed: differs || is_always_reported(decision.change),
            previous: self.micro_batch(),
            change: if differs {
                change_of_size(before, size, decision.change)
            } else {
                decision.change
            },
        }
    }
}

/// Whether a decision with this change is worth an event, even if the size stays.
fn is_always_reported(change: Change) -> bool {
    matches!(
        change,
        Change::Prefetch
            | Change::CheckpointMore
            | Change::CheckpointLess
            | Change::Moments
            | Change::Pause
            | Change::Suspend
            | Change::Continue
            | Change::Stop
    )
}

/// The first decision after another phase is a start to the controller. To the user it is a change
/// of size if the phase has run before.
fn change_of_size(previous: u32, size: u32, change: Change) -> Change {
    if previous == 0 || change != Change::Start {
        change
    } else if size > previous {
        Change::Grow
    } else {
        Change::Shrink
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
        assert_eq!((evaluation.changed, evaluation.previous), (true, 0));
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
        let mut shown = [0, 0];
        let trained = [4, 4, 8, 8, 3, 3, 16, 2, 2, 7];
        let evaluated = [64, 64, 64, 16, 16, 64, 2, 2, 64, 64];
        for (number, sizes) in trained.into_iter().zip(evaluated).enumerate() {
            let change = if number == 0 {
                Change::Start
            } else {
                Change::Hold
            };
            let phases = [(Phase::Train, sizes.0), (Phase::Evaluate, sizes.1)];
            for (place, (phase, size)) in phases.into_iter().enumerate() {
                let compared = changes.compare(phase, size, &decision(change, size));
                assert_eq!(compared.changed, shown[place] != size, "number {number}");
                if compared.changed {
                    shown[place] = size;
                }
            }
            assert_eq!(shown, [sizes.0, sizes.1]);
            assert_eq!(changes.micro_batch(), sizes.0);
        }
    }

    #[test]
    fn an_evaluation_is_compared_with_the_evaluation_before() {
        let mut changes = Changes::default();
        changes.compare(Phase::Train, 16, &decision(Change::Start, 16));
        let mut evaluated = |change, size| {
            let compared = changes.compare(Phase::Evaluate, size, &decision(change, size));
            (compared.changed, compared.change, compared.previous)
        };
        assert_eq!(evaluated(Change::Start, 64), (true, Change::Start, 16));
        assert_eq!(evaluated(Change::Start, 64), (false, Change::Start, 16));
        assert_eq!(evaluated(Change::Start, 32), (true, Change::Shrink, 16));
        assert_eq!(evaluated(Change::Cancel, 16), (true, Change::Cancel, 16));
        assert_eq!(evaluated(Change::Start, 64), (true, Change::Grow, 16));
    }
}
