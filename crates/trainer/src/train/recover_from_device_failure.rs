//! Restores a run whose weights cannot be trusted after a failure of the device: an optimizer step
//! was not written completely, the device is lost, or it may have forgotten another failure, which
//! damaged them.

use crate::error::{Result, TrainError};
use crate::session::Session;
use crate::task::Task;
use std::time::Duration;

/// Wait before each attempt: a device that was reset needs a moment.
const WAIT: Duration = Duration::from_secs(1);

/// Drops weights and moments, makes a new device if the old one is lost, and loads the newest
/// checkpoint, or the initial state if there is none yet.
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
        session.faults.count_restore()
    } else {
        session.faults.count_repeat()
    };
    if let Some(times) = times {
        return Err(TrainError::DeviceFailed {
            what: format!("step {}", step + 1),
            times,
            source: Box::new(error),
            next: if session.checkpointer.has_checkpoint() {
                "the newest checkpoint is valid; resume from it, or train on --device cpu"
            } else {
                "no checkpoint was written yet; start again, or train on --device cpu"
            },
        });
    }
    session.controller.wait_for(WAIT, &session.control);
    if is_lost {
        session.replace_device()?;
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
