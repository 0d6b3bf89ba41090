//! Measures the cost of the memory controller while no other app needs memory. The automatic
//! micro-batch and fixed ones train the same batches in one process, taking turns step by step, so
//! that a slowdown of the machine that lasts longer than a step affects all of them alike.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Number of first steps of each training that are not measured: the first includes set-up, and the
/// controller starts with small micro-batches.
const WARM_UP: usize = 10;

/// Seconds of each step of one training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepTimes {
    /// The micro-batch; `None` for the automatic one.
    pub fixed: Option<u32>,
    /// Every step, including the warm-up.
    pub seconds: Vec<f64>,
    /// Micro-batches of the last step.
    pub micro_batches: Vec<u32>,
}

impl StepTimes {
    /// Seconds of each step after the warm-up.
    pub fn steady(&self) -> &[f64] {
        self.seconds.get(WARM_UP..).unwrap_or_default()
    }

    /// Mean seconds per step after the warm-up.
    pub fn mean(&self) -> f64 {
        self.steady().iter().sum::<f64>() / self.steady().len() as f64
    }

    /// Throughput as a fraction of `best`'s, and its standard error, from pairs of neighboring
    /// steps.
    pub fn fraction_of(&self, best: &StepTimes) -> (f64, f64) {
        let fraction = best.mean() / self.mean();
        let pairs = best.steady().iter().zip(self.steady());
        let off: Vec<f64> = pairs.map(|(best, own)| best - fraction * own).collect();
        let count = off.len() as f64;
        let variance = off.iter().map(|off| off * off).sum::<f64>() / (count - 1.0);
        (fraction, (variance / count).sqrt() / self.mean())
    }
}

/// Called after each step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterStep {
    /// Works the next step.
    Continue,
    /// Ends before the next step.
    Stop,
}

/// A run that [`compare_controller`] runs on a thread of its own. It calls the function after
/// each step, with the number of the step and its micro-batches.
pub type Train<'a, E> = dyn Fn(Option<u32>, &mut (dyn FnMut(u64, &[u32]) -> AfterStep + Send)) -> Result<(), E>
    + Sync
    + 'a;

/// Trains with the automatic micro-batch and with each of the `fixed` ones, `steps` steps after the
/// warm-up. Gives the times of the automatic one first.
///
/// # Errors
/// The first error of a run. `panicked` makes the error of one that panicked.
pub fn compare_controller<E: Send>(
    fixed: &[u32],
    steps: u64,
    train: &Train<E>,
    panicked: impl Fn() -> E,
) -> Result<Vec<StepTimes>, E> {
    let turns = Turns::new(fixed.len() + 1);
    let steps = total_steps(steps);
    let sizes = std::iter::once(None).chain(fixed.iter().copied().map(Some));
    std::thread::scope(|scope| {
        let begin = |(me, fixed)| {
            let turns = &turns;
            scope.spawn(move || {
                let times = train_in_turn(turns, me, fixed, steps, train);
                turns.leave();
                times
            })
        };
        // All threads start before the first is joined.
        let threads: Vec<_> = sizes.enumerate().map(begin).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .collect()
    })
}

/// Steps of each training including the warm-up.
pub fn total_steps(measured: u64) -> u64 {
    measured + WARM_UP as u64
}

fn train_in_turn<E>(
    turns: &Turns,
    me: usize,
    fixed: Option<u32>,
    steps: u64,
    train: &Train<E>,
) -> Result<StepTimes, E> {
    let mut times = StepTimes {
        fixed,
        ..StepTimes::default()
    };
    turns.wait(me);
    let mut start = Instant::now();
    train(fixed, &mut |step, micro_batches| {
        times.seconds.push(start.elapsed().as_secs_f64());
        times.micro_batches = micro_batches.to_vec();
        let is_last = step >= steps;
        let intact = if is_last {
            turns.finish()
        } else {
            turns.pass(me)
        };
        start = Instant::now();
        if is_last || !intact {
            AfterStep::Stop
        } else {
            AfterStep::Continue
        }
    })?;
    Ok(times)
}

/// Lets runs take turns. All of them make the same number of steps.
struct Turns {
    ring: Mutex<Ring>,
    passed: Condvar,
}

#[derive(Clone, Copy)]
struct Ring {
    members: usize,
    /// The member whose turn it is.
    at: usize,
    finished: usize,
    /// Whether a member ended before its last step. Then no member waits any longer.
    broken: bool,
}

impl Turns {
    fn new(members: usize) -> Turns {
        Turns {
            ring: Mutex::new(Ring {
                members,
                at: 0,
                finished: 0,
                broken: false,
            }),
            passed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // A ring is valid at any time.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ring, waits while `waiting`, and returns whether the ring is intact.
    fn change(&self, change: impl FnOnce(&mut Ring), waiting: impl Fn(&Ring) -> bool) -> bool {
        let mut ring = self.lock();
        change(&mut ring);
        self.passed.notify_all();
        let ring = self
            .passed
            .wait_while(ring, |ring| !ring.broken && waiting(ring));
        !ring.unwrap_or_else(PoisonError::into_inner).broken
    }

    fn wait(&self, me: usize) -> bool {
        self.change(|_| {}, |ring| ring.at != me)
    }

    fn pass(&self, me: usize) -> bool {
        self.change(Ring::next, |ring| ring.at != me)
    }

    /// Ends the last step and waits for the other members, which the end of this training would
    /// slow down.
    fn finish(&self) -> bool {
        let finish = |ring: &mut Ring| {
            ring.next();
            ring.finished += 1;
        };
        self.change(finish, |ring| ring.finished < ring.members)
    }

    /// Takes a run out that has ended, after its last step or earlier.
    fn leave(&self) {
        let mut ring = self.lock();
        ring.broken |= ring.finished < ring.members;
        self.passed.notify_all();
    }
}

impl Ring {
    fn next(&mut self) {
        self.at = (self.at + 1) % self.members;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(fixed: Option<u32>, seconds: impl Fn(usize) -> f64) -> StepTimes {
        StepTimes {
            fixed,
            seconds: (0..WARM_UP + 400).map(seconds).collect(),
            micro_batches: Vec::new(),
        }
    }

    #[test]
    fn slow_steps_of_all_trainings_make_no_difference() {
        let slow = |i: usize| if i % 100 < 50 { 1.0 } else { 2.0 };
        let best = times(Some(8), slow);
        let (fraction, error) = times(None, |i| 1.25 * slow(i)).fraction_of(&best);
        assert!((fraction - 0.8).abs() < 1e-12, "{fraction}");
        assert!(error < 1e-12, "{error}");
    }

    #[test]
    fn the_error_comes_from_unequal_neighbours_after_the_warm_up() {
        let best = times(Some(8), |i| if i < WARM_UP { 90.0 } else { 1.0 });
        // Off by a tenth in turn: the standard error is a tenth over the root of 400.
        let own = times(None, |i| if i % 2 == 0 { 0.9 } else { 1.1 });
        let (fraction, error) = own.fraction_of(&best);
        assert!((fraction - 1.0).abs() < 1e-12, "{fraction}");
        assert!((error - 0.1 / 20.0).abs() < 1e-4, "{error}");
    }
}
