//! A machine with unified memory, other apps and a trainer, in steps of 50 ms. An implementation in Python
//! does the same work with the same random numbers. It differs in checkpoints alone: here they are written as the trainer
//! writes them, between two pieces, while nothing else is done and as slowly as everything is. GB are floats here.

mod flyer;
mod outcome;
mod random;
mod trace;
mod truth;

use pressure::{Action, Level, Outcome as Ended, Policy};
use random::Random;

pub use flyer::{Ebb, Fixed, Flyer};
pub use outcome::Outcome;
pub use trace::{TRACES, Trace, others};
pub use truth::{Rounding, Truth};

use flyer::{Seen, Wish, Worked, oracle};

const GB: f64 = (1u64 << 30) as f64;
const RAM: f64 = 36.0;
const DEVICE: f64 = 28.08;
const BATCH: u32 = 64;
const TICK: f64 = 0.05;
pub const END: f64 = 600.0;
const WARNING: f64 = 0.85;
const LINE: f64 = 0.90;
const CRITICAL: f64 = 0.95;
/// GB left of a parked trainer, GB/s of the disk, GB/s at which new memory is first touched.
const PARKED: f64 = 0.4;
const DISK: f64 = 3.0;
/// Share of the state that a checkpoint holds: all but the gradients.
const KEPT: f64 = 0.7;
const FIRST_TOUCH: f64 = 12.0;
/// Seconds that an optimizer step, giving the pool back, a refused allocation and a restart take.
const UPDATE: f64 = 0.05;
const SYNC: f64 = 0.03;
const REFUSED: f64 = 0.5;
const RESTART: f64 = 20.0;

/// Who flies.
pub enum Who<'a> {
    /// Knows the future.
    Oracle,
    Flyer(&'a mut dyn Flyer),
}

/// Ebb against the oracle.
#[derive(Debug)]
pub struct Flight {
    pub ebb: Outcome,
    pub of_oracle: f64,
    pub recovery_s: Option<f64>,
}

/// Ten minutes of Ebb and of the oracle on machine `seed`.
pub fn fly(trace: Trace, seed: u32, rounding: Rounding) -> Flight {
    let truth = Truth::of(seed, rounding);
    let others = others(trace, seed);
    let mut ebb = Ebb::new(Policy::default(), rounding.told());
    let ebb = run(Who::Flyer(&mut ebb), &truth, &others, seed);
    let oracle = run(Who::Oracle, &truth, &others, seed);
    Flight {
        of_oracle: ebb.done / oracle.done,
        recovery_s: trace
            .free_again_s()
            .map(|free| ebb.recovery_s(&oracle, &truth, free)),
        ebb,
    }
}

/// The piece at work.
struct Working {
    wish: Wish,
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

/// Checkpoints of whole steps, as the trainer writes them.
#[derive(Default)]
struct Checkpoints {
    /// Whole steps done.
    steps: u32,
    /// The newest one: the step that it is of, and the samples done until then.
    newest: Option<(u32, f64)>,
    /// The one being written: since when, and whether everything is dropped after it.
    writing: Option<(f64, bool)>,
}

/// Ten minutes on this machine.
pub fn run(mut who: Who, truth: &Truth, others: &[f64], seed: u32) -> Outcome {
    let mut random = Random::new(seed);
    let mut out = Outcome::default();
    let (mut pool, mut left, mut rest, mut over_kill) = (truth.state, 0.0, BATCH, 0.0);
    let (mut parked, mut dead_until, mut last_size) = (false, 0.0, None);
    let (mut checkpoints, mut system) = (Checkpoints::default(), SystemLevel::default());
    let mut over_since: Option<f64> = None;
    let mut working: Option<Working> = None;
    let mut seen = Seen::default();

    for (i, &theirs) in others.iter().enumerate() {
        let t = i as f64 * TICK;
        out.working.push(0);
        if t < dead_until {
            continue;
        }
        if parked {
            pool = PARKED;
        }
        let used = (theirs + pool) / RAM;
        if used > 1.15 || used > 1.06 && over_kill >= 1.0 {
            out.killed += 1;
            (dead_until, pool, over_kill) = (t + RESTART, truth.state, 0.0);
            (working, left, rest, over_since) = (None, 0.0, BATCH, None);
            checkpoints.writing = None;
            if let Who::Flyer(flyer) = &mut who {
                flyer.killed();
            }
            continue;
        }
        over_kill = if used > 1.06 { over_kill + TICK } else { 0.0 };
        let level = system.update(t, used);
        let one = truth.one(working.as_ref().map(|piece| piece.length));
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
        if let Who::Flyer(flyer) = &mut who
            && i % 2 == 0
        {
            seen = Seen {
                t,
                others: others[i.saturating_sub(2)] + 0.05 * random.normal(),
                pool,
                live: working.as_ref().map_or(truth.state, |piece| piece.needs),
                level,
            };
            if flyer.tick(&seen, working.is_some())
                && let Some(piece) = working.take()
            {
                flyer.ended(&piece.ended(t, pool, t - piece.began, Ended::Cancelled));
                out.cancels += 1;
                (left, pool) = (0.0, truth.state);
            }
        }
        let slow = if used < 0.92 {
            1.0
        } else {
            1.0 / (1.0 + 45.0 * (used - 0.92))
        };
        if let Some(piece) = &mut working {
            piece.slowed |= slow < 0.97;
        }
        if left > 0.0 {
            left -= TICK * slow;
        }
        if left > 0.0 {
            out.working[i] = working.as_ref().map_or(0, |piece| piece.wish.piece);
            continue;
        }
        if let Some(piece) = working.take() {
            out.done += f64::from(piece.wish.piece);
            out.finished.push((t, f64::from(piece.wish.piece)));
            rest -= piece.wish.piece;
            if let Who::Flyer(flyer) = &mut who {
                let peak = piece.needs * (1.0 + 0.01 * random.normal());
                let seconds = match piece.slowed {
                    true => t - piece.began,
                    false => truth.seconds(f64::from(piece.wish.piece) * piece.length),
                };
                let seconds = seconds * (1.0 + 0.02 * random.normal());
                flyer.ended(&piece.ended(t, peak, seconds, Ended::Ok));
                out.peaks.push((piece.wish.predicted, peak));
            }
        }
        if let Some((since, parks)) = checkpoints.writing.take() {
            let done = out.done - f64::from(BATCH - rest);
            (checkpoints.newest, parked) = (Some((checkpoints.steps, done)), parks);
            if let Who::Flyer(flyer) = &mut who {
                flyer.saved(t, t - since);
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
        let wish = match &mut who {
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
            Who::Flyer(flyer) => flyer.ask(&Seen { t, ..seen }, rest as usize, length),
        };
        if wish.release && pool > truth.state {
            (pool, left) = (truth.state, left + SYNC);
        }
        out.sizes.push((t, wish.size));
        let parks = wish.action == Action::Park && !parked;
        if parks {
            // Only whole steps are kept.
            out.parks += 1;
            out.done -= f64::from(BATCH - rest);
            (pool, rest, left) = (truth.state, BATCH, 0.0);
        }
        let newest = checkpoints.newest.filter(|_| !wish.checkpoint);
        let whole = checkpoints
            .newest
            .is_some_and(|(step, _)| step == checkpoints.steps);
        match newest {
            // What came after it is worked again.
            Some((_, done)) if parks => (parked, out.done) = (true, out.done.min(done)),
            _ if whole => parked |= parks,
            _ if parks || wish.checkpoint && !parked => {
                out.checkpoints += 1;
                checkpoints.writing = Some((t, parks));
                left += truth.state * KEPT / DISK;
                continue;
            }
            _ => {}
        }
        if wish.action != Action::Run {
            out.paused_s += TICK;
            continue;
        }
        if std::mem::take(&mut parked) {
            (pool, left) = (truth.state, truth.state / DISK);
            continue;
        }
        out.changes += u32::from(last_size.is_some_and(|last| last != wish.size));
        last_size = Some(wish.size);
        if wish.voluntary {
            out.voluntary.push(t);
        }
        let samples = f64::from(wish.piece) * length;
        let piece = Working {
            wish,
            length,
            needs: truth.need(samples),
            began: t,
            slowed: false,
        };
        if piece.needs > DEVICE {
            out.refused += 1;
            (pool, left) = (truth.state, REFUSED);
            if let Who::Flyer(flyer) = &mut who {
                flyer.ended(&piece.ended(t, 0.0, 0.0, Ended::Memory));
            }
            continue;
        }
        let touched = match who {
            Who::Oracle => 0.0,
            Who::Flyer(_) => (piece.needs - pool).max(0.0) / FIRST_TOUCH,
        };
        pool = pool.max(piece.needs);
        left += truth.seconds(samples) + touched;
        out.working[i] = piece.wish.piece;
        working = Some(piece);
    }
    out.reactions_s.extend(over_since.map(|since| END - since));
    out
}

impl Working {
    fn ended(&self, t: f64, peak: f64, seconds: f64, outcome: Ended) -> Worked {
        Worked {
            t,
            samples: self.wish.piece,
            length: self.length,
            peak,
            seconds,
            outcome,
        }
    }
}
