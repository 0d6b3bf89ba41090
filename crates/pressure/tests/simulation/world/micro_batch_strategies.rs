//! Strategies for the micro-batch: the oracle, a fixed size, and Ebb's controller. Only the oracle
//! knows the machine; the others get readings.

use super::{BATCH, GB, LINE, TICK, true_micro_batch_cost::Truth};
use pressure::{
    Action, Allocator, Change, ControllerState, Decision, DecisionInput, Level, MemoryModel,
    MemorySample, MicroBatchKind, MicroBatchRecord, Outcome as Result, Policy, SampleCost, decide,
    observe, record_sample, should_cancel,
};

/// Cost of one ordinary sample, in tokens.
const TOKENS: f64 = 1000.0;

/// A reading of the monitor: ten times per second, 0.1 s late, and a little wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub t: f64,
    pub others: f64,
    pub pool: f64,
    pub live: f64,
    /// Fraction of memory in the compressor, if there is one.
    pub compressor: Option<f64>,
    pub level: Level,
}

/// A micro-batch that ended.
pub struct Ended {
    pub t: f64,
    pub samples: u32,
    /// Length of its samples, relative to an ordinary one.
    pub length: f64,
    pub peak: f64,
    pub seconds: f64,
    pub outcome: Result,
}

/// What a strategy chooses.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub action: Action,
    /// Samples of the micro-batch.
    pub micro_batch: u32,
    /// The size, which is larger if the rest of the batch is shorter.
    pub size: u32,
    pub release: bool,
    /// Checkpoint the last complete step first.
    pub checkpoint: bool,
    pub voluntary: bool,
    /// Predicted peak, GB.
    pub predicted: f64,
}

/// Chooses the micro-batch.
pub trait Strategy {
    /// Takes a reading, and returns whether to cancel the running micro-batch.
    fn tick(&mut self, seen: &Reading, running: bool) -> bool;
    /// Chooses the next micro-batch.
    /// `lengths`: costs of the samples left of the batch, in ordinary samples.
    fn ask(&mut self, seen: &Reading, lengths: &[f64]) -> Choice;
    /// The reason of the newest choice.
    fn reason(&self) -> &str {
        ""
    }
    fn ended(&mut self, ended: &Ended);
    /// A checkpoint was written.
    fn checkpoint_written(&mut self, _t: f64, _seconds: f64) {}
    /// The system killed the trainer, which is restarted.
    fn killed(&mut self);
}

/// Always this many samples.
pub struct Fixed(pub u32);

impl Strategy for Fixed {
    fn tick(&mut self, _: &Reading, _: bool) -> bool {
        false
    }
    fn ask(&mut self, _: &Reading, lengths: &[f64]) -> Choice {
        let remaining = lengths.len() as u32;
        let count = remaining.div_ceil(self.0.min(remaining));
        Choice {
            action: Action::Run,
            micro_batch: remaining.div_ceil(count),
            size: self.0,
            release: false,
            checkpoint: false,
            voluntary: false,
            predicted: 0.0,
        }
    }
    fn ended(&mut self, ended: &Ended) {
        if ended.outcome == Result::Memory {
            self.killed();
        }
    }
    fn killed(&mut self) {
        self.0 = (self.0 / 2).max(1);
    }
}

/// Ebb's controller with its state.
pub struct Ebb {
    pub policy: Policy,
    state: ControllerState,
    model: MemoryModel,
    allocator: Allocator,
    /// Memory of the machine, and the limit of the device, in GB.
    ram: f64,
    device: f64,
    kind: MicroBatchKind,
    sample: MemorySample,
    reason: String,
}

impl Ebb {
    pub fn new(policy: Policy, truth: &Truth) -> Self {
        let allocator = truth.rounding.allocator();
        Self {
            policy,
            state: ControllerState::default(),
            model: MemoryModel::new(allocator),
            allocator,
            ram: truth.ram,
            device: truth.device,
            kind: MicroBatchKind {
                element_bytes: 4,
                input_size: TOKENS as u32,
                ..MicroBatchKind::default()
            },
            sample: MemorySample::default(),
            reason: String::new(),
        }
    }
}

impl Strategy for Ebb {
    fn tick(&mut self, seen: &Reading, running: bool) -> bool {
        let others = seen.others.max(0.0);
        self.sample = MemorySample {
            at_ms: ms(seen.t),
            total_bytes: bytes(self.ram),
            available_bytes: bytes((self.ram - others - seen.pool).max(0.0)),
            own_bytes: bytes(seen.pool),
            device_live_bytes: bytes(seen.live),
            device_allocated_bytes: bytes(seen.pool),
            device_limit_bytes: bytes(self.device),
            kernel_level: Some(seen.level),
            compressor_fraction: seen.compressor,
            ..MemorySample::default()
        };
        let state = std::mem::take(&mut self.state);
        self.state = record_sample(&self.policy, state, &self.sample);
        running && should_cancel(&self.policy, &self.state, &self.sample).is_some()
    }

    fn ask(&mut self, seen: &Reading, lengths: &[f64]) -> Choice {
        let cost = |length: &f64| SampleCost((TOKENS * length) as u64);
        let costs: Vec<_> = lengths.iter().map(cost).collect();
        let ask = DecisionInput {
            sample: MemorySample {
                at_ms: ms(seen.t),
                ..self.sample
            },
            remaining: &costs,
            kind: self.kind,
            spare_bytes: 0,
        };
        let state = std::mem::take(&mut self.state);
        let (state, decision) = decide(&self.policy, state, &ask, &self.model);
        self.state = state;
        self.reason.clone_from(&decision.reason);
        Choice {
            action: decision.action,
            micro_batch: decision.micro_batch,
            size: match decision.action {
                Action::Run => self.state.micro_batch(self.kind),
                _ => 0,
            },
            release: decision.release_caches,
            checkpoint: decision.checkpoint_first,
            voluntary: is_voluntary(&decision),
            predicted: decision.predicted_peak_bytes as f64 / GB,
        }
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn ended(&mut self, ended: &Ended) {
        let record = MicroBatchRecord {
            at_ms: ms(ended.t),
            kind: self.kind,
            micro_batch: ended.samples,
            cost: (TOKENS * ended.length) as u64 * u64::from(ended.samples),
            peak_bytes: bytes(ended.peak),
            ms: ended.seconds * 1000.0,
            outcome: ended.outcome,
        };
        let (state, model) = (
            std::mem::take(&mut self.state),
            std::mem::take(&mut self.model),
        );
        (self.state, self.model) = observe(&self.policy, state, model, &record);
    }

    fn checkpoint_written(&mut self, t: f64, seconds: f64) {
        self.state.checkpoint_written(ms(t), 1000.0 * seconds);
    }

    fn killed(&mut self) {
        self.state = ControllerState::default();
        self.model = MemoryModel::new(self.allocator);
        self.sample = MemorySample::default();
    }
}

/// Whether a change was not needed: growth, or the step down to the plateau.
fn is_voluntary(decision: &Decision) -> bool {
    let plateau = "this size is as fast as a larger one and needs less memory";
    decision.change == Change::Grow
        || decision.change == Change::Shrink && decision.reason == plateau
}

fn ms(t: f64) -> u64 {
    (t * 1000.0).round() as u64
}

fn bytes(gb: f64) -> u64 {
    (gb * GB) as u64
}

/// The micro-batch with knowledge of the future and free changes: the fastest that stays under the
/// line until it ends. `None` if not even one sample does.
pub fn oracle(truth: &Truth, others: &[f64], now: usize, lengths: &[f64]) -> Option<u32> {
    let sizes = (1..=BATCH).rev().map(|n| BATCH.div_ceil(n));
    let fits = sizes.filter_map(|m| {
        // More samples than are left would cost as much as these.
        let own = &lengths[..lengths.len().min(m as usize)];
        let samples = own.iter().sum::<f64>() / own.len() as f64 * f64::from(m);
        let seconds = truth.seconds(samples);
        let until = (now + (seconds / TICK) as usize + 1).min(others.len() - 1);
        let most = others[now..=until].iter().copied().fold(0.0, f64::max);
        (truth.need(samples) <= (LINE * truth.ram - most).min(truth.device))
            .then_some((seconds / samples, m))
    });
    fits.reduce(|a, b| if b.0 < a.0 { b } else { a })
        .map(|(_, m)| m)
}
