//! A machine with unified memory, other apps and a trainer, in steps of 50 ms. An independent
//! implementation in Python uses the same random numbers. It differs only in checkpoints: here
//! they are written between two micro-batches, as the trainer does. Amounts are GB as floats.

mod outcome;
mod random;
mod strategy;
mod trace;
mod truth;

use pressure::{Action, Level, Outcome as Result, Policy};
use random::Random;

pub use outcome::Outcome;
pub use strategy::{Ebb, Fixed, Strategy};
pub use trace::{TRACES, Trace, others};
pub use truth::{Rounding, Truth};

use strategy::{Choice, Ended, Reading, oracle};

const GB: f64 = (1u64 << 30) as f64;
const RAM: f64 = 36.0;
const DEVICE: f64 = 28.08;
const BATCH: u32 = 64;
const TICK: f64 = 0.05;
pub const END: f64 = 600.0;
const WARNING: f64 = 0.85;
const LINE: f64 = 0.90;
const CRITICAL: f64 = 0.95;
/// GB of a suspended trainer, GB/s of the disk, GB/s at which new memory is first touched.
const SUSPENDED: f64 = 0.4;
const DISK: f64 = 3.0;
/// Fraction of the state that a checkpoint has: everything except the gradients.
const SAVED: f64 = 0.7;
const FIRST_TOUCH: f64 = 12.0;
/// Seconds for an optimizer step, for releasing the pool, for a refused allocation and for a
/// restart.
const UPDATE: f64 = 0.05;
const SYNC: f64 = 0.03;
const REFUSED: f64 = 0.5;
const RESTART: f64 = 20.0;

/// Who chooses the micro-batch.
pub enum Who<'a> {
    /// Knows the future.
    Oracle,
    Strategy(&'a mut dyn Strategy),
}

/// Ebb compared with the oracle.
#[derive(Debug)]
pub struct Comparison {
    pub ebb: Outcome,
    pub of_oracle: f64,
    pub recovery_s: Option<f64>,
}

/// Ten minutes of Ebb and of the oracle on machine `seed`.
pub fn compare(trace: Trace, seed: u32, rounding: Rounding) -> Comparison {
    let truth = Truth::new(seed, rounding);
    let others = others(trace, seed);
    let mut ebb = Ebb::new(Policy::default(), rounding.allocator());
    let ebb = run(Who::Strategy(&mut ebb), &truth, &others, seed);
    let oracle = run(Who::Oracle, &truth, &others, seed);
    Comparison {
        of_oracle: ebb.done / oracle.done,
        recovery_s: trace
            .free_again_s()
            .map(|free| ebb.recovery_s(&oracle, &truth, free)),
        ebb,
    }
}

/// The running micro-batch.
struct Running {
    choice: Choice,
    length: f64,
    needs: f64,
    began: f64,
    slowed: bool,
}

/// The system's own level: a second late going up, five going down.
#[derive(Default)]
struct SystemLevel {
    wanted: Level,
    since: f64,
    level: Level,
}

impl SystemLevel {
    fn update(&mut self, t: f64, used: f64) -> Level {
        let now = level_of(used);
        if now != self.wanted {
            (self.wanted, self.since) = (now, t);
        }
        let held = t - self.since;
        if now > self.level && held >= 1.0 || now < self.level && held >= 5.0 {
            self.level = now;
        }
        self.level
    }
}

fn level_of(used: f64) -> Level {
    match used {
        u if u > CRITICAL => Level::Critical,
        u if u > WARNING => Level::Warning,
        _ => Level::Normal,
    }
}

/// Checkpoints of complete steps, as the trainer writes them.
#[derive(Default)]
struct Checkpoints {
    /// Complete steps.
    steps: u32,
    /// The newest one: its step, and the samples done until then.
    newest: Option<(u32, f64)>,
    /// The one being written: since when, and whether everything is freed after it.
    writing: Option<(f64, bool)>,
}

/// Ten minutes on this machine.
pub fn run(mut who: Who, truth: &Truth, others: &[f64], seed: u32) -> Outcome {
    let mut random = Random::new(seed);
    let mut out = Outcome::default();
    let (mut pool, mut left, mut rest, mut over_kill) = (truth.state, 0.0, BATCH, 0.0);
    let (mut suspended, mut dead_until, mut last_size) = (false, 0.0, None);
    let (mut checkpoints, mut system) = (Checkpoints::default(), SystemLevel::default());
    let mut over_since: Option<f64> = None;
    let mut running: Option<Running> = None;
    let mut seen = Reading::default();

    for (i, &theirs) in others.iter().enumerate() {
        let t = i as f64 * TICK;
        out.working.push(0);
        if t < dead_until {
            continue;
        }
        if suspended {
            pool = SUSPENDED;
        }
        let used = (theirs + pool) / RAM;
        if used > 1.15 || used > 1.06 && over_kill >= 1.0 {
            out.killed += 1;
            (dead_until, pool, over_kill) = (t + RESTART, truth.state, 0.0);
            (running, left, rest, over_since) = (None, 0.0, BATCH, None);
            checkpoints.writing = None;
            if let Who::Strategy(strategy) = &mut who {
                strategy.killed();
            }
            continue;
        }
        over_kill = if used > 1.06 { over_kill + TICK } else { 0.0 };
        let level = system.update(t, used);
        let one = truth.one(running.as_ref().map(|micro_batch| micro_batch.length));
        if used > LINE && theirs + one <= LINE * RAM {
            out.over_s += TICK;
            over_since.get_or_insert(t);
        } else if let Some(since) = over_since.take() {
            out.reactions_s.push(t - since);
        }
        if used > CRITICAL {
            out.critical_s += TICK;
            out.first_critical_s.get_or_insert(t);
        }
        if let Who::Strategy(strategy) = &mut who
            && i % 2 == 0
        {
            seen = Reading {
                t,
                others: others[i.saturating_sub(2)] + 0.05 * random.normal(),
                pool,
                live: running
                    .as_ref()
                    .map_or(truth.state, |micro_batch| micro_batch.needs),
                level,
            };
            if strategy.tick(&seen, running.is_some())
                && let Some(micro_batch) = running.take()
            {
                strategy.ended(&micro_batch.ended(
                    t,
                    pool,
                    t - micro_batch.began,
                    Result::Cancelled,
                ));
                out.cancels += 1;
                (left, pool) = (0.0, truth.state);
            }
        }
        let slow = if used < 0.92 {
            1.0
        } else {
            1.0 / (1.0 + 45.0 * (used - 0.92))
        };
        if let Some(micro_batch) = &mut running {
            micro_batch.slowed |= slow < 0.97;
        }
        if left > 0.0 {
            left -= TICK * slow;
        }
        if left > 0.0 {
            out.working[i] = running
                .as_ref()
                .map_or(0, |micro_batch| micro_batch.choice.micro_batch);
            continue;
        }
        if let Some(micro_batch) = running.take() {
            out.done += f64::from(micro_batch.choice.micro_batch);
            out.finished
                .push((t, f64::from(micro_batch.choice.micro_batch)));
            rest -= micro_batch.choice.micro_batch;
            if let Who::Strategy(strategy) = &mut who {
                let peak = micro_batch.needs * (1.0 + 0.01 * random.normal());
                let seconds = if micro_batch.slowed {
                    t - micro_batch.began
                } else {
                    truth.seconds(f64::from(micro_batch.choice.micro_batch) * micro_batch.length)
                };
                let seconds = seconds * (1.0 + 0.02 * random.normal());
                strategy.ended(&micro_batch.ended(t, peak, seconds, Result::Ok));
                out.peaks.push((micro_batch.choice.predicted, peak));
            }
        }
        if let Some((since, suspends)) = checkpoints.writing.take() {
            let done = out.done - f64::from(BATCH - rest);
            (checkpoints.newest, suspended) = (Some((checkpoints.steps, done)), suspends);
            if let Who::Strategy(strategy) = &mut who {
                strategy.checkpoint_written(t, t - since);
            }
        }
        if rest == 0 {
            (rest, left) = (BATCH, left + UPDATE);
            checkpoints.steps += 1;
            continue;
        }
        let mut length = (0.08 * random.normal()).exp();
        if random.unit() < 0.03 {
            length *= 1.35;
        }
        let choice = match &mut who {
            Who::Oracle => {
                pool = truth.state;
                match oracle(truth, others, i, length) {
                    Some(size) => Fixed(size).ask(&seen, rest as usize, length),
                    None => {
                        (left, out.paused_s) = (0.0, out.paused_s + TICK);
                        continue;
                    }
                }
            }
            Who::Strategy(strategy) => strategy.ask(&Reading { t, ..seen }, rest as usize, length),
        };
        if choice.release && pool > truth.state {
            (pool, left) = (truth.state, left + SYNC);
        }
        out.sizes.push((t, choice.size));
        let suspends = choice.action == Action::Suspend && !suspended;
        if suspends {
            // Only complete steps are saved.
            out.suspensions += 1;
            out.done -= f64::from(BATCH - rest);
            (pool, rest, left) = (truth.state, BATCH, 0.0);
        }
        let newest = checkpoints.newest.filter(|_| !choice.checkpoint);
        let whole = checkpoints
            .newest
            .is_some_and(|(step, _)| step == checkpoints.steps);
        match newest {
            // Later steps are repeated.
            Some((_, done)) if suspends => (suspended, out.done) = (true, out.done.min(done)),
            _ if whole => suspended |= suspends,
            _ if suspends || choice.checkpoint && !suspended => {
                out.checkpoints += 1;
                checkpoints.writing = Some((t, suspends));
                left += truth.state * SAVED / DISK;
                continue;
            }
            _ => {}
        }
        if choice.action != Action::Run {
            out.paused_s += TICK;
            continue;
        }
        if std::mem::take(&mut suspended) {
            (pool, left) = (truth.state, truth.state / DISK);
            continue;
        }
        out.changes += u32::from(last_size.is_some_and(|last| last != choice.size));
        last_size = Some(choice.size);
        if choice.voluntary {
            out.voluntary.push(t);
        }
        let samples = f64::from(choice.micro_batch) * length;
        let micro_batch = Running {
            choice,
            length,
            needs: truth.need(samples),
            began: t,
            slowed: false,
        };
        if micro_batch.needs > DEVICE {
            out.refused += 1;
            (pool, left) = (truth.state, REFUSED);
            if let Who::Strategy(strategy) = &mut who {
                strategy.ended(&micro_batch.ended(t, 0.0, 0.0, Result::Memory));
            }
            continue;
        }
        let touched = match who {
            Who::Oracle => 0.0,
            Who::Strategy(_) => (micro_batch.needs - pool).max(0.0) / FIRST_TOUCH,
        };
        pool = pool.max(micro_batch.needs);
        left += truth.seconds(samples) + touched;
        out.working[i] = micro_batch.choice.micro_batch;
        running = Some(micro_batch);
    }
    out.reactions_s.extend(over_since.map(|since| END - since));
    out
}

impl Running {
    fn ended(&self, t: f64, peak: f64, seconds: f64, outcome: Result) -> Ended {
        Ended {
            t,
            samples: self.choice.micro_batch,
            length: self.length,
            peak,
            seconds,
            outcome,
        }
    }
}
