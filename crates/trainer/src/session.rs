//! Everything that one session of a run holds, and the steps that the training loop is made of. A
//! run has several sessions if it is stopped and resumed.

mod choose_owners;
mod enter_group;
mod first_event;
mod learning_check;
mod loaders;
mod power_monitor;
mod saving;
mod start_warnings;
mod step_timer;
mod synchronize;
mod training_device;

use crate::branch_weights::BranchWeights;
use crate::checkpoint::{self, Loaded, RunState};
use crate::data::{PrefetchOptions, PromptSet, TrainLoader};
use crate::error::{Result, TrainError, loss_of};
use crate::event_log::{DecisionRecord, EventLog, Observer};
use crate::gradient_accumulation::AccumulatedBatch;
use crate::live::{LiveMemory, RunClock};
use crate::memory_controller::{Answer, MemoryController, ModelMemory};
use crate::memory_reading::MemoryReading;
use crate::outer_step::OuterStep;
use crate::pending_samples::SampleQueue;
use crate::plan::Plan;
use crate::replay::Position;
use crate::run_context::RunContext;
use crate::run_control::Control;
use crate::run_group::{MachineLog, Owners, RunGroup, StepExchange};
use crate::saved_controller_state::SavedControllerState;
use crate::task::Task;
use crate::train_state::{TrainState, Update};
use choose_owners::choose_owners;
use enter_group::enter_group;
use first_event::{resumed_event, started_event};
use learning_check::LearningCheck;
use loaders::Loaders;
use power_monitor::PowerMonitor;
use pressure::{Action, Decision, Level, MemorySample, Moments, Phase, PowerPolicyMode};
use runlog::{CheckpointReason, Claim, RunEvent, RunFolder, StepProgress};
use saving::{Saving, Snapshot};
use start_warnings::Warning;
use std::sync::Arc;
use step_timer::StepTimer;
use tape::Parameters;
use tape::device::{confirm, with_autorelease_pool};
use tape::optim::{Health, health};
use training_device::TrainingDevice;

pub(crate) use saving::SaveResults;

/// One session of a run.
pub struct Session<'a, T: Task> {
    pub(crate) plan: &'a Plan,
    pub(crate) run: RunFolder,
    pub(crate) control: Control,
    /// The machines that train the run together.
    pub(crate) group: RunGroup,
    /// What the machines report to each other. Empty alone.
    pub(crate) machines: MachineLog,
    /// What the machines exchange in a step. Nothing alone.
    pub(crate) exchange: StepExchange,
    pub(crate) controller: MemoryController,
    pub(crate) learner: TrainState,
    pub(crate) loaders: Loaders<T>,
    pub(crate) state: RunState,
    pub(crate) log: EventLog<'a>,
    pub(crate) saving: Saving,
    pub(crate) timer: StepTimer,
    pub(crate) device: TrainingDevice,
    learning_check: LearningCheck,
    /// The footprint that was estimated before the start, in bytes; 0 if none was.
    pub(crate) estimated_peak_bytes: u64,
    /// Samples of the running step.
    step_samples: usize,
    /// Samples of the running evaluation.
    pub(crate) evaluated_samples: usize,
    /// Bytes of the held-out texts; 0 for other data.
    pub(crate) held_out_bytes: u64,
    /// What the model is asked after each evaluation, if anything.
    pub(crate) prompts: Option<Arc<PromptSet>>,
    /// Why a lack of memory or disk space ended the run.
    pub(crate) shortage: Option<String>,
    power: PowerMonitor,
    _claim: Claim,
}

/// What the memory controller has to know of the network.
fn model_memory(learner: &TrainState) -> ModelMemory {
    ModelMemory {
        element_bytes: learner.element_bytes(),
        reserve: learner.reserve(),
    }
}

impl<'a, T: Task> Session<'a, T> {
    /// Starts a run at step 0, from the weights of another run if there is one. Its first
    /// checkpoint then has these weights, so that it can be resumed without the other run.
    pub fn start(
        plan: &'a Plan,
        data: &T::Data,
        branch: Option<&BranchWeights>,
        run: &RunFolder,
        claim: Claim,
        context: RunContext,
        observer: Observer<'a>,
    ) -> Result<Self> {
        let state = RunState::default();
        let context = context.replaying_from(plan, state.step)?;
        let mut session = Session::new(plan, data, run, claim, context, observer, state)?;
        if let Some(branch) = branch {
            with_autorelease_pool(|| {
                checkpoint::load_weights(&branch.loaded, &mut session.learner)
            })?;
            // The loss of trained weights need not fall further.
            session.learning_check = LearningCheck::default();
        }
        session.enter_group()?;
        let branched_from = branch.map(|branch| branch.from.clone());
        let started = started_event(&session, branched_from.unwrap_or_default());
        session.log.emit_beginning(started)?;
        session.emit_group()?;
        // A group that loses a rank at once continues from here.
        if branch.is_some() || !session.group.is_alone() {
            session.save(CheckpointReason::Periodic)?;
        }
        session.warn_about_machine()?;
        session.warn_if(start_warnings::nothing_held_out(plan))?;
        session.warn_if(start_warnings::limited_micro_batch(plan))?;
        let truncated = T::truncation_warning(plan, data);
        session.warn_if(truncated.map(|message| ("texts_truncated", message)))?;
        Ok(session)
    }

    /// Resumes a run from its newest valid checkpoint.
    pub fn resume(
        plan: &'a Plan,
        data: &T::Data,
        run: &RunFolder,
        claim: Claim,
        context: RunContext,
        observer: Observer<'a>,
    ) -> Result<Self> {
        let (loaded, damaged) = checkpoint::newest(run)?;
        let state = loaded.state.clone();
        let context = context.replaying_from(plan, state.step)?;
        let mut session = Session::new(plan, data, run, claim, context, observer, state)?;
        session.load(&loaded)?;
        session.enter_group()?;
        for message in damaged {
            session.log.warn("checkpoint_damaged", message)?;
        }
        if let SavedControllerState::Unreadable(message) = loaded.state.controller {
            session.log.warn("controller_state_unusable", message)?;
        }
        let resumed = resumed_event(&session);
        session.log.emit_beginning(resumed)?;
        session.emit_group()?;
        session.warn_about_machine()?;
        Ok(session)
    }

    fn new(
        plan: &'a Plan,
        data: &T::Data,
        run: &RunFolder,
        claim: Claim,
        context: RunContext,
        observer: Observer<'a>,
        state: RunState,
    ) -> Result<Self> {
        let RunContext {
            control,
            machine,
            replay,
            live,
            group,
            ..
        } = context;
        let device = TrainingDevice::choose(plan, &machine, &control, &mut *observer, state.at_ms)?;
        let mut learner = device.initial_weights(plan)?;
        let owner_choice = choose_owners(plan, &group, &machine, &device.chosen, &learner)?;
        learner.begin_moments(owner_choice.owners().map(Owners::mine).as_deref())?;
        if !group.is_alone() {
            learner.outer = plan.sync_every().map(OuterStep::new);
        }
        let model = model_memory(&learner);
        let mut controller =
            MemoryController::new(plan, &device.chosen, &machine, &control, model, replay)?;
        controller.restore(&state.controller);
        let live = LiveMemory::new(RunClock::start(state.at_ms), live);
        controller.observe_samples(&live);
        let log = EventLog::open(run, observer, live)?;
        let ceiling_bytes = controller.ceiling_bytes();
        let ahead = PrefetchOptions::new(plan, plan.workers_on(device.chosen.kind), ceiling_bytes);
        Ok(Session {
            plan,
            saving: Saving::new(run, plan, &state, &group),
            group,
            machines: MachineLog::default(),
            exchange: StepExchange::new(owner_choice),
            power: PowerMonitor::new(plan, &machine, &control),
            run: run.clone(),
            control,
            controller,
            learner,
            loaders: Loaders::new(plan, data, ahead, state.step),
            learning_check: LearningCheck::for_plan(plan, state.step),
            state,
            log,
            timer: StepTimer::new(),
            device,
            step_samples: 0,
            evaluated_samples: 0,
            estimated_peak_bytes: context.estimated_peak_bytes,
            held_out_bytes: T::held_out_bytes(data),
            prompts: None,
            shortage: None,
            _claim: claim,
        })
    }

    /// Prepares to train in a group.
    ///
    /// # Errors
    /// The ranks differ in something. All ranks get the same error.
    fn enter_group(&mut self) -> Result<()> {
        if self.group.is_alone() {
            return Ok(());
        }
        // From now on, only claimed samples are loaded.
        self.loaders.train.select(0..0, 0..0);
        let control = self.control.clone();
        self.group.check_when(move || control.is_stopping());
        if !self.group.keeps_run() {
            self.log.keep_messages();
        }
        self.machines = enter_group(
            &self.group,
            self.plan,
            &self.device.chosen,
            &self.learner.parameters,
            self.exchange.owners(),
            self.controller.total_bytes(),
        )?;
        let in_bf16 = self.plan.exchanges_in_bf16();
        self.exchange.prepare(&self.learner.parameters, in_bf16);
        if let (Some(outer), Some(every)) = (&mut self.learner.outer, self.plan.sync_every()) {
            outer.begin(&self.learner.parameters)?;
            let values = self.learner.synchronized_values();
            self.exchange.synchronize_every(every, values);
        }
        self.connect_devices()?;
        // The first event names it.
        self.exchange.take_link_change();
        // For the first checkpoint, and for one after an evaluation that was interrupted.
        self.gather_moments(true)
    }

    /// Connects the devices of the ranks, if they can be connected. All ranks call it at the same
    /// time.
    ///
    /// # Errors
    /// The group is broken.
    pub(crate) fn connect_devices(&mut self) -> Result<()> {
        let device = &self.device.chosen.device;
        let has_weights = !self.learner.is_unloaded();
        self.exchange.connect(&self.group, device, has_weights)
    }

    /// Emits how the ranks exchange gradients, if this has changed.
    pub(crate) fn emit_link_change(&mut self) -> Result<()> {
        if self.exchange.take_link_change() {
            self.emit_group()?;
        }
        Ok(())
    }

    /// Emits which machines train the run, if it is not this one alone.
    fn emit_group(&mut self) -> Result<()> {
        let (at_ms, step) = (self.log.now_ms(), self.state.step);
        let event = self.machines.group_event(&self.exchange, at_ms, step);
        event.map_or(Ok(()), |event| self.log.emit(event))
    }

    /// Starts the next optimizer step and returns its number of samples.
    pub(crate) fn begin_step(&mut self) -> usize {
        // No gradients exist that an earlier failure could have damaged.
        self.saving.take_reported_fault();
        self.saving.forget_unsaved_best(&mut self.state);
        self.learner.begin_step(self.state.step);
        self.step_samples = self.loaders.train.begin(self.state.step);
        self.step_samples
    }

    /// Asks the memory controller what to do with `remaining` samples, after `done` micro-batches
    /// of this step, and emits its decision.
    pub(crate) fn next_micro_batch(
        &mut self,
        phase: Phase,
        remaining: usize,
        done: usize,
    ) -> Result<Answer> {
        self.observe_power()?;
        self.power.rest();
        let (saving, mut snapshot) = self.snapshot();
        saving.watch_disk(&mut snapshot)?;
        let position = Position {
            step: match phase {
                Phase::Train => self.state.step + 1,
                Phase::Evaluate => self.state.step,
            },
            micro_batch: done,
        };
        let mut answer = self.decide(phase, remaining, position)?;
        if answer.decision.checkpoint_first {
            let (saving, mut snapshot) = self.snapshot();
            if saving.save_ahead(&mut snapshot)? {
                // Writing the checkpoint took time: the decision is outdated.
                answer = self.decide(phase, remaining, position)?;
            }
        }
        if let Some(size) = answer.decision.micro_batch() {
            self.show_progress(phase, remaining, done, size);
        }
        Ok(answer)
    }

    /// Shows that a micro-batch of `size` of the `remaining` samples begins, after `done` of them.
    fn show_progress(&mut self, phase: Phase, remaining: usize, done: usize, size: usize) {
        let samples = match phase {
            Phase::Train => self.step_samples,
            Phase::Evaluate => self.evaluated_samples,
        };
        let samples_done = samples.saturating_sub(remaining);
        let done = match phase {
            Phase::Train => done,
            Phase::Evaluate => samples_done.div_ceil(size),
        };
        self.log.progress(StepProgress {
            phase,
            samples_done: samples_done as u32,
            samples: samples as u32,
            micro_batch: done as u32 + 1,
            micro_batches: (done + remaining.div_ceil(size)) as u32,
        });
    }

    /// Rests as `mode` tells from the next micro-batch on.
    pub(crate) fn set_courtesy(&mut self, mode: PowerPolicyMode) {
        self.power.set_mode(mode);
    }

    /// Tells a change of the power supply, and saves if the battery is low.
    pub(crate) fn observe_power(&mut self) -> Result<()> {
        let change = self.power.observe();
        if change.checkpoint && !self.learner.is_complete() {
            self.exchange.owe_checkpoint(CheckpointReason::Power);
        }
        let (saving, mut snapshot) = self.snapshot();
        saving.observe_power(&mut snapshot, change)
    }

    /// Passes the costs of the last `remaining` samples to the controller. The samples of one of
    /// several ranks are not the last ones of the step.
    pub(crate) fn set_sample_costs(&mut self, phase: Phase, remaining: usize) {
        let largest = self.loaders.sample_cost(phase, self.plan.sample_cost());
        let costs = if self.group.is_alone() {
            self.loaders.sample_costs(phase, remaining)
        } else {
            None
        };
        self.controller.set_sample_costs(largest, costs);
    }

    fn decide(&mut self, phase: Phase, remaining: usize, position: Position) -> Result<Answer> {
        let prefetched_bytes = self.loaders.prefetched_bytes();
        self.controller.set_prefetched_bytes(prefetched_bytes);
        self.set_sample_costs(phase, remaining);
        let answer = self
            .controller
            .next_micro_batch(remaining, phase, position)?;
        if let Some(message) = self.controller.take_notice() {
            self.log.warn("memory_source", message)?;
        }
        let decision = &answer.decision;
        if phase == Phase::Train {
            self.learner
                .set_checkpoint_blocks(decision.checkpoint_blocks);
        }
        self.loaders.set_prefetch(decision.prefetch);
        let prefetched_bytes = self.loaders.prefetched_bytes();
        self.controller.set_prefetched_bytes(prefetched_bytes);
        if decision.release_caches && self.controller.level() > Level::Normal {
            self.loaders.release();
        }
        if let Some(prediction) = self.controller.take_prediction() {
            self.log.prediction(&prediction, self.state.step)?;
        }
        self.emit_answer(phase, &answer)?;
        self.place_moments(answer.decision.moments)?;
        Ok(answer)
    }

    /// Moves the optimizer's moments between memory and disk. If the disk has no space for them
    /// they stay in memory, with one warning.
    fn place_moments(&mut self, place: Moments) -> Result<()> {
        let placed = self
            .device
            .place_moments(place, &mut self.learner, &self.run);
        match placed {
            Ok(false) => Ok(()),
            Ok(true) => self.controller.release(),
            Err(error) if place == Moments::Resident || self.device.must_reload => Err(error),
            Err(error) => {
                self.controller.keep_moments_resident();
                let message = format!("the optimizer's moments stay in memory: {error}");
                self.log.warn("moments_in_memory", message)
            }
        }
    }

    /// Fetches the samples of a micro-batch of `size`. Files that cannot be read are skipped with
    /// an event.
    pub(crate) fn fetch_samples(
        &mut self,
        pending: &mut SampleQueue<T::Sample>,
        size: usize,
    ) -> Result<()> {
        while pending.missing(size) > 0 {
            let arrived = self.loaders.train.fetch(pending.missing(size));
            self.log
                .skipped_samples(self.state.step, pending.deliver(arrived))?;
        }
        Ok(())
    }

    /// Measures the gradients of a whole effective batch. Reading the measurements waits until the
    /// device has accumulated the gradients.
    ///
    /// # Errors
    /// The device failed: the gradients are lost. On Metal the weights may be damaged too.
    pub(crate) fn confirm_gradients(&mut self, batch: &AccumulatedBatch) -> Result<Health> {
        if let Some(fault) = self.saving.take_reported_fault() {
            return Err(fault);
        }
        with_autorelease_pool(|| Ok(health(&batch.gradients)?))
    }

    /// Performs one optimizer step and emits it.
    ///
    /// # Errors
    /// The run has diverged. After a fault of the device the weights may be those of two steps.
    pub(crate) fn update(&mut self, mut batch: AccumulatedBatch, health: &Health) -> Result<()> {
        let step = self.state.step;
        self.saving.begin_update();
        let update = with_autorelease_pool(|| self.apply(&mut batch, health));
        let offending = batch
            .offending_sample()
            .and_then(|index| self.loaders.train.file(index));
        let update = update.map_err(|error| {
            let error = self.saving.with_last_checkpoint(error);
            error.with_file(offending)
        })?;
        self.saving.end_update();
        self.state.step += 1;
        self.device.faults.confirmed(self.state.step);
        self.state.loss = Some(batch.loss);
        let seconds = self.timer.seconds();
        let total_wait_ms = self.loaders.train.waited_ms();
        let at_ms = self.log.now_ms();
        let metrics = batch.metrics.of_step(update.skipped.as_ref());
        if let Some(mut skipped) = update.skipped {
            // They belong to gradients that no update has used, and may be very large.
            self.exchange.drop_rounding_errors();
            if let Some(file) = offending {
                skipped.item = loss_of(file);
            }
            self.log.skipped_step(self.state.step, skipped)?;
        }
        self.log.emit(RunEvent::Step {
            at_ms,
            step: self.state.step,
            epoch: step / self.plan.steps_per_epoch.max(1),
            loss: batch.loss,
            learning_rate: update.learning_rate,
            gradient_norm: update.gradient_norm,
            samples_per_second: f64::from(batch.samples()) / seconds.max(1e-9),
            wait_ms: self.timer.wait_ms(total_wait_ms),
            command_buffer_ms: self.controller.take_command_buffer_ms(),
            micro_batches: batch.micro_batches,
            checkpoint_blocks: if batch.checkpoint_blocks.iter().all(|blocks| *blocks == 0) {
                Vec::new()
            } else {
                batch.checkpoint_blocks
            },
            ledger: self.group.ledger(),
            metrics,
        })?;
        if let Some(message) = self.learning_check.observe(self.state.step, batch.loss) {
            self.log.warn("not_learning", message)?;
        }
        self.timer.next_step(total_wait_ms);
        if self.learner.outer.is_some() {
            // Until they synchronize, the machines differ.
            return Ok(());
        }
        self.group.record_update(
            &self.learner.parameters,
            self.state.step,
            update.gradient_norm,
        )
    }

    /// Updates the parameters and frees the gradients. Ranks that have the moments in parts update
    /// their own parameters and exchange them.
    fn apply(&mut self, batch: &mut AccumulatedBatch, health: &Health) -> Result<Update> {
        let (group, exchange) = (&self.group, &mut self.exchange);
        let mut spread_ms = 0.0;
        let mut spread = |parameters: &mut Parameters| -> Result<()> {
            spread_ms = match exchange.spread(group, parameters) {
                // Rank 0 has updated all parameters, so its step is complete. The next call of the
                // group fails in the same way.
                Err(error) if exchange.is_complete_at(group) && error.is_lost_rank() => 0.0,
                spread => spread?,
            };
            Ok(())
        };
        let step = self.state.step;
        let is_idle = self.learner.outer.is_some() && batch.gradients.is_empty();
        let update = if is_idle {
            self.learner.idle_update(step)
        } else {
            self.learner.apply(batch, health, step, &mut spread)?
        };
        batch.free_gradients();
        confirm(&self.device.chosen.device)?;
        self.machines.extend_exchange(spread_ms);
        Ok(update)
    }

    /// Whether one of the steps of the newest round was planned to be evaluated every `interval`
    /// steps, and all machines have the weights of this step. Machines that exchange gradients in
    /// each step have rounds of one step.
    pub(crate) fn reaches_multiple_of(&self, interval: u64) -> bool {
        let step = self.state.step;
        let Some(outer) = &self.learner.outer else {
            return step.is_multiple_of(interval);
        };
        let is_new = |step: &u64| *step > self.state.evaluated_step;
        let mut steps = outer.steps_until(step).filter(is_new);
        !outer.is_open() && steps.any(|step| step.is_multiple_of(interval))
    }

    /// Fetches samples from the current step on.
    pub(crate) fn restart_loader(&mut self) {
        self.loaders.train.restart(self.state.step);
    }

    /// Whether the plan asks for a checkpoint now.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let (now_ms, step) = (self.log.now_ms(), self.state.step);
        let is_due = |step| self.saving.is_due(self.plan, &self.learner, step, now_ms);
        match &self.learner.outer {
            None => is_due(step),
            Some(outer) if outer.is_open() || self.saving.is_saved(step) => false,
            Some(outer) => outer.steps_until(step).any(is_due),
        }
    }

    /// If the ranks have the moments in parts, gathers all of them at rank 0, which asks for it
    /// with `is_needed` because it will write a checkpoint. All ranks call it at the same step. If
    /// the disk has no space for the moments, they are not gathered, with a warning.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn gather_moments(&mut self, is_needed: bool) -> Result<()> {
        let TrainState {
            optimizer,
            parameters,
            ..
        } = &mut self.learner;
        let (group, folder) = (&self.group, &self.run.path);
        let gathered = with_autorelease_pool(|| {
            self.exchange
                .gather_moments(group, optimizer, parameters, is_needed, folder)
        })?;
        let Some(no_space) = gathered else {
            return Ok(());
        };
        let step = self.state.step;
        let message = format!("no checkpoint was saved at step {step}: {no_space}");
        self.log.warn("checkpoint_write", message)
    }

    /// Gathers the moments at rank 0 if it writes a checkpoint after this step, and writes the one
    /// that was asked for during the step.
    pub(crate) fn gather_moments_if_due(&mut self, is_evaluated: bool) -> Result<()> {
        let is_last = self.state.step >= self.plan.steps;
        let is_owed = self.exchange.owes_checkpoint();
        let is_due = self.checkpoint_is_due() || is_evaluated || is_owed || is_last;
        self.gather_moments(is_due && !self.learner.is_skipping())?;
        let owed = self
            .exchange
            .take_owed_checkpoint(self.learner.is_complete());
        owed.map_or(Ok(()), |reason| self.save_or_warn(reason))
    }

    /// Writes a checkpoint. In a group, rank 0 alone does.
    pub(crate) fn save(&mut self, reason: CheckpointReason) -> Result<()> {
        let (saving, mut snapshot) = self.snapshot();
        saving.save(&mut snapshot, reason)
    }

    /// Writes a checkpoint. If that fails the training continues with a warning.
    pub(crate) fn save_or_warn(&mut self, reason: CheckpointReason) -> Result<()> {
        if self.group.keeps_run() && !self.learner.is_complete() {
            self.exchange.owe_checkpoint(reason);
            return Ok(());
        }
        let (saving, mut snapshot) = self.snapshot();
        saving.save_or_warn(&mut snapshot, reason)
    }

    /// Saves the best evaluation so far: its results and a checkpoint. The checkpoint may wait in
    /// memory; [`Session::save_postponed_if_due`] then saves both later.
    pub(crate) fn save_best(&mut self, save_results: SaveResults) -> Result<()> {
        let (saving, mut snapshot) = self.snapshot();
        let Some(save_results) = saving.postpone_best(&mut snapshot, save_results)? else {
            return Ok(());
        };
        // Before the checkpoint: a run that ends between them repeats the evaluation.
        saving.save_results(snapshot.log, &save_results)?;
        self.save_or_warn(CheckpointReason::Best)
    }

    /// Saves the best checkpoint that waits in memory if that is affordable by now.
    pub(crate) fn save_postponed_if_due(&mut self) -> Result<()> {
        let (saving, mut snapshot) = self.snapshot();
        saving.save_postponed_if_due(&mut snapshot)
    }

    /// Saves the best checkpoint that waits in memory, to free that memory.
    pub(crate) fn save_postponed(&mut self) -> Result<()> {
        let (saving, mut snapshot) = self.snapshot();
        saving.save_postponed_or_warn(&mut snapshot)
    }

    /// Saves what `error` leaves of the run that it ends, and adds to it from where the run can be
    /// resumed. A checkpoint that could not be written is not tried again.
    pub(crate) fn save_after_error(&mut self, error: TrainError) -> TrainError {
        let reached_step = self.device.faults.reached();
        let (saving, mut snapshot) = self.snapshot();
        if !matches!(error, TrainError::CheckpointWrite { .. }) {
            saving.save_after_error(&mut snapshot);
        }
        saving.with_missing_checkpoint(error, reached_step)
    }

    /// What saves, and what it reads or informs.
    pub(crate) fn snapshot(&mut self) -> (&mut Saving, Snapshot<'_, 'a>) {
        let snapshot = Snapshot {
            learner: &self.learner,
            state: &mut self.state,
            controller: &mut self.controller,
            log: &mut self.log,
        };
        (&mut self.saving, snapshot)
    }

    /// Drops weights, moments and cached images.
    pub(crate) fn unload(&mut self) -> Result<()> {
        self.device.unload(&mut self.learner);
        self.loaders.release();
        self.controller.release()
    }

    /// Drops everything that a failed device holds.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn drop_state(&mut self) -> Result<()> {
        self.controller.discard();
        self.device.unload(&mut self.learner);
        self.loaders.release();
        self.controller.drain().map(|_| ())
    }

    /// Loads the newest checkpoint, or builds the initial state again if none was written yet.
    pub(crate) fn load_newest(&mut self) -> Result<()> {
        match checkpoint::newest(&self.run) {
            Ok((loaded, _)) => self.load(&loaded),
            Err(TrainError::NoCheckpoint { .. }) if !self.saving.has_checkpoint() => {
                self.device
                    .reset(self.plan, self.exchange.owners(), &mut self.learner)?;
                self.state = RunState::default();
                self.saving.end_update();
                self.saving.drop_postponed(&mut self.controller);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Loads weights, moments and position from a checkpoint.
    pub(crate) fn load(&mut self, loaded: &Loaded) -> Result<()> {
        self.device
            .load(self.plan, self.exchange.owners(), loaded, &mut self.learner)?;
        self.restore_position(loaded);
        Ok(())
    }

    /// Restores the position of a checkpoint without its weights.
    pub(crate) fn restore_position(&mut self, loaded: &Loaded) {
        self.state = loaded.state.clone();
        self.saving.loaded(&self.state, &mut self.controller);
    }

    /// The memory event for `sample`.
    pub(crate) fn memory_reading(
        &self,
        sample: MemorySample,
        budget_bytes: u64,
        micro_batch: u32,
    ) -> MemoryReading {
        MemoryReading {
            sample,
            pressure: self.controller.pressure(),
            level: self.controller.level(),
            state_bytes: (self.learner.state_bytes()).max(self.controller.standing_bytes()),
            budget_bytes,
            limit_bytes: self.controller.limit_bytes(&sample),
            micro_batch,
        }
    }

    /// Emits the memory reading of an answer about once a second, and its decision if it is a
    /// change.
    fn emit_answer(&mut self, phase: Phase, answer: &Answer) -> Result<()> {
        let decision = &answer.decision;
        // The micro-batches of an evaluation are not those of training.
        let micro_batch = match phase {
            Phase::Train => decision.micro_batch,
            Phase::Evaluate => self.controller.micro_batch(),
        };
        let reading = self.memory_reading(answer.sample, decision.budget_bytes, micro_batch);
        if !answer.changed {
            return self.log.memory_if_due(&reading);
        }
        self.log.memory(&reading)?;
        let micro_batch = answer.reported_micro_batch;
        let samples = match phase {
            Phase::Train => self.plan.effective_batch,
            Phase::Evaluate => self.evaluated_samples as u32,
        };
        self.log.decision(DecisionRecord {
            step: self.state.step,
            phase,
            previous_micro_batch: answer.previous_micro_batch,
            micro_batches: if decision.action == Action::Run {
                samples.div_ceil(micro_batch.max(1))
            } else {
                0
            },
            decision: Decision {
                micro_batch,
                ..decision.clone()
            },
        })
    }

    /// Emits that the run continues at the current step. Events of later steps become invalid.
    pub(crate) fn emit_resumed(&mut self) -> Result<()> {
        let resumed = resumed_event(self);
        self.log.emit(resumed)
    }

    fn warn_about_machine(&mut self) -> Result<()> {
        let chosen = &self.device.chosen;
        let shared_gpu = start_warnings::shared_gpu(chosen, &self.group);
        let slow_precision = start_warnings::slow_precision(self.plan, chosen)?;
        self.warn_if(shared_gpu)?;
        self.warn_if(slow_precision)?;
        self.warn_if(start_warnings::short_disk(&self.run, &self.learner))
    }

    fn warn_if(&mut self, warning: Option<Warning>) -> Result<()> {
        warning.map_or(Ok(()), |(code, message)| self.log.warn(code, message))
    }
}
