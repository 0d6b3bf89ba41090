//! Those who choose the micro-batch: the oracle, a fixed size, and Ebb's controller. None of them but the oracle sees the
//! machine otherwise than by the readings it is handed.

use super::{BATCH, DEVICE, GB, LINE, RAM, TICK, truth::Truth};
use pressure::{
    Action, Allocator, Ask, Change, Decision, Level, MemoryModel, MemorySample, Outcome as Ended,
    Piece, PieceKind, Policy, SampleCost, State, decide, notice, observe, should_cancel,
};

/// Cost of one ordinary sample, in tokens.
const TOKENS: f64 = 1000.0;

/// What the monitor says, ten times a second, a tenth of a second late and a little wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub t: f64,
    pub others: f64,
    pub pool: f64,
    pub live: f64,
    pub level: Level,
}

/// A piece that ended.
pub struct Worked {
    pub t: f64,
    pub samples: u32,
    /// Of an ordinary sample's length.
    pub length: f64,
    pub peak: f64,
    pub seconds: f64,
    pub outcome: Ended,
}

/// What a flyer wants next.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub action: Action,
    /// The piece.
    pub piece: u32,
    /// The size that it is cut from.
    pub size: u32,
    pub release: bool,
    /// Checkpoint the last whole step first.
    pub checkpoint: bool,
    pub voluntary: bool,
    /// Predicted peak, GB.
    pub predicted: f64,
}

/// Somebody who chooses.
pub trait Flyer {
    /// A reading; whether the running piece should be cancelled.
    fn tick(&mut self, seen: &Seen, running: bool) -> bool;
    /// Before a piece of what remains.
    fn ask(&mut self, seen: &Seen, remaining: usize, length: f64) -> Wish;
    fn ended(&mut self, piece: &Worked);
    /// A checkpoint was written.
    fn saved(&mut self, _t: f64, _seconds: f64) {}
    /// The system killed the trainer; somebody starts it anew.
    fn killed(&mut self);
}

/// Always so many samples.
pub struct Fixed(pub u32);

impl Flyer for Fixed {
    fn tick(&mut self, _: &Seen, _: bool) -> bool {
        false
    }
    fn ask(&mut self, _: &Seen, remaining: usize, _: f64) -> Wish {
        let remaining = remaining as u32;
        let pieces = remaining.div_ceil(self.0.min(remaining));
        Wish {
            action: Action::Run,
            piece: remaining.div_ceil(pieces),
            size: self.0,
            release: false,
            checkpoint: false,
            voluntary: false,
            predicted: 0.0,
        }
    }
    fn ended(&mut self, piece: &Worked) {
        if piece.outcome == Ended::Memory {
            self.killed();
        }
    }
    fn killed(&mut self) {
        self.0 = (self.0 / 2).max(1);
    }
}

/// Ebb's own controller, with what it remembers.
pub struct Ebb {
    pub policy: Policy,
    state: State,
    model: MemoryModel,
    allocator: Allocator,
    kind: PieceKind,
    sample: MemorySample,
}

impl Ebb {
    pub fn new(policy: Policy, allocator: Allocator) -> Self {
        Self {
            policy,
            state: State::default(),
            model: MemoryModel::new(allocator),
            allocator,
            kind: PieceKind {
                element_bytes: 4,
                resolution: TOKENS as u32,
                ..PieceKind::default()
            },
            sample: MemorySample::default(),
        }
    }
}

impl Flyer for Ebb {
    fn tick(&mut self, seen: &Seen, running: bool) -> bool {
        let others = seen.others.max(0.0);
        self.sample = MemorySample {
            at_ms: ms(seen.t),
            total_bytes: bytes(RAM),
            available_bytes: bytes((RAM - others - seen.pool).max(0.0)),
            own_bytes: bytes(seen.pool),
            device_live_bytes: bytes(seen.live),
            device_allocated_bytes: bytes(seen.pool),
            device_limit_bytes: bytes(DEVICE),
            kernel_level: Some(seen.level),
            ..MemorySample::default()
        };
        let state = std::mem::take(&mut self.state);
        self.state = notice(&self.policy, state, &self.sample);
        running && should_cancel(&self.policy, &self.state, &self.sample).is_some()
    }

    fn ask(&mut self, seen: &Seen, remaining: usize, length: f64) -> Wish {
        let costs = vec![SampleCost((TOKENS * length) as u64); remaining];
        let ask = Ask {
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
        Wish {
            action: decision.action,
            piece: decision.micro_batch,
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

    fn ended(&mut self, piece: &Worked) {
        let piece = Piece {
            at_ms: ms(piece.t),
            kind: self.kind,
            micro_batch: piece.samples,
            cost: (TOKENS * piece.length) as u64 * u64::from(piece.samples),
            peak_bytes: bytes(piece.peak),
            ms: piece.seconds * 1000.0,
            outcome: piece.outcome,
        };
        let (state, model) = (
            std::mem::take(&mut self.state),
            std::mem::take(&mut self.model),
        );
        (self.state, self.model) = observe(&self.policy, state, model, &piece);
    }

    fn saved(&mut self, t: f64, seconds: f64) {
        self.state.tell_checkpoint(ms(t), 1000.0 * seconds);
    }

    fn killed(&mut self) {
        *self = Self::new(self.policy.clone(), self.allocator);
    }
}

/// Growth, and the step down to the knee: nobody needed them.
fn is_voluntary(decision: &Decision) -> bool {
    let knee = "a larger micro-batch is no faster here";
    decision.change == Change::Grow || decision.change == Change::Shrink && decision.reason == knee
}

fn ms(t: f64) -> u64 {
    (t * 1000.0).round() as u64
}

fn bytes(gb: f64) -> u64 {
    (gb * GB) as u64
}

/// The micro-batch of somebody who knows the future and pays nothing for a change: the fastest that stays under the line
/// until it ends. `None` where even one sample does not.
pub fn oracle(truth: &Truth, others: &[f64], now: usize, length: f64) -> Option<u32> {
    let sizes = (1..=BATCH).rev().map(|n| BATCH.div_ceil(n));
    let fits = sizes.filter_map(|m| {
        let samples = f64::from(m) * length;
        let seconds = truth.seconds(samples);
        let until = (now + (seconds / TICK) as usize + 1).min(others.len() - 1);
        let most = others[now..=until].iter().copied().fold(0.0, f64::max);
        (truth.need(samples) <= (LINE * RAM - most).min(DEVICE))
            .then_some((seconds / f64::from(m), m))
    });
    fits.reduce(|a, b| if b.0 < a.0 { b } else { a })
        .map(|(_, m)| m)
}
