//! The pilot: joins monitor, memory model and controller, and answers before every piece. The rules are in `pressure`.

use crate::control::Control;
use crate::error::Result;
use crate::machine::Machine;
use crate::plan::{OptimizerKind, Plan};
use crate::replay::Replay;
use crate::train::stack_bytes;
use candle_core::Device;
use kept::{Kept, Knowledge, LearntOn};
use pressure::{
    Action, Allocator, Ask, Change, Decision, PersistedState, MemoryModel, MemorySample, Moments, Monitor,
    Outcome, Phase, MicroBatchRecord, MicroBatchKind, Policy, RecoveryReserve, SampleCost, ControllerState, budget_bytes, decide,
    record_sample, observe,
};
use std::time::{Duration, Instant};
use tape::Cancel;
use tape::device::Chosen;
use tape::memory::{Purge, live_bytes, release, take_peak_bytes};

pub mod kept;
mod holdings;
mod prediction;
mod room;
mod running;
mod wishes;

pub use prediction::Prediction;
use running::Running;

/// How long a paused training waits before it asks again.
const PAUSE: Duration = Duration::from_millis(100);

/// Decides the size of every piece of one run.
pub struct Pilot {
    policy: Policy,
    state: ControllerState,
    model: MemoryModel,
    monitor: Monitor,
    cancel: Cancel,
    device: Device,
    purge: Purge,
    stepped: bool,
    /// Time between the two newest readings, milliseconds.
    step_ms: f64,
    image_size: u32,
    /// What one of the samples asked about costs: pixels or tokens.
    sample_cost: u64,
    /// Bytes of one of these before the first piece was measured.
    rough_cost_bytes: u64,
    checkpoint_blocks: u32,
    element_bytes: u32,
    replay: Option<Replay>,
    /// Footprint that is not heap: code, stacks, what the allocator holds at least.
    base_bytes: u64,
    /// What the footprint holds that a shorter prefetch gives back.
    spare_bytes: u64,
    /// What the run can give beside samples, and where its moments are as the model knows it.
    reserve: RecoveryReserve,
    moments: Moments,
    /// Bytes of moments in full precision, which a byte a value would do for.
    full_moments_bytes: u64,
    /// A refused allocation ends the process: pieces that cannot fit must not start.
    gated: bool,
    /// Answers in a row to wait for memory that this process alone can give back.
    stuck: u32,
    /// Refusals in a row of a piece that cannot be made smaller.
    refused: u32,
    next: Option<(MicroBatchKind, MemorySample)>,
    piece: Option<Running>,
    last: Option<(Phase, u32, Action)>,
    prediction: Option<Prediction>,
    learnt_on: LearntOn,
}

/// An answer, and the reading it rests on.
pub struct Answer {
    /// What to do.
    pub decision: Decision,
    /// The reading.
    pub sample: MemorySample,
    /// The micro-batch before.
    pub previous: u32,
    /// It differs from the answer before.
    pub changed: bool,
}

impl Pilot {
    /// Takes off: starts the monitor.
    pub fn start(
        plan: &Plan,
        chosen: &Chosen,
        machine: &Machine,
        control: &Control,
        (element_bytes, reserve): (u32, RecoveryReserve),
        replay: Option<Replay>,
    ) -> Result<Self> {
        let mut policy = Policy {
            memory_cap_bytes: plan.memory_cap_bytes,
            memory_cap_fraction: plan.memory_cap_fraction,
            fixed_micro_batch: plan.fixed_micro_batch,
            ..Policy::default()
        };
        policy.max_system_fraction = plan.politeness.unwrap_or(policy.max_system_fraction);
        policy.max_suspended_ms = plan.parked_most_ms.unwrap_or(policy.max_suspended_ms);
        // Where memory can be predicted, two measured pieces take the place of any guess.
        policy.fallback_start = plan.config.first_micro_batch.unwrap_or(policy.fallback_start);
        let source = machine.source(chosen, stack_bytes(plan.threads))?;
        let stepped = source.is_stepped();
        let allocator = if chosen.kind == "metal" {
            Allocator::PowerOfTwo
        } else {
            Allocator::Exact
        };
        Ok(Pilot {
            policy,
            state: ControllerState::default().with_reserve(reserve),
            model: MemoryModel::new(allocator),
            monitor: Monitor::start(source, control.cancel()),
            cancel: control.cancel(),
            device: chosen.device.clone(),
            purge: machine.purge,
            stepped,
            step_ms: 0.0,
            image_size: plan.image_size,
            sample_cost: plan.sample_cost(),
            rough_cost_bytes: room::rough_cost_bytes(plan),
            checkpoint_blocks: plan.checkpoint_blocks,
            element_bytes,
            replay,
            base_bytes: u64::MAX,
            spare_bytes: 0,
            reserve,
            moments: Moments::Resident,
            full_moments_bytes: match plan.optimizer {
                OptimizerKind::AdamW => reserve.moments_bytes,
                OptimizerKind::AdamW8bit | OptimizerKind::Sgd => 0,
            },
            gated: chosen.device.is_cpu() && machine.script.is_none(),
            stuck: 0,
            refused: 0,
            next: None,
            piece: None,
            last: None,
            prediction: None,
            learnt_on: LearntOn::of(plan, chosen),
        })
    }

    /// Takes up what an earlier life of the run has learnt, where it holds here.
    pub fn take_up(&mut self, kept: &Kept) {
        let Kept::Whole(knowledge) = kept else {
            return;
        };
        if let Some(learnt) = knowledge.clone().on(&self.learnt_on) {
            let (state, model) = learnt.restore();
            (self.state, self.model) = (state.with_reserve(self.reserve), model);
        }
    }

    /// What the next life should know.
    pub fn knowledge(&self) -> Kept {
        let learnt = PersistedState::new(&self.state, &self.model);
        Kept::Whole(Box::new(Knowledge::of(&self.learnt_on, learnt)))
    }

    /// From now on `ear` hears every reading, on the monitor's thread.
    pub fn listen(&self, ear: impl FnMut(&MemorySample) + Send + 'static) {
        self.monitor.set_observer(ear);
    }

    /// Where readings come from.
    pub fn describe(&self) -> String {
        self.monitor.describe()
    }

    /// The state of the signal, for the memory event.
    pub fn state(&self) -> &ControllerState {
        &self.state
    }

    /// The training's micro-batch as last decided; 0 before the first decision.
    pub fn micro_batch(&self) -> u32 {
        self.last.map_or(0, |(_, size, _)| size)
    }

    /// The budget on a reading.
    pub fn budget_bytes(&self, sample: &MemorySample) -> u64 {
        budget_bytes(
            &self.policy,
            &self.state,
            sample,
            self.policy.horizon_extra_ms,
        )
    }

    /// Physical memory; 0 where it cannot be read.
    pub fn total_bytes(&self) -> u64 {
        let sample = match self.stepped {
            true => self.monitor.latest(),
            false => self.monitor.sample_now().ok(),
        };
        sample.map_or(0, |sample| sample.total_bytes)
    }

    /// A reading for the record, without a decision; none where readings advance a script.
    pub fn reading(&self) -> Option<MemorySample> {
        if self.stepped {
            None
        } else {
            self.monitor.latest()
        }
    }

    /// What to do with `remaining` samples. `position` is the step (from 1) and the piece (from 0), for a replay.
    pub fn ask(
        &mut self,
        remaining: usize,
        phase: Phase,
        position: (u64, usize),
    ) -> Result<Answer> {
        for sample in self.monitor.take_samples() {
            self.state = record_sample(&self.policy, std::mem::take(&mut self.state), &sample);
        }
        let before = self.monitor.latest();
        let sample = self.monitor.sample_now()?;
        self.step_ms = before.map_or(0.0, |it| sample.at_ms.saturating_sub(it.at_ms) as f64);
        let kind = self.kind(phase);
        let costs = vec![SampleCost(self.sample_cost); remaining];
        let ask = Ask {
            sample,
            remaining: &costs,
            kind,
            spare_bytes: self.spare_bytes,
        };
        let (state, mut decision) = decide(
            &self.policy,
            std::mem::take(&mut self.state),
            &ask,
            &self.model,
        );
        self.state = state;
        self.follow_moments(decision.moments);
        let kind = MicroBatchKind {
            checkpoint_blocks: decision.checkpoint_blocks,
            ..kind
        };
        decision = self.never_wait_for_oneself(kind, &sample, remaining as u32, decision)?;
        let mut kind = kind;
        if let (Some(replay), Phase::Train) = (&self.replay, phase) {
            decision = replay.over(decision, position, remaining as u32, self.reserve.blocks);
            kind.checkpoint_blocks = decision.checkpoint_blocks;
        }
        let size = self.state.micro_batch(kind);
        let (changed, previous) = self.compare(phase, size, &decision);
        if changed && previous > 0 && decision.change == Change::Start {
            // Back from an evaluation with another size: to the user that is a change, not a start.
            decision.change = if size > previous {
                Change::Grow
            } else {
                Change::Shrink
            };
        }
        // What smaller pieces left are holes that larger ones do not fit into.
        let grows = decision.change == Change::Grow;
        if decision.release_caches || decision.action != Action::Run || grows {
            release(&self.device, self.purge)?;
        }
        self.next = Some((kind, sample));
        Ok(Answer {
            decision,
            sample,
            previous,
            changed,
        })
    }

    /// Whether the steady size or the action differs from last time, and the size before. A shorter last piece is no change.
    fn compare(&mut self, phase: Phase, size: u32, decision: &Decision) -> (bool, u32) {
        let now = (phase, size, decision.action);
        let (changed, previous) = match self.last {
            Some((last_phase, last_size, last_action)) if last_phase == phase => (
                (last_size, last_action) != (size, decision.action),
                last_size,
            ),
            // Coming back from another phase is no news: only the training's own sizes are.
            Some(_) => (
                phase == Phase::Train && decision.change != Change::Hold,
                size,
            ),
            None => (true, 0),
        };
        if phase == Phase::Train || self.last.is_none() {
            self.last = Some(now);
        }
        let told = matches!(
            decision.change,
            Change::Prefetch
                | Change::CheckpointMore
                | Change::CheckpointLess
                | Change::Moments
                | Change::Pause
                | Change::Suspend
                | Change::Continue
                | Change::Stop
        );
        (told || changed && phase == Phase::Train, previous)
    }

    /// A piece of `micro_batch` samples begins: from now on it is watched and measured.
    ///
    /// # Errors
    /// On the CPU, a piece that cannot fit is refused before it starts.
    pub fn begin(&mut self, micro_batch: usize) -> Result<()> {
        let Some((kind, sample)) = self.next.take() else {
            return Ok(());
        };
        if self.gated {
            self.refuse_too_large(kind, &sample, micro_batch as u32)?;
        }
        self.cancel
            .store(false, std::sync::atomic::Ordering::Relaxed);
        self.monitor.watch(self.policy.clone(), self.state.clone());
        let live = live_bytes();
        if live > 0 && self.device.is_cpu() {
            // What the process holds beside its heap; at its lowest the allocator caches nothing.
            let own = pressure::own_footprint_bytes();
            self.base_bytes = self.base_bytes.min(own.saturating_sub(live));
            take_peak_bytes();
        } else {
            self.monitor.take_peak();
        }
        self.piece = Some(Running {
            kind,
            spare_bytes: self.spare_bytes,
            micro_batch: micro_batch as u32,
            begun: Instant::now(),
            begun_at_ms: sample.at_ms,
            scripted_ms: self.stepped.then_some(self.step_ms),
        });
        Ok(())
    }

    /// The piece has ended: learns from it.
    pub fn ended(&mut self, outcome: Outcome) {
        self.monitor.unwatch();
        let Some(piece) = self.piece.take() else {
            return;
        };
        if outcome == Outcome::Ok {
            self.refused = 0;
        }
        let ms = piece.ms();
        let peak_bytes = if live_bytes() > 0 && self.device.is_cpu() {
            self.base_bytes + take_peak_bytes()
        } else {
            self.monitor.take_peak()
        };
        let piece = MicroBatchRecord {
            at_ms: piece.begun_at_ms + ms as u64,
            kind: piece.kind,
            micro_batch: piece.micro_batch,
            cost: u64::from(piece.micro_batch) * self.sample_cost,
            peak_bytes: peak_bytes.saturating_sub(piece.spare_bytes),
            ms,
            outcome,
        };
        self.prediction = self.compare_peaks(&piece);
        let (state, model) = (
            std::mem::take(&mut self.state),
            std::mem::replace(&mut self.model, MemoryModel::new(Allocator::Exact)),
        );
        (self.state, self.model) = observe(&self.policy, state, model, &piece);
    }

    /// The piece ended for want of memory or was cancelled: caches go, the next answer is smaller.
    pub fn retreat(&mut self, outcome: Outcome) -> Result<()> {
        self.ended(outcome);
        Ok(release(&self.device, self.purge)?)
    }

    /// The user ended the piece; nothing is to be learnt from it.
    pub fn abandon(&mut self) {
        self.monitor.unwatch();
        self.piece = None;
    }

    /// Waits a moment, or until the user asks for something. A script that advances by decision needs no waiting.
    pub fn wait(&self, control: &Control) {
        if !self.stepped {
            control.wait(PAUSE);
        }
    }
}
