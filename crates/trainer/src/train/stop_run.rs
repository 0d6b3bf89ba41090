//! Ends a run: the last checkpoint and the last event.

use crate::error::{Result, TrainError};
use crate::run_context::RunOutcome;
use crate::session::Session;
use crate::task::Task;
use pressure::{Component, Decision};
use runlog::{CheckpointReason, RunEvent, StopReason, checkpoint_saved, format_count};
use std::time::Instant;

/// The memory controller ends the run. Stores the cause for the last event.
pub(super) fn stop_for_shortage<T: Task>(
    session: &mut Session<'_, T>,
    decision: &Decision,
) -> StopReason {
    let (reason, advice) = match decision.cause {
        Component::Disk => (StopReason::Disk, None),
        _ => {
            let missing_bytes = session.controller.missing_bytes();
            let advice = session.controller.advice(1, missing_bytes);
            (StopReason::Memory, advice)
        }
    };
    let cause = &decision.reason;
    session.shortage = Some(match advice {
        Some(advice) => format!("{cause}; {advice}"),
        None => cause.clone(),
    });
    reason
}

/// Saves the last step and emits the end of a run that ended without an error.
pub(super) fn finish<T: Task>(
    session: &mut Session<'_, T>,
    reason: StopReason,
) -> Result<RunOutcome> {
    let started = Instant::now();
    if !session.saving.is_saved(session.state.step) || session.saving.has_postponed() {
        match reason {
            // The shortage that ends the run may also make this fail. That is no reason to fail the
            // run: the last valid checkpoint remains.
            StopReason::Memory | StopReason::Disk => {
                session.save_or_warn(CheckpointReason::Stop)?;
            }
            StopReason::Finished | StopReason::Requested => save_last(session)?,
        }
    }
    let sentence = message(session, reason, started.elapsed().as_secs_f64());
    session.log.emit(RunEvent::Stopped {
        at_ms: session.log.now_ms(),
        step: session.state.step,
        reason,
        message: sentence,
    })?;
    let has_classes = !session.plan.classes.is_empty();
    let evaluation = session.state.evaluation.filter(|_| has_classes);
    Ok(RunOutcome {
        reason,
        step: session.state.step,
        accuracy: evaluation.map(|(_, accuracy)| accuracy),
    })
}

/// Saves the last step, and before it the best one if that waits in memory. If only that fails, it
/// is tried once more: no later session can repeat its evaluation.
fn save_last<T: Task>(session: &mut Session<'_, T>) -> Result<()> {
    match session.save(CheckpointReason::Stop) {
        Err(TrainError::CheckpointWrite { .. }) if session.saving.has_postponed() => {
            session.save(CheckpointReason::Stop)
        }
        saved => saved,
    }
}

/// The message of the last event. `seconds` is the duration of the last checkpoint.
fn message<T: Task>(session: &Session<'_, T>, reason: StopReason, seconds: f64) -> String {
    let step = format_count(session.state.step);
    let saved = checkpoint_saved(seconds);
    if !session.saving.is_saved(session.state.step) {
        return format!("Stopped at step {step} without a new checkpoint");
    }
    match reason {
        StopReason::Requested => {
            format!("Stopped at step {step}. {saved}")
        }
        StopReason::Memory | StopReason::Disk => {
            let cause = session.shortage.as_deref().unwrap_or("memory is short");
            format!("Stopped at step {step} after saving a checkpoint: {cause}")
        }
        StopReason::Finished => {
            let early = describe_early_end(session);
            match session.state.best {
                Some((score, best_step)) => format!(
                    "Finished at step {step}{early}: {}",
                    T::describe_best(best_score(session, score, best_step), session.plan)
                ),
                None => format!("Finished at step {step}. {saved}"),
            }
        }
    }
}

/// The score of the best evaluation. `compared` is that on the samples that all evaluations read;
/// the evaluation after the last step may have read more.
fn best_score<T: Task>(session: &Session<'_, T>, compared: f64, best_step: u64) -> f64 {
    let state = &session.state;
    let newest = state
        .evaluation
        .filter(|_| state.evaluated_step == best_step);
    newest.map_or(compared, |(_, score)| score)
}

/// Why a run finished before its last step; empty if it did not.
fn describe_early_end<T: Task>(session: &Session<'_, T>) -> String {
    if session.state.step >= session.plan.steps {
        return String::new();
    }
    let evaluations = session.state.evaluations_since_best;
    format!(
        " of {}, because the last {} no better",
        format_count(session.plan.steps),
        match evaluations {
            1 => "evaluation was".to_owned(),
            count => format!("{} evaluations were", format_count(count)),
        }
    )
}

/// Emits the end of a run that ended with an error.
pub(super) fn emit_failed<T: Task>(session: &mut Session<'_, T>, error: &TrainError) {
    let (at_ms, code) = (session.log.now_ms(), error.code().to_owned());
    // The caller gets `error` itself; on a full disk the event cannot be written.
    let _ = session.log.emit(RunEvent::Failed {
        at_ms,
        step: session.state.step,
        code,
        message: error.to_string(),
    });
}
