//! The sentences of the status line: what was done, and what it means. Words only; what happened is decided elsewhere.

use crate::event::{CheckpointReason, Started, StopReason};
use crate::milestones::{Evaluated, Kept};
use crate::words::{format_count, format_percent};
use pressure::{Action, Change, Component, Decision, Level, Moments, Prefetch};

/// "Shrunk 16 to 8", beside a mark.
pub(crate) fn short(decision: &Decision, from: u32) -> String {
    let to = decision.micro_batch;
    match decision.change {
        Change::Start => format!("Started with {to}"),
        Change::Hold => format!("Held at {to}"),
        Change::Shrink => format!("Shrunk {from} to {to}"),
        Change::Grow => format!("Grew {from} to {to}"),
        Change::Cancel => format!("Cancelled, now {to}"),
        Change::Pause => "Paused".into(),
        Change::Suspend => "Parked".into(),
        Change::Continue => format!("Continued with {to}"),
        Change::Prefetch => match decision.prefetch {
            Prefetch::Short => "Fewer decoded ahead".into(),
            Prefetch::Long => "More decoded ahead".into(),
        },
        Change::CheckpointMore | Change::CheckpointLess => match decision.checkpoint_blocks {
            0 => "No block computed twice".into(),
            1 => "1 block computed twice".into(),
            blocks => format!("{blocks} blocks computed twice"),
        },
        Change::Moments => match decision.moments {
            Moments::Mapped => "Moments to a file".into(),
            Moments::Resident => "Moments in memory".into(),
        },
        Change::Stop => "Stopped".into(),
    }
}

/// What a decision means for the training.
pub(crate) fn meaning(decision: &Decision, effective_batch: u32, step: u64) -> String {
    let size = decision.micro_batch;
    match decision.action {
        Action::Pause => {
            let goes_on = match decision.cause {
                Component::User => ". Continue goes on from there.",
                _ => ", and the run continues by itself when memory is free.",
            };
            let step = format_count(step);
            return format!("Nothing is lost: step {step} stands{goes_on}");
        }
        Action::Suspend => {
            return "Everything is in the checkpoint. The run comes back by itself when memory is free.".into();
        }
        Action::Stop => return "The run ends with a checkpoint; Resume goes on from there.".into(),
        Action::Run if size == 0 || effective_batch == 0 => return String::new(),
        Action::Run => {}
    }
    let pieces = effective_batch.div_ceil(size);
    let pieces = match (pieces, effective_batch % size) {
        (1, _) => "in one piece".to_owned(),
        (_, 0) => format!("in {pieces} pieces of {size}"),
        _ => format!("in {pieces} pieces of at most {size}"),
    };
    let (now, after) = match decision.change {
        // Memory has no part in it.
        Change::Shrink if decision.cause == Component::Speed => ("now ", ""),
        Change::Shrink | Change::Cancel => ("now ", " Grows back by itself when memory is free."),
        Change::Grow | Change::Continue => ("now ", ""),
        _ => ("", ""),
    };
    format!(
        "The training is unchanged: {} samples a step, {now}{pieces}.{after}",
        format_count(effective_batch.into())
    )
}

pub(crate) fn started(started: &Started) -> (String, String) {
    let sentence = format!("Starting {} on {}", started.name, started.device);
    let meaning = format!(
        "{} samples train, {} are held out; {} samples a step.",
        format_count(started.train_samples),
        format_count(started.held_out_samples),
        format_count(started.effective_batch.into()),
    );
    (sentence, meaning)
}

pub(crate) fn resumed(step: u64, device: &str) -> (String, String) {
    let step = format_count(step);
    let meaning = format!("The same run goes on: what came after step {step} is worked again.");
    (format!("Resumed at step {step} on {device}"), meaning)
}

/// A checkpoint is news only when somebody asked for it.
pub(crate) fn checkpoint(step: u64, ms: f64, why: CheckpointReason) -> Option<(String, String)> {
    let step = format_count(step);
    let sentence = format!("Checkpoint saved at step {step} in {:.1} s", ms / 1000.0);
    let meaning = format!("The run can be resumed from step {step}.");
    (why == CheckpointReason::Requested).then_some((sentence, meaning))
}

pub(crate) fn stopped(step: u64, why: StopReason, best: Option<&Evaluated>) -> String {
    let best = best.and_then(|best| Some((best.accuracy?, best.step)));
    match (why, best) {
        (StopReason::Requested | StopReason::Memory, _) => {
            format!("Resume goes on from step {}.", format_count(step))
        }
        (StopReason::Disk, _) => format!(
            "Free some of the disk; then Resume goes on from step {}.",
            format_count(step)
        ),
        (StopReason::Finished, Some((accuracy, step))) => {
            let (accuracy, step) = (format_percent(accuracy), format_count(step));
            format!("Best held-out accuracy: {accuracy} at step {step}.")
        }
        (StopReason::Finished, None) => format!("All {} steps are done.", format_count(step)),
    }
}

/// `level` is that of the last seconds, where the flight recorder knows it.
pub(crate) fn ended_early(step: u64, level: Option<Level>) -> String {
    let when = match step {
        0 => "Ended before the first step".to_owned(),
        step => format!("Ended early at step {}", format_count(step)),
    };
    let memory = match level {
        Some(Level::Critical) => " while memory was critical",
        Some(Level::Warning) => " while memory was short",
        Some(Level::Normal) | None => "",
    };
    format!("{when}{memory}: its process is gone")
}

pub(crate) fn last_checkpoint(last: Option<&Kept>) -> String {
    match last {
        Some(kept) => format!(
            "Resume goes on from the checkpoint at step {}.",
            format_count(kept.step)
        ),
        None => "No checkpoint was written yet. Train again to start over.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pause_for_memory_ends_by_itself() {
        let check = |cause, expected: &str| {
            let decision = Decision {
                action: Action::Pause,
                change: Change::Pause,
                cause,
                ..Decision::default()
            };
            assert_eq!(meaning(&decision, 16, 1069), expected);
        };
        check(
            Component::User,
            "Nothing is lost: step 1,069 stands. Continue goes on from there.",
        );
        check(
            Component::Headroom,
            "Nothing is lost: step 1,069 stands, and the run continues by itself when memory is free.",
        );
    }

    #[test]
    fn only_what_memory_shrank_grows_back_when_memory_is_free() {
        let check = |cause, expected: &str| {
            let decision = Decision {
                change: Change::Shrink,
                micro_batch: 8,
                cause,
                ..Decision::default()
            };
            assert_eq!(meaning(&decision, 16, 9), expected);
        };
        let now = "The training is unchanged: 16 samples a step, now in 2 pieces of 8.";
        check(Component::Speed, now);
        let by_itself = format!("{now} Grows back by itself when memory is free.");
        check(Component::Headroom, &by_itself);
    }

    #[test]
    fn a_change_that_is_not_one_of_size_says_what_it_is() {
        let decision = |change, checkpoint_blocks, prefetch, moments| Decision {
            change,
            micro_batch: 1,
            checkpoint_blocks,
            prefetch,
            moments,
            ..Decision::default()
        };
        for (change, blocks, prefetch, moments, expected) in [
            (
                Change::Prefetch,
                0,
                Prefetch::Short,
                Moments::Resident,
                "Fewer decoded ahead",
            ),
            (
                Change::Prefetch,
                0,
                Prefetch::Long,
                Moments::Resident,
                "More decoded ahead",
            ),
            (
                Change::CheckpointMore,
                1,
                Prefetch::Short,
                Moments::Resident,
                "1 block computed twice",
            ),
            (
                Change::CheckpointLess,
                3,
                Prefetch::Short,
                Moments::Resident,
                "3 blocks computed twice",
            ),
            (
                Change::CheckpointLess,
                0,
                Prefetch::Short,
                Moments::Resident,
                "No block computed twice",
            ),
            (
                Change::Moments,
                4,
                Prefetch::Short,
                Moments::Mapped,
                "Moments to a file",
            ),
            (
                Change::Moments,
                4,
                Prefetch::Short,
                Moments::Resident,
                "Moments in memory",
            ),
            (
                Change::Stop,
                0,
                Prefetch::Short,
                Moments::Resident,
                "Stopped",
            ),
        ] {
            let decision = decision(change, blocks, prefetch, moments);
            assert_eq!(short(&decision, 1), expected);
        }
    }
}
