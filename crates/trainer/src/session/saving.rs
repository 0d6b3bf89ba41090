//! Decides when a checkpoint is saved, writes it, and warns if that fails. A checkpoint is saved
//! because of the plan, the best evaluation so far, the user, memory pressure, a low battery, a
//! disk that becomes full, or the end of the run. The file format is in `checkpoint.rs`.

mod disk_watch;
mod postponed_best;
mod save_schedule;
mod saving_cost;

use crate::checkpoint::{self, Content, Retention, RunState, Written};
use crate::error::{Result, TrainError};
use crate::event_log::EventLog;
use crate::memory_controller::MemoryController;
use crate::plan::Plan;
use crate::run_group::RunGroup;
use crate::train_state::TrainState;
use disk_watch::DiskWatch;
use postponed_best::PostponedBest;
use pressure::{Level, PowerPolicyChange};
use runlog::{CheckpointReason, FULL_SPEED, RESTS, RunEvent, RunFolder};
use save_schedule::SaveSchedule;
use tape::device::with_autorelease_pool;

pub(crate) use postponed_best::SaveResults;

/// With an automatic interval, checkpoints are at least this far apart, in milliseconds: a small
/// model would otherwise be written all the time, which wears the disk.
const SHORTEST_INTERVAL_MS: u64 = 5 * 60_000;
/// The same in a group, which loses more often a machine.
const SHORTEST_GROUP_INTERVAL_MS: u64 = 2 * 60_000;

/// Attempts to read the weights from a device that fails.
const ATTEMPTS: u32 = 3;

/// The checkpoints of one session. In a group, rank 0 alone saves.
pub struct Saving {
    run: RunFolder,
    /// Whether this rank keeps the run folder. Another rank saves nothing.
    keeps_run: bool,
    /// Number of steps of the run.
    steps: u64,
    /// Which checkpoints stay.
    retention: Retention,
    /// Number of checkpoints that the run has saved.
    number: u64,
    /// Whether no other machine trains the run.
    is_alone: bool,
    /// When the next one is due.
    schedule: SaveSchedule,
    disk_watch: DiskWatch,
    /// Step of the newest checkpoint of this session.
    saved_step: Option<u64>,
    /// Score and step of the best evaluation that has a checkpoint.
    best: Option<(f64, u64)>,
    /// A later one that is even better, and whose checkpoint waits in memory.
    postponed: Option<PostponedBest>,
    /// Whether the user need not hear of the next failure to write, because the newest one has been
    /// reported and nothing was written since.
    is_reported: bool,
    /// Weights and moments may belong to different steps, because an optimizer step is in progress,
    /// or a failure of the device may have damaged them.
    weights_in_doubt: bool,
    /// A failure that the device reported while a checkpoint was written. The work that failed may
    /// be the gradients of the step in progress.
    reported: Option<TrainError>,
}

/// The parts of a session that a checkpoint reads or informs.
pub struct Snapshot<'s, 'a> {
    pub learner: &'s TrainState,
    pub state: &'s mut RunState,
    pub controller: &'s mut MemoryController,
    pub log: &'s mut EventLog<'a>,
}

/// A checkpoint that was written.
struct Save {
    written: Written,
    step: u64,
    number: u64,
    /// Training time of its state.
    at_ms: u64,
    duration_ms: f64,
    /// Score and step of the best evaluation at this time, and whether it is of this step.
    best: Option<(f64, u64)>,
    is_best: bool,
}

impl Saving {
    /// `state` is that of the newest checkpoint of earlier sessions.
    pub fn new(run: &RunFolder, plan: &Plan, state: &RunState, group: &RunGroup) -> Self {
        let is_alone = group.is_alone();
        let shortest_ms = if is_alone {
            SHORTEST_INTERVAL_MS
        } else {
            SHORTEST_GROUP_INTERVAL_MS
        };
        Saving {
            run: run.clone(),
            keeps_run: group.keeps_run(),
            steps: plan.steps,
            retention: Retention {
                newest: plan.keep_checkpoints,
                every: plan.keep_every,
            },
            number: state.number,
            is_alone,
            schedule: SaveSchedule::new(shortest_ms, state.at_ms),
            disk_watch: DiskWatch::default(),
            saved_step: None,
            best: state.best,
            postponed: None,
            is_reported: false,
            weights_in_doubt: false,
            reported: None,
        }
    }

    /// The failure that the device reported while checkpoints were written since the last call.
    pub fn take_reported_fault(&mut self) -> Option<TrainError> {
        self.reported.take()
    }

    /// Whether the newest checkpoint is of this step.
    pub fn is_saved(&self, step: u64) -> bool {
        self.saved_step == Some(step)
    }

    /// Whether this session has written or loaded a checkpoint.
    pub fn has_checkpoint(&self) -> bool {
        self.saved_step.is_some()
    }

    /// Whether a checkpoint waits in memory.
    pub fn has_postponed(&self) -> bool {
        self.postponed.is_some()
    }

    /// The session has loaded the checkpoint with this state. Evaluations after it are repeated.
    pub fn loaded(&mut self, state: &RunState, controller: &mut MemoryController) {
        if self
            .postponed
            .as_ref()
            .is_some_and(|best| best.step() > state.step)
        {
            self.drop_postponed(controller);
        }
        self.saved_step = Some(state.step);
        self.number = state.number;
        self.best = state.best;
        self.weights_in_doubt = false;
    }

    /// Drops the checkpoint that waits in memory.
    pub fn drop_postponed(&mut self, controller: &mut MemoryController) {
        self.postponed = None;
        controller.set_waiting_bytes(0);
    }

    /// Forgets the best evaluation if its checkpoint could not be written and does not wait in
    /// memory either: without one it cannot be used, and must not keep a later one from being the
    /// best.
    pub fn forget_unsaved_best(&self, state: &mut RunState) {
        let postponed = self.postponed.as_ref();
        state.best = postponed.map_or(self.best, PostponedBest::best);
    }

    /// An optimizer step begins.
    pub fn begin_update(&mut self) {
        self.weights_in_doubt = true;
    }

    /// An optimizer step is complete.
    pub fn end_update(&mut self) {
        self.weights_in_doubt = false;
    }

    /// Whether the plan asks for a checkpoint now. None is due during a row of skipped steps: it
    /// may end in a divergence, and then the checkpoint before it must be the newest.
    pub fn is_due(&self, plan: &Plan, learner: &TrainState, step: u64, now_ms: u64) -> bool {
        if self.is_saved(step) || learner.is_skipping() {
            return false;
        }
        let every = plan.checkpoint_every;
        self.schedule
            .is_due(every, plan.steps_per_epoch, step, now_ms)
    }

    /// Saves if the battery is low, and tells a change of the power supply.
    pub fn observe_power(&mut self, from: &mut Snapshot, change: PowerPolicyChange) -> Result<()> {
        if let Some(message) = change.message {
            let code = if change.rests { RESTS } else { FULL_SPEED };
            from.log.warn(code, message)?;
        }
        if change.checkpoint && !self.is_saved(from.state.step) {
            from.log.warn(
                "battery_low",
                "the battery is low, so Ebb saves a checkpoint".to_owned(),
            )?;
            self.save_or_warn(from, CheckpointReason::Power)?;
        }
        Ok(())
    }

    /// Copies the checkpoint of the best evaluation so far into memory if saving it now would take
    /// too much of the training time, and if the memory is free. It is saved later, after its
    /// results. Returns `save_results` if it has to be saved now. A copy of an earlier evaluation
    /// is dropped; if this one has to be saved now, not before that has succeeded.
    ///
    /// # Errors
    /// The device failed, and the weights may be damaged.
    pub fn postpone_best(
        &mut self,
        from: &mut Snapshot,
        save_results: SaveResults,
    ) -> Result<Option<SaveResults>> {
        // The new copy takes the place of the earlier one.
        from.controller.set_waiting_bytes(0);
        if !self.may_postpone(from) {
            let waiting = self.postponed.as_ref();
            let bytes = waiting.map_or(0, |best| best.content.bytes());
            from.controller.set_waiting_bytes(bytes);
            return Ok(Some(save_results));
        }
        self.drop_postponed(from.controller);
        self.prepare_state(from);
        let copy = || -> Result<Option<Content>> {
            match from.learner.first_non_finite_weight()? {
                Some(_) => Ok(None),
                None => Content::new(from.learner, from.state)?.copied(),
            }
        };
        let copied = with_autorelease_pool(copy);
        match copied {
            Ok(Some(content)) => {
                from.controller.set_waiting_bytes(content.bytes());
                self.postponed = Some(PostponedBest {
                    content,
                    save_results,
                });
                Ok(None)
            }
            Ok(None) => Ok(Some(save_results)),
            Err(error) if error.is_passing_fault() && !self.puts_in_doubt(from, &error) => {
                self.reported.get_or_insert(error);
                Ok(Some(save_results))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the best checkpoint can be saved later. The last step is saved anyway, a group loses
    /// machines more often, and moments are on the disk only while memory is short.
    fn may_postpone(&self, from: &Snapshot) -> bool {
        let learner = from.learner;
        self.is_alone
            && from.state.step < self.steps
            && !self.weights_in_doubt
            && !learner.optimizer.is_mapped()
            && self.schedule.is_best_too_costly(from.log.now_ms())
            && from.controller.has_room_for(learner.saved_bytes())
    }

    /// Saves the checkpoint that waits in memory if that is affordable by now, or if memory becomes
    /// short. If it cannot be written the training continues with a warning.
    pub fn save_postponed_if_due(&mut self, from: &mut Snapshot) -> Result<()> {
        let now_ms = from.log.now_ms();
        let is_short = from.controller.level() > Level::Normal && self.schedule.may_retry(now_ms);
        let is_due = self.schedule.may_save_best(now_ms) || is_short;
        if self.postponed.is_none() || !is_due || self.lacks_space(from)? {
            return Ok(());
        }
        self.save_postponed_or_warn(from)
    }

    /// Saves the checkpoint that waits in memory, if there is one. If it cannot be written the
    /// training continues with a warning.
    pub fn save_postponed_or_warn(&mut self, from: &mut Snapshot) -> Result<()> {
        let saved = self.save_postponed(from);
        self.report(from, saved, CheckpointReason::Best)
    }

    /// Saves the results and the checkpoint of the best evaluation if it waits in memory. If the
    /// checkpoint cannot be written, it goes on waiting.
    fn save_postponed(&mut self, from: &mut Snapshot) -> Result<()> {
        if let Some(best) = &self.postponed {
            self.save_results(from.log, &best.save_results)?;
        }
        let Some(mut best) = self.postponed.take() else {
            return Ok(());
        };
        best.content.set_number(self.number + 1);
        let content = &best.content;
        let save = self.write(from.log, content.state(), |run| {
            checkpoint::write_content(run, content)
        });
        match save {
            Ok(save) => {
                from.controller.set_waiting_bytes(0);
                self.record(from, save, CheckpointReason::Best)
            }
            Err(error) => {
                self.postponed = Some(best);
                Err(error)
            }
        }
    }

    /// Saves the results of an evaluation. Without them the training continues with a warning.
    pub fn save_results(&self, log: &mut EventLog, save_results: &SaveResults) -> Result<()> {
        match save_results(&self.run) {
            Ok(()) => Ok(()),
            Err(error) => log.warn("report_not_saved", error.to_string()),
        }
    }

    /// Writes a checkpoint and removes old ones, after the best one if that waits in memory. One
    /// that is better replaces it; if that cannot be written and the run ends, the one that waits
    /// is written. Does nothing while the run is suspended. Weights that are not finite are not
    /// saved; a warning says so.
    ///
    /// # Errors
    /// It cannot be written, or the device fails in several attempts to read the weights. A failure
    /// after which the weights may be damaged is returned at once.
    pub fn save(&mut self, from: &mut Snapshot, reason: CheckpointReason) -> Result<()> {
        if !self.keeps_run {
            return Ok(());
        }
        let step = from.state.step;
        let is_this_step = self.postponed.as_ref().is_some_and(|it| it.step() == step);
        let is_best = from.state.best.is_some_and(|(_, best)| best == step);
        if is_best && !is_this_step {
            let saved = self.save_current(from, reason);
            if reason == CheckpointReason::Stop && !self.is_saved(step) {
                self.save_postponed_or_warn(from)?;
            }
            return saved;
        }
        let postponed = self.save_postponed(from);
        if is_this_step && postponed.is_ok() {
            return Ok(());
        }
        let best = from.state.best;
        if postponed.is_err() && !is_this_step {
            // The checkpoint that is written now must not name one that does not exist.
            from.state.best = self.best;
        }
        let saved = self.save_current(from, reason);
        from.state.best = best;
        saved.and(postponed)
    }

    fn save_current(&mut self, from: &mut Snapshot, reason: CheckpointReason) -> Result<()> {
        let mut attempts_left = ATTEMPTS;
        loop {
            attempts_left -= 1;
            let error = match with_autorelease_pool(|| self.try_save(from, reason)) {
                Err(error) if error.is_passing_fault() => error,
                outcome => return outcome,
            };
            if self.puts_in_doubt(from, &error) || attempts_left == 0 {
                return Err(error);
            }
            if let Some(late) = from.controller.drain()?
                && self.puts_in_doubt(from, &late)
            {
                return Err(late);
            }
            self.reported.get_or_insert(error);
        }
    }

    /// Whether the weights may be damaged after this failure; they are then not saved.
    fn puts_in_doubt(&mut self, from: &Snapshot, error: &TrainError) -> bool {
        let is_in_doubt = self.is_alone && from.controller.may_have_damaged_tensors(error);
        self.weights_in_doubt |= is_in_doubt;
        is_in_doubt
    }

    fn try_save(&mut self, from: &mut Snapshot, reason: CheckpointReason) -> Result<()> {
        let learner = from.learner;
        // Moments that other machines have are gathered before a checkpoint that is due, and
        // machines that have weights of their own synchronize before.
        if learner.is_unloaded() || !learner.is_complete() {
            return Ok(());
        }
        if let Some(name) = learner.first_non_finite_weight()? {
            let message = format!(
                "no checkpoint was saved at step {}: {name} has NaN or infinite values; the last valid checkpoint remains",
                from.state.step
            );
            return from.log.warn("weights_not_finite", message);
        }
        self.prepare_state(from);
        let state = &*from.state;
        let save = self.write(from.log, state, |run| {
            checkpoint::write(run, learner, state)
        })?;
        self.record(from, save, reason)
    }

    /// Completes the state for a checkpoint of the current step.
    fn prepare_state(&self, from: &mut Snapshot) {
        let state = &mut *from.state;
        state.at_ms = from.log.now_ms();
        state.controller = from.controller.saved_state();
        state.is_best = state.best.is_some_and(|(_, step)| step == state.step);
        // A checkpoint that is written again keeps its number.
        state.number = if self.is_saved(state.step) {
            self.number.max(1)
        } else {
            self.number + 1
        };
    }

    /// Writes a checkpoint of `state`, and measures how long that takes.
    fn write(
        &mut self,
        log: &EventLog,
        state: &RunState,
        write: impl FnOnce(&RunFolder) -> Result<Written>,
    ) -> Result<Save> {
        let started = disk::now();
        let written = write(&self.run);
        let duration_ms = (disk::now() - started).as_secs_f64() * 1000.0;
        let written = written.inspect_err(|error| {
            // A failure of the GPU says nothing about the disk.
            if matches!(error, TrainError::CheckpointWrite { .. }) {
                self.schedule.failed(log.now_ms(), duration_ms);
            }
        })?;
        Ok(Save {
            written,
            step: state.step,
            number: state.number,
            at_ms: state.at_ms,
            duration_ms,
            best: state.best,
            is_best: state.is_best,
        })
    }

    /// Records and emits a checkpoint that was written, and removes old ones.
    fn record(&mut self, from: &mut Snapshot, save: Save, reason: CheckpointReason) -> Result<()> {
        let now_ms = from.log.now_ms();
        self.schedule.saved(save.at_ms, now_ms, save.duration_ms);
        self.saved_step = self.saved_step.max(Some(save.step));
        self.number = save.number;
        if save.is_best {
            self.best = save.best;
            self.drop_postponed(from.controller);
        }
        self.is_reported = false;
        from.controller.checkpoint_written(save.duration_ms);
        from.log.emit(RunEvent::Checkpoint {
            at_ms: now_ms,
            step: save.step,
            path: save.written.path,
            bytes: save.written.bytes,
            duration_ms: save.duration_ms,
            reason,
        })?;
        let best_step = save.best.map(|(_, step)| step);
        match checkpoint::remove_old(&self.run, save.step, best_step, self.retention) {
            Err(error) => from.log.warn("old_checkpoints", error.to_string()),
            Ok(()) => Ok(()),
        }
    }

    /// Writes a checkpoint. If that fails the training continues with a warning: one for a row of
    /// failures, unless the user asked for the checkpoint. One that can wait is not tried if the
    /// disk has no space for two, or, after an evaluation, if the disk fails again and again. After
    /// the last step there is no warning: the run then saves once more, and ends with the error.
    pub fn save_or_warn(&mut self, from: &mut Snapshot, reason: CheckpointReason) -> Result<()> {
        if !self.keeps_run {
            return Ok(());
        }
        self.is_reported |= reason == CheckpointReason::Best && from.state.step >= self.steps;
        let can_wait = matches!(reason, CheckpointReason::Periodic | CheckpointReason::Best);
        if reason == CheckpointReason::Best && self.schedule.is_failing(from.log.now_ms()) {
            // The failures were reported.
            return Ok(());
        }
        if can_wait && self.lacks_space(from)? {
            return Ok(());
        }
        self.save_or_report(from, reason)
    }

    /// Whether the disk has no space for two checkpoints. Emits a warning unless the problem before
    /// was reported.
    fn lacks_space(&mut self, from: &mut Snapshot) -> Result<bool> {
        let Some(problem) = checkpoint::space_problem(&self.run, from.learner) else {
            return Ok(false);
        };
        if !std::mem::replace(&mut self.is_reported, true) {
            let step = from.state.step;
            let message =
                format!("training continues without a checkpoint at step {step}: {problem}");
            from.log.warn("disk_short", message)?;
        }
        Ok(true)
    }

    /// Writes a checkpoint. If that fails, emits a warning unless the failure before was reported.
    fn save_or_report(&mut self, from: &mut Snapshot, reason: CheckpointReason) -> Result<()> {
        let saved = self.save(from, reason);
        self.report(from, saved, reason)
    }

    /// Emits a warning if a checkpoint could not be written, unless the failure before was
    /// reported.
    fn report(
        &mut self,
        from: &mut Snapshot,
        saved: Result<()>,
        reason: CheckpointReason,
    ) -> Result<()> {
        match saved {
            Err(error @ TrainError::CheckpointWrite { .. }) => {
                let is_reported = std::mem::replace(&mut self.is_reported, true);
                if is_reported && reason != CheckpointReason::Requested {
                    return Ok(());
                }
                from.log.warn(error.code(), error.to_string())
            }
            Err(error) if error.is_passing_fault() && !self.weights_in_doubt => {
                let message = format!("no checkpoint was saved: {error}");
                self.reported.get_or_insert(error);
                from.log.warn("checkpoint_write", message)
            }
            other => other,
        }
    }

    /// Reads the free space of the run's disk. If it becomes short, writes a checkpoint while one
    /// fits, and warns that the next ones may not. The training continues.
    pub fn watch_disk(&mut self, from: &mut Snapshot) -> Result<()> {
        let free = disk::available_bytes(&self.run.path).ok();
        from.controller.set_disk_free(free);
        let Some(free) = free.filter(|_| self.keeps_run) else {
            return Ok(());
        };
        if !self.disk_watch.becomes_short(free, from.log.now_ms()) {
            return Ok(());
        }
        let (step, learner) = (from.state.step, from.learner);
        let fits = free >= learner.saved_bytes();
        if fits && !self.is_saved(step) && !learner.is_skipping() && !learner.is_unloaded() {
            self.save_or_report(from, CheckpointReason::Periodic)?;
        }
        if std::mem::replace(&mut self.is_reported, true) {
            return Ok(());
        }
        let saved = match self.saved_step {
            Some(step) => format!("the newest checkpoint is from step {step}"),
            None => "no checkpoint has been saved since the training started or resumed".to_owned(),
        };
        let free = runlog::format_bytes(free);
        let message = format!(
            "only {free} of disk space is left; {saved}, and training continues without new checkpoints once the disk is full; free up some space"
        );
        from.log.warn("disk_short", message)
    }

    /// Writes the checkpoint that a suspension may soon need. Returns whether one was written: the
    /// newest may be of this step already, and during a row of skipped steps none is written.
    pub fn save_ahead(&mut self, from: &mut Snapshot) -> Result<bool> {
        if !self.keeps_run {
            return Ok(false);
        }
        let step = from.state.step;
        if self.is_saved(step) || from.learner.is_skipping() || from.learner.is_unloaded() {
            return Ok(false);
        }
        if !self.schedule.may_retry(from.log.now_ms()) {
            return Ok(false);
        }
        self.save_or_warn(from, CheckpointReason::Pressure)?;
        Ok(self.is_saved(step))
    }

    /// Makes sure that a checkpoint exists from which a suspended run can resume. Returns `false`
    /// if none could be written. One of an earlier step is enough: if there is time to write a
    /// newer one, the decision to suspend asks for it, and [`Saving::save_ahead`] writes it.
    pub fn save_for_suspension(&mut self, from: &mut Snapshot) -> Result<bool> {
        if !self.has_checkpoint() {
            self.save_or_warn(from, CheckpointReason::Pressure)?;
        }
        Ok(self.has_checkpoint())
    }

    /// Saves the last complete step of a run that ends with an error, if possible, and the best one
    /// if it waits in memory.
    pub fn save_after_error(&mut self, from: &mut Snapshot) {
        let step = from.state.step;
        let saved = if self.keeps_run && !self.weights_in_doubt && !self.is_saved(step) {
            self.save(from, CheckpointReason::Stop)
        } else {
            self.save_postponed(from)
        };
        // A second error here would hide the one that ended the run, so it is a warning.
        if let Err(error) = saved {
            let message = format!("no checkpoint was saved at step {step}: {error}");
            let _ = from.log.warn(error.code(), message);
        }
    }

    /// Names the newest checkpoint if the group ended the run. Says so if the session has done
    /// steps, up to `reached_step`, and no checkpoint of them exists.
    pub fn with_missing_checkpoint(&self, error: TrainError, reached_step: u64) -> TrainError {
        if !self.keeps_run {
            return error;
        }
        let newest = checkpoint::newest(&self.run);
        if let (TrainError::Group { source, .. }, Ok((loaded, _))) = (&error, &newest) {
            return TrainError::Group {
                source: source.clone(),
                checkpoint: Some(RunFolder::checkpoint_name(loaded.state.step)),
            };
        }
        let lost_steps = reached_step > 0 && newest.is_err();
        if lost_steps && !error.names_checkpoint() {
            return TrainError::NothingSaved(Box::new(error.without_resume()));
        }
        error
    }

    /// Adds the newest valid checkpoint to the error of a diverged run. One that waits in memory is
    /// written before the run ends.
    pub fn with_last_checkpoint(&self, mut error: TrainError) -> TrainError {
        if let TrainError::Diverged {
            checkpoint: last, ..
        } = &mut error
        {
            let newest = checkpoint::newest(&self.run).ok();
            let newest = newest.map(|(loaded, _)| loaded.state.step);
            let postponed = self.postponed.as_ref().map(PostponedBest::step);
            *last = newest.max(postponed).map(RunFolder::checkpoint_name);
        }
        error
    }
}
