//! A bench that works real pieces of a machine whose truth is known. It asserts nothing itself.

use pressure::{
    Action, Ask, Decision, Level, MemoryModel, MemorySample, Outcome, Phase, Piece, PieceKind,
    Policy, Prefetch, SampleCost, State, decide, observe,
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
        }
    }
}

impl Bench {
    pub fn sample(&self) -> MemorySample {
        let read = MemorySample {
            at_ms: self.at_ms,
            own_bytes: self.own + self.spare,
            kernel_level: self.level,
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
        if decision.release_caches {
            self.own = 2 * GB;
        }
        self.spare = match decision.prefetch {
            Prefetch::Long => self.ahead,
            Prefetch::Short => 0,
        };
        decision
    }

    pub fn end(&mut self, micro_batch: u32, outcome: Outcome) {
        let peak = 2 * GB + u64::from(micro_batch) * GB / 4;
        self.own = self.own.max(peak);
        let piece = Piece {
            at_ms: self.at_ms,
            kind: self.kind,
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
