//! Suspension: everything is dropped until other apps free enough memory, and the run then resumes
//! by itself from its newest checkpoint.

use super::requests::handle_requests;
use super::stop_run::stop_for_shortage;
use crate::checkpoint;
use crate::error::Result;
use crate::session::Session;
use crate::task::Task;
use pressure::{Action, Phase};
use runlog::StopReason;
use std::ops::ControlFlow;

/// Drops weights and moments until memory for the next of `samples` samples is available, then
/// loads the newest checkpoint. Without a checkpoint it only waits a moment. Breaks if the run
/// ends.
pub(super) fn suspend<T: Task>(
    session: &mut Session<'_, T>,
    phase: Phase,
    samples: usize,
) -> Result<ControlFlow<StopReason>> {
    let (saving, mut snapshot) = session.snapshot();
    if !saving.save_for_suspension(&mut snapshot)? {
        session.controller.wait(&session.control);
        return Ok(ControlFlow::Continue(()));
    }
    session.unload()?;
    // A run that ends while it is suspended ends at the step of its checkpoint.
    let step_before = session.state.step;
    session.restore_position(&checkpoint::newest(&session.run)?.0);
    loop {
        if handle_requests(session)? {
            return Ok(ControlFlow::Break(StopReason::Requested));
        }
        let answer = session.next_micro_batch(phase, samples, 0)?;
        match answer.decision.action {
            Action::Suspend => session.controller.wait(&session.control),
            Action::Stop => {
                let reason = stop_for_shortage(session, &answer.decision);
                return Ok(ControlFlow::Break(reason));
            }
            Action::Run | Action::Pause => break,
        }
    }
    let (loaded, _) = checkpoint::newest(&session.run)?;
    session.load(&loaded)?;
    session.restart_loader();
    if session.state.step < step_before {
        session.emit_resumed()?;
    }
    Ok(ControlFlow::Continue(()))
}
