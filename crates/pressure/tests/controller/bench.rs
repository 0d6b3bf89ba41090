//! A bench that works real pieces of a machine whose truth is known. It asserts nothing itself.

use pressure::{
    Action, Ask, Decision, Level, MemoryModel, MemorySample, Moments, Outcome, Phase, Piece,
    PieceKind, Policy, Prefetch, Reserve, SampleCost, State, decide, observe,
};

pub const GB: u64 = 1 << 30;
pub const TRAIN: PieceKind = PieceKind {
    phase: Phase::Train,
    checkpoint_blocks: 0,
    element_bytes: 4,
    resolution: 64,
};
pub const EVALUATE: PieceKind = PieceKind {
    phase: Phase::Evaluate,
    ..TRAIN
};

/// A machine of 32 GB, others at 6 GB, a state of 2 GB and a quarter of a GB for each sample; 100 ms a decision.
pub struct Bench {
    pub policy: Policy,
    pub state: State,
    pub model: MemoryModel,
    pub batch: usize,
    pub remaining: usize,
    pub others: u64,
    pub level: Option<Level>,
    pub blind: bool,
    pub measured: bool,
    /// Milliseconds of a piece of so many samples.
    pub pace: fn(u32) -> f64,
    pub at_ms: u64,
    pub own: u64,
    /// What decoding ahead takes, and what of it is held now.
    pub ahead: u64,
    pub spare: u64,
    pub kind: PieceKind,
    /// What one sample takes without checkpointed blocks.
    pub sample_bytes: u64,
    /// What the run can give, and what of it is given now.
    pub reserve: Reserve,
    pub blocks: u32,
    pub moments: Moments,
    pub disk: Option<u64>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            state: State::default(),
            model: MemoryModel::default(),
            batch: 64,
            remaining: 64,
            others: 6 * GB,
            level: None,
            blind: false,
            measured: true,
            pace: |m| 10.0 + 10.0 * f64::from(m) - f64::from(m * m) / 100.0,
            at_ms: 0,
            own: 2 * GB,
            ahead: 0,
            spare: 0,
            kind: TRAIN,
            sample_bytes: GB / 4,
            reserve: Reserve::default(),
            blocks: 0,
            moments: Moments::Resident,
            disk: None,
        }
    }
}

impl Bench {
    pub fn sample(&self) -> MemorySample {
        let read = MemorySample {
            at_ms: self.at_ms,
            own_bytes: self.own + self.spare,
            kernel_level: self.level,
            disk_free_bytes: self.disk,
            ..MemorySample::default()
        };
        match self.blind {
            true => read,
            false => MemorySample {
                total_bytes: 32 * GB,
                available_bytes: (32 * GB).saturating_sub(self.others + self.own + self.spare),
                ..read
            },
        }
    }

    pub fn decide(&mut self) -> Decision {
        let costs = vec![SampleCost(4096); self.remaining];
        let ask = Ask {
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
        let piece = Piece {
            at_ms: self.at_ms,
            kind: PieceKind {
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
            &piece,
        );
        (self.state, self.model) = (state, model);
    }

    /// What stays without a piece, in bytes.
    pub fn held(&self) -> u64 {
        match self.moments {
            Moments::Resident => 2 * GB,
            Moments::Mapped => 2 * GB - self.reserve.moments_bytes,
        }
    }

    /// What a sample takes, in bytes: four fifths of it are the blocks', in equal parts.
    pub fn each(&self) -> u64 {
        let blocks = u64::from(self.reserve.blocks.max(1));
        self.sample_bytes - self.sample_bytes * 4 / 5 * u64::from(self.blocks) / blocks
    }

    /// One decision and, if it says so, one piece.
    pub fn turn(&mut self) -> Decision {
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

    pub fn turns(&mut self, count: usize) -> Vec<Decision> {
        (0..count).map(|_| self.turn()).collect()
    }

    /// A bench that has reached its size in calm, more than a minute ago.
    pub fn settled() -> Self {
        let mut bench = Self::default();
        bench.turns(700);
        bench
    }
}
