//! A machine, other apps and a trainer, in steps of 50 ms. Bytes are GB as floats here.

mod random;
mod truth;
mod trace;
mod oracle;
mod outcome;

use pressure::{
    Action, Ask, Level, MemoryModel, MemorySample, Outcome as Ended, Piece, PieceKind, Policy,
    SampleCost, State, decide, notice, observe, should_cancel,
};
use random::Random;
use truth::Truth;

pub use outcome::Outcome;
pub use trace::{TRACES, Trace};

const GB: f64 = (1u64 << 30) as f64;
const RAM: f64 = 36.0;
const DEVICE: f64 = 28.08;
const BATCH: usize = 64;
const TICK: f64 = 0.05;
const END: f64 = 600.0;
const WARNING: f64 = 0.85;
const LINE: f64 = 0.90;
const CRITICAL: f64 = 0.95;
const PARKED: f64 = 0.4;
const DISK: f64 = 3.0;
const FIRST_TOUCH: f64 = 12.0;

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
    let others = trace::others(trace, &mut random);
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
            spare_bytes: 0,
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
    out.of_oracle = done / oracle::oracle(&truth, &others);
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
