//! One life of a run: the parts of the loop, and the words the loop is written in.

use crate::checkpoint::{self, Loaded, Moments, RunState};
use crate::control::{Control, Request};
use crate::effective_batch::Whole;
use crate::error::{Result, TrainError};
use crate::feed::{HeldOutFeed, TrainFeed};
use crate::image_task::EvaluatedPiece;
use crate::journal::{Journal, Listener, Position};
use crate::learner::Learner;
use crate::pending::Pending;
use crate::pilot::{Answer, Pilot};
use crate::plan::Plan;
use crate::train::{Ending, Flight};
use dataset::{Inspection, Part};
use pressure::{Action, Change, Decision, Level, Outcome, Phase};
use runlog::{
    CheckpointReason, Claim, Every, RunEvent, RunFolder, Started, StopReason, format_count,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tape::device::{Chosen, choose, piece_scope};

/// A checkpoint at the warning level is written at most this often, in milliseconds.
const PRESSURE_CHECKPOINT_MS: u64 = 30_000;
/// How long a wait for the user lasts before memory is looked at again.
const USER_PAUSE: Duration = Duration::from_millis(250);

/// Everything one life of a run holds.
pub struct Session<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) run: RunFolder,
    pub(crate) control: Control,
    pub(crate) pilot: Pilot,
    pub(crate) learner: Learner,
    pub(crate) feed: TrainFeed,
    pub(crate) state: RunState,
    inspection: &'a Inspection,
    held_out: HeldOutFeed,
    journal: Journal<'a>,
    chosen: Chosen,
    workers: usize,
    saved: Saved,
    step_begun: Instant,
    waited_ms: f64,
    _claim: Claim,
}

/// When and where the last checkpoint was written.
struct Saved {
    at_ms: u64,
    step: u64,
    level: Level,
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as u64)
}

/// Decoding workers: as many as keep the device fed.
fn workers(plan: &Plan, chosen: &Chosen) -> usize {
    plan.workers.map_or_else(
        || match chosen.kind {
            "metal" => 4,
            "cuda" => 2,
            _ => (plan.threads as usize).min(4),
        },
        |n| n as usize,
    )
}

impl<'a> Session<'a> {
    /// A new run at step 0.
    pub fn begin(
        plan: &'a Plan,
        inspection: &'a Inspection,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
    ) -> Result<Self> {
        let mut session =
            Session::assemble(plan, inspection, run, flight, listener, RunState::default())?;
        session.say_started()?;
        Ok(session)
    }

    /// A run that goes on from its newest good checkpoint.
    pub fn go_on(
        plan: &'a Plan,
        inspection: &'a Inspection,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
    ) -> Result<Self> {
        let (loaded, damaged) = checkpoint::newest(run)?;
        let mut session = Session::assemble(
            plan,
            inspection,
            run,
            flight,
            listener,
            loaded.state.clone(),
        )?;
        session.learner_back(&loaded)?;
        for message in damaged {
            session.journal.warn("checkpoint_damaged", message)?;
        }
        let (at_ms, step, device) = (
            session.journal.now_ms(),
            session.state.step,
            session.chosen.kind.to_owned(),
        );
        session.journal.say(RunEvent::Resumed {
            at_ms,
            unix_ms: unix_ms(),
            step,
            process: std::process::id(),
            device,
        })?;
        Ok(session)
    }

    fn assemble(
        plan: &'a Plan,
        inspection: &'a Inspection,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
        state: RunState,
    ) -> Result<Self> {
        let claim = run.claim()?;
        let chosen = choose(plan.device)?;
        let learner = Learner::new(plan, &chosen.device)?;
        let pilot = Pilot::start(
            plan,
            &chosen,
            &flight.machine,
            &flight.control,
            learner.element_bytes(),
            flight.replay,
        )?;
        let workers = workers(plan, &chosen);
        Ok(Session {
            plan,
            run: run.clone(),
            control: flight.control,
            pilot,
            learner,
            feed: TrainFeed::start(plan, inspection, workers, state.step),
            inspection,
            held_out: HeldOutFeed::open(plan, inspection, Part::HeldOut, workers),
            journal: Journal::open(run, listener, state.at_ms)?,
            chosen,
            workers,
            saved: Saved {
                at_ms: state.at_ms,
                step: state.step,
                level: Level::Normal,
            },
            state,
            step_begun: Instant::now(),
            waited_ms: 0.0,
            _claim: claim,
        })
    }

    fn say_started(&mut self) -> Result<()> {
        let plan = self.plan;
        let total_bytes = self.pilot.total_bytes();
        self.journal.say(RunEvent::Started(Box::new(Started {
            at_ms: 0,
            unix_ms: unix_ms(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: plan.name.clone(),
            task: plan.config.task.clone().unwrap_or_default(),
            model: plan.model.name().to_owned(),
            classes: plan.classes.clone(),
            train_samples: plan.train_samples,
            held_out_samples: plan.held_out_samples,
            parameters: self.learner.parameters.count() as u64,
            image_size: plan.image_size,
            effective_batch: plan.effective_batch,
            epochs: plan.epochs(),
            steps: plan.steps,
            steps_per_epoch: plan.steps_per_epoch,
            learning_rate: plan.learning_rate,
            optimizer: plan.optimizer.name().to_owned(),
            device: self.chosen.kind.to_owned(),
            device_reason: self.chosen.reason.clone(),
            precision: if plan.double_precision { "f64" } else { "f32" }.to_owned(),
            threads: plan.threads,
            loader: self.feed.describe(),
            memory_source: self.pilot.describe(),
            total_bytes,
            seed: plan.seed,
        })))
    }

    fn position(&self) -> Position {
        Position {
            step: self.state.step,
            batch: self.plan.effective_batch,
            state_bytes: self.learner.state_bytes(),
        }
    }

    /// Asks the pilot and says what it answered.
    pub(crate) fn ask(
        &mut self,
        remaining: usize,
        phase: Phase,
        position: (u64, usize),
    ) -> Result<Answer> {
        let answer = self.pilot.ask(remaining, phase, position)?;
        let at = self.position();
        if answer.decision.release_caches {
            self.feed.release();
        }
        self.journal.answer(&self.pilot, &answer, phase, at)?;
        Ok(answer)
    }

    /// Does what the user asks. True when the run is to stop.
    pub(crate) fn heed(&mut self) -> Result<bool> {
        while let Some(request) = self.control.poll() {
            match request {
                Request::Stop => return Ok(true),
                Request::Checkpoint => self.save_if_possible(CheckpointReason::Requested)?,
                Request::SetMemoryCap(bytes) => self.pilot.set_memory_cap(bytes),
                Request::Resume => {}
                Request::Pause => {
                    if self.pause()? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Waits for the user. True when the run is to stop.
    fn pause(&mut self) -> Result<bool> {
        self.pilot.release()?;
        self.say_by_user(
            Action::Pause,
            Change::Pause,
            "you asked for it; everything is kept",
        )?;
        loop {
            match self.control.poll() {
                Some(Request::Stop) => return Ok(true),
                Some(Request::Resume) => break,
                Some(Request::Checkpoint) => self.save_if_possible(CheckpointReason::Requested)?,
                Some(Request::SetMemoryCap(bytes)) => self.pilot.set_memory_cap(bytes),
                Some(Request::Pause) => {}
                None => {
                    self.control.wait(USER_PAUSE);
                    self.look()?;
                }
            }
        }
        self.step_begun = Instant::now();
        self.say_by_user(Action::Run, Change::Continue, "you asked for it")?;
        Ok(false)
    }

    /// Keeps the memory chart going while nothing is decided.
    fn look(&mut self) -> Result<()> {
        let at = self.position();
        match self.pilot.reading() {
            Some(sample) => self.journal.reading(&self.pilot, sample, at),
            None => Ok(()),
        }
    }

    fn say_by_user(&mut self, action: Action, change: Change, reason: &str) -> Result<()> {
        let micro_batch = self.pilot.micro_batch();
        let decision = Decision {
            action,
            change,
            micro_batch: if action == Action::Run {
                micro_batch
            } else {
                0
            },
            budget_bytes: 0,
            reason: reason.to_owned(),
            ..Decision::default()
        };
        let sentence = pressure::sentence(micro_batch, &decision);
        self.journal.say(RunEvent::Decision {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            phase: Phase::Train,
            previous_micro_batch: micro_batch,
            pieces: self.plan.effective_batch.div_ceil(micro_batch.max(1)),
            decision,
            sentence,
        })
    }

    /// Fetches what a piece of `size` needs. A file that cannot be read is skipped and said.
    pub(crate) fn gather(&mut self, pending: &mut Pending, size: usize) -> Result<()> {
        while pending.missing(size) > 0 {
            let arrived = self.feed.fetch(pending.missing(size));
            for lost in pending.deliver(arrived) {
                self.journal.skip(
                    self.state.step,
                    lost.file.display().to_string(),
                    lost.reason,
                )?;
            }
        }
        Ok(())
    }

    /// One optimizer step from a whole effective batch.
    pub(crate) fn update(&mut self, whole: Whole) -> Result<()> {
        let step = self.state.step;
        let update = self.learner.update(&whole, step)?;
        self.state.step += 1;
        self.state.loss = Some(whole.loss);
        let seconds = self.step_begun.elapsed().as_secs_f64();
        let waited_ms = self.feed.waited_ms();
        let at_ms = self.journal.now_ms();
        if let Some(what) = update.skipped {
            let reason =
                "not finite; this step changed nothing and the training goes on".to_owned();
            self.journal.skip(self.state.step, what, reason)?;
        }
        self.journal.say(RunEvent::Step {
            at_ms,
            step: self.state.step,
            epoch: step / self.plan.steps_per_epoch.max(1),
            loss: whole.loss,
            learning_rate: update.learning_rate,
            gradient_norm: update.gradient_norm,
            samples_per_second: whole.weight / seconds.max(1e-9),
            wait_ms: waited_ms - self.waited_ms,
            pieces: whole.pieces,
        })?;
        self.waited_ms = waited_ms;
        self.step_begun = Instant::now();
        Ok(())
    }

    /// The sum could not be added on the device: nothing a user could lose has changed, the whole step is done again.
    pub(crate) fn redo_step(&mut self, error: TrainError) -> Result<()> {
        if !error.is_memory() {
            return Err(error);
        }
        self.pilot.retreat(Outcome::Memory)?;
        self.journal.warn(
            "step_redone",
            format!("step {} is done again: {error}", self.state.step + 1),
        )?;
        self.restart_feed();
        Ok(())
    }

    pub(crate) fn restart_feed(&mut self) {
        self.feed = TrainFeed::start(self.plan, self.inspection, self.workers, self.state.step);
        self.waited_ms = 0.0;
    }

    /// Drops the weights and moments: parked.
    pub(crate) fn learner_away(&mut self) -> Result<()> {
        self.learner = Learner::empty(self.plan, &self.chosen.device)?;
        self.feed.release();
        self.pilot.release()
    }

    /// Weights and moments from a checkpoint.
    pub(crate) fn learner_back(&mut self, loaded: &Loaded) -> Result<()> {
        self.learner = Learner::new(self.plan, &self.chosen.device)?;
        checkpoint::load(loaded, &mut self.learner, Moments::Load)
    }

    pub(crate) fn evaluation_is_due(&self) -> bool {
        let every = self.plan.evaluate_every_epochs * self.plan.steps_per_epoch;
        self.held_out.len() > 0
            && (self.state.step.is_multiple_of(every.max(1)) || self.state.step == self.plan.steps)
    }

    /// Evaluates the held-out samples, every piece under the pilot. A stop ends it without a result.
    pub(crate) fn evaluate(&mut self) -> Result<()> {
        let mut loader = self.held_out.once(self.plan.effective_batch as usize * 2);
        let mut pending = Pending::new(self.held_out.len());
        let mut sum = EvaluatedPiece::default();
        while pending.remaining() > 0 {
            if self.control.is_stopping() {
                return Ok(());
            }
            let answer = self.ask(pending.remaining(), Phase::Evaluate, (self.state.step, 0))?;
            let Some(size) = answer.decision.micro_batch() else {
                self.pilot.wait(&self.control);
                continue;
            };
            for lost in pending.deliver(loader.take(pending.missing(size))) {
                self.journal.skip(
                    self.state.step,
                    lost.file.display().to_string(),
                    lost.reason,
                )?;
            }
            let samples = pending.piece(size);
            let count = samples.len();
            self.pilot.begin(count);
            match piece_scope(|| self.learner.task(self.control.cancel()).evaluate(samples)) {
                Ok(piece) => {
                    self.pilot.ended(Outcome::Ok);
                    sum.add(piece);
                    pending.done(count);
                }
                Err(error) if error.is_memory() => self.pilot.retreat(Outcome::Memory)?,
                Err(error) if error.is_cancelled() => self.pilot.retreat(Outcome::Cancelled)?,
                Err(error) => return Err(error),
            }
        }
        self.step_begun = Instant::now();
        self.say_evaluated(sum)
    }

    fn say_evaluated(&mut self, sum: EvaluatedPiece) -> Result<()> {
        if sum.samples == 0 {
            return self.journal.warn(
                "no_held_out",
                "no held-out photograph could be read; nothing was evaluated".to_owned(),
            );
        }
        let samples = sum.samples as f64;
        let (loss, accuracy) = (sum.loss / samples, sum.right as f64 / samples);
        let best = self.state.best.is_none_or(|(before, _)| accuracy > before);
        if best {
            self.state.best = Some((accuracy, self.state.step));
        }
        self.state.evaluation = Some((loss, accuracy));
        let top_5 = sum.in_top_5 as f64 / samples;
        self.journal.say(RunEvent::Evaluation {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            epoch: self.state.step.div_ceil(self.plan.steps_per_epoch.max(1)),
            samples: sum.samples,
            loss,
            metrics: BTreeMap::from([
                ("accuracy".to_owned(), accuracy),
                ("top_5".to_owned(), top_5),
            ]),
            best,
        })?;
        if best {
            self.save_if_possible(CheckpointReason::Best)?;
        }
        Ok(())
    }

    pub(crate) fn checkpoint_is_due(&mut self) -> Option<CheckpointReason> {
        let (step, at_ms) = (self.state.step, self.journal.now_ms());
        let level = self.pilot.state().level();
        let entered = level > self.saved.level;
        self.saved.level = level;
        if step == self.saved.step {
            return None;
        }
        if entered && at_ms >= self.saved.at_ms + PRESSURE_CHECKPOINT_MS {
            return Some(CheckpointReason::Pressure);
        }
        let due = match self.plan.checkpoint_every {
            Every::Minutes(minutes) => at_ms >= self.saved.at_ms + minutes * 60_000,
            Every::Epochs(epochs) => step.is_multiple_of((epochs * self.plan.steps_per_epoch).max(1)),
            Every::Steps(steps) => step.is_multiple_of(steps),
        };
        due.then_some(CheckpointReason::Periodic)
    }

    /// Writes a checkpoint; where that fails the training goes on and says so.
    pub(crate) fn save_if_possible(&mut self, why: CheckpointReason) -> Result<()> {
        match self.save(why) {
            Err(error @ TrainError::CheckpointWrite { .. }) => {
                self.journal.warn(error.code(), error.to_string())
            }
            other => other,
        }
    }

    /// Writes a checkpoint.
    pub(crate) fn save(&mut self, why: CheckpointReason) -> Result<()> {
        let begun = Instant::now();
        self.state.at_ms = self.journal.now_ms();
        self.state.is_best = self
            .state
            .best
            .is_some_and(|(_, step)| step == self.state.step);
        let written = checkpoint::write(&self.run, &self.learner, &self.state)?;
        checkpoint::tidy(&self.run, self.state.best.map(|(_, step)| step))?;
        self.saved.at_ms = self.state.at_ms;
        self.saved.step = self.state.step;
        self.journal.say(RunEvent::Checkpoint {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            path: written.path,
            bytes: written.bytes,
            ms: begun.elapsed().as_secs_f64() * 1000.0,
            why,
        })
    }

    /// The last words of a run that ended as it should.
    pub(crate) fn land(&mut self, why: StopReason) -> Result<Ending> {
        let begun = Instant::now();
        self.save(CheckpointReason::Stop)?;
        let seconds = begun.elapsed().as_secs_f64();
        let step = format_count(self.state.step);
        let sentence = match (why, self.state.best) {
            (StopReason::Requested, _) => {
                format!("Stopped at step {step}. Checkpoint saved in {seconds:.1} s")
            }
            (StopReason::Finished, Some((best, _))) => {
                format!(
                    "Finished at step {step}: best held-out accuracy {:.1} %",
                    100.0 * best
                )
            }
            (StopReason::Finished, None) => {
                format!("Finished at step {step}. Checkpoint saved in {seconds:.1} s")
            }
        };
        self.journal.say(RunEvent::Stopped {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            why,
            sentence,
        })?;
        Ok(Ending {
            why,
            step: self.state.step,
            accuracy: self.state.evaluation.map(|(_, accuracy)| accuracy),
        })
    }

    /// The last words of a run that ended by an error.
    pub(crate) fn say_failed(&mut self, error: &TrainError) {
        let (at_ms, code) = (self.journal.now_ms(), error.code().to_owned());
        // The error itself is on its way to the caller; a full disk may forbid these words.
        let _ = self.journal.say(RunEvent::Failed {
            at_ms,
            step: self.state.step,
            code,
            message: error.to_string(),
        });
    }
}
