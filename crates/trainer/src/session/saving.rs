//! Checkpoints: when one is due, how it is written, and how weights and moments come back from it.

use super::Session;
use crate::checkpoint::{self, Loaded, Moments};
use crate::data::{EvalLoader, TrainLoader};
use crate::error::{Result, TrainError};
use crate::task::Task;
use crate::train_state::TrainState;
use runlog::{CheckpointReason, Every, RunEvent, RunFolder};
use std::time::Instant;

/// A checkpoint that is written as quickly as this, in milliseconds, is quick enough where memory is short.
const QUICK_MS: f64 = 100.0;
/// Work of at most so many milliseconds is done again after a park.
const AGAIN_MOST_MS: u64 = 30_000;

/// When and where the last checkpoint was written.
pub(super) struct Saved {
    pub(super) at_ms: u64,
    pub(super) step: Option<u64>,
    /// How long writing it took in this life, in milliseconds.
    pub(super) took_ms: Option<f64>,
}

impl<T: Task> Session<'_, T> {
    /// Drops the weights and moments: parked.
    pub(crate) fn unload(&mut self) -> Result<()> {
        self.learner.unload();
        self.feed.release();
        self.held_out.release();
        self.pilot.release()
    }

    /// Weights and moments from a checkpoint.
    pub(crate) fn load(&mut self, loaded: &Loaded) -> Result<()> {
        let learner = TrainState::new(self.plan, &self.chosen.device)?;
        self.learner = learner.with_memory_limit(self.piece_limit_bytes);
        checkpoint::load(loaded, &mut self.learner, Moments::Load)?;
        self.stand_on(loaded);
        Ok(())
    }

    /// The run is where this checkpoint is.
    pub(crate) fn stand_on(&mut self, loaded: &Loaded) {
        self.state = loaded.state.clone();
        self.saved.step = Some(self.state.step);
    }

    /// Writes the checkpoint that a park rests on, as long as writing is cheap. True where one was written: the newest may be of
    /// this step already, or a row of skipped steps may be under way, whose end is not known yet.
    pub(super) fn save_ahead(&mut self) -> Result<bool> {
        let step = Some(self.state.step);
        if self.saved.step == step || self.learner.is_skipping() || self.learner.is_unloaded() {
            return Ok(false);
        }
        self.save_if_possible(CheckpointReason::Pressure)?;
        Ok(self.saved.step == step)
    }

    /// Whether there is a checkpoint to park on: of this step, or, where writing is slow, so young that little is worked again.
    /// Else it is written now; where it cannot be written nothing may be dropped.
    pub(crate) fn may_park(&mut self) -> Result<bool> {
        let young = self.journal.now_ms() <= self.saved.at_ms + AGAIN_MOST_MS;
        let slow = self.saved.took_ms.is_none_or(|ms| ms > QUICK_MS);
        if self.saved.step.is_some() && young && slow {
            return Ok(true);
        }
        if self.saved.step != Some(self.state.step) {
            self.save_if_possible(CheckpointReason::Pressure)?;
        }
        Ok(self.saved.step == Some(self.state.step))
    }

    /// The run ends by an error: what the last whole step left is saved where it can be. An error in the middle of an
    /// update leaves nothing whole.
    pub(crate) fn save_what_is_whole(&mut self) {
        if self.whole && self.saved.step != Some(self.state.step) {
            // The error that ends the run is told; one more about the disk would hide it.
            let _ = self.save(CheckpointReason::Stop);
        }
    }

    pub(crate) fn checkpoint_is_due(&self) -> Option<CheckpointReason> {
        let (step, at_ms) = (self.state.step, self.journal.now_ms());
        // What a row of skipped steps ends in is not known yet: the checkpoint before it stays the newest.
        if self.saved.step == Some(step) || self.learner.is_skipping() {
            return None;
        }
        let due = match self.plan.checkpoint_every {
            Interval::Minutes(minutes) => at_ms >= self.saved.at_ms + minutes * 60_000,
            Interval::Epochs(epochs) => {
                step.is_multiple_of((epochs * self.plan.steps_per_epoch).max(1))
            }
            Interval::Steps(steps) => step.is_multiple_of(steps),
        };
        due.then_some(CheckpointReason::Periodic)
    }

    /// Writes a checkpoint; where that fails the training goes on and says so.
    pub(crate) fn save_if_possible(&mut self, why: CheckpointReason) -> Result<()> {
        match self.save(why) {
            Err(error @ TrainError::CheckpointWrite { .. }) => {
                self.journal.warn(error.code(), error.to_string())
            }
            other => other,
        }
    }

    /// A run that has diverged is told where its last good checkpoint lies.
    pub(crate) fn with_last_good(&self, mut error: TrainError) -> TrainError {
        if let TrainError::Diverged {
            checkpoint: last, ..
        } = &mut error
        {
            let newest = checkpoint::newest(&self.run).ok();
            *last = newest.map(|(loaded, _)| RunFolder::checkpoint_name(loaded.state.step));
        }
        error
    }

    /// Writes a checkpoint. Weights that are not finite are none: the last good one stays. Nor are weights that went when the run
    /// parked: it stands on the checkpoint that is there.
    pub(crate) fn save(&mut self, why: CheckpointReason) -> Result<()> {
        if self.learner.is_unloaded() {
            return Ok(());
        }
        if let Some(name) = self.learner.first_non_finite_weight()? {
            let step = self.state.step;
            let message = format!(
                "no checkpoint at step {step}: {name} holds values that are not finite; the last good one stands"
            );
            return self.journal.warn("weights_not_finite", message);
        }
        let begun = Instant::now();
        self.state.at_ms = self.journal.now_ms();
        self.state.pilot = self.pilot.knowledge();
        self.state.is_best = self
            .state
            .best
            .is_some_and(|(_, step)| step == self.state.step);
        let written = checkpoint::write(&self.run, &self.learner, &self.state)?;
        self.saved.at_ms = self.state.at_ms;
        self.saved.step = Some(self.state.step);
        let ms = begun.elapsed().as_secs_f64() * 1000.0;
        self.saved.took_ms = Some(ms);
        self.pilot.tell_checkpoint(ms);
        self.journal.say(RunEvent::Checkpoint {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            path: written.path,
            bytes: written.bytes,
            duration_ms: ms,
            reason: why,
        })?;
        match checkpoint::tidy(&self.run, self.state.best.map(|(_, step)| step)) {
            Err(error) => self.journal.warn("old_checkpoints", error.to_string()),
            Ok(()) => Ok(()),
        }
    }
}
