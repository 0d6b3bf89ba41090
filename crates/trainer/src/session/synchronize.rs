//! Synchronizes the machines of a group that exchange weights only every few steps.

use super::Session;
use crate::error::{Result, TrainError};
use crate::outer_step::OuterStep;
use crate::run_group::checksum;
use crate::skipped_steps::SkippedSteps;
use crate::task::Task;
use distributed::GroupError;
use std::time::Instant;
use tape::device::{confirm, with_autorelease_pool};

impl<T: Task> Session<'_, T> {
    /// Synchronizes the machines if the plan asks for it after this step, or if it is the last one.
    /// Does nothing if the machines exchange their gradients in each step.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn synchronize_if_due(&mut self) -> Result<()> {
        let step = self.state.step;
        let is_due = |outer: &OuterStep| outer.is_due(step) || step >= self.plan.steps;
        if self.learner.outer.as_ref().is_some_and(is_due) {
            self.synchronize()?;
        }
        Ok(())
    }

    /// Synchronizes the machines now, unless all have the same weights. All ranks call it after the
    /// same step.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        let Some(outer) = self.learner.outer.as_ref().filter(|outer| outer.is_open()) else {
            return Ok(());
        };
        let began = Instant::now();
        let samples = outer.samples();
        // Until all machines have made the outer step, no weights are those of the run.
        self.saving.begin_update();
        let weight = self.own_weight(samples)?;
        let group = &self.group;
        with_autorelease_pool(|| {
            let mut sum = |values| group.sum(values);
            self.learner.synchronize_machines(weight, &mut sum)
        })?;
        confirm(&self.device.chosen.device)?;
        self.share_skipped_steps()?;
        self.saving.end_update();
        self.group
            .set_last_update(checksum(&self.learner.parameters)?);
        let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
        self.machines.extend_exchange(milliseconds);
        Ok(())
    }

    /// This machine's part of the samples that all machines have processed since the newest
    /// synchronization.
    fn own_weight(&self, samples: u64) -> Result<f64> {
        let mine = samples.to_le_bytes().to_vec();
        let all = self.group.gather(mine)?.into_iter();
        let count = |bytes: Vec<u8>| bytes.try_into().map(u64::from_le_bytes);
        let all = all.map(count).collect::<std::result::Result<Vec<u64>, _>>();
        let all = all.map_err(|_| unreadable())?;
        Ok(samples as f64 / all.iter().sum::<u64>().max(1) as f64)
    }

    /// Takes over the counts of rank 0, which a checkpoint has: a machine may have skipped a step
    /// of its own.
    fn share_skipped_steps(&mut self) -> Result<()> {
        let mine = serde_json::to_vec(&self.learner.skipped()).map_err(|_| unreadable())?;
        let rank_0 = self.group.broadcast(mine)?;
        let skipped: SkippedSteps = serde_json::from_slice(&rank_0).map_err(|_| unreadable())?;
        self.learner.set_skipped(skipped);
        Ok(())
    }
}

fn unreadable() -> TrainError {
    GroupError::Disagreement("a message about the processed samples cannot be read".to_owned())
        .into()
}
