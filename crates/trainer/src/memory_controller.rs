//! Decides the size of every micro-batch of a run. Joins the memory monitor, the memory model and
//! the rules of the `pressure` crate, and measures every micro-batch so that the model learns.

mod admission;
mod event_threshold;
mod running_micro_batch;
mod prediction_error;
mod memory_policy;
mod memory_usage;
mod micro_batch_cost;

use crate::error::{Result, TrainError};
use crate::keep_awake::{self, Activity};
use crate::live::LiveMemory;
use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::replay::{Position, Replay};
use crate::run_control::Control;
use crate::saved_controller_state::{Environment, SavedControllerState, StateFile};
use crate::shared_device::SharedDevice;
use crate::threads::stack_bytes;
use admission::{Admission, Refusal, Situation};
use candle_core::Device;
use event_threshold::{Changes, reported_micro_batch};
use memory_policy::policy;
use memory_usage::Usage;
use micro_batch_cost::Workload;
use pressure::{
    Action, Allocator, Change, ControllerState, Decision, DecisionInput, Level, MemoryModel,
    MemorySample, MicroBatchKind, MicroBatchRecord, Moments, Monitor, Outcome, PersistedState,
    Phase, Policy, Reading, RecoveryReserve, budget_bytes, decide, observe, observe_delay,
    observe_separate_device, record_sample,
};
use runlog::MemoryLimits;
use running_micro_batch::{Measurement, RunningMicroBatch};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::device::{CommandBuffers, KernelTime, SelectedDevice};
use tape::{Cancel, DeviceFault};

pub(crate) use memory_policy::MemoryAllowance;
pub use prediction_error::Prediction;

/// How long a paused training waits before it asks for a decision again.
const PAUSE: Duration = Duration::from_millis(100);

/// Decides and measures the micro-batches of one run.
pub struct MemoryController {
    policy: Policy,
    state: ControllerState,
    model: MemoryModel,
    /// Peaks in the memory of a GPU that has its own.
    separate_model: MemoryModel,
    monitor: Monitor,
    workload: Workload,
    usage: Usage,
    admission: Admission,
    changes: Changes,
    replay: Option<Replay>,
    environment: Environment,
    /// Takes the exact peaks of micro-batches.
    live: Option<LiveMemory>,
    /// Cancels the running micro-batch.
    cancel: Cancel,
    /// Whether memory samples come from a script that advances per decision.
    is_stepped: bool,
    /// Time between the two newest memory samples.
    sample_interval_ms: f64,
    /// Kind and memory sample of the micro-batch that was decided but has not started.
    decided: Option<(MicroBatchKind, MemorySample)>,
    running: Option<RunningMicroBatch>,
    /// The newest micro-batch that the device confirmed.
    confirmed: Option<MicroBatchRecord>,
    prediction: Option<Prediction>,
    /// Command buffers of the training micro-batches since they were taken last.
    command_buffers: CommandBuffers,
    /// Highest footprint of a micro-batch since it was taken last, in bytes.
    peak_bytes: u64,
}

/// What the controller needs to know about the model that trains.
#[derive(Debug, Clone, Copy)]
pub struct ModelMemory {
    /// Bytes of one activation element.
    pub element_bytes: u32,
    /// What the run can free beside samples.
    pub reserve: RecoveryReserve,
}

/// A decision and the memory sample it is based on.
pub struct Answer {
    pub decision: Decision,
    pub sample: MemorySample,
    /// The steady micro-batch of training before.
    pub previous_micro_batch: u32,
    /// The micro-batch that the event of the decision reports.
    pub reported_micro_batch: u32,
    /// Whether the decision is worth an event.
    pub changed: bool,
}

impl MemoryController {
    /// Starts the memory monitor of a run.
    pub fn new(
        plan: &Plan,
        chosen: &SelectedDevice,
        machine: &Machine,
        control: &Control,
        model: ModelMemory,
        replay: Option<Replay>,
    ) -> Result<Self> {
        let budget = plan.config.command_buffer_ms.map(Duration::from_millis);
        tape::device::set_command_buffer_budget(budget);
        let device = SharedDevice::new(&chosen.device);
        let source = machine.source(&device, stack_bytes(plan.threads))?;
        let is_stepped = source.is_stepped();
        let allocator = if chosen.kind == crate::DeviceKind::Metal {
            Allocator::PowerOfTwo
        } else {
            Allocator::Exact
        };
        Ok(MemoryController {
            policy: policy(plan),
            state: ControllerState::default().with_reserve(model.reserve),
            model: MemoryModel::new(allocator),
            separate_model: MemoryModel::new(Allocator::Exact),
            monitor: Monitor::start(source, control.cancel()),
            workload: Workload::new(plan, model.element_bytes),
            usage: Usage::new(plan, device, machine.purge, model),
            admission: Admission::new(chosen.device.is_cpu() && machine.script.is_none()),
            changes: Changes::default(),
            replay,
            environment: Environment::new(plan, chosen),
            live: None,
            cancel: control.cancel(),
            is_stepped,
            sample_interval_ms: 0.0,
            decided: None,
            running: None,
            confirmed: None,
            prediction: None,
            command_buffers: CommandBuffers::NONE,
            peak_bytes: 0,
        })
    }

    /// Passes every memory sample and the peak of every micro-batch on.
    pub(crate) fn observe_samples(&mut self, live: &LiveMemory) {
        let samples = live.clone();
        self.monitor
            .set_observer(move |sample| samples.sample(sample));
        self.live = Some(live.clone());
    }

    /// Restores the learned state of a checkpoint if it is valid in this environment.
    pub fn restore(&mut self, saved: &SavedControllerState) {
        let SavedControllerState::Present(file) = saved else {
            return;
        };
        if let Some(learned) = file.learned_in(&self.environment) {
            let (state, model) = learned.clone().restore();
            (self.state, self.model) = (state.with_reserve(self.usage.reserve()), model);
        }
    }

    /// The learned state for a checkpoint.
    pub fn saved_state(&self) -> SavedControllerState {
        let learned = PersistedState::new(&self.state, &self.model);
        SavedControllerState::Present(Box::new(StateFile::new(&self.environment, learned)))
    }

    /// The memory source, for the user.
    pub fn describe(&self) -> String {
        self.monitor.describe()
    }

    /// The newest pressure and its largest component.
    pub fn pressure(&self) -> Reading {
        self.state.reading()
    }

    /// The pressure level, with hysteresis.
    pub fn level(&self) -> Level {
        self.state.level()
    }

    /// The steady training micro-batch; 0 before the first decision.
    pub fn micro_batch(&self) -> u32 {
        self.changes.micro_batch()
    }

    /// Bytes that Ebb may use according to `sample`.
    pub fn budget_bytes(&self, sample: &MemorySample) -> u64 {
        let horizon_ms = self.policy.horizon_extra_ms;
        budget_bytes(&self.policy, &self.state, sample, horizon_ms)
    }

    /// Bytes that all processes together may use while Ebb trains.
    pub fn limit_bytes(&self, sample: &MemorySample) -> u64 {
        self.policy.limit_bytes(sample)
    }

    /// Physical memory in bytes; 0 if it cannot be read.
    pub fn total_bytes(&self) -> u64 {
        let sample = if self.is_stepped {
            self.monitor.latest()
        } else {
            self.monitor.sample_now().ok()
        };
        sample.map_or(0, |sample| sample.total_bytes)
    }

    /// The user's memory cap on this machine, in bytes.
    pub fn cap_bytes(&self) -> Option<u64> {
        self.policy.cap_bytes(self.total_bytes())
    }

    /// The smaller of physical memory and the user's cap, in bytes; 0 if neither is known.
    pub fn ceiling_bytes(&self) -> u64 {
        let ceilings = [Some(self.total_bytes()), self.cap_bytes()];
        let known = ceilings.into_iter().flatten().filter(|bytes| *bytes > 0);
        known.min().unwrap_or(0)
    }

    /// Footprint without a micro-batch, in bytes, including prefetched samples; 0 until
    /// micro-batches of two sizes were measured.
    pub fn standing_bytes(&self) -> u64 {
        let kind = self.workload.kind(Phase::Train);
        let state_bytes = self.model.state_bytes(kind);
        state_bytes.map_or(0, |bytes| bytes + self.usage.prefetched_bytes())
    }

    /// How far available memory is short of one sample, in bytes; at least 1.
    pub fn missing_bytes(&self) -> u64 {
        let kind = self.workload.kind(Phase::Train);
        let needed = self.model.upper_bytes(kind, self.workload.sample_cost());
        let sample = self.monitor.latest().unwrap_or_default();
        let available = self.budget_bytes(&sample).max(1);
        needed.map_or(1, |needed| needed.saturating_sub(available).max(1))
    }

    /// Advice for the user: the first setting that would free `missing_bytes` for a run
    /// micro-batch of `micro_batch` samples.
    pub fn advice(&self, micro_batch: u32, missing_bytes: u64) -> Option<String> {
        self.situation().advice(micro_batch, missing_bytes)
    }

    /// The newest memory sample without a decision; `None` under a stepped script.
    pub fn latest_sample(&self) -> Option<MemorySample> {
        if self.is_stepped {
            None
        } else {
            self.monitor.latest()
        }
    }

    /// The highest footprint of a micro-batch since the previous call, in bytes; 0 if none ended.
    pub fn take_peak_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.peak_bytes)
    }

    /// A message about a memory reading that has become unavailable. Each is returned once.
    pub fn take_notice(&self) -> Option<String> {
        self.monitor.take_notice()
    }

    /// The prediction error of the newest micro-batch. It is returned once.
    pub fn take_prediction(&mut self) -> Option<Prediction> {
        self.prediction.take()
    }

    /// Mean time of the GPU per command buffer in the training micro-batches since the last call,
    /// in milliseconds; `None` on a device without command buffers.
    pub fn take_command_buffer_ms(&mut self) -> Option<f64> {
        std::mem::replace(&mut self.command_buffers, CommandBuffers::NONE).mean_ms()
    }

    /// Sets the user's only memory cap, also instead of one that is a fraction.
    pub fn set_memory_cap(&mut self, bytes: Option<u64>) {
        self.policy.memory_cap_bytes = bytes;
        self.policy.memory_cap_fraction = None;
    }

    /// The memory limits that the user may change.
    pub fn limits(&self) -> MemoryLimits {
        MemoryLimits {
            memory_cap_bytes: self.cap_bytes(),
            max_system_fraction: self.policy.max_system_fraction,
        }
    }

    /// Footprint that a single sample reaches, in bytes; the newest footprint until that can be
    /// predicted. A smaller memory cap could end the run.
    pub fn least_cap_bytes(&self) -> Option<u64> {
        let kind = self.workload.kind(Phase::Train);
        let kind = MicroBatchKind {
            checkpoint_blocks: self.state.checkpoint_blocks(kind),
            ..kind
        };
        let predicted = self.model.upper_bytes(kind, self.workload.sample_cost());
        let predicted = predicted.map(|bytes| bytes + self.usage.prefetched_bytes());
        predicted.or_else(|| Some(self.monitor.latest()?.own_bytes))
    }

    /// Bytes that are left to other apps and the system in any case; 0 if physical memory cannot be
    /// read.
    pub fn left_bytes(&self) -> u64 {
        let machine = MemorySample {
            total_bytes: self.total_bytes(),
            ..MemorySample::default()
        };
        machine.total_bytes - self.policy.limit_bytes(&machine)
    }

    /// Sets the largest fraction of physical memory that all processes together may use.
    pub fn set_max_system_fraction(&mut self, fraction: f64) {
        self.policy.max_system_fraction = fraction;
    }

    /// Sets the costs of the next samples in their order: pixels of an image, tokens of a text.
    /// Without them, each costs as much as the `largest` of the step.
    pub fn set_sample_costs(&mut self, largest: u64, costs: Option<Vec<u64>>) {
        self.workload.set_sample_costs(largest, costs);
    }

    /// Sets the bytes in use that a shorter prefetch would free.
    pub fn set_prefetched_bytes(&mut self, bytes: u64) {
        self.usage.set_prefetched_bytes(bytes);
    }

    /// Sets the bytes of a checkpoint that waits in memory.
    pub fn set_waiting_bytes(&mut self, bytes: u64) {
        self.usage.set_waiting_bytes(bytes, &mut self.model);
    }

    /// Whether `bytes` more fit beside the micro-batches that run now, without memory pressure.
    /// `false` until a micro-batch was measured.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let planned = self.workload.kind(Phase::Train);
        let kind = MicroBatchKind {
            checkpoint_blocks: self.state.checkpoint_blocks(planned),
            ..planned
        };
        let cost = self.workload.largest_cost(self.micro_batch().max(1));
        let peak_bytes = self.model.upper_bytes(kind, cost);
        let sample = self.monitor.latest();
        self.level() == Level::Normal
            && peak_bytes.zip(sample).is_some_and(|(peak_bytes, sample)| {
                let needed = peak_bytes + self.usage.prefetched_bytes() + bytes;
                needed <= self.budget_bytes(&sample)
            })
    }

    /// Sets the free bytes of the disk with the checkpoints, if they are known.
    pub fn set_disk_free(&mut self, bytes: Option<u64>) {
        self.state.set_disk_free(bytes);
    }

    pub fn checkpoint_written(&mut self, duration_ms: f64) {
        if let Some(sample) = self.monitor.latest() {
            self.state.checkpoint_written(sample.at_ms, duration_ms);
        }
    }

    /// The moments could not be moved to disk: from now on they stay in memory.
    pub fn keep_moments_resident(&mut self) {
        self.state.disable_mapped_moments();
        self.usage.move_moments(Moments::Resident, &mut self.model);
    }

    /// Returns cached memory to the system.
    pub fn release(&self) -> Result<()> {
        self.usage.release()
    }

    /// Decides what to do with `remaining` samples. `position` selects the entry of a replay.
    ///
    /// # Errors
    /// The memory source failed; on the CPU also if not even one sample fits.
    pub fn next_micro_batch(
        &mut self,
        remaining: usize,
        phase: Phase,
        position: Position,
    ) -> Result<Answer> {
        let sample = self.take_sample()?;
        let planned = self.workload.kind(phase);
        let mut decision = self.decide(&sample, planned, remaining);
        self.usage.move_moments(decision.moments, &mut self.model);
        let mut kind = MicroBatchKind {
            checkpoint_blocks: decision.checkpoint_blocks,
            ..planned
        };
        let is_own_wait = self
            .admission
            .is_own_wait(&self.situation(), &sample, &decision);
        let waits = self.admission.count_wait(is_own_wait);
        decision = self
            .situation()
            .limit_wait(waits, kind, &sample, remaining as u32, decision)?;
        if let (Some(replay), Phase::Train) = (&self.replay, phase) {
            let blocks = self.usage.reserve().blocks;
            decision = replay.apply(decision, position, remaining as u32, blocks);
            kind.checkpoint_blocks = decision.checkpoint_blocks;
        }
        let size = self.workload.limited(phase, self.state.micro_batch(kind));
        let comparison = self.changes.compare(phase, size, &decision);
        decision.change = comparison.change;
        // Smaller micro-batches leave holes in the heap that larger ones do not fit into.
        let grows = decision.change == Change::Grow;
        if decision.release_caches || decision.action != Action::Run || grows {
            self.release()?;
        }
        self.decided = Some((kind, sample));
        let reported = reported_micro_batch(size, remaining, &decision);
        Ok(Answer {
            reported_micro_batch: self.workload.limited(phase, reported),
            decision,
            sample,
            previous_micro_batch: comparison.previous,
            changed: comparison.changed,
        })
    }

    /// Passes the samples since the last decision to the state and takes a new one.
    fn take_sample(&mut self) -> Result<MemorySample> {
        for sample in self.monitor.take_samples() {
            self.state = record_sample(&self.policy, std::mem::take(&mut self.state), &sample);
        }
        let before = self.monitor.latest();
        let sample = self.monitor.sample_now()?;
        self.sample_interval_ms =
            before.map_or(0.0, |it| sample.at_ms.saturating_sub(it.at_ms) as f64);
        Ok(sample)
    }

    fn decide(
        &mut self,
        sample: &MemorySample,
        kind: MicroBatchKind,
        remaining: usize,
    ) -> Decision {
        let costs = self.workload.added_costs(remaining);
        let ask = DecisionInput {
            sample: *sample,
            remaining: &costs,
            kind,
            spare_bytes: self.usage.prefetched_bytes(),
        };
        let state = std::mem::take(&mut self.state);
        let (state, decision) = decide(&self.policy, state, &ask, &self.model);
        self.state = state;
        decision
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            policy: &self.policy,
            state: &self.state,
            model: &self.model,
            monitor: &self.monitor,
            workload: &self.workload,
            usage: &self.usage,
        }
    }

    /// Whether the micro-batch is fixed and its peak must be measured before training.
    pub fn needs_probe(&self) -> bool {
        self.admission.needs_probe(&self.situation())
    }

    /// Prepares [`MemoryController::begin`] for a micro-batch that is only measured.
    pub fn begin_probe(&mut self) -> Result<()> {
        let sample = self.monitor.sample_now()?;
        self.decided = Some((self.workload.kind(Phase::Train), sample));
        Ok(())
    }

    /// Starts to watch and measure a micro-batch of `micro_batch` samples.
    ///
    /// # Errors
    /// On the CPU, a micro-batch that cannot fit.
    pub fn begin(&mut self, micro_batch: usize) -> Result<()> {
        let Some((kind, sample)) = self.decided.take() else {
            return Ok(());
        };
        let micro_batch = micro_batch as u32;
        let situation = self.situation();
        self.admission
            .check(&situation, kind, &sample, micro_batch)?;
        keep_awake::set(Activity::Computes);
        self.cancel.store(false, Ordering::Relaxed);
        self.monitor.watch(self.policy.clone(), self.state.clone());
        self.usage.start_peak(&self.monitor);
        tape::device::measure_command_buffers();
        self.running = Some(RunningMicroBatch {
            kind,
            micro_batch,
            cost: self.workload.cost(micro_batch),
            prefetched_bytes: self.usage.prefetched_bytes(),
            started: Instant::now(),
            started_at_ms: sample.at_ms,
            scripted_ms: self.is_stepped.then_some(self.sample_interval_ms),
        });
        Ok(())
    }

    /// Starts to watch work that is no micro-batch, until [`MemoryController::discard`]: its cancel
    /// flag is raised if memory becomes critical. Nothing is measured. Returns false, and watches
    /// nothing, if memory is critical already.
    pub fn watch(&mut self) -> bool {
        if self.level() == Level::Critical {
            return false;
        }
        self.decided = None;
        keep_awake::set(Activity::Computes);
        self.cancel.store(false, Ordering::Relaxed);
        self.monitor.watch(self.policy.clone(), self.state.clone());
        true
    }

    /// Records how the running micro-batch ended. The memory model learns from it.
    pub fn record(&mut self, outcome: Outcome) {
        let cancelled = self.monitor.unwatch();
        if let Some(reason) = cancelled.filter(|_| outcome == Outcome::Cancelled) {
            self.state.cancelled(reason);
        }
        let Some(running) = self.running.take() else {
            return;
        };
        let ms = running.duration_ms();
        let peak_bytes = self.usage.take_peak(&self.monitor);
        self.peak_bytes = self.peak_bytes.max(peak_bytes);
        if let Some(live) = &self.live {
            live.exact_peak(running.started, peak_bytes);
        }
        let measured = Measurement { peak_bytes, ms };
        let measured = running.record(measured, outcome);
        if outcome == Outcome::Ok {
            self.admission.confirmed();
            self.confirmed = Some(measured);
        }
        self.prediction = Prediction::new(&self.state, &self.model, &measured);
        self.observe(&measured);
        if outcome == Outcome::Ok {
            self.learn_separate_peak(&measured);
            self.usage.trim_old();
            self.keep_gpu_time(&measured);
        }
    }

    /// On a GPU with memory of its own, learns how much of it micro-batches need. Sizes that would
    /// not fit are not tried.
    fn learn_separate_peak(&mut self, measured: &MicroBatchRecord) {
        let limit = self.monitor.latest();
        let limit = limit.map_or(0, |sample| sample.device_limit_bytes);
        let Some(peak_bytes) = self.usage.take_separate_peak().filter(|_| limit > 0) else {
            return;
        };
        let on_device = MicroBatchRecord {
            peak_bytes,
            ..*measured
        };
        self.separate_model.learn(&on_device);
        let usable = (self.policy.device_fraction * limit as f64) as u64;
        let (state, model) = (std::mem::take(&mut self.state), &self.separate_model);
        self.state = observe_separate_device(&self.policy, state, &on_device, model, usable);
    }

    /// Adapts the command buffers to the time of the kernels. If a single kernel delays the screen,
    /// the next micro-batch is smaller, as after one that the system has ended.
    fn keep_gpu_time(&mut self, measured: &MicroBatchRecord) {
        let time = tape::device::adapt_command_buffers();
        let computed = tape::device::take_command_buffers();
        if measured.kind.phase == Phase::Train {
            self.command_buffers.add(computed);
        }
        if time == KernelTime::OverBudget {
            let state = std::mem::take(&mut self.state);
            self.state = observe_delay(&self.policy, state, measured);
        }
    }

    fn observe(&mut self, measured: &MicroBatchRecord) {
        let state = std::mem::take(&mut self.state);
        let placeholder = MemoryModel::new(Allocator::Exact);
        let model = std::mem::replace(&mut self.model, placeholder);
        (self.state, self.model) = observe(&self.policy, state, model, measured);
    }

    /// Forgets the running micro-batch because the user cancelled it. Nothing is learned from it.
    pub fn discard(&mut self) {
        self.monitor.unwatch();
        self.running = None;
    }

    /// Records a micro-batch that the device failed or the monitor cancelled, and releases caches.
    /// If none is running, the newest confirmed one counts as failed. The next decision is smaller.
    /// Returns the fault of earlier work that the device reports only now.
    ///
    /// # Errors
    /// The device is lost.
    pub fn back_off(&mut self, outcome: Outcome) -> Result<Option<TrainError>> {
        if self.running.is_some() {
            self.record(outcome);
        } else if let Some(confirmed) = self.confirmed.take() {
            let unmeasured = MicroBatchRecord {
                peak_bytes: 0,
                outcome,
                ..confirmed
            };
            self.observe(&unmeasured);
        }
        self.usage.drain()
    }

    /// Backs off after the device failed with `error`. Work that took too long is also submitted in
    /// shorter command buffers from now on. A micro-batch that cannot be smaller is
    /// tried again for two seconds, because other apps may free memory or leave the GPU alone.
    /// Returns the fault of earlier work that the device reports only now.
    ///
    /// # Errors
    /// The device still refuses it, or is lost; `error` itself if it is no fault of the device.
    pub fn failed(&mut self, error: TrainError, control: &Control) -> Result<Option<TrainError>> {
        let Some(outcome) = outcome_of(&error) else {
            return Err(error);
        };
        let running = self.running.as_ref().map(|running| running.micro_batch);
        let confirmed = self.confirmed.as_ref().map(|record| record.micro_batch);
        let micro_batch = running.or(confirmed).unwrap_or(1);
        let late = self.back_off(outcome)?;
        if micro_batch > 1 && self.policy.fixed_micro_batch.is_none() {
            return Ok(late);
        }
        let Some(times) = self.admission.count_refusal() else {
            self.wait(control);
            return Ok(late);
        };
        Err(self.situation().refused(Refusal {
            micro_batch,
            outcome,
            times,
            error,
        }))
    }

    /// Learns from a failure of the device after which everything is loaded again: work that took
    /// too long or did not fit is smaller from now on.
    ///
    /// # Errors
    /// The device is lost.
    pub fn learn_from(&mut self, error: &TrainError) -> Result<()> {
        // A failure without a running micro-batch is not the fault of an earlier one.
        match outcome_of(error).filter(|_| self.running.is_some()) {
            Some(outcome) => self.back_off(outcome).map(drop),
            None => Ok(()),
        }
    }

    /// Whether all tensors of the device may be damaged after this failure.
    pub fn may_have_damaged_tensors(&self, error: &TrainError) -> bool {
        error.is_deferred_fault() && self.usage.forgets_failures()
    }

    /// Waits for the device after a failure and returns cached memory to the system. Returns the
    /// fault that the device reports, unless it is lost.
    ///
    /// # Errors
    /// The device is lost.
    pub fn drain(&self) -> Result<Option<TrainError>> {
        self.usage.drain()
    }

    /// Measures another device from now on: the one before was lost.
    pub fn replace_device(&mut self, device: &Device) {
        self.usage.replace_device(device);
    }

    /// Waits a moment, or until a request arrives. Returns at once under a stepped script.
    pub fn wait(&self, control: &Control) {
        self.wait_for(PAUSE, control);
    }

    /// As [`MemoryController::wait`], for a given time.
    pub fn wait_for(&self, time: Duration, control: &Control) {
        keep_awake::set(Activity::Waits);
        if !self.is_stepped {
            control.wait(time);
        }
    }
}

/// How a micro-batch ended that the device failed, if a smaller one helps. After work that took too
/// long, command buffers are shorter.
fn outcome_of(error: &TrainError) -> Option<Outcome> {
    match error.device_fault()? {
        DeviceFault::Memory => Some(Outcome::Memory),
        DeviceFault::TooLong => {
            tape::device::shorten_command_buffers();
            Some(Outcome::TooLong)
        }
        DeviceFault::Lost => None,
    }
}
