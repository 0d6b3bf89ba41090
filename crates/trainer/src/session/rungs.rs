//! Rungs beside the micro-batch, as far as they change what the run holds.

use super::Session;
use crate::error::Result;
use crate::task::Task;
use pressure::Moments;

impl<T: Task> Session<'_, T> {
    /// Moves the optimizer's moments where the pilot wants them. Where the disk refuses them the training goes on with them in
    /// memory, and says so once.
    pub(super) fn keep_moments(&mut self, place: Moments) -> Result<()> {
        let mapped = self.learner.optimizer.is_mapped();
        if self.learner.is_unloaded() || mapped == (place == Moments::Mapped) {
            return Ok(());
        }
        if let Err(error) = self.learner.move_moments(place, &self.run.path) {
            if place == Moments::Resident {
                return Err(error);
            }
            self.pilot.keep_moments_resident();
            let message = format!("the optimizer's moments stay in memory: {error}");
            return self.journal.warn("moments_stay", message);
        }
        self.pilot.release()
    }
}
