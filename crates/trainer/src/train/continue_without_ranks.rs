//! Continues a run after its group has lost ranks, without a restart, if the connection of the
//! others allows it and they have all moments.
//!
//! The step that was under way is repeated. Some ranks may have completed it before they noticed
//! the loss, and others not. Rank 0 keeps the run, so its step counts: a rank that is at another
//! step gets weights and moments from it.

use super::group_step::send_weights;
use crate::error::{Result, TrainError};
use crate::session::Session;
use crate::task::Task;
use distributed::GroupError;

/// Prepares to continue after `error`. All ranks that are left call it.
///
/// # Errors
/// `error` itself if it is another one than the loss of a rank, or the group cannot continue
/// without the rank. The run then continues from its newest checkpoint in a new group.
pub(super) fn continue_without_ranks<T: Task>(
    session: &mut Session<'_, T>,
    error: TrainError,
) -> Result<()> {
    let mut error = error;
    // If another rank is lost meanwhile, the rest tries again.
    for _ in 1..session.group.size() {
        if !can_continue(session, &error) {
            break;
        }
        match rejoin(session) {
            Ok(()) => return Ok(()),
            Err(newest) => error = newest,
        }
    }
    Err(error)
}

/// Whether a group can continue after this error. All ranks that are left come to the same answer.
fn can_continue<T: Task>(session: &Session<'_, T>, error: &TrainError) -> bool {
    // The bits of a recorded group are those of all its ranks.
    error.is_lost_rank() && session.exchange.can_lose_ranks() && !session.group.replays()
}

fn rejoin<T: Task>(session: &mut Session<'_, T>) -> Result<()> {
    session.group.rejoin()?;
    let mine = session.state.step.to_le_bytes().to_vec();
    let steps = session.group.gather(mine.clone())?;
    if let Some(of_rank_0) = steps.first()
        && steps.iter().any(|step| step != of_rank_0)
    {
        follow_rank_0(session, mine != *of_rank_0)?;
    }
    // Those of the ranks that are lost are lost, too.
    session.exchange.drop_rounding_errors();
    session.connect_devices()?;
    // The event below names it.
    session.exchange.take_link_change();
    session.restart_loader();
    session.timer.restart();
    let left = session.group.members().into_iter();
    let left: Vec<u32> = left.map(|member| member.rank as u32).collect();
    let (at_ms, step) = (session.log.now_ms(), session.state.step);
    let event = session
        .machines
        .leave_out(&left, &session.exchange, at_ms, step);
    event.map_or(Ok(()), |event| session.log.emit(event))
}

/// Gives the state of rank 0 to the ranks that are at another step, such as this one if `differs`.
/// A rank that has freed its weights only needs the number of the step.
fn follow_rank_0<T: Task>(session: &mut Session<'_, T>, differs: bool) -> Result<()> {
    let step = session
        .group
        .broadcast(session.state.step.to_le_bytes().to_vec())?;
    let is_needed = differs && !session.learner.is_unloaded();
    if is_needed {
        session.unload()?;
    }
    if !send_weights(session, is_needed)? {
        return Err(GroupError::Disagreement(
            "rank 0 could not save the weights that another rank needs".to_owned(),
        )
        .into());
    }
    if let Ok(step) = step.try_into() {
        session.state.step = u64::from_le_bytes(step);
    }
    Ok(())
}
