//! Everything that one session of a run holds, and the steps that the training loop is made of. A
//! run has several sessions if it is stopped and resumed.

mod checkpointer;
mod device_failures;
mod disk_watch;
mod learning_check;
mod loaders;
mod power_monitor;
mod save_schedule;
mod saving_cost;
mod started_event;
mod step_timer;

use crate::branch_weights::BranchWeights;
use crate::checkpoint::{self, Loaded, OptimizerState, RunState};
use crate::data::{EvalLoader, PrefetchOptions, TrainLoader};
use crate::device_check::{CheckObserver, checked_device_for};
use crate::error::{Result, TrainError, loss_of, samples};
use crate::event_log::{DecisionRecord, EventLog, Observer};
use crate::gradient_accumulation::AccumulatedBatch;
use crate::live::{LiveMemory, RunClock};
use crate::lr_schedule::LrSchedule;
use crate::machine_sources::Machine;
use crate::memory_controller::{Answer, MemoryController, ModelMemory};
use crate::memory_reading::MemoryReading;
use crate::optimizer::state_sizes;
use crate::pending_samples::SampleQueue;
use crate::plan::Plan;
use crate::replay::Position;
use crate::run_context::RunContext;
use crate::run_control::Control;
use crate::run_group::{
    Layout, MachineLog, Owners, RoundingErrors, RunGroup, Subject, agree, checksum, gather_members,
    share_checkpoint, spread_parameters,
};
use crate::saved_controller_state::SavedControllerState;
use crate::task::Task;
use crate::train_state::{TrainState, Update};
use candle_core::Device;
use checkpointer::{Checkpointer, Snapshot};
use dataset::Task as DataTask;
use device_failures::FaultCounts;
use learning_check::LearningCheck;
use loaders::Loaders;
use power_monitor::PowerMonitor;
use pressure::{Action, Decision, Level, MemorySample, Moments, Outcome, Phase, PowerPolicyMode};
use runlog::{
    CheckpointReason, Claim, FULL_SPEED, GroupMember, RESTS, RunEvent, RunFolder, StepProgress,
};
use started_event::started_event;
use std::ops::ControlFlow;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use step_timer::StepTimer;
use tape::Parameters;
use tape::device::{
    SelectedDevice, confirm, discard, select_device, synchronize, with_autorelease_pool,
};
use tape::optim::{Health, health};

/// The variable by which a scheduler assigns NVIDIA GPUs to a process.
const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// One session of a run.
pub struct Session<'a, T: Task> {
    pub(crate) plan: &'a Plan,
    pub(crate) run: RunFolder,
    pub(crate) control: Control,
    /// The machines that train the run together.
    pub(crate) group: RunGroup,
    /// What the machines report to each other. Empty alone.
    pub(crate) machines: MachineLog,
    pub(crate) controller: MemoryController,
    pub(crate) learner: TrainState,
    pub(crate) loaders: Loaders<T>,
    pub(crate) state: RunState,
    pub(crate) log: EventLog<'a>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) timer: StepTimer,
    pub(crate) faults: FaultCounts,
    learning_check: LearningCheck,
    /// The footprint that was estimated before the start, in bytes; 0 if none was.
    pub(crate) estimated_peak_bytes: u64,
    /// Samples of the running step.
    step_samples: usize,
    /// Whether weights or moments are missing or may be wrong, so that a checkpoint must be loaded.
    must_reload: bool,
    /// Bytes of the held-out texts; 0 for other data.
    pub(crate) held_out_bytes: u64,
    /// Why a lack of memory or disk space ended the run.
    pub(crate) shortage: Option<String>,
    micro_batch_limit_bytes: Option<u64>,
    chosen: SelectedDevice,
    power: PowerMonitor,
    _claim: Claim,
}

/// Number of threads that decode samples: enough to keep the device busy.
pub(crate) fn workers(plan: &Plan, kind: crate::DeviceKind) -> usize {
    plan.workers.map_or_else(
        || match kind {
            crate::DeviceKind::Metal => 4,
            crate::DeviceKind::Cuda => 2,
            _ => (plan.threads as usize).min(4),
        },
        |n| n as usize,
    )
}

/// What the memory controller has to know of the network.
fn model_memory(learner: &TrainState) -> ModelMemory {
    ModelMemory {
        element_bytes: learner.element_bytes(),
        reserve: learner.reserve(),
    }
}

/// Checks whether the loss falls, unless it is meant not to: a search for a learning rate raises
/// it, and the loss of a token compression depends on the temperature.
fn learning_check(plan: &Plan, done: u64) -> LearningCheck {
    let falls = plan.lr_schedule == LrSchedule::Cosine && plan.task() != DataTask::TokenCompression;
    LearningCheck::new(if falls { plan.steps } else { 0 }, done)
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
        session.warn_if_gpu_is_shared()?;
        session.warn_if_precision_is_slow()?;
        session.warn_if_disk_is_short()?;
        session.warn_if_nothing_is_held_out()?;
        session.warn_if_micro_batch_is_limited()?;
        if let Some(message) = T::truncation_warning(plan, data) {
            session.log.warn("texts_truncated", message)?;
        }
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
        let resumed = session.resumed_event();
        session.log.emit_beginning(resumed)?;
        session.emit_group()?;
        session.warn_if_gpu_is_shared()?;
        session.warn_if_precision_is_slow()?;
        session.warn_if_disk_is_short()?;
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
        let progress = CheckProgress {
            control: &control,
            observer: &mut *observer,
            at_ms: state.at_ms,
        };
        let chosen = choose_device(plan, &machine, progress)?;
        let limit_bytes = machine.micro_batch_limit_bytes;
        let (learner, owners) = initial_state(plan, &group, &chosen.device, limit_bytes)?;
        let model = model_memory(&learner);
        let mut controller =
            MemoryController::new(plan, &chosen, &machine, &control, model, replay)?;
        controller.restore(&state.controller);
        let live = LiveMemory::new(RunClock::start(state.at_ms), live);
        controller.observe_samples(&live);
        let log = EventLog::open(run, observer, live)?;
        let ceiling_bytes = controller.ceiling_bytes();
        let ahead = PrefetchOptions::new(plan, workers(plan, chosen.kind), ceiling_bytes);
        Ok(Session {
            plan,
            checkpointer: Checkpointer::new(run, plan, &state, group.is_alone()),
            group,
            machines: MachineLog::with_owners(owners),
            power: PowerMonitor::new(plan, &machine, &control),
            run: run.clone(),
            control,
            controller,
            learner,
            loaders: Loaders::new(plan, data, ahead, state.step),
            learning_check: learning_check(plan, state.step),
            state,
            log,
            timer: StepTimer::new(),
            faults: FaultCounts::default(),
            step_samples: 0,
            estimated_peak_bytes: context.estimated_peak_bytes,
            must_reload: false,
            held_out_bytes: T::held_out_bytes(data),
            shortage: None,
            micro_batch_limit_bytes: machine.micro_batch_limit_bytes,
            chosen,
            _claim: claim,
        })
    }

    /// Prepares to train in a group. Compares the weights and the kind of machine of all ranks,
    /// because different processors round differently.
    ///
    /// # Errors
    /// Something differs. All ranks get the same error.
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
        let parameters = &self.learner.parameters;
        let described = parameters.iter().map(|parameter| {
            let tensor = &parameter.tensor;
            format!(
                "{} {:?} {:?}",
                parameter.name,
                tensor.dims(),
                tensor.dtype()
            )
        });
        let (kind, gpu) = (self.chosen.kind, self.chosen.gpu_name());
        let machine = format!("{} {kind} {gpu}", std::env::consts::ARCH);
        let subject = |noun, lines| Subject { noun, lines };
        agree(
            &self.group,
            &[
                subject("kind of processor", vec![machine.trim().to_owned()]),
                subject("parameter", described.collect()),
                subject(
                    "checksum of the weights",
                    vec![checksum(parameters)?.to_string()],
                ),
            ],
        )?;
        let members = gather_members(
            &self.group,
            GroupMember {
                rank: self.group.rank() as u32,
                host: self.group.member(self.group.rank()).host,
                device: format!("{kind} {gpu}").trim().to_owned(),
                threads: self.plan.threads,
                total_bytes: self.controller.total_bytes(),
            },
        )?;
        let owners = self.machines.owners.take();
        self.machines = MachineLog::new(members);
        self.machines.owners = owners;
        self.machines.layout = Layout::new(&self.learner.parameters);
        let is_rounded = self.plan.exchanges_in_bf16();
        self.machines.rounding_errors = is_rounded.then(RoundingErrors::default);
        // For the first checkpoint, and for one after an evaluation that was interrupted.
        self.gather_moments(true)
    }

    /// Emits which machines train the run, if it is not this one alone.
    fn emit_group(&mut self) -> Result<()> {
        let event = self
            .machines
            .group_event(self.log.now_ms(), self.state.step);
        event.map_or(Ok(()), |event| self.log.emit(event))
    }

    /// Starts the next optimizer step and returns its number of samples.
    pub(crate) fn begin_step(&mut self) -> usize {
        // No gradients exist that an earlier failure could have damaged.
        self.checkpointer.take_reported_fault();
        self.checkpointer.forget_unsaved_best(&mut self.state);
        self.learner.begin_step(self.state.step);
        self.step_samples = self.loaders.train.begin(self.state.step);
        self.step_samples
    }

    /// Measures the peak of a fixed micro-batch before the first step. A fixed micro-batch is never
    /// made smaller, and on the CPU a failed allocation would end the process. One sample and then
    /// two are computed; their gradients are dropped.
    pub(crate) fn probe_memory(&mut self, pending: &mut SampleQueue<T::Sample>) -> Result<()> {
        let cost = self
            .loaders
            .sample_cost(Phase::Train, self.plan.sample_cost());
        self.controller.set_sample_cost(cost);
        for size in [1, 2] {
            if pending.remaining() < 2 || !self.controller.needs_probe() {
                return Ok(());
            }
            self.fetch_samples(pending, 2)?;
            let samples = pending.micro_batch(size);
            if samples.is_empty() {
                return Ok(());
            }
            self.controller.begin_probe()?;
            self.controller.begin(samples.len())?;
            let cancel = self.control.cancel();
            match with_autorelease_pool(|| self.learner.gradients(cancel, samples)) {
                Ok(_) => self.controller.record(Outcome::Ok),
                Err(error) if error.is_cancelled() => {
                    self.controller.discard();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether [`Session::probe_memory`] would measure something.
    pub(crate) fn needs_probe(&self) -> bool {
        self.controller.needs_probe()
    }

    /// Asks the memory controller what to do with `remaining` samples, after `done` micro-batches
    /// of this step, and emits its decision.
    pub(crate) fn next_micro_batch(
        &mut self,
        phase: Phase,
        remaining: usize,
        done: usize,
    ) -> Result<Answer> {
        self.apply_power_policy()?;
        self.watch_disk()?;
        let position = Position {
            step: match phase {
                Phase::Train => self.state.step + 1,
                Phase::Evaluate => self.state.step,
            },
            micro_batch: done,
        };
        let mut answer = self.decide(phase, remaining, position)?;
        if answer.decision.checkpoint_first && self.save_ahead()? {
            // Writing the checkpoint took time: the decision is outdated.
            answer = self.decide(phase, remaining, position)?;
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
            Phase::Evaluate => self.loaders.held_out.len(),
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

    /// Rests if the machine runs on its battery or is hot, and saves if the battery is low.
    fn apply_power_policy(&mut self) -> Result<()> {
        self.observe_power()?;
        self.power.rest();
        Ok(())
    }

    /// Rests as `mode` tells from the next micro-batch on.
    pub(crate) fn set_courtesy(&mut self, mode: PowerPolicyMode) {
        self.power.set_mode(mode);
    }

    /// Tells a change of the power supply, and saves if the battery is low.
    pub(crate) fn observe_power(&mut self) -> Result<()> {
        let change = self.power.observe();
        if let Some(message) = change.message {
            let code = if change.rests { RESTS } else { FULL_SPEED };
            self.log.warn(code, message)?;
        }
        if change.checkpoint && !self.checkpointer.is_saved(self.state.step) {
            self.log.warn(
                "battery_low",
                "the battery is low, so Ebb saves a checkpoint".to_owned(),
            )?;
            self.save_or_warn(CheckpointReason::Power)?;
        }
        Ok(())
    }

    /// Reads the free space of the run's disk. If it becomes short, saves a checkpoint while one
    /// fits, and warns.
    fn watch_disk(&mut self) -> Result<()> {
        let free = disk::available_bytes(&self.run.path).ok();
        self.controller.set_disk_free(free);
        let Some(free) = free.filter(|_| self.group.keeps_run()) else {
            return Ok(());
        };
        let (checkpointer, mut snapshot) = self.snapshot();
        checkpointer.watch_disk(&mut snapshot, free)
    }

    fn decide(&mut self, phase: Phase, remaining: usize, position: Position) -> Result<Answer> {
        let prefetched_bytes = self.loaders.prefetched_bytes();
        self.controller.set_prefetched_bytes(prefetched_bytes);
        let cost = self.loaders.sample_cost(phase, self.plan.sample_cost());
        self.controller.set_sample_cost(cost);
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
        let is_mapped = self.learner.optimizer.is_mapped();
        if self.learner.is_unloaded() || is_mapped == (place == Moments::Mapped) {
            return Ok(());
        }
        if let Err(error) = self.learner.move_moments(place, &self.run.path) {
            self.must_reload = error.device_fault().is_some();
            if place == Moments::Resident || self.must_reload {
                return Err(error);
            }
            self.controller.keep_moments_resident();
            let message = format!("the optimizer's moments stay in memory: {error}");
            return self.log.warn("moments_in_memory", message);
        }
        self.controller.release()
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

    /// Prepares the next try after a micro-batch has failed. Its samples are still in the queue.
    /// `has_sums` says whether gradients of this step were accumulated before.
    ///
    /// # Errors
    /// `error` itself if a smaller micro-batch would not help, and a fault of the device if the
    /// accumulated gradients may be incomplete, or the weights damaged. The device refuses even the
    /// smallest micro-batch.
    pub(crate) fn recover(&mut self, error: TrainError, has_sums: bool) -> Result<()> {
        let late = if error.device_fault().is_some() {
            if has_sums && error.is_deferred_fault() || self.may_have_damaged_weights(&error) {
                return Err(error);
            }
            self.controller.failed(error, &self.control)?
        } else if !error.is_cancelled() {
            return Err(error);
        } else if self.control.is_stopping() {
            self.controller.discard();
            None
        } else {
            self.controller.back_off(Outcome::Cancelled)?
        };
        let is_lost = |fault: &TrainError| has_sums || self.may_have_damaged_weights(fault);
        late.filter(is_lost).map_or(Ok(()), Err)
    }

    /// Whether the weights may be damaged after a failure, although it happened while they were
    /// only read. The device may have forgotten a page fault beside the failure that it reported. A
    /// group compares the weights of its machines instead.
    fn may_have_damaged_weights(&self, error: &TrainError) -> bool {
        self.group.is_alone() && self.controller.may_have_damaged_tensors(error)
    }

    /// Measures the gradients of a whole effective batch. Reading the measurements waits until the
    /// device has accumulated the gradients.
    ///
    /// # Errors
    /// The device failed: the gradients are lost. On Metal the weights may be damaged too.
    pub(crate) fn confirm_gradients(&mut self, batch: &AccumulatedBatch) -> Result<Health> {
        if let Some(fault) = self.checkpointer.take_reported_fault() {
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
        self.checkpointer.begin_update();
        let update = with_autorelease_pool(|| self.apply(&mut batch, health));
        let offending = batch
            .offending_sample()
            .and_then(|index| self.loaders.train.file(index));
        let update = update.map_err(|error| {
            let error = self.checkpointer.with_last_checkpoint(error);
            error.with_file(offending)
        })?;
        self.checkpointer.end_update();
        self.state.step += 1;
        self.faults.confirmed(self.state.step);
        self.state.loss = Some(batch.loss);
        let seconds = self.timer.seconds();
        let total_wait_ms = self.loaders.train.waited_ms();
        let at_ms = self.log.now_ms();
        let metrics = batch.metrics.of_step(update.skipped.as_ref());
        if let Some(mut skipped) = update.skipped {
            // They belong to gradients that no update has used, and may be very large.
            self.machines.drop_rounding_errors();
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
        self.record_update(update.gradient_norm)
    }

    /// Updates the parameters and frees the gradients. Ranks that have the moments in parts update
    /// their own parameters and exchange them.
    fn apply(&mut self, batch: &mut AccumulatedBatch, health: &Health) -> Result<Update> {
        let (group, owners) = (&self.group, &self.machines.owners);
        let mut spread_ms = 0.0;
        let mut spread = |parameters: &mut Parameters| -> Result<()> {
            let began = Instant::now();
            if let Some(owners) = owners {
                spread_parameters(group, owners, parameters)?;
                spread_ms = began.elapsed().as_secs_f64() * 1000.0;
            }
            Ok(())
        };
        let step = self.state.step;
        let update = self.learner.apply(batch, health, step, &mut spread)?;
        batch.free_gradients();
        confirm(&self.chosen.device)?;
        self.machines.extend_exchange(spread_ms);
        Ok(update)
    }

    /// Counts a step whose update only the other ranks of the group make, because this one has
    /// freed its weights.
    pub(crate) fn follow_step(&mut self) {
        self.state.step += 1;
        self.timer.restart();
    }

    /// Sends the weights and moments of this step to the ranks that have freed them and can load
    /// them again. All ranks of the group call it after the same step. If no checkpoint can be
    /// written now, nothing is sent, and the ranks ask again.
    pub(crate) fn restore_suspended_ranks(&mut self) -> Result<()> {
        if self.group.keeps_run() && !self.checkpointer.is_saved(self.state.step) {
            let _ = self.save_ahead()?;
        }
        let is_saved = self.checkpointer.is_saved(self.state.step);
        let Some(last_update) = self.group.broadcast_update(is_saved)? else {
            return Ok(());
        };
        let is_suspended = self.learner.is_unloaded();
        share_checkpoint(&self.group, &self.run, is_suspended)?;
        if is_suspended && !self.group.keeps_run() {
            let (loaded, _) = checkpoint::newest(&self.run)?;
            self.load(&loaded)?;
            // It was only a way to get here.
            let _ = disk::remove_dir_all(&loaded.path);
            self.group.record_update(last_update);
            self.restart_loader();
        }
        Ok(())
    }

    /// Records what the ranks of a group compare at the end of the next step.
    fn record_update(&self, gradient_norm: f64) -> Result<()> {
        if self.group.is_alone() {
            return Ok(());
        }
        let mut number = gradient_norm.to_bits();
        if self.state.step.is_multiple_of(self.group.compared_steps()) {
            number ^= checksum(&self.learner.parameters)?;
        }
        self.group.record_update(number);
        Ok(())
    }

    /// Prepares to repeat a step whose gradients are lost. Nothing else has changed.
    ///
    /// # Errors
    /// `error` itself if the step alone cannot be repeated: the device is lost or did not fail at
    /// all, or more than the gradients is lost. The device fails too often.
    pub(crate) fn redo_step(&mut self, error: TrainError) -> Result<()> {
        let is_damaging = self.may_have_damaged_weights(&error);
        if !error.is_passing_fault() || self.must_reload || is_damaging {
            return Err(error);
        }
        let step = self.state.step + 1;
        if let Some(times) = self.faults.count_repeat() {
            return Err(TrainError::DeviceFailed {
                what: format!("step {step}"),
                times,
                source: Box::new(error),
                next: "resume from the newest checkpoint, or train on --device cpu",
            });
        }
        let message = format!("step {step} is repeated: {error}");
        // The gradients are lost anyway, but the weights may be damaged.
        let late = self.controller.failed(error, &self.control)?;
        if let Some(late) = late.filter(|late| self.may_have_damaged_weights(late)) {
            return Err(late);
        }
        self.log.warn("step_repeated", message)?;
        self.restart_loader();
        Ok(())
    }

    /// Fetches samples from the current step on.
    pub(crate) fn restart_loader(&mut self) {
        self.loaders.train.restart(self.state.step);
    }

    /// Whether the plan asks for a checkpoint now.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let now_ms = self.log.now_ms();
        self.checkpointer
            .is_due(self.plan, &self.learner, self.state.step, now_ms)
    }

    /// If the ranks have the moments in parts, gathers all of them at rank 0, which asks for it
    /// with `is_needed` because it will write a checkpoint. All ranks call it at the same step. If
    /// the disk has no space for the moments, they are not gathered, with a warning.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn gather_moments(&mut self, is_needed: bool) -> Result<()> {
        if self.machines.owners.is_none() {
            return Ok(());
        }
        let mut space = None;
        if self.group.keeps_run() && is_needed && !self.learner.optimizer.is_complete() {
            let TrainState {
                optimizer,
                parameters,
                ..
            } = &self.learner;
            match optimizer.reserve(parameters, &self.run.path) {
                Ok(reserved) => space = Some(reserved),
                Err(error) => {
                    let step = self.state.step;
                    let message = format!("no checkpoint was saved at step {step}: {error}");
                    self.log.warn("checkpoint_write", message)?;
                }
            }
        }
        let begins = self.group.broadcast(vec![u8::from(space.is_some())])?;
        if begins != [1] {
            return Ok(());
        }
        let group = &self.group;
        let TrainState {
            optimizer,
            parameters,
            ..
        } = &mut self.learner;
        with_autorelease_pool(|| {
            optimizer.gather(parameters, space, &mut |values| group.sum(values))
        })
    }

    /// Gathers the moments at rank 0 if it writes a checkpoint after this step, and writes the one
    /// that was asked for during the step.
    pub(crate) fn gather_moments_if_due(&mut self, is_evaluated: bool) -> Result<()> {
        let is_owed = self.machines.owed_checkpoint.is_some();
        let is_last = self.state.step >= self.plan.steps;
        let is_due = self.checkpoint_is_due() || is_evaluated || is_owed || is_last;
        self.gather_moments(is_due && !self.learner.is_skipping())?;
        match self.machines.owed_checkpoint.take() {
            Some(reason) if self.learner.optimizer.is_complete() => self.save_or_warn(reason),
            owed => {
                self.machines.owed_checkpoint = owed;
                Ok(())
            }
        }
    }

    /// Writes a checkpoint. In a group, rank 0 alone does.
    pub(crate) fn save(&mut self, reason: CheckpointReason) -> Result<()> {
        if !self.group.keeps_run() {
            return Ok(());
        }
        let (checkpointer, mut snapshot) = self.snapshot();
        checkpointer.save(&mut snapshot, reason)
    }

    /// Writes a checkpoint. If that fails the training continues with a warning. After the last
    /// step there is none: the run then saves once more, and ends with the error.
    pub(crate) fn save_or_warn(&mut self, reason: CheckpointReason) -> Result<()> {
        if !self.group.keeps_run() {
            return Ok(());
        }
        if !self.learner.optimizer.is_complete() {
            if matches!(
                reason,
                CheckpointReason::Requested | CheckpointReason::Power
            ) {
                self.machines.owed_checkpoint = Some(reason);
            }
            return Ok(());
        }
        let is_last = self.state.step >= self.plan.steps && reason == CheckpointReason::Best;
        let (checkpointer, mut snapshot) = self.snapshot();
        if is_last {
            checkpointer.expect_another_save();
        }
        checkpointer.save_or_warn(&mut snapshot, reason)
    }

    fn save_ahead(&mut self) -> Result<bool> {
        if !self.group.keeps_run() {
            return Ok(false);
        }
        let (checkpointer, mut snapshot) = self.snapshot();
        checkpointer.save_ahead(&mut snapshot)
    }

    /// Makes sure that a suspended run can resume. Returns `false` if no checkpoint could be
    /// written.
    pub(crate) fn save_for_suspension(&mut self) -> Result<bool> {
        let (checkpointer, mut snapshot) = self.snapshot();
        checkpointer.save_for_suspension(&mut snapshot)
    }

    /// Waits for the device and returns a failure of earlier work that it reports.
    pub(crate) fn earlier_fault(&self) -> Option<TrainError> {
        let error = TrainError::from(synchronize(&self.chosen.device).err()?);
        error.device_fault().map(|_| error)
    }

    /// Saves the last complete step of a run that ends with an error, if possible.
    pub(crate) fn save_after_error(&mut self) {
        if !self.group.keeps_run() {
            return;
        }
        let (checkpointer, mut snapshot) = self.snapshot();
        checkpointer.save_after_error(&mut snapshot);
    }

    /// Names the newest checkpoint if the group ended the run. Says so if the run has done steps
    /// and no checkpoint of them exists.
    pub(crate) fn with_missing_checkpoint(&self, error: TrainError) -> TrainError {
        if !self.group.keeps_run() {
            return error;
        }
        let newest = checkpoint::newest(&self.run);
        if let (TrainError::Group { source, .. }, Ok((loaded, _))) = (&error, &newest) {
            return TrainError::Group {
                source: source.clone(),
                checkpoint: Some(RunFolder::checkpoint_name(loaded.state.step)),
            };
        }
        let lost_steps = self.faults.reached() > 0 && newest.is_err();
        if lost_steps && !error.names_checkpoint() {
            return TrainError::NothingSaved(Box::new(error.without_resume()));
        }
        error
    }

    fn snapshot(&mut self) -> (&mut Checkpointer, Snapshot<'_, 'a>) {
        let snapshot = Snapshot {
            learner: &self.learner,
            state: &mut self.state,
            controller: &mut self.controller,
            log: &mut self.log,
        };
        (&mut self.checkpointer, snapshot)
    }

    /// Drops weights, moments and cached images.
    pub(crate) fn unload(&mut self) -> Result<()> {
        self.must_reload = true;
        self.learner.unload();
        self.loaders.release();
        self.controller.release()
    }

    /// Drops everything that a failed device holds.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn drop_state(&mut self) -> Result<()> {
        self.must_reload = true;
        self.controller.discard();
        self.learner.unload();
        self.loaders.release();
        self.controller.drain().map(|_| ())
    }

    /// Replaces a lost device by a new one of the same kind. The state has been dropped. The lost
    /// device is dropped first, with its pools: a run that uses most of the memory has no space
    /// for those of two devices.
    pub(crate) fn replace_device(&mut self) -> Result<()> {
        let lost = std::mem::replace(&mut self.chosen.device, Device::Cpu);
        self.learner.forget_device();
        self.controller.replace_device(&Device::Cpu);
        discard(lost);
        let device = select_device(self.chosen.kind.into())?.device;
        self.controller.replace_device(&device);
        self.chosen.device = device;
        Ok(())
    }

    /// Loads the newest checkpoint, or builds the initial state again if none was written yet.
    pub(crate) fn load_newest(&mut self) -> Result<()> {
        match checkpoint::newest(&self.run) {
            Ok((loaded, _)) => self.load(&loaded),
            Err(TrainError::NoCheckpoint { .. }) if !self.checkpointer.has_checkpoint() => {
                self.learner = self.initial_state()?;
                self.state = RunState::default();
                self.checkpointer.end_update();
                self.must_reload = false;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn initial_state(&self) -> Result<TrainState> {
        let limit_bytes = self.micro_batch_limit_bytes;
        let state = initial_state(self.plan, &self.group, &self.chosen.device, limit_bytes);
        state.map(|(learner, _)| learner)
    }

    /// Loads weights, moments and position from a checkpoint.
    pub(crate) fn load(&mut self, loaded: &Loaded) -> Result<()> {
        self.learner = self.initial_state()?;
        with_autorelease_pool(|| {
            checkpoint::load(loaded, &mut self.learner, OptimizerState::Load)
        })?;
        self.must_reload = false;
        self.restore_position(loaded);
        Ok(())
    }

    /// Restores the position of a checkpoint without its weights.
    pub(crate) fn restore_position(&mut self, loaded: &Loaded) {
        self.state = loaded.state.clone();
        self.checkpointer.loaded(&self.state);
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
        self.log.decision(DecisionRecord {
            step: self.state.step,
            phase,
            previous_micro_batch: answer.previous_micro_batch,
            micro_batches: if decision.action == Action::Run {
                self.plan.effective_batch.div_ceil(micro_batch.max(1))
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
        let resumed = self.resumed_event();
        self.log.emit(resumed)
    }

    fn resumed_event(&self) -> RunEvent {
        RunEvent::Resumed {
            at_ms: self.log.now_ms(),
            unix_ms: unix_ms(),
            step: self.state.step,
            process: std::process::id(),
            device: self.chosen.kind.to_string(),
            device_reason: self.chosen.reason.clone(),
            steps: self.plan.steps,
            epochs: self.plan.epochs(),
        }
    }

    fn warn_if_micro_batch_is_limited(&mut self) -> Result<()> {
        let most = self.plan.effective_batch;
        match self.plan.fixed_micro_batch {
            Some(size) if size > most => {
                let message = format!(
                    "the micro-batch is {most} instead of {size}, because a step has {}",
                    samples(most)
                );
                self.log.warn("micro_batch_limited", message)
            }
            _ => Ok(()),
        }
    }

    fn warn_if_nothing_is_held_out(&mut self) -> Result<()> {
        if self.plan.held_out_samples > 0 {
            return Ok(());
        }
        let missing = if self.plan.classes.is_empty() {
            "the error of the model cannot be measured"
        } else {
            "no accuracy can be measured"
        };
        let message = format!(
            "nothing is held out, so {missing}; add more samples, or a folder of validation data"
        );
        self.log.warn("nothing_held_out", message)
    }

    fn warn_if_disk_is_short(&mut self) -> Result<()> {
        match checkpoint::disk_warning(&self.run, &self.learner) {
            Some(message) => self.log.warn("disk_short", message),
            None => Ok(()),
        }
    }

    /// Warns if the processes of this machine are more than its GPUs, and this one therefore uses
    /// the same GPU as another one. A scheduler that hides the GPUs of other processes shares them
    /// out by itself.
    fn warn_if_gpu_is_shared(&mut self) -> Result<()> {
        let gpus = self.chosen.gpu_count();
        let is_assigned = std::env::var_os(VISIBLE_GPUS).is_some();
        if gpus == 0 || is_assigned || self.group.number_here() < gpus {
            return Ok(());
        }
        let message = format!(
            "{} processes share the GPUs of this machine ({gpus}). Start one process per GPU.",
            self.group.ranks_here()
        );
        self.log.warn("shared_gpu", message)
    }

    fn warn_if_precision_is_slow(&mut self) -> Result<()> {
        let (precision, wanted) = (self.plan.precision, self.plan.device);
        match precision.device_warning(&self.chosen, wanted)? {
            Some(message) => self.log.warn("slow_precision", message),
            None => Ok(()),
        }
    }
}

/// The device of a run, which is checked first if it is a GPU.
fn choose_device(
    plan: &Plan,
    machine: &Machine,
    mut progress: CheckProgress,
) -> Result<SelectedDevice> {
    let saved = machine.device_check_path.as_deref();
    let chosen = checked_device_for(plan.device, plan.precision, saved, &mut progress)?;
    plan.precision.device_warning(&chosen, plan.device)?;
    Ok(chosen)
}

/// Reports a device check to the observer of a run, and ends it if the user stops the run.
struct CheckProgress<'c, 'o> {
    control: &'c Control,
    observer: &'c mut (dyn FnMut(&RunEvent) + Send + 'o),
    at_ms: u64,
}

impl CheckObserver for CheckProgress<'_, '_> {
    fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        (self.observer)(&RunEvent::DeviceCheck {
            at_ms: self.at_ms,
            done: done as u32,
            total: total as u32,
        });
        if self.control.is_stopping() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The state before the first step, and which rank has the moments of which parameter; `None` if
/// every rank has all.
fn initial_state(
    plan: &Plan,
    group: &RunGroup,
    device: &Device,
    limit_bytes: Option<u64>,
) -> Result<(TrainState, Option<Owners>)> {
    let learner = TrainState::new(plan, device)?;
    let mut learner = learner.with_memory_limit(limit_bytes);
    if group.is_alone() || !plan.shards_optimizer() {
        return Ok((learner, None));
    }
    let sizes = state_sizes(plan.optimizer, &learner.parameters);
    let owners = Owners::new(&sizes, group.size(), group.rank());
    learner.optimizer.keep_only(&owners.mine());
    Ok((learner, Some(owners)))
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as u64)
}
