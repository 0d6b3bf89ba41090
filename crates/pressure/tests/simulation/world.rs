//! A machine with unified memory, other apps and a trainer, in steps of 50 ms. An independent
//! implementation in Python uses the same random numbers. It differs only in checkpoints: here
//! they are written between two micro-batches, as the trainer does. Amounts are GB as floats.

mod lost_samples;
mod macos_memory_compressor;
mod outcome;
mod mersenne_twister;
mod micro_batch_strategies;
mod other_apps_memory;
mod true_micro_batch_cost;

use mersenne_twister::Random;
use pressure::{Action, Level, Outcome as Result, Policy};
use std::collections::VecDeque;

pub use micro_batch_strategies::{Ebb, Fixed, Strategy};
pub use other_apps_memory::{ARRIVALS, MemoryPattern, PATTERNS, others};
pub use outcome::Outcome;
pub use true_micro_batch_cost::{Rounding, Truth};

use lost_samples::{Activity, Tick, lost_samples};
use macos_memory_compressor::Compressor;
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
/// Demand for memory, as a fraction of it, at which swap is full too and the system kills.
const SWAP_ENDS: f64 = 1.5;
/// Micro-batches after which an unused buffer is freed.
const KEPT: usize = 4;
/// Width of a size class of buffers: a buffer is used for sizes that are smaller by this.
const CLASS: f64 = 1.0 / 16.0;

/// Who chooses the micro-batch.
pub enum Who<'a> {
    /// Knows the future.
    Oracle,
    Strategy(&'a mut dyn Strategy),
}

/// Ebb compared with the oracle.
#[derive(Debug)]
pub struct Comparison {
    pub seed: u32,
    pub ebb: Outcome,
    /// The oracle's size every half minute.
    pub best_sizes: Vec<u32>,
    pub of_oracle: f64,
    pub recovery_s: Option<f64>,
    /// Losses as fractions of the oracle's samples, by cause.
    pub lost: Vec<(String, f64)>,
}

/// Ten minutes of Ebb and of the oracle on machine `seed` of 36 GB.
pub fn compare(pattern: MemoryPattern, seed: u32, rounding: Rounding) -> Comparison {
    compare_on(&Truth::new(seed, rounding), pattern, seed)
}

/// Ten minutes of Ebb and of the oracle on this machine. Other apps are drawn from `seed`.
pub fn compare_on(truth: &Truth, pattern: MemoryPattern, seed: u32) -> Comparison {
    compare_in(World::PLAIN, truth, pattern, seed)
}

/// Ten minutes of Ebb and of the oracle on this machine in this world.
pub fn compare_in(world: World, truth: &Truth, pattern: MemoryPattern, seed: u32) -> Comparison {
    let others = others(truth.ram, pattern, seed);
    let mut ebb = Ebb::new(policy(), truth);
    let ebb = run_in(world, Who::Strategy(&mut ebb), truth, &others, seed);
    let oracle = run_in(world, Who::Oracle, truth, &others, seed);
    let half_minutes = oracle.working.iter().step_by((30.0 / TICK) as usize);
    Comparison {
        seed,
        best_sizes: half_minutes.copied().collect(),
        of_oracle: ebb.done / oracle.done,
        lost: lost_samples(&ebb, &oracle),
        recovery_s: pattern
            .free_again_s()
            .map(|free| ebb.recovery_s(&oracle, truth, free)),
        ebb,
    }
}

/// The usual policy, with the values of `EBB_POLICY` instead, which is a JSON object.
fn policy() -> Policy {
    let json = std::env::var("EBB_POLICY").unwrap_or_else(|_| "{}".to_owned());
    serde_json::from_str(&json).expect("EBB_POLICY is a policy")
}

/// How the samples of a run differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    /// All cost the same, as images do.
    Equal,
    /// Those of one micro-batch cost the same: 8 % more or less than others, rarely a third more.
    Similar,
    /// Texts: each has its own length, a few are four times as long as an ordinary one.
    Texts,
}

/// What a machine does besides the pattern of its other apps.
#[derive(Debug, Clone, Copy)]
pub struct World {
    pub samples: Samples,
    /// Frees buffers that the last micro-batches did not use, as Ebb's pool on a GPU does.
    pub trims: bool,
    /// Compresses other apps' memory before it swaps, and kills only if that does not suffice, as
    /// macOS does. The trainer's memory is wired.
    pub compresses: bool,
    /// The monitor misses beats: now and then it is silent for up to 1.5 s.
    pub misses_beats: bool,
}

impl World {
    /// The world of the independent implementation.
    pub const PLAIN: Self = Self {
        samples: Samples::Similar,
        trims: false,
        compresses: false,
        misses_beats: false,
    };
}

/// The running micro-batch.
struct Running {
    choice: Choice,
    /// Its cost, in ordinary samples.
    amount: f64,
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
        self.update_to(t, level_of(used))
    }

    fn update_to(&mut self, t: f64, now: Level) -> Level {
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
    run_in(World::PLAIN, who, truth, others, seed)
}

/// Ten minutes on this machine in this world.
pub fn run_in<'a>(
    world: World,
    who: Who<'a>,
    truth: &'a Truth,
    others: &'a [f64],
    seed: u32,
) -> Outcome {
    let mut machine = Machine {
        who,
        truth,
        others,
        random: Random::new(seed),
        pool: truth.state,
        left: 0.0,
        touching: 0.0,
        idle: Activity::Updates,
        reason: 0,
        rest: BATCH,
        world,
        recent: VecDeque::new(),
        compressor: Compressor::default(),
        hiccups: Random::new(90_000 + seed),
        silent_until: 0.0,
        lengths: Vec::new(),
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
    /// Time of it in which new memory is touched.
    touching: f64,
    /// What the trainer does if it runs no micro-batch.
    idle: Activity,
    /// Index of the newest reason.
    reason: usize,
    /// Samples left of the effective batch.
    rest: u32,
    world: World,
    /// Needs of the last micro-batches.
    recent: VecDeque<f64>,
    compressor: Compressor,
    /// When the monitor misses beats.
    hiccups: Random,
    silent_until: f64,
    /// Costs of the samples that are left, in ordinary samples, if each has its own.
    lengths: Vec<f64>,
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
        self.out.ticks.push(Tick::default());
        if t < self.dead_until {
            return;
        }
        if self.suspended {
            self.pool = SUSPENDED.min(self.truth.state);
        }
        let wanted = (self.others[i] + self.pool) / self.truth.ram;
        if self.world.compresses {
            self.compressor
                .update(self.truth.ram, self.others[i], self.pool);
        }
        if self.is_killed(t, wanted) {
            return;
        }
        let used = wanted - self.compressor.saved() / self.truth.ram;
        let level = if self.world.compresses {
            let held = self.compressor.fraction(self.truth.ram, self.pool);
            self.system.update_to(t, Compressor::level(held))
        } else {
            self.system.update(t, used)
        };
        self.measure(t, used, self.others[i]);
        if i.is_multiple_of(2) && self.monitor_beats(t) {
            self.report(i, t, level);
        }
        if self.is_busy(i, wanted) {
            return;
        }
        self.end_micro_batch(t);
        self.end_checkpoint(t);
        if self.rest == 0 {
            (self.rest, self.left) = (BATCH, self.left + UPDATE);
            self.lengths.clear();
            self.idle = Activity::Updates;
            self.checkpoints.steps += 1;
            return;
        }
        let lengths = self.next_lengths();
        let Some(choice) = self.choose(i, t, &lengths) else {
            (self.left, self.out.paused_s) = (0.0, self.out.paused_s + TICK);
            self.idle = Activity::Pauses;
            return;
        };
        if self.is_ready(t, &choice) {
            self.start(i, t, choice, &lengths);
        }
    }

    /// The system kills the trainer if too much memory is used for too long.
    fn is_killed(&mut self, t: f64, used: f64) -> bool {
        let (at_once, soon) = if self.world.compresses {
            (f64::INFINITY, SWAP_ENDS)
        } else {
            (1.15, 1.06)
        };
        if used > at_once || used > soon && self.over_kill >= 1.0 {
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
        self.over_kill = if used > soon {
            self.over_kill + TICK
        } else {
            0.0
        };
        false
    }

    /// Counts the time above the line, unless a single sample would cross it.
    fn measure(&mut self, t: f64, used: f64, theirs: f64) {
        let running = self.running.as_ref();
        let one = match running {
            // Every text must be processed, also a long one.
            Some(running)
                if self.world.samples == Samples::Texts && running.choice.micro_batch == 1 =>
            {
                running.needs
            }
            _ => self.truth.one(running.map(Running::length)),
        };
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
            others: self.others[i.saturating_sub(2)] - self.compressor.saved()
                + noise * self.random.normal(),
            compressor: self
                .world
                .compresses
                .then(|| self.compressor.fraction(self.truth.ram, self.pool)),
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
            let first = (micro_batch.began / TICK).round() as usize;
            for tick in &mut self.out.ticks[first..] {
                tick.activity = Activity::Cancelled;
            }
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
        self.record_tick(1.0 - slow);
        self.touching -= TICK * slow;
        if self.left > 0.0 {
            let running = self.running.as_ref();
            self.out.working[i] = running.map_or(0, |micro_batch| micro_batch.choice.micro_batch);
            return true;
        }
        false
    }

    /// Records what happens in this tick.
    fn record_tick(&mut self, slowed: f64) {
        let Some(tick) = self.out.ticks.last_mut() else {
            return;
        };
        let Some(running) = &self.running else {
            tick.activity = self.idle;
            return;
        };
        let size = f64::from(running.choice.size) * running.length().min(1.0);
        *tick = Tick {
            activity: if self.touching > TICK / 2.0 {
                Activity::Touches
            } else {
                Activity::Works
            },
            speed: self.truth.speed(running.amount),
            of_size: self.truth.speed(size.max(running.amount)),
            slowed,
            reason: self.reason,
        };
    }

    /// Whether the monitor takes the reading that is due.
    fn monitor_beats(&mut self, t: f64) -> bool {
        if self.world.misses_beats && t >= self.silent_until && self.hiccups.unit() < 0.02 {
            self.silent_until = t + self.hiccups.between(0.2, 1.5);
        }
        t >= self.silent_until
    }

    /// Frees the buffers that the last micro-batches did not use.
    fn trim(&mut self, needs: f64) {
        self.recent.push_back(needs);
        if self.recent.len() > KEPT {
            self.recent.pop_front();
        }
        let most = self.recent.iter().copied().fold(self.truth.state, f64::max);
        if self.world.trims {
            let state = self.truth.state;
            self.pool = self.pool.min(state + (1.0 + CLASS) * (most - state));
        }
    }

    fn end_micro_batch(&mut self, t: f64) {
        let Some(micro_batch) = self.running.take() else {
            return;
        };
        self.trim(micro_batch.needs);
        let samples = f64::from(micro_batch.choice.micro_batch);
        self.out.done += samples;
        self.out.finished.push((t, samples));
        self.rest -= micro_batch.choice.micro_batch;
        if let Who::Strategy(strategy) = &mut self.who {
            let peak = micro_batch.needs * (1.0 + 0.01 * self.random.normal());
            let seconds = if micro_batch.slowed {
                t - micro_batch.began
            } else {
                self.truth.seconds(micro_batch.amount)
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

    /// Lengths of the samples left, relative to an ordinary one.
    fn next_lengths(&mut self) -> Vec<f64> {
        let rest = self.rest as usize;
        match self.world.samples {
            Samples::Equal => vec![1.0; rest],
            Samples::Similar => {
                let length = (0.08 * self.random.normal()).exp();
                let length = if self.random.unit() < 0.03 {
                    length * 1.35
                } else {
                    length
                };
                vec![length; rest]
            }
            Samples::Texts => {
                if self.lengths.len() < rest {
                    // Lognormal with a mean of 1.
                    let length = |_| (0.6 * self.random.normal() - 0.18).exp().clamp(0.1, 4.0);
                    self.lengths = (0..rest).map(length).collect();
                }
                self.lengths[self.lengths.len() - rest..].to_vec()
            }
        }
    }

    /// The next micro-batch; `None` if the oracle pauses.
    fn choose(&mut self, i: usize, t: f64, lengths: &[f64]) -> Option<Choice> {
        match &mut self.who {
            Who::Oracle => {
                self.pool = self.truth.state;
                let size = oracle(self.truth, self.others, i, lengths)?;
                Some(Fixed(size).ask(&self.seen, lengths))
            }
            Who::Strategy(strategy) => {
                let choice = strategy.ask(&Reading { t, ..self.seen }, lengths);
                self.reason = self.out.reason(strategy.reason());
                Some(choice)
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
            self.out.repeated += f64::from(BATCH - self.rest);
            self.out.done -= f64::from(BATCH - self.rest);
            (self.pool, self.rest, self.left) = (state, BATCH, 0.0);
        }
        let saved = self.checkpoints.newest;
        let newest = saved.filter(|_| !choice.checkpoint);
        let whole = saved.is_some_and(|(step, _)| step == self.checkpoints.steps);
        match newest {
            // Later steps are repeated.
            Some((_, done)) if suspends => {
                self.out.repeated += (self.out.done - done).max(0.0);
                (self.suspended, self.out.done) = (true, self.out.done.min(done));
            }
            _ if whole => self.suspended |= suspends,
            _ if suspends || choice.checkpoint && !self.suspended => {
                self.out.checkpoints += 1;
                self.checkpoints.writing = Some((t, suspends));
                self.left += state * SAVED / DISK;
                self.idle = Activity::WritesCheckpoint;
                return false;
            }
            _ => {}
        }
        if choice.action != Action::Run {
            self.out.paused_s += TICK;
            self.idle = if self.suspended {
                Activity::IsSuspended
            } else {
                Activity::Pauses
            };
            return false;
        }
        if std::mem::take(&mut self.suspended) {
            (self.pool, self.left) = (state, state / DISK);
            self.idle = Activity::Restores;
            return false;
        }
        true
    }

    /// Starts a micro-batch, unless the device refuses its memory.
    fn start(&mut self, i: usize, t: f64, choice: Choice, lengths: &[f64]) {
        let changed = self.last_size.is_some_and(|last| last != choice.size);
        self.out.changes += u32::from(changed);
        self.last_size = Some(choice.size);
        if choice.voluntary {
            self.out.voluntary.push(t);
        }
        let samples = lengths[..choice.micro_batch as usize].iter().sum();
        let micro_batch = Running {
            choice,
            amount: samples,
            needs: self.truth.need(samples),
            began: t,
            slowed: false,
        };
        if micro_batch.needs > self.truth.device {
            self.out.refused += 1;
            (self.pool, self.left) = (self.truth.state, REFUSED);
            self.idle = Activity::Updates;
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
        self.touching = touched;
        self.left += self.truth.seconds(samples) + touched;
        self.out.working[i] = micro_batch.choice.micro_batch;
        self.running = Some(micro_batch);
    }
}

impl Running {
    /// Mean length of its samples.
    fn length(&self) -> f64 {
        self.amount / f64::from(self.choice.micro_batch)
    }

    fn ended(&self, t: f64, peak: f64, seconds: f64, outcome: Result) -> Ended {
        Ended {
            t,
            samples: self.choice.micro_batch,
            length: self.length(),
            peak,
            seconds,
            outcome,
        }
    }
}
