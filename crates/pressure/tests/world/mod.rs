//! A machine, other apps and a trainer, in steps of 50 ms. Bytes are GB as floats here.

use pressure::{
    Action, Ask, Level, MemoryModel, MemorySample, Outcome as Ended, Piece, PieceKind, Policy,
    SampleCost, State, decide, notice, observe, should_cancel,
};

const GB: f64 = (1u64 << 30) as f64;
const RAM: f64 = 36.0;
const DEVICE: f64 = 28.08;
const BATCH: usize = 64;
const TICK: f64 = 0.05;
const END: f64 = 600.0;
const OTHERS: f64 = 7.0;
const WARNING: f64 = 0.85;
const LINE: f64 = 0.90;
const CRITICAL: f64 = 0.95;
const PARKED: f64 = 0.4;
const DISK: f64 = 3.0;
const FIRST_TOUCH: f64 = 12.0;

/// What others do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trace {
    Calm,
    Step,
    StepAndBack,
    HogLeaves,
    Ramp,
    Sawtooth,
    Spike,
    Noisy,
    Leak,
    NoWayOut,
}

pub const TRACES: [Trace; 10] = [
    Trace::Calm,
    Trace::Step,
    Trace::StepAndBack,
    Trace::HogLeaves,
    Trace::Ramp,
    Trace::Sawtooth,
    Trace::Spike,
    Trace::Noisy,
    Trace::Leak,
    Trace::NoWayOut,
];

/// What came of ten minutes.
#[derive(Debug, Default)]
pub struct Outcome {
    pub killed: u32,
    pub refused: u32,
    pub cancels: u32,
    pub parks: u32,
    pub changes: u32,
    pub most_changes_in_a_minute: usize,
    pub over_s: f64,
    pub critical_s: f64,
    pub of_oracle: f64,
    pub first_critical_s: Option<f64>,
    /// `(second, micro-batch decided)`
    pub sizes: Vec<(f64, u32)>,
}

impl Outcome {
    pub fn size_at(&self, second: f64) -> u32 {
        self.sizes
            .iter()
            .rev()
            .find(|(t, _)| *t <= second)
            .map_or(0, |(_, m)| *m)
    }
    pub fn first_size_below(&self, size: u32, from: f64) -> Option<f64> {
        self.sizes
            .iter()
            .find(|(t, m)| *t >= from && *m < size)
            .map(|(t, _)| *t)
    }
    pub fn first_size_from(&self, size: u32, from: f64) -> Option<f64> {
        self.sizes
            .iter()
            .find(|(t, m)| *t >= from && *m >= size)
            .map(|(t, _)| *t)
    }
}

/// Seeded random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The truth that the controller has to find out.
struct Truth {
    state: f64,
    sample: f64,
    fixed_s: f64,
    sample_s: f64,
    knee: f64,
}

impl Truth {
    fn of(seed: u64) -> Self {
        let mut r = Random(77 + seed);
        match seed {
            0 => Self {
                state: 6.0,
                sample: 0.34,
                fixed_s: 0.020,
                sample_s: 0.012,
                knee: 6.0,
            },
            _ => Self {
                state: r.between(3.0, 8.0),
                sample: r.between(0.12, 0.6),
                fixed_s: r.between(0.01, 0.05),
                sample_s: r.between(0.004, 0.02),
                knee: r.between(3.0, 14.0),
            },
        }
    }
    fn need(&self, samples: f64) -> f64 {
        self.state + self.sample * samples
    }
    fn seconds(&self, samples: f64) -> f64 {
        self.fixed_s + self.sample_s * (samples.powi(4) + self.knee.powi(4)).powf(0.25)
    }
}

fn others(trace: Trace, random: &mut Random) -> Vec<f64> {
    let ramp = |t: f64, from: f64, to: f64, height: f64| {
        height * ((t - from) / (to - from)).clamp(0.0, 1.0)
    };
    let mut drift = 0.0;
    let at = |i: usize| {
        let t = i as f64 * TICK;
        drift += -drift / 20.0 * TICK + 0.9 * TICK.sqrt() * random.normal();
        let extra = match trace {
            Trace::Calm => 0.0,
            Trace::Step => ramp(t, 120.0, 122.0, 8.0),
            Trace::StepAndBack => ramp(t, 120.0, 122.0, 8.0) - ramp(t, 300.0, 301.0, 8.0),
            Trace::HogLeaves => ramp(t, 120.0, 123.0, 14.0) - ramp(t, 300.0, 301.0, 14.0),
            Trace::Ramp => ramp(t, 100.0, 220.0, 18.0) - ramp(t, 400.0, 402.0, 18.0),
            Trace::Sawtooth => 12.0 * (t % 60.0) / 60.0,
            Trace::Spike => 10.0 * (t % 90.0 - 85.0).min(90.0 - t % 90.0).clamp(0.0, 1.0),
            Trace::Noisy => (6.0 + 1.1 * drift).clamp(0.0, 19.0),
            Trace::Leak => ramp(t, 30.0, 600.0, 20.0),
            Trace::NoWayOut => ramp(t, 200.0, 206.0, 24.5) - ramp(t, 260.0, 262.0, 24.5),
        };
        OTHERS + extra.max(0.0) + 0.10 * random.normal().abs()
    };
    (0..=(END / TICK) as usize).map(at).collect()
}

/// Samples done by somebody who knows the future and pays nothing for a change.
fn oracle(truth: &Truth, others: &[f64]) -> f64 {
    let (mut done, mut i) = (0.0, 0);
    while i < others.len() {
        let best = (1..=BATCH as u32).map(f64::from).filter_map(|m| {
            let until = (i + (truth.seconds(m) / TICK) as usize + 1).min(others.len() - 1);
            let most = others[i..=until].iter().copied().fold(0.0, f64::max);
            (truth.need(m) <= (LINE * RAM - most).min(DEVICE)).then(|| (truth.seconds(m) / m, m))
        });
        match best.reduce(|a, b| if b.0 < a.0 { b } else { a }) {
            None => i += 1,
            Some((_, m)) => {
                done += m;
                i += (truth.seconds(m) / TICK).ceil().max(1.0) as usize;
            }
        }
    }
    done
}

/// The piece at work.
struct Working {
    samples: u32,
    cost: u64,
    needs: f64,
    left: f64,
    began: f64,
}

pub fn run(trace: Trace, seed: u64) -> Outcome {
    let truth = Truth::of(seed);
    let mut random = Random(1000 + seed);
    let others = others(trace, &mut random);
    let kind = PieceKind {
        element_bytes: 4,
        resolution: 64,
        ..PieceKind::default()
    };
    let policy = Policy::default();
    let (mut state, mut model) = (State::default(), MemoryModel::default());
    let mut out = Outcome::default();
    let mut costs: Vec<SampleCost> = Vec::new();
    let (mut pool, mut delay, mut done, mut over_kill) = (truth.state, 0.0, 0.0, 0.0);
    let (mut wanted, mut since, mut level) = (Level::Normal, 0.0, Level::Normal);
    let (mut parked, mut dead_until) = (false, 0.0);
    let mut working: Option<Working> = None;
    let mut changed: Vec<f64> = Vec::new();
    let mut sample = MemorySample::default();

    for (i, &theirs) in others.iter().enumerate() {
        let t = i as f64 * TICK;
        if t < dead_until {
            continue;
        }
        let used = (theirs + pool) / RAM;
        over_kill = if used > 1.06 { over_kill + TICK } else { 0.0 };
        if used > 1.15 || over_kill > 1.0 {
            out.killed += 1;
            (dead_until, pool, over_kill) = (t + 20.0, truth.state, 0.0);
            (working, costs) = (None, Vec::new());
            continue;
        }
        // The system's own level: a second late going up, five going down.
        let now = if used > CRITICAL {
            Level::Critical
        } else if used > WARNING {
            Level::Warning
        } else {
            Level::Normal
        };
        if now != wanted {
            (wanted, since) = (now, t);
        }
        if now > level && t - since >= 1.0 || now < level && t - since >= 5.0 {
            level = now;
        }
        if used > LINE && theirs + truth.need(1.0) <= LINE * RAM {
            out.over_s += TICK;
        }
        if used > CRITICAL {
            out.critical_s += TICK;
            out.first_critical_s.get_or_insert(t);
        }
        // The monitor, ten times a second, a tenth of a second late and a little wrong.
        if i % 2 == 0 {
            let seen = (others[i.saturating_sub(2)] + 0.05 * random.normal()).max(0.0);
            sample = MemorySample {
                at_ms: (t * 1000.0) as u64,
                total_bytes: (RAM * GB) as u64,
                available_bytes: ((RAM - seen - pool).max(0.0) * GB) as u64,
                own_bytes: (pool * GB) as u64,
                device_limit_bytes: (DEVICE * GB) as u64,
                kernel_level: Some(level),
                ..MemorySample::default()
            };
            state = notice(&policy, state, &sample);
            if let Some(piece) = &working
                && should_cancel(&policy, &state, &sample).is_some()
            {
                let piece = ended(kind, t, piece, pool, Ended::Cancelled);
                (state, model) = observe(&policy, state, model, &piece);
                out.cancels += 1;
                (working, pool) = (None, truth.state);
            }
        }
        let slow = if used < 0.92 {
            1.0
        } else {
            1.0 / (1.0 + 45.0 * (used - 0.92))
        };
        if delay > 0.0 {
            delay -= TICK * slow;
            continue;
        }
        if let Some(piece) = &mut working {
            piece.left -= TICK * slow;
            if piece.left > 0.0 {
                continue;
            }
            done += f64::from(piece.samples);
            costs.drain(..piece.samples as usize);
            let piece = ended(
                kind,
                t,
                piece,
                piece.needs * (1.0 + 0.01 * random.normal()),
                Ended::Ok,
            );
            (state, model) = observe(&policy, state, model, &piece);
            working = None;
        }
        if costs.is_empty() {
            costs = (0..BATCH)
                .map(|_| SampleCost((1000.0 * (0.2 * random.normal()).exp()) as u64))
                .collect();
        }
        let ask = Ask {
            sample: MemorySample {
                at_ms: (t * 1000.0) as u64,
                ..sample
            },
            remaining: &costs,
            kind,
        };
        let before = state.micro_batch(kind);
        let (next, decision) = decide(&policy, state, &ask, &model);
        state = next;
        let size = state.micro_batch(kind);
        if size != before && before > 0 {
            out.changes += 1;
        }
        if decision.change == pressure::Change::Grow {
            changed.push(t);
        }
        out.sizes.push((
            t,
            if decision.action == Action::Run {
                size
            } else {
                0
            },
        ));
        if decision.release_caches && pool > truth.state {
            pool = truth.state;
            delay += 0.03;
        }
        if decision.action == Action::Park {
            out.parks += u32::from(!parked);
            (parked, pool) = (true, PARKED);
            continue;
        }
        if decision.action == Action::Pause {
            continue;
        }
        if std::mem::take(&mut parked) {
            pool = truth.state;
            delay += truth.state / DISK;
            continue;
        }
        let cost: u64 = costs[..decision.micro_batch as usize]
            .iter()
            .map(|cost| cost.0)
            .sum();
        let samples = cost as f64 / 1020.0;
        let needs = truth.need(samples);
        if needs > DEVICE {
            out.refused += 1;
            let piece = Working {
                samples: decision.micro_batch,
                cost,
                needs: 0.0,
                left: 0.0,
                began: t,
            };
            (state, model) = observe(
                &policy,
                state,
                model,
                &ended(kind, t, &piece, 0.0, Ended::Memory),
            );
            continue;
        }
        let touched = (needs - pool).max(0.0) / FIRST_TOUCH;
        pool = pool.max(needs);
        working = Some(Working {
            samples: decision.micro_batch,
            cost,
            needs,
            left: truth.seconds(samples) + touched,
            began: t,
        });
    }
    out.of_oracle = done / oracle(&truth, &others);
    let minute = |from: &f64| {
        changed
            .iter()
            .filter(|t| **t >= *from && **t <= from + 60.0)
            .count()
    };
    out.most_changes_in_a_minute = changed.iter().map(minute).max().unwrap_or(0);
    out
}

fn ended(kind: PieceKind, t: f64, piece: &Working, peak: f64, outcome: Ended) -> Piece {
    Piece {
        at_ms: (t * 1000.0) as u64,
        kind,
        micro_batch: piece.samples,
        cost: piece.cost,
        peak_bytes: (peak * GB) as u64,
        ms: (t - piece.began) * 1000.0,
        outcome,
    }
}
