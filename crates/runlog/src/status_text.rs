//! The text of the status line: what was done, and what it means for the training.

use crate::amounts::{counted, format_count, format_percent};
use crate::baseline_text::describe_baseline;
use crate::event::{CheckpointReason, Started, StopReason};
use crate::records::{BaselineRecord, CheckpointRecord, EvaluationRecord};
use pressure::{Action, Change, Component, Decision, Level, Moments, Prefetch, describe_resize};

/// The text and the detail of a status line.
pub(crate) struct StatusText {
    pub message: String,
    pub detail: String,
}

/// A shorter time is shown as 0.0 s.
const MIN_SHOWN_SECONDS: f64 = 0.05;

/// The detail of a changed memory limit.
pub(crate) const LIMITS_DETAIL: &str = "The new limit applies from the next micro-batch on. The result of the training stays the same.";

/// The detail of a smaller micro-batch in an evaluation.
pub(crate) const EVALUATION_DETAIL: &str =
    "The result of the evaluation stays the same. The training keeps its own micro-batch size.";

/// The detail of a group of machines.
pub(crate) const GROUP_DETAIL: &str = "Each machine processes as many samples as its memory and speed allow. The result is the same as on a single machine.";

/// The same if the machines exchange weights only every few steps.
pub(crate) const RARE_EXCHANGE_DETAIL: &str = "Each machine processes as many samples as its memory and speed allow. The result differs from that of a single machine, because the machines rarely exchange their weights.";

/// The result of the baseline.
pub(crate) fn baseline(baseline: &BaselineRecord, train_samples: u64) -> StatusText {
    StatusText {
        message: describe_baseline(baseline, train_samples),
        detail: "Ebb now trains the model and compares it with the baseline.".into(),
    }
}

/// The label of a mark: "Micro-batch reduced from 16 to 8".
pub(crate) fn short(decision: &Decision, from: u32) -> String {
    let to = decision.micro_batch;
    match decision.change {
        Change::Start => format!("Started with {to}"),
        Change::Hold => format!("Held at {to}"),
        Change::Shrink | Change::Grow => describe_resize(decision.change, from, to),
        Change::Cancel => format!("Cancelled, now {to}"),
        Change::Pause => "Paused".into(),
        Change::Suspend => "Suspended".into(),
        Change::Continue if to == 0 => "Continued".into(),
        Change::Continue => format!("Continued with {to}"),
        Change::Prefetch => match decision.prefetch {
            Prefetch::Short => "Prefetching fewer samples".into(),
            Prefetch::Long => "Prefetching more samples".into(),
        },
        Change::CheckpointMore | Change::CheckpointLess => match decision.checkpoint_blocks {
            0 => "No block recomputed".into(),
            1 => "1 block recomputed".into(),
            blocks => format!("{blocks} blocks recomputed"),
        },
        Change::Moments => match decision.moments {
            Moments::Mapped => "Optimizer state moved to a file".into(),
            Moments::Resident => "Optimizer state back in memory".into(),
        },
        Change::Stop => "Stopped".into(),
    }
}

/// The message of a decision, which is `described` unless the user made it.
pub(crate) fn decision_message(decision: &Decision, step: u64, described: &str) -> String {
    match decision.change {
        Change::Pause if decision.cause == Component::User => {
            format!("Paused by you at step {}", format_count(step))
        }
        Change::Continue if decision.cause == Component::User => {
            format!(
                "Continued by you with a micro-batch of {}",
                decision.micro_batch
            )
        }
        _ => described.to_owned(),
    }
}

/// Explains what a decision means for the training.
pub(crate) fn decision_detail(decision: &Decision, started: Option<&Started>, step: u64) -> String {
    let size = decision.micro_batch;
    match decision.action {
        Action::Pause => {
            let step = format_count(step);
            if decision.cause == Component::User {
                return format!("Nothing is lost. Choose Continue to resume at step {step}.");
            }
            return format!(
                "Nothing is lost. The run continues at step {step} by itself when memory is free."
            );
        }
        Action::Suspend => {
            return "Everything is saved in a checkpoint. The run resumes by itself when memory is free.".into();
        }
        Action::Stop => return "The run ends with a checkpoint and can be resumed.".into(),
        Action::Run => {}
    }
    let Some(started) = started.filter(|started| size > 0 && started.effective_batch > 0) else {
        return String::new();
    };
    let split = split(started, size);
    let (now, outlook) = match decision.change {
        // A shrink for speed does not end when memory is free.
        Change::Shrink if decision.cause == Component::Speed => ("now ", ""),
        Change::Shrink | Change::Cancel if decision.cause == Component::Device => (
            "now ",
            " The micro-batch grows again when the device allows it.",
        ),
        Change::Shrink | Change::Cancel => {
            ("now ", " The micro-batch grows again when memory is free.")
        }
        Change::Grow | Change::Continue => ("now ", ""),
        _ => ("", ""),
    };
    format!(
        "The training is unchanged: {}, {now}{split}.{outlook}",
        started.describe_step()
    )
}

/// How an effective batch is split into micro-batches of `size`: "in 8 micro-batches of 8". If
/// tokens limit the steps, their numbers of samples differ: "in micro-batches of at most 8".
pub(crate) fn split(started: &Started, size: u32) -> String {
    let effective_batch = started.effective_batch;
    let count = effective_batch.div_ceil(size.max(1));
    if started.effective_batch_tokens.is_some() {
        format!("in micro-batches of at most {size}")
    } else if count <= 1 {
        "in one micro-batch".to_owned()
    } else if effective_batch.is_multiple_of(size) {
        format!("in {count} micro-batches of {size}")
    } else {
        format!("in {count} micro-batches of at most {size}")
    }
}

/// The run started.
pub(crate) fn started(started: &Started) -> StatusText {
    StatusText {
        message: format!("Starting {} on {}", started.name, started.device),
        detail: format!(
            "{} training samples, {} held out; {}.",
            format_count(started.train_samples),
            format_count(started.held_out_samples),
            started.describe_step(),
        ),
    }
}

/// The run was resumed.
pub(crate) fn resumed(step: u64, device: &str) -> StatusText {
    let step = format_count(step);
    StatusText {
        message: format!("Resumed at step {step} on {device}"),
        detail: format!("The run continues from its checkpoint; steps after {step} are repeated."),
    }
}

/// The detail of a run that was resumed to train longer, or less long, than planned.
pub(crate) fn length_changed(started: &Started) -> String {
    format!(
        "The run now ends at step {}, after {}. From now on, the learning rate follows the schedule of a run of this length.",
        format_count(started.steps),
        counted(started.epochs, "epoch", "epochs"),
    )
}

/// A checkpoint was saved. `None` unless the user asked for it.
pub(crate) fn checkpoint(
    step: u64,
    duration_ms: f64,
    reason: CheckpointReason,
) -> Option<StatusText> {
    if reason != CheckpointReason::Requested {
        return None;
    }
    let (step, seconds) = (format_count(step), duration_ms / 1000.0);
    let message = if seconds < MIN_SHOWN_SECONDS {
        format!("Checkpoint saved at step {step}")
    } else {
        format!("Checkpoint saved at step {step} in {seconds:.1} s")
    };
    Some(StatusText {
        message,
        detail: format!("The run can be resumed from step {step}."),
    })
}

/// "Checkpoint saved in 0.8 s"; without the time if it would be shown as 0.0 s.
pub fn checkpoint_saved(seconds: f64) -> String {
    if seconds < MIN_SHOWN_SECONDS {
        return "Checkpoint saved".to_owned();
    }
    format!("Checkpoint saved in {seconds:.1} s")
}

/// The detail of a run that stopped: how to resume it, or its result.
pub(crate) fn stopped_detail(
    step: u64,
    planned: u64,
    reason: StopReason,
    best: Option<&EvaluationRecord>,
) -> String {
    let best = best.and_then(|best| Some((best.accuracy?, best.step)));
    match (reason, best) {
        (StopReason::Requested | StopReason::Memory, _) => {
            format!("Choose Resume to continue at step {}.", format_count(step))
        }
        (StopReason::Disk, _) => format!(
            "Free some disk space. Then choose Resume to continue at step {}.",
            format_count(step)
        ),
        (StopReason::Finished, Some((accuracy, step))) => {
            let (accuracy, step) = (format_percent(accuracy), format_count(step));
            format!("Best held-out accuracy: {accuracy} at step {step}.")
        }
        (StopReason::Finished, None) if step < planned => format!(
            "Ended before step {}, because the evaluations no longer improved.",
            format_count(planned)
        ),
        (StopReason::Finished, None) => format!("All {} steps are done.", format_count(step)),
    }
}

/// The process exited without an end event. `level` is the pressure level of the last seconds, if
/// it is known.
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
    format!("{when}{memory}: Ebb quit unexpectedly")
}

/// How to resume a run that ended unexpectedly at `step`, and how many steps are trained again.
pub(crate) fn resume_detail(step: u64, last: Option<&CheckpointRecord>) -> String {
    match last {
        Some(checkpoint) => {
            let repeated = match step.saturating_sub(checkpoint.step) {
                0 => String::new(),
                1 => "; 1 step is repeated".to_owned(),
                steps => format!("; {} steps are repeated", format_count(steps)),
            };
            format!(
                "Choose Resume to continue from the checkpoint at step {}{repeated}.",
                format_count(checkpoint.step)
            )
        }
        None => "No checkpoint was written yet. Train again to start over.".into(),
    }
}

/// A detail for the terminal, which resumes `run` with a command instead of a button.
pub fn detail_in_terminal(detail: &str, run: &str) -> String {
    let command = format!("un `ebb resume {run}`");
    detail
        .replace("Choose Resume", &format!("R{command}"))
        .replace("choose Resume", &format!("r{command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_took_no_time_is_saved_without_a_time() {
        assert_eq!(checkpoint_saved(0.04), "Checkpoint saved");
        assert_eq!(checkpoint_saved(0.84), "Checkpoint saved in 0.8 s");
        let message = |duration_ms| {
            let text = checkpoint(1_724, duration_ms, CheckpointReason::Requested);
            text.map(|text| text.message)
        };
        let saved = "Checkpoint saved at step 1,724".to_owned();
        assert_eq!(message(812.0), Some(format!("{saved} in 0.8 s")));
        assert_eq!(message(3.0), Some(saved));
    }

    /// A run with 16 samples per step.
    fn sixteen() -> Started {
        Started {
            effective_batch: 16,
            ..Started::default()
        }
    }

    #[test]
    fn a_step_limited_by_tokens_names_them() {
        let started = Started {
            effective_batch_tokens: Some(8192),
            train_samples: 1000,
            held_out_samples: 100,
            ..sixteen()
        };
        let first = super::started(&started).detail;
        let step = "8,192 tokens per step (about 16 samples)";
        assert_eq!(
            first,
            format!("1,000 training samples, 100 held out; {step}.")
        );
        let decision = Decision {
            change: Change::Grow,
            micro_batch: 8,
            ..Decision::default()
        };
        assert_eq!(
            decision_detail(&decision, Some(&started), 9),
            format!("The training is unchanged: {step}, now in micro-batches of at most 8.")
        );
    }

    #[test]
    fn only_a_pause_for_memory_ends_by_itself() {
        let check = |cause, expected: &str| {
            let decision = Decision {
                action: Action::Pause,
                change: Change::Pause,
                cause,
                ..Decision::default()
            };
            assert_eq!(decision_detail(&decision, Some(&sixteen()), 1069), expected);
        };
        check(
            Component::User,
            "Nothing is lost. Choose Continue to resume at step 1,069.",
        );
        check(
            Component::Headroom,
            "Nothing is lost. The run continues at step 1,069 by itself when memory is free.",
        );
    }

    #[test]
    fn the_terminal_resumes_with_a_command() {
        let check = |reason, expected: &str| {
            let detail = stopped_detail(7, 7, reason, None);
            assert_eq!(detail_in_terminal(&detail, "birds"), expected);
        };
        check(
            StopReason::Requested,
            "Run `ebb resume birds` to continue at step 7.",
        );
        check(
            StopReason::Disk,
            "Free some disk space. Then run `ebb resume birds` to continue at step 7.",
        );
        check(StopReason::Finished, "All 7 steps are done.");
        assert_eq!(
            stopped_detail(7, 1200, StopReason::Finished, None),
            "Ended before step 1,200, because the evaluations no longer improved."
        );
        let killed = CheckpointRecord {
            at_ms: 0,
            step: 5,
            path: String::new(),
        };
        assert_eq!(
            detail_in_terminal(&resume_detail(5, Some(&killed)), "birds"),
            "Run `ebb resume birds` to continue from the checkpoint at step 5."
        );
        assert_eq!(
            detail_in_terminal(&resume_detail(6, Some(&killed)), "birds"),
            "Run `ebb resume birds` to continue from the checkpoint at step 5; 1 step is repeated."
        );
    }

    #[test]
    fn only_a_shrink_for_memory_grows_back() {
        let check = |cause, expected: &str| {
            let decision = Decision {
                change: Change::Shrink,
                micro_batch: 8,
                cause,
                ..Decision::default()
            };
            assert_eq!(decision_detail(&decision, Some(&sixteen()), 9), expected);
        };
        let now = "The training is unchanged: 16 samples per step, now in 2 micro-batches of 8.";
        check(Component::Speed, now);
        let by_itself = format!("{now} The micro-batch grows again when memory is free.");
        check(Component::Headroom, &by_itself);
        let for_device = format!("{now} The micro-batch grows again when the device allows it.");
        check(Component::Device, &for_device);
    }

    #[test]
    fn a_change_other_than_the_size_has_a_label() {
        let check = |change, decision: Decision, expected: &str| {
            let decision = Decision {
                change,
                micro_batch: 1,
                ..decision
            };
            assert_eq!(short(&decision, 1), expected);
        };
        let prefetch = |prefetch| Decision {
            prefetch,
            ..Decision::default()
        };
        let blocks = |checkpoint_blocks| Decision {
            checkpoint_blocks,
            ..Decision::default()
        };
        let moments = |moments| Decision {
            moments,
            ..Decision::default()
        };
        check(
            Change::Prefetch,
            prefetch(Prefetch::Short),
            "Prefetching fewer samples",
        );
        check(
            Change::Prefetch,
            prefetch(Prefetch::Long),
            "Prefetching more samples",
        );
        check(Change::CheckpointMore, blocks(1), "1 block recomputed");
        check(Change::CheckpointLess, blocks(3), "3 blocks recomputed");
        check(Change::CheckpointLess, blocks(0), "No block recomputed");
        check(
            Change::Moments,
            moments(Moments::Mapped),
            "Optimizer state moved to a file",
        );
        check(
            Change::Moments,
            moments(Moments::Resident),
            "Optimizer state back in memory",
        );
        check(Change::Stop, Decision::default(), "Stopped");
    }
}
