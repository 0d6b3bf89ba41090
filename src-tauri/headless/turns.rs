//! `ebb sweep-batch --pilot`: what the pilot costs where nothing presses. The automatic micro-batch and fixed ones train the same
//! batches in one process, step by step in turn: what slows the machine for longer than a step slows all of them alike.

use super::args::SweepBatch;
use super::attempt;
use super::brought::brought;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::say::out;
use dataset::DetectedDataset;
use runlog::{RunConfig, RunEvent, RunStore};
use serde_json::json;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use trainer::Request;

/// Steps of each that do not count: the first brings set-up, and until then the pilot measures small pieces before large ones.
const FIRST: usize = 10;

/// Whose step it is. Everybody makes as many steps, so the turn goes round.
struct Turns {
    ring: Mutex<Ring>,
    passed: Condvar,
}

#[derive(Clone, Copy)]
struct Ring {
    of: usize,
    at: usize,
    done: usize,
    /// One of them ended before its time; nobody waits any longer.
    broken: bool,
}

impl Turns {
    fn of(of: usize) -> Turns {
        Turns {
            ring: Mutex::new(Ring {
                of,
                at: 0,
                done: 0,
                broken: false,
            }),
            passed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // A ring is whole at any time.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the ring, waits while `waiting`, and says whether all is still well.
    fn turn(&self, change: impl FnOnce(&mut Ring), waiting: impl Fn(&Ring) -> bool) -> bool {
        let mut ring = self.lock();
        change(&mut ring);
        self.passed.notify_all();
        let ring = self
            .passed
            .wait_while(ring, |ring| !ring.broken && waiting(ring));
        !ring.unwrap_or_else(PoisonError::into_inner).broken
    }

    fn wait(&self, me: usize) -> bool {
        self.turn(|_| {}, |ring| ring.at != me)
    }

    fn pass(&self, me: usize) -> bool {
        self.turn(Ring::next, |ring| ring.at != me)
    }

    /// The last step is done: what comes after it would be in the way of those that still work.
    fn finish(&self) -> bool {
        let done = |ring: &mut Ring| {
            ring.next();
            ring.done += 1;
        };
        self.turn(done, |ring| ring.done < ring.of)
    }

    /// One of them came to its end, at its time or before.
    fn end(&self) {
        let mut ring = self.lock();
        ring.broken |= ring.done < ring.of;
        self.passed.notify_all();
    }
}

impl Ring {
    fn next(&mut self) {
        self.at = (self.at + 1) % self.of;
    }
}

/// Seconds of each step of one micro-batch, and the sizes that were flown.
#[derive(Debug, Clone, Default, PartialEq)]
struct Pace {
    /// `None` is the automatic one.
    fixed: Option<u32>,
    seconds: Vec<f64>,
    flown: Vec<u32>,
}

impl Pace {
    fn name(&self) -> String {
        self.fixed
            .map_or_else(|| "auto".to_owned(), |size| size.to_string())
    }

    /// Seconds a step, of those that count.
    fn steady(&self) -> &[f64] {
        self.seconds.get(FIRST..).unwrap_or_default()
    }

    fn mean(&self) -> f64 {
        self.steady().iter().sum::<f64>() / self.steady().len() as f64
    }

    /// Throughput as a share of `best`'s, and the standard error of that, from the steps that were neighbours.
    fn share_of(&self, best: &Pace) -> (f64, f64) {
        let share = best.mean() / self.mean();
        let pairs = best.steady().iter().zip(self.steady());
        let off: Vec<f64> = pairs.map(|(best, own)| best - share * own).collect();
        let count = off.len() as f64;
        let spread = off.iter().map(|off| off * off).sum::<f64>() / (count - 1.0);
        (share, (spread / count).sqrt() / self.mean())
    }
}

/// What is trained, and where its runs go.
struct Trial {
    config: RunConfig,
    found: DetectedDataset,
    store: RunStore,
    at_work: AtWork,
    turns: Turns,
    steps: u64,
}

/// Trains all of them in turn, and says the pace of each against the best fixed one.
pub fn run(args: &SweepBatch) -> Result<(), Failure> {
    let batch = args.batches.iter().copied().max().unwrap_or(1);
    let steps = args.steps + FIRST as u64;
    let config = RunConfig {
        effective_batch: Some(batch),
        // One more than is worked, for the last step of a run is evaluated.
        steps: Some(steps + 1),
        evaluate_every_epochs: Some(100_000),
        ..brought(args.tried.config()?)?
    };
    config.validate()?;
    let place = std::env::temp_dir().join(format!("ebb-turns-{}", std::process::id()));
    let trial = Trial {
        found: attempt::look(&config, &args.tried.folder)?,
        config,
        store: RunStore::open(&place),
        at_work: AtWork::heeded()?,
        turns: Turns::of(args.batches.len() + 1),
        steps,
    };
    let paces = trial.fly(&args.batches);
    // What was learnt in a few steps is worth nothing.
    let _ = std::fs::remove_dir_all(&place);
    say(&paces?, batch, args.tried.json);
    Ok(())
}

impl Trial {
    /// The automatic one's pace first, then those of the fixed ones.
    fn fly(&self, sizes: &[u32]) -> Result<Vec<Pace>, Failure> {
        let sizes = std::iter::once(None).chain(sizes.iter().copied().map(Some));
        std::thread::scope(|scope| {
            let begin = |(me, fixed)| {
                scope.spawn(move || {
                    let pace = self.one(me, fixed);
                    self.turns.end();
                    pace
                })
            };
            // All are begun before one is waited for.
            let threads: Vec<_> = sizes.enumerate().map(begin).collect();
            let gone = |_| Err(Failure::new("a training ended without a word"));
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(gone))
                .collect()
        })
    }

    /// One training, which works while it is its turn.
    fn one(&self, me: usize, fixed: Option<u32>) -> Result<Pace, Failure> {
        let config = RunConfig {
            micro_batch: fixed,
            ..self.config.clone()
        };
        let mut pace = Pace {
            fixed,
            ..Pace::default()
        };
        self.turns.wait(me);
        let mut begun = Instant::now();
        let tried = attempt::train(
            &config,
            &self.found,
            (&self.store, None),
            &self.at_work,
            |event, control| {
                let RunEvent::Step { step, pieces, .. } = event else {
                    return;
                };
                pace.seconds.push(begun.elapsed().as_secs_f64());
                pace.flown = pieces.clone();
                let last = *step >= self.steps;
                let well = match last {
                    true => self.turns.finish(),
                    false => self.turns.pass(me),
                };
                if last || !well {
                    control.ask(Request::Stop);
                }
                begun = Instant::now();
            },
        )?;
        match tried.failed {
            Some(error) => Err(error.into()),
            None if pace.seconds.len() < self.steps as usize => Err(Failure::stopped(
                "stopped by request before there was anything to compare",
            )),
            None => Ok(pace),
        }
    }
}

fn say(paces: &[Pace], batch: u32, json: bool) {
    let fixed = paces.iter().filter(|pace| pace.fixed.is_some());
    let Some(best) = fixed.min_by(|a, b| a.mean().total_cmp(&b.mean())) else {
        return;
    };
    if !json {
        out!("{:>11}  Samples/s  Of the best fixed one", "Micro-batch");
    }
    for pace in paces {
        let samples_per_second = f64::from(batch) / pace.mean();
        let (share, error) = pace.share_of(best);
        if json {
            out!(
                "{}",
                json!({
                    "micro_batch": pace.name(), "samples_per_second": samples_per_second, "of_best_fixed": share,
                    "standard_error": error, "steps": pace.steady().len(), "pieces": pace.flown, "seconds": pace.seconds,
                })
            );
        } else {
            out!(
                "{:>11}  {samples_per_second:>9.1}  {share:.3}, standard error {error:.3}; last step in pieces of {}",
                pace.name(),
                pieces(&pace.flown)
            );
        }
    }
}

/// `8, 8, 4`.
fn pieces(sizes: &[u32]) -> String {
    let words: Vec<String> = sizes.iter().map(u32::to_string).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(fixed: Option<u32>, seconds: impl Fn(usize) -> f64) -> Pace {
        Pace {
            fixed,
            seconds: (0..FIRST + 400).map(seconds).collect(),
            flown: Vec::new(),
        }
    }

    #[test]
    fn what_slows_neighbours_alike_is_no_difference() {
        let slow = |i: usize| if i % 100 < 50 { 1.0 } else { 2.0 };
        let best = pace(Some(8), slow);
        let (share, error) = pace(None, |i| 1.25 * slow(i)).share_of(&best);
        assert!((share - 0.8).abs() < 1e-12, "{share}");
        assert!(error < 1e-12, "{error}");
    }

    #[test]
    fn the_error_is_that_of_unlike_neighbours_and_first_steps_do_not_count() {
        let best = pace(Some(8), |i| if i < FIRST { 90.0 } else { 1.0 });
        // A tenth to either side in turn: a standard error of a tenth over the root of 400.
        let (share, error) = pace(None, |i| if i % 2 == 0 { 0.9 } else { 1.1 }).share_of(&best);
        assert!((share - 1.0).abs() < 1e-12, "{share}");
        assert!((error - 0.1 / 20.0).abs() < 1e-4, "{error}");
    }
}
