//! What the user asks of a running training, heeded between pieces.

use super::Session;
use crate::control::Request;
use crate::error::Result;
use pressure::{Action, Change, Component, Decision, Moments, Phase};
use runlog::{CheckpointReason, RunEvent};
use std::time::{Duration, Instant};

/// How long a wait for the user lasts before memory is looked at again.
const USER_PAUSE: Duration = Duration::from_millis(250);

impl Session<'_> {
    /// Does what the user asks. True when the run is to stop.
    pub(crate) fn heed(&mut self) -> Result<bool> {
        while let Some(request) = self.control.poll() {
            match request {
                Request::Stop => return Ok(true),
                Request::Checkpoint => self.save_if_possible(CheckpointReason::Requested)?,
                Request::SetMemoryCap(bytes) => self.pilot.set_memory_cap(bytes),
                Request::SetPoliteness(fraction) => self.pilot.set_politeness(fraction),
                Request::Resume => {}
                Request::Pause => {
                    if self.pause()? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Waits for the user. True when the run is to stop.
    fn pause(&mut self) -> Result<bool> {
        self.pilot.release()?;
        self.say_by_user(
            Action::Pause,
            Change::Pause,
            "you asked for it; everything is kept",
        )?;
        loop {
            match self.control.poll() {
                Some(Request::Stop) => return Ok(true),
                Some(Request::Resume) => break,
                Some(Request::Checkpoint) => self.save_if_possible(CheckpointReason::Requested)?,
                Some(Request::SetMemoryCap(bytes)) => self.pilot.set_memory_cap(bytes),
                Some(Request::SetPoliteness(fraction)) => self.pilot.set_politeness(fraction),
                Some(Request::Pause) => {}
                None => {
                    self.control.wait(USER_PAUSE);
                    self.look()?;
                }
            }
        }
        self.step_begun = Instant::now();
        self.say_by_user(Action::Run, Change::Continue, "you asked for it")?;
        Ok(false)
    }

    /// Keeps the memory chart going while nothing is decided.
    fn look(&mut self) -> Result<()> {
        let at = self.position();
        match self.pilot.reading() {
            Some(sample) => self.journal.reading(&self.pilot, sample, at),
            None => Ok(()),
        }
    }

    fn say_by_user(&mut self, action: Action, change: Change, reason: &str) -> Result<()> {
        let micro_batch = self.pilot.micro_batch();
        let decision = Decision {
            action,
            change,
            micro_batch: if action == Action::Run {
                micro_batch
            } else {
                0
            },
            checkpoint_blocks: self.learner.checkpointed_blocks(),
            moments: match self.learner.optimizer.is_mapped() {
                true => Moments::Mapped,
                false => Moments::Resident,
            },
            budget_bytes: 0,
            cause: Component::User,
            reason: reason.to_owned(),
            ..Decision::default()
        };
        let sentence = pressure::describe_decision(micro_batch, &decision);
        self.journal.say(RunEvent::Decision {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            phase: Phase::Train,
            previous_micro_batch: micro_batch,
            pieces: self.plan.effective_batch.div_ceil(micro_batch.max(1)),
            decision,
            sentence,
        })
    }
}
