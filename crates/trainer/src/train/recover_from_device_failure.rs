//! Recovers from a failure of the device: tries a micro-batch again, repeats a step whose gradients
//! are lost, or restores a run whose weights cannot be trusted.

use crate::error::{Result, TrainError};
use crate::session::Session;
use crate::task::Task;
use pressure::Outcome;
use std::time::Duration;

/// Wait before each attempt: a device that was reset needs a moment.
const WAIT: Duration = Duration::from_secs(1);

/// Prepares the next try after a micro-batch has failed. Its samples are still in the queue.
/// `has_sums` says whether gradients of this step were accumulated before.
///
/// # Errors
/// `error` itself if a smaller micro-batch would not help, and a fault of the device if the
/// accumulated gradients may be incomplete, or the weights damaged. The device refuses even the
/// smallest micro-batch.
pub(super) fn recover<T: Task>(
    session: &mut Session<'_, T>,
    error: TrainError,
    has_sums: bool,
) -> Result<()> {
    let late = if error.device_fault().is_some() {
        if has_sums && error.is_deferred_fault() || may_have_damaged_weights(session, &error) {
            return Err(error);
        }
        session.controller.failed(error, &session.control)?
    } else if !error.is_cancelled() {
        return Err(error);
    } else if session.control.is_stopping() {
        session.controller.discard();
        None
    } else {
        session.controller.back_off(Outcome::Cancelled)?
    };
    let is_lost = |fault: &TrainError| has_sums || may_have_damaged_weights(session, fault);
    late.filter(is_lost).map_or(Ok(()), Err)
}

/// Whether the weights may be damaged after a failure, although it happened while they were
/// only read. The device may have forgotten a page fault beside the failure that it reported. A
/// group compares the weights of its machines instead.
fn may_have_damaged_weights<T: Task>(session: &Session<'_, T>, error: &TrainError) -> bool {
    session.group.is_alone() && session.controller.may_have_damaged_tensors(error)
}

/// Prepares to repeat a step whose gradients are lost. Nothing else has changed.
///
/// # Errors
/// `error` itself if the step alone cannot be repeated: the device is lost or did not fail at
/// all, or more than the gradients is lost. The device fails too often.
pub(super) fn redo_step<T: Task>(session: &mut Session<'_, T>, error: TrainError) -> Result<()> {
    let is_damaging = may_have_damaged_weights(session, &error);
    if !error.is_passing_fault() || session.device.must_reload || is_damaging {
        return Err(error);
    }
    let step = session.state.step + 1;
    if let Some(times) = session.device.faults.count_repeat() {
        return Err(TrainError::DeviceFailed {
            what: format!("step {step}"),
            times,
            source: Box::new(error),
            next: "resume from the newest checkpoint, or train on --device cpu",
        });
    }
    let message = format!("step {step} is repeated: {error}");
    // The gradients are lost anyway, but the weights may be damaged.
    let late = session.controller.failed(error, &session.control)?;
    if let Some(late) = late.filter(|late| may_have_damaged_weights(session, late)) {
        return Err(late);
    }
    session.log.warn("step_repeated", message)?;
    session.restart_loader();
    Ok(())
}

/// Restores a run whose weights cannot be trusted: an optimizer step was not written completely,
/// the device is lost, or it may have forgotten another failure, which damaged them. Drops weights
/// and moments, makes a new device if the old one is lost, and loads the newest checkpoint, or the
/// initial state if there is none yet.
///
/// # Errors
/// The device has failed too often without a new step, or a checkpoint cannot be read.
pub(super) fn restore<T: Task>(session: &mut Session<'_, T>, error: TrainError) -> Result<()> {
    let step = session.state.step;
    // From here on nothing can save the weights.
    let mut is_lost = error.is_lost_device();
    is_lost |= session.controller.learn_from(&error).is_err();
    is_lost |= session.drop_state().is_err();
    let times = if is_lost {
        session.device.faults.count_restore()
    } else {
        session.device.faults.count_repeat()
    };
    if let Some(times) = times {
        return Err(TrainError::DeviceFailed {
            what: format!("step {}", step + 1),
            times,
            source: Box::new(error),
            next: if session.saving.has_checkpoint() {
                "the newest checkpoint is valid; resume from it, or train on --device cpu"
            } else {
                "no checkpoint was written yet; start again, or train on --device cpu"
            },
        });
    }
    session.controller.wait_for(WAIT, &session.control);
    if is_lost {
        session
            .device
            .replace(&mut session.learner, &mut session.controller)?;
    }
    session.load_newest()?;
    session.restart_loader();
    session.timer.restart();
    let message = format!(
        "the device failed after step {step} ({error}); the run continues from step {}",
        session.state.step
    );
    session.log.warn("device_failed", message)?;
    if session.state.step < step {
        session.emit_resumed()?;
    }
    Ok(())
}
