//! Handles the user's requests between micro-batches.

use crate::error::Result;
use crate::event_log::DecisionRecord;
use crate::keep_awake::{self, Activity};
use crate::plan::courtesy;
use crate::run_control::Request;
use crate::session::Session;
use crate::task::Task;
use pressure::{Action, Change, Component, Decision, Moments, Phase, Prefetch};
use runlog::{CheckpointReason, format_bytes};
use std::time::Duration;

/// Interval of the memory readings during a pause.
const READING_INTERVAL: Duration = Duration::from_millis(250);

/// Handles all waiting requests. Returns `true` if the run shall stop. A second request for a
/// checkpoint is answered by the first: nothing was computed in between, and writing one may take
/// longer than the next request.
pub(super) fn handle_requests<T: Task>(session: &mut Session<'_, T>) -> Result<bool> {
    let mut has_saved = false;
    while let Some(request) = session.control.poll() {
        match request {
            Request::Stop => return Ok(true),
            Request::Resume => {}
            Request::Checkpoint if has_saved => {}
            Request::Pause => {
                if pause(session)? {
                    return Ok(true);
                }
            }
            other => {
                has_saved |= other == Request::Checkpoint;
                change(session, other)?;
            }
        }
    }
    Ok(false)
}

/// Waits for the user with the model in memory. Everything that can be computed again is given
/// back: free buffers, cached images and samples that were decoded ahead. The next decision allows
/// them again. Returns `true` if the run shall stop.
fn pause<T: Task>(session: &mut Session<'_, T>) -> Result<bool> {
    session.loaders.set_prefetch(Prefetch::Short);
    session.loaders.release();
    session.save_postponed()?;
    session.controller.release()?;
    let reason = "requested by you; the model stays in memory";
    emit_user_decision(session, Action::Pause, Change::Pause, reason)?;
    keep_awake::set(Activity::Waits);
    loop {
        match session.control.poll() {
            Some(Request::Stop) => return Ok(true),
            Some(Request::Resume) => break,
            Some(Request::Pause) => {}
            Some(other) => change(session, other)?,
            None => {
                session.control.wait(READING_INTERVAL);
                emit_reading(session)?;
                session.observe_power()?;
            }
        }
    }
    keep_awake::set(Activity::Computes);
    session.timer.restart();
    emit_user_decision(session, Action::Run, Change::Continue, "requested by you")?;
    Ok(false)
}

/// Handles a request that does not affect whether the training runs.
fn change<T: Task>(session: &mut Session<'_, T>, request: Request) -> Result<()> {
    match request {
        Request::Checkpoint => session.save_or_warn(CheckpointReason::Requested)?,
        Request::CheckpointBeforeSleep => {
            session.save_or_warn(CheckpointReason::Power)?;
            session.control.ready_to_sleep();
        }
        Request::SetMemoryCap(bytes) => set_memory_cap(session, bytes)?,
        Request::SetMaxSystemFraction(fraction) => {
            session.controller.set_max_system_fraction(fraction);
            let left = format_bytes(session.controller.left_bytes());
            let message = format!("At least {left} of memory is left to other apps");
            session
                .log
                .memory_limits(session.state.step, session.controller.limits(), message)?;
        }
        Request::SetCourtesy(when) => session.set_courtesy(courtesy(Some(when))),
        Request::StressTest { bytes, seconds, at } => {
            session
                .log
                .stress_test(session.state.step, bytes, seconds, at)?;
        }
        Request::Stop | Request::Pause | Request::Resume => {}
    }
    Ok(())
}

/// Sets or removes the memory cap. A cap that is too small for one sample is refused.
fn set_memory_cap<T: Task>(session: &mut Session<'_, T>, bytes: Option<u64>) -> Result<()> {
    let least_bytes = session.controller.least_cap_bytes();
    if let (Some(bytes), Some(least_bytes)) = (bytes, least_bytes)
        && bytes < least_bytes
    {
        let (asked, least) = (format_bytes(bytes), format_bytes(least_bytes));
        let message = format!(
            "A memory cap of {asked} is too small: one sample needs {least}. The memory cap was not changed."
        );
        return session.log.warn("memory_cap_too_small", message);
    }
    session.controller.set_memory_cap(bytes);
    let message = match bytes {
        Some(bytes) => format!("Memory cap set to {}", format_bytes(bytes)),
        None => "Memory cap removed".to_owned(),
    };
    let limits = session.controller.limits();
    session
        .log
        .memory_limits(session.state.step, limits, message)
}

/// Emits a memory reading, so that the chart continues during a pause.
fn emit_reading<T: Task>(session: &mut Session<'_, T>) -> Result<()> {
    let Some(sample) = session.controller.latest_sample() else {
        return Ok(());
    };
    let budget_bytes = session.controller.budget_bytes(&sample);
    let micro_batch = session.controller.micro_batch();
    let reading = session.memory_reading(sample, budget_bytes, micro_batch);
    session.log.memory_if_due(&reading)
}

/// Emits a decision that the user made.
fn emit_user_decision<T: Task>(
    session: &mut Session<'_, T>,
    action: Action,
    change: Change,
    reason: &str,
) -> Result<()> {
    let micro_batch = session.controller.micro_batch();
    let decision = Decision {
        action,
        change,
        micro_batch: if action == Action::Run {
            micro_batch
        } else {
            0
        },
        checkpoint_blocks: session.learner.checkpointed_blocks(),
        moments: if session.learner.optimizer.is_mapped() {
            Moments::Mapped
        } else {
            Moments::Resident
        },
        budget_bytes: 0,
        cause: Component::User,
        reason: reason.to_owned(),
        ..Decision::default()
    };
    session.log.decision(DecisionRecord {
        step: session.state.step,
        phase: Phase::Train,
        previous_micro_batch: micro_batch,
        micro_batches: session.plan.effective_batch.div_ceil(micro_batch.max(1)),
        decision,
    })
}
