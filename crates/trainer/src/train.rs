//! The training loop. It reads like prose: poll the user, ask the pilot, work a piece, add it; when the effective batch is
//! whole, update, say so, save when due, evaluate when due. What each word means stands in `session.rs` and the rooms.

use crate::activity::Activity;
use crate::checkpoint;
use crate::control::Control;
use crate::effective_batch::EffectiveBatch;
use crate::error::{Result, TrainError};
use crate::journal::Listener;
use crate::machine::Machine;
use crate::origin;
use crate::plan::Plan;
use crate::replay::Replay;
use crate::roster;
use crate::session::Session;
use crate::task::Data;
use dataset::Found;
use pressure::{Action, Outcome, Phase};
use runlog::{RunFolder, StopReason};
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tape::device::piece_scope;

/// Stack of the training thread, in bytes.
const STACK_BYTES: usize = 64 << 20;

/// Bytes mapped for the stacks of a training, hardly any of which is ever filled: its pool's, and that of the thread which
/// began it.
pub(crate) fn stack_bytes(threads: u32) -> u64 {
    (u64::from(threads) + 1) * STACK_BYTES as u64
}

/// What a flight needs beside its plan.
#[derive(Debug, Clone, Default)]
pub struct Flight {
    /// The user's wishes.
    pub control: Control,
    /// The machine flown on.
    pub machine: Machine,
    /// A recorded schedule to repeat.
    pub replay: Option<Replay>,
}

/// How a training ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ending {
    /// Why.
    pub why: StopReason,
    /// Optimizer steps done.
    pub step: u64,
    /// Newest held-out accuracy, as a fraction, where the task has one.
    pub accuracy: Option<f64>,
}

/// Trains a new run in `run` to its end. Blocks; `listener` hears every event.
pub fn start(
    mut plan: Plan,
    found: impl Into<Found>,
    run: &RunFolder,
    flight: Flight,
    listener: Listener,
) -> Result<Ending> {
    let found = found.into();
    run.write_config(&plan.config)?;
    roster::write(run, &found)?;
    if let Some(origin) = &plan.origin {
        plan.origin = Some(Arc::new(origin.keep(run)?));
    }
    on_threads(plan.threads as usize, || {
        let data = Data::open(&plan, &found, run)?;
        let plan = counted(plan, &data);
        run.write_config(&plan.config)?;
        Session::begin(&plan, &data, run, flight, listener)?.fly()
    })
}

/// The plan of these data: how many windows documents come to is known when they have been split into tokens.
pub(crate) fn counted(plan: Plan, data: &Data) -> Plan {
    match data.windows(plan.image_size) {
        Some(windows) => plan.counted(windows),
        None => plan,
    }
}

/// Goes on with a run from its newest good checkpoint: the same samples, schedule and seeds.
pub fn resume(run: &RunFolder, flight: Flight, listener: Listener) -> Result<Ending> {
    let found = roster::read(run)?;
    let plan = Plan::check(&origin::config_of(run)?, &found)?;
    on_threads(plan.threads as usize, || {
        let data = Data::open(&plan, &found, run)?;
        let plan = counted(plan, &data);
        Session::go_on(&plan, &data, run, flight, listener)?.fly()
    })
}

/// Runs `work` on the first thread of a pool of its own with `threads` threads, each with a stack for deep networks. A panic there
/// becomes an error here: the window lives on.
///
/// The threads start one after the other, and work begins on the first: an allocator that gives each thread places of its own then
/// lays the same work out in the same way each time.
pub fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .stack_size(STACK_BYTES)
        .thread_name(|n| format!("training-{n}"))
        .spawn_handler(begin)
        .build()
        .map_err(|error| TrainError::NoThreads(error.to_string()))?;
    let work = Mutex::new(Some(work));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let outcomes = pool.broadcast(|thread| {
            let first = thread.index() == 0;
            let work = first.then(|| work.lock().ok()?.take()).flatten()?;
            let _awake = Activity::begin();
            Some(work())
        });
        let unstarted = || Err(TrainError::NoThreads("the first one did not begin".into()));
        outcomes
            .into_iter()
            .flatten()
            .next()
            .unwrap_or_else(unstarted)
    }));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(TrainError::Panicked(
            text.unwrap_or_else(|| "no message".to_owned()),
        ))
    })
}

/// Starts a thread of a pool and waits until it has begun.
fn begin(thread: rayon::ThreadBuilder) -> std::io::Result<()> {
    let mut builder = std::thread::Builder::new();
    if let Some(name) = thread.name() {
        builder = builder.name(name.to_owned());
    }
    if let Some(bytes) = thread.stack_size() {
        builder = builder.stack_size(bytes);
    }
    let (begun, waiting) = channel();
    builder.spawn(move || {
        // Nobody waits where the pool could not be made.
        let _ = begun.send(());
        thread.run();
    })?;
    // A thread that ended before it began ran nothing.
    let _ = waiting.recv();
    Ok(())
}

impl Session<'_> {
    /// Flies to the end and says how it ended, whatever happens.
    fn fly(mut self) -> Result<Ending> {
        let ended = self.steps().and_then(|why| self.land(why));
        if let Err(error) = &ended {
            self.save_what_is_whole();
            self.say_failed(error);
        }
        ended
    }

    fn steps(&mut self) -> Result<StopReason> {
        if self.evaluation_was_cut_short()
            && let ControlFlow::Break(why) = self.evaluate()?
        {
            return Ok(why);
        }
        'step: while self.state.step < self.plan.steps {
            let mut batch = EffectiveBatch::new(self.feed.begin(self.state.step));
            self.weigh(&mut batch.pending)?;
            while batch.pending.remaining() > 0 {
                if self.heed()? {
                    return Ok(StopReason::Requested);
                }
                let position = (self.state.step + 1, batch.pieces());
                let answer = self.ask(batch.pending.remaining(), Phase::Train, position)?;
                let Some(size) = answer.decision.micro_batch() else {
                    match answer.decision.action {
                        Action::Stop => return Ok(self.stopped_by(&answer.decision)),
                        Action::Suspend => {
                            drop(batch);
                            match self.park(Phase::Train, self.plan.effective_batch as usize)? {
                                ControlFlow::Break(why) => return Ok(why),
                                ControlFlow::Continue(()) => continue 'step,
                            }
                        }
                        Action::Pause | Action::Run => self.pilot.wait(&self.control),
                    }
                    continue;
                };
                self.gather(&mut batch.pending, size)?;
                let samples = batch.pending.piece(size);
                if samples.is_empty() {
                    continue;
                }
                self.pilot.begin(samples.len())?;
                if self.control.is_stopping() {
                    // It came after the last look, and `begin` cleared its mark.
                    self.pilot.abandon();
                    continue;
                }
                match piece_scope(|| self.learner.gradients(self.control.cancel(), samples)) {
                    Ok(piece) => {
                        self.pilot.ended(Outcome::Ok);
                        if let Err(error) = batch.add(piece) {
                            self.redo_step(error)?;
                            continue 'step;
                        }
                        batch.tell_blocks(answer.decision.checkpoint_blocks);
                    }
                    Err(error) if error.is_memory() => self.pilot.refused(error, &self.control)?,
                    Err(error) if error.is_cancelled() && self.control.is_stopping() => {
                        self.pilot.abandon()
                    }
                    Err(error) if error.is_cancelled() => self.pilot.retreat(Outcome::Cancelled)?,
                    Err(error) => return Err(error),
                }
            }
            let Some(whole) = batch.whole() else {
                return Err(TrainError::NoData {
                    step: self.state.step,
                    folder: self.plan.folder.clone(),
                });
            };
            self.update(whole)?;
            if self.evaluation_is_due()
                && let ControlFlow::Break(why) = self.evaluate()?
            {
                return Ok(why);
            }
            if let Some(why) = self.checkpoint_is_due() {
                self.save_if_possible(why)?;
            }
        }
        Ok(StopReason::Finished)
    }

    /// Drops everything until memory is back for `samples` to be worked, then goes on from the newest checkpoint. Breaks where the
    /// run ends.
    pub(crate) fn park(&mut self, phase: Phase, samples: usize) -> Result<ControlFlow<StopReason>> {
        if !self.may_park()? {
            self.pilot.wait(&self.control);
            return Ok(ControlFlow::Continue(()));
        }
        self.unload()?;
        // Parked, the run stands where its checkpoint does, and ends there where it ends now.
        let before = self.state.step;
        self.stand_on(&checkpoint::newest(&self.run)?.0);
        let step = match phase {
            Phase::Train => self.state.step + 1,
            Phase::Evaluate => self.state.step,
        };
        loop {
            if self.heed()? {
                // What was checkpointed is all there is to keep.
                return Ok(ControlFlow::Break(StopReason::Requested));
            }
            let answer = self.ask(samples, phase, (step, 0))?;
            match answer.decision.action {
                Action::Suspend => self.pilot.wait(&self.control),
                Action::Stop => return Ok(ControlFlow::Break(self.stopped_by(&answer.decision))),
                Action::Run | Action::Pause => break,
            }
        }
        let (loaded, _) = checkpoint::newest(&self.run)?;
        self.load(&loaded)?;
        self.restart_feed();
        if self.state.step < before {
            self.say_resumed()?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_the_first_thread_of_its_pool_each_time() {
        for _ in 0..50 {
            let thread = on_threads(4, || Ok(rayon::current_thread_index()));
            assert_eq!(thread.expect("it runs"), Some(0));
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let panicked = on_threads(2, || -> Result<()> { panic!("deliberately") });
        let error = panicked.expect_err("it panicked").to_string();
        assert!(error.contains("deliberately"), "{error}");
    }
}
