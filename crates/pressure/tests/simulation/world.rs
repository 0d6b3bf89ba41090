//! A machine with unified memory, other apps and a trainer, in steps of 50 ms. An independent
//! implementation in Python uses the same random numbers. It differs only in checkpoints: here
//! they are written between two micro-batches, as the trainer does. Amounts are GB as floats.

mod outcome;
mod mersenne_twister;
mod micro_batch_strategies;
mod trace;
mod truth;

use mersenne_twister::Random;
use pressure::{Action, Level, Outcome as Result, Policy};

pub use micro_batch_strategies::{Ebb, Fixed, Strategy};
pub use outcome::Outcome;
pub use trace::{ARRIVALS, TRACES, Trace, others};
pub use truth::{Rounding, Truth};

use micro_batch_strategies::{Choice, Ended, Reading, oracle};

const GB: f64 = (1u64 << 30) as f64;
const BATCH: u32 = 64;
const TICK: f64 = 0.05;
pub const END: f64 = 600.0;
const WARNING: f64 = 0.85;
const LINE: f64 = 0.90;
const CRITICAL: f64 = 0.95;
/// GB of a suspended trainer, and GB/s of the disk.
const SUSPENDED: f64 = 0.4;
const DISK: f64 = 3.0;
/// Fraction of the state that a checkpoint has: everything except the gradients.
const SAVED: f64 = 0.7;
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

/// Ten minutes of Ebb and of the oracle on machine `seed` of 36 GB.
pub fn compare(trace: Trace, seed: u32, rounding: Rounding) -> Comparison {
    compare_on(&Truth::new(seed, rounding), trace, seed)
}

/// Ten minutes of Ebb and of the oracle on this machine. Other apps are drawn from `seed`.
pub fn compare_on(truth: &Truth, trace: Trace, seed: u32) -> Comparison {
    let others = others(truth.ram, trace, seed);
    let mut ebb = Ebb::new(Policy::default(), truth);
    let ebb = run(Who::Strategy(&mut ebb), truth, &others, seed);
    let oracle = run(Who::Oracle, truth, &others, seed);
    Comparison {
        of_oracle: ebb.done / oracle.done,
        recovery_s: trace
            .free_again_s()
            .map(|free| ebb.recovery_s(&oracle, truth, free)),
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

/// GB/s at which new memory is first touched on a machine with `ram` GB: 12 on one with 36.
fn first_touch(ram: f64) -> f64 {
    12.0 * (ram / 36.0).sqrt()
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
pub fn run<'a>(who: Who<'a>, truth: &'a Truth, others: &'a [f64], seed: u32) -> Outcome {
    let mut machine = Machine {
        who,
        truth,
        others,
        random: Random::new(seed),
        pool: truth.state,
        left: 0.0,
        rest: BATCH,
        over_kill: 0.0,
        suspended: false,
        dead_until: 0.0,
        last_size: None,
        over_since: None,
        running: None,
        seen: Reading::default(),
        checkpoints: Checkpoints::default(),
        system: SystemLevel::default(),
        out: Outcome::default(),
    };
    (0..others.len()).for_each(|i| machine.tick(i));
    let Machine {
        mut out,
        over_since,
        ..
    } = machine;
    out.reactions_s.extend(over_since.map(|since| END - since));
    out
}

/// The machine with its trainer. Amounts are GB, times are seconds.
struct Machine<'a> {
    who: Who<'a>,
    truth: &'a Truth,
    /// Memory of other apps in each tick.
    others: &'a [f64],
    random: Random,
    /// Memory of the trainer.
    pool: f64,
    /// Time until the running work ends.
    left: f64,
    /// Samples left of the effective batch.
    rest: u32,
    /// Time since more memory is used than the system endures.
    over_kill: f64,
    suspended: bool,
    dead_until: f64,
    last_size: Option<u32>,
    /// When the line was crossed.
    over_since: Option<f64>,
    running: Option<Running>,
    seen: Reading,
    checkpoints: Checkpoints,
    system: SystemLevel,
    out: Outcome,
}

impl Machine<'_> {
    fn tick(&mut self, i: usize) {
        let t = i as f64 * TICK;
        self.out.working.push(0);
        if t < self.dead_until {
            return;
        }
        if self.suspended {
            self.pool = SUSPENDED.min(self.truth.state);
        }
        let used = (self.others[i] + self.pool) / self.truth.ram;
        if self.is_killed(t, used) {
            return;
        }
        let level = self.system.update(t, used);
        self.measure(t, used, self.others[i]);
        if i.is_multiple_of(2) {
            self.report(i, t, level);
        }
        if self.is_busy(i, used) {
            return;
        }
        self.end_micro_batch(t);
        self.end_checkpoint(t);
        if self.rest == 0 {
            (self.rest, self.left) = (BATCH, self.left + UPDATE);
            self.checkpoints.steps += 1;
            return;
        }
        let length = self.next_length();
        let Some(choice) = self.choose(i, t, length) else {
            (self.left, self.out.paused_s) = (0.0, self.out.paused_s + TICK);
            return;
        };
        if self.is_ready(t, &choice) {
            self.start(i, t, choice, length);
        }
    }

    /// The system kills the trainer if too much memory is used for too long.
    fn is_killed(&mut self, t: f64, used: f64) -> bool {
        if used > 1.15 || used > 1.06 && self.over_kill >= 1.0 {
            self.out.killed += 1;
            self.dead_until = t + RESTART;
            (self.pool, self.over_kill) = (self.truth.state, 0.0);
            (self.left, self.rest) = (0.0, BATCH);
            (self.running, self.over_since) = (None, None);
            self.checkpoints.writing = None;
            if let Who::Strategy(strategy) = &mut self.who {
                strategy.killed();
            }
            return true;
        }
        self.over_kill = if used > 1.06 {
            self.over_kill + TICK
        } else {
            0.0
        };
        false
    }

    /// Counts the time above the line, unless a single sample would cross it.
    fn measure(&mut self, t: f64, used: f64, theirs: f64) {
        let running = self.running.as_ref();
        let one = self
            .truth
            .one(running.map(|micro_batch| micro_batch.length));
        if used > LINE && theirs + one <= LINE * self.truth.ram {
            self.out.over_s += TICK;
            self.over_since.get_or_insert(t);
        } else if let Some(since) = self.over_since.take() {
            self.out.reactions_s.push(t - since);
        }
        if used > CRITICAL {
            self.out.critical_s += TICK;
            self.out.first_critical_s.get_or_insert(t);
        }
    }

    /// Gives a strategy a reading, which may cancel the running micro-batch.
    fn report(&mut self, i: usize, t: f64, level: Level) {
        let Who::Strategy(strategy) = &mut self.who else {
            return;
        };
        let running = self.running.as_ref();
        let noise = 0.05 * self.truth.ram / 36.0;
        self.seen = Reading {
            t,
            others: self.others[i.saturating_sub(2)] + noise * self.random.normal(),
            pool: self.pool,
            live: running.map_or(self.truth.state, |micro_batch| micro_batch.needs),
            level,
        };
        if strategy.tick(&self.seen, self.running.is_some())
            && let Some(micro_batch) = self.running.take()
        {
            let seconds = t - micro_batch.began;
            strategy.ended(&micro_batch.ended(t, self.pool, seconds, Result::Cancelled));
            self.out.cancels += 1;
            (self.left, self.pool) = (0.0, self.truth.state);
        }
    }

    /// Works for one tick, slower while the system swaps; true if the work has not ended.
    fn is_busy(&mut self, i: usize, used: f64) -> bool {
        let slow = if used < 0.92 {
            1.0
        } else {
            1.0 / (1.0 + 45.0 * (used - 0.92))
        };
        if let Some(micro_batch) = &mut self.running {
            micro_batch.slowed |= slow < 0.97;
        }
        if self.left > 0.0 {
            self.left -= TICK * slow;
        }
        if self.left > 0.0 {
            let running = self.running.as_ref();
            self.out.working[i] = running.map_or(0, |micro_batch| micro_batch.choice.micro_batch);
            return true;
        }
        false
    }

    fn end_micro_batch(&mut self, t: f64) {
        let Some(micro_batch) = self.running.take() else {
            return;
        };
        let samples = f64::from(micro_batch.choice.micro_batch);
        self.out.done += samples;
        self.out.finished.push((t, samples));
        self.rest -= micro_batch.choice.micro_batch;
        if let Who::Strategy(strategy) = &mut self.who {
            let peak = micro_batch.needs * (1.0 + 0.01 * self.random.normal());
            let seconds = if micro_batch.slowed {
                t - micro_batch.began
            } else {
                self.truth.seconds(samples * micro_batch.length)
            };
            let seconds = seconds * (1.0 + 0.02 * self.random.normal());
            strategy.ended(&micro_batch.ended(t, peak, seconds, Result::Ok));
            self.out.peaks.push((micro_batch.choice.predicted, peak));
        }
    }

    fn end_checkpoint(&mut self, t: f64) {
        if let Some((since, suspends)) = self.checkpoints.writing.take() {
            let done = self.out.done - f64::from(BATCH - self.rest);
            self.checkpoints.newest = Some((self.checkpoints.steps, done));
            self.suspended = suspends;
            if let Who::Strategy(strategy) = &mut self.who {
                strategy.checkpoint_written(t, t - since);
            }
        }
    }

    /// Length of the next samples, relative to an ordinary one.
    fn next_length(&mut self) -> f64 {
        let length = (0.08 * self.random.normal()).exp();
        if self.random.unit() < 0.03 {
            length * 1.35
        } else {
            length
        }
    }

    /// The next micro-batch; `None` if the oracle pauses.
    fn choose(&mut self, i: usize, t: f64, length: f64) -> Option<Choice> {
        let rest = self.rest as usize;
        match &mut self.who {
            Who::Oracle => {
                self.pool = self.truth.state;
                let size = oracle(self.truth, self.others, i, length)?;
                Some(Fixed(size).ask(&self.seen, rest, length))
            }
            Who::Strategy(strategy) => {
                Some(strategy.ask(&Reading { t, ..self.seen }, rest, length))
            }
        }
    }

    /// Releases memory, suspends, resumes or writes a checkpoint, as chosen; true if a micro-batch
    /// can start.
    fn is_ready(&mut self, t: f64, choice: &Choice) -> bool {
        let state = self.truth.state;
        if choice.release && self.pool > state {
            (self.pool, self.left) = (state, self.left + SYNC);
        }
        self.out.sizes.push((t, choice.size));
        let suspends = choice.action == Action::Suspend && !self.suspended;
        if suspends {
            // Only complete steps are saved.
            self.out.suspensions += 1;
            self.out.done -= f64::from(BATCH - self.rest);
            (self.pool, self.rest, self.left) = (state, BATCH, 0.0);
        }
        let saved = self.checkpoints.newest;
        let newest = saved.filter(|_| !choice.checkpoint);
        let whole = saved.is_some_and(|(step, _)| step == self.checkpoints.steps);
        match newest {
            // Later steps are repeated.
            Some((_, done)) if suspends => {
                (self.suspended, self.out.done) = (true, self.out.done.min(done));
            }
            _ if whole => self.suspended |= suspends,
            _ if suspends || choice.checkpoint && !self.suspended => {
                self.out.checkpoints += 1;
                self.checkpoints.writing = Some((t, suspends));
                self.left += state * SAVED / DISK;
                return false;
            }
            _ => {}
        }
        if choice.action != Action::Run {
            self.out.paused_s += TICK;
            return false;
        }
        if std::mem::take(&mut self.suspended) {
            (self.pool, self.left) = (state, state / DISK);
            return false;
        }
        true
    }

    /// Starts a micro-batch, unless the device refuses its memory.
    fn start(&mut self, i: usize, t: f64, choice: Choice, length: f64) {
        let changed = self.last_size.is_some_and(|last| last != choice.size);
        self.out.changes += u32::from(changed);
        self.last_size = Some(choice.size);
        if choice.voluntary {
            self.out.voluntary.push(t);
        }
        let samples = f64::from(choice.micro_batch) * length;
        let micro_batch = Running {
            choice,
            length,
            needs: self.truth.need(samples),
            began: t,
            slowed: false,
        };
        if micro_batch.needs > self.truth.device {
            self.out.refused += 1;
            (self.pool, self.left) = (self.truth.state, REFUSED);
            if let Who::Strategy(strategy) = &mut self.who {
                strategy.ended(&micro_batch.ended(t, 0.0, 0.0, Result::Memory));
            }
            return;
        }
        let touched = match self.who {
            Who::Oracle => 0.0,
            Who::Strategy(_) => (micro_batch.needs - self.pool).max(0.0) / self.truth.first_touch(),
        };
        self.pool = self.pool.max(micro_batch.needs);
        self.left += self.truth.seconds(samples) + touched;
        self.out.working[i] = micro_batch.choice.micro_batch;
        self.running = Some(micro_batch);
    }
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
