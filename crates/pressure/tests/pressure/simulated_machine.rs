//! A simulated machine that runs the micro-batches of the controller. Asserts nothing itself.

use pressure::{
    Action, ControllerState, Decision, DecisionInput, Level, MemoryModel, MemorySample,
    MicroBatchKind, MicroBatchRecord, Moments, Outcome, Phase, Policy, Prefetch, RecoveryReserve,
    SampleCost, decide, observe,
};

pub const GB: u64 = 1 << 30;
pub const TRAIN: MicroBatchKind = MicroBatchKind {
    phase: Phase::Train,
    checkpoint_blocks: 0,
    element_bytes: 4,
    input_size: 64,
};
pub const EVALUATE: MicroBatchKind = MicroBatchKind {
    phase: Phase::Evaluate,
    ..TRAIN
};

/// A machine of 32 GB: others use 6 GB, the state 2 GB and each sample 0.25 GB. A decision every
/// 100 ms.
pub struct Simulation {
    pub policy: Policy,
    pub state: ControllerState,
    pub model: MemoryModel,
    pub batch: usize,
    pub remaining: usize,
    pub others: u64,
    pub level: Option<Level>,
    pub unreadable: bool,
    pub measured: bool,
    /// Milliseconds of a micro-batch by its size.
    pub pace: fn(u32) -> f64,
    pub at_ms: u64,
    pub own: u64,
    /// Memory of a long prefetch, and of the present one.
    pub ahead: u64,
    pub spare: u64,
    pub kind: MicroBatchKind,
    /// Memory of one sample without checkpointed blocks.
    pub sample_bytes: u64,
    /// What the run can give up, and what it has given up.
    pub reserve: RecoveryReserve,
    pub blocks: u32,
    pub moments: Moments,
    pub disk: Option<u64>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            state: ControllerState::default(),
            model: MemoryModel::default(),
            batch: 64,
            remaining: 64,
            others: 6 * GB,
            level: None,
            unreadable: false,
            measured: true,
            pace: |m| 10.0 + 10.0 * f64::from(m) - f64::from(m * m) / 100.0,
            at_ms: 0,
            own: 2 * GB,
            ahead: 0,
            spare: 0,
            kind: TRAIN,
            sample_bytes: GB / 4,
            reserve: RecoveryReserve::default(),
            blocks: 0,
            moments: Moments::Resident,
            disk: None,
        }
    }
}

impl Simulation {
    pub fn sample(&self) -> MemorySample {
        let read = MemorySample {
            at_ms: self.at_ms,
            own_bytes: self.own + self.spare,
            kernel_level: self.level,
            disk_free_bytes: self.disk,
            ..MemorySample::default()
        };
        if self.unreadable {
            return read;
        }
        MemorySample {
            total_bytes: 32 * GB,
            available_bytes: (32 * GB).saturating_sub(self.others + self.own + self.spare),
            ..read
        }
    }

    pub fn decide(&mut self) -> Decision {
        let costs = vec![SampleCost(4096); self.remaining];
        let ask = DecisionInput {
            spare_bytes: self.spare,
            sample: self.sample(),
            remaining: &costs,
            kind: self.kind,
        };
        let (state, decision) = decide(
            &self.policy,
            std::mem::take(&mut self.state),
            &ask,
            &self.model,
        );
        self.state = state;
        self.blocks = decision.checkpoint_blocks;
        let moved = std::mem::replace(&mut self.moments, decision.moments) != decision.moments;
        match decision.moments {
            Moments::Mapped if moved => self.model.state_shrank(self.reserve.moments_bytes),
            Moments::Resident if moved => self.model.state_grew(self.reserve.moments_bytes),
            Moments::Mapped | Moments::Resident => {}
        }
        if decision.release_caches || moved {
            self.own = self.held();
        }
        self.spare = match decision.prefetch {
            Prefetch::Long => self.ahead,
            Prefetch::Short => 0,
        };
        decision
    }

    pub fn end(&mut self, micro_batch: u32, outcome: Outcome) {
        let peak = self.held() + u64::from(micro_batch) * self.each();
        self.own = self.own.max(peak);
        let record = MicroBatchRecord {
            at_ms: self.at_ms,
            kind: MicroBatchKind {
                checkpoint_blocks: self.blocks.max(self.kind.checkpoint_blocks),
                ..self.kind
            },
            micro_batch,
            cost: u64::from(micro_batch) * 4096,
            peak_bytes: if self.measured { peak } else { 0 },
            ms: (self.pace)(micro_batch),
            outcome,
        };
        let (state, model) = observe(
            &self.policy,
            std::mem::take(&mut self.state),
            std::mem::take(&mut self.model),
            &record,
        );
        (self.state, self.model) = (state, model);
    }

    /// Footprint between micro-batches, in bytes.
    pub fn held(&self) -> u64 {
        match self.moments {
            Moments::Resident => 2 * GB,
            Moments::Mapped => 2 * GB - self.reserve.moments_bytes,
        }
    }

    /// Memory of one sample, in bytes. Four fifths of it belong to the blocks, in equal parts.
    pub fn each(&self) -> u64 {
        let blocks = u64::from(self.reserve.blocks.max(1));
        self.sample_bytes - self.sample_bytes * 4 / 5 * u64::from(self.blocks) / blocks
    }

    /// One decision and, if it says so, one micro-batch.
    pub fn step(&mut self) -> Decision {
        let decision = self.decide();
        if decision.action == Action::Run {
            self.end(decision.micro_batch, Outcome::Ok);
            self.remaining -= decision.micro_batch as usize;
            if self.remaining == 0 {
                self.remaining = self.batch;
            }
        }
        self.at_ms += 100;
        decision
    }

    pub fn steps(&mut self, count: usize) -> Vec<Decision> {
        (0..count).map(|_| self.step()).collect()
    }

    /// A simulation that reached its size in calm more than a minute ago.
    pub fn settled() -> Self {
        let mut simulation = Self::default();
        simulation.steps(700);
        simulation
    }
}
