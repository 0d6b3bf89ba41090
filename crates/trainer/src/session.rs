//! One life of a run: what it holds, and the words the loop is written in.

mod ending;
mod evaluation;
mod rungs;
mod saving;
mod wishes;

use crate::certificate::trusted_in;
use crate::checkpoint::{self, RunState};
use crate::control::Control;
use crate::effective_batch::Whole;
use crate::error::{Result, TrainError, loss_of};
use crate::feed::Ahead;
use crate::journal::{Journal, Listener, Position};
use crate::learner::Learner;
use crate::pending::Pending;
use crate::pilot::kept::Kept;
use crate::pilot::{Answer, Pilot};
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::task::{Data, HeldOut, Sample, Supply};
use crate::train::Flight;
use pressure::{Level, Outcome, Phase};
use runlog::{Claim, FlightRing, RunEvent, RunFolder, Started};
use saving::Saved;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tape::device::{SelectedDevice, with_autorelease_pool};

/// Everything one life of a run holds.
pub struct Session<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) run: RunFolder,
    pub(crate) control: Control,
    pub(crate) pilot: Pilot,
    pub(crate) learner: Learner,
    pub(crate) feed: Supply,
    pub(crate) state: RunState,
    piece_limit_bytes: Option<u64>,
    held_out: HeldOut,
    held_out_bytes: u64,
    journal: Journal<'a>,
    chosen: SelectedDevice,
    saved: Saved,
    /// No update is under way: weights and moments belong to the same step.
    whole: bool,
    step_begun: Instant,
    waited_ms: f64,
    /// Why memory or the disk ended the run.
    stopped_by: Option<String>,
    _claim: Claim,
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as u64)
}

/// Decoding workers: as many as keep the device fed.
pub(crate) fn workers(plan: &Plan, kind: crate::DeviceKind) -> usize {
    plan.workers.map_or_else(
        || match kind {
            crate::DeviceKind::Metal => 4,
            crate::DeviceKind::Cuda => 2,
            _ => (plan.threads as usize).min(4),
        },
        |n| n as usize,
    )
}

impl<'a> Session<'a> {
    /// A new run at step 0.
    pub fn begin(
        plan: &'a Plan,
        data: &Data,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
    ) -> Result<Self> {
        let mut session =
            Session::assemble(plan, data, run, flight, listener, RunState::default())?;
        session.say_started()?;
        session.warn_of_precision()?;
        if let Some(cut) = data.cut(plan.image_size) {
            session.journal.warn("texts_cut", cut)?;
        }
        Ok(session)
    }

    /// A run that goes on from its newest good checkpoint.
    pub fn go_on(
        plan: &'a Plan,
        data: &Data,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
    ) -> Result<Self> {
        let (loaded, damaged) = checkpoint::newest(run)?;
        let mut session =
            Session::assemble(plan, data, run, flight, listener, loaded.state.clone())?;
        session.load(&loaded)?;
        for message in damaged {
            session.journal.warn("checkpoint_damaged", message)?;
        }
        if let Kept::Unreadable(message) = loaded.state.pilot {
            session.journal.warn("pilot_begins_anew", message)?;
        }
        session.say_resumed()?;
        session.warn_of_precision()?;
        Ok(session)
    }

    fn assemble(
        plan: &'a Plan,
        data: &Data,
        run: &RunFolder,
        flight: Flight,
        listener: Listener<'a>,
        state: RunState,
    ) -> Result<Self> {
        let claim = run.claim()?;
        let chosen = trusted_in(
            plan.device,
            plan.precision,
            flight.machine.certificate.as_deref(),
        )?;
        plan.precision.allowed_on(&chosen, plan.device)?;
        let piece_limit_bytes = flight.machine.piece_limit_bytes;
        let learner = Learner::new(plan, &chosen.device)?.within(piece_limit_bytes);
        let mut pilot = Pilot::start(
            plan,
            &chosen,
            &flight.machine,
            &flight.control,
            (learner.element_bytes(), learner.reserve()),
            flight.replay,
        )?;
        pilot.take_up(&state.pilot);
        let recorder = FlightRing::open(run, &claim)
            .map(|ring| Recorder::start(ring, unix_ms, plan.effective_batch, state.step));
        let journal = Journal::open(run, listener, state.at_ms, recorder)?;
        if let Some(ear) = journal.ear() {
            pilot.listen(ear);
        }
        let ceilings = [Some(pilot.total_bytes()), pilot.cap_bytes()];
        let ceiling = ceilings.into_iter().flatten().filter(|bytes| *bytes > 0);
        let ceiling_bytes = ceiling.min().unwrap_or(0);
        let ahead = Ahead::of(plan, workers(plan, chosen.kind), ceiling_bytes);
        Ok(Session {
            plan,
            run: run.clone(),
            control: flight.control,
            pilot,
            learner,
            piece_limit_bytes,
            feed: Supply::start(plan, data, ahead, state.step),
            held_out: HeldOut::open(plan, data, ahead),
            held_out_bytes: data.held_out_bytes(),
            journal,
            chosen,
            saved: Saved {
                at_ms: state.at_ms,
                step: None,
                took_ms: None,
            },
            state,
            whole: true,
            step_begun: Instant::now(),
            waited_ms: 0.0,
            stopped_by: None,
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
            targets: plan.columns.iter().map(|c| c.name.clone()).collect(),
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
            device: self.chosen.kind.to_string(),
            device_reason: self.chosen.reason.clone(),
            precision: plan.precision.name().to_owned(),
            checkpoint_blocks: plan.checkpoint_blocks,
            threads: plan.threads,
            loader: self.feed.describe(),
            memory_source: self.pilot.describe(),
            total_bytes,
            seed: plan.seed,
        })))
    }

    /// The run goes on at this step; what it said of later ones is void.
    pub(crate) fn say_resumed(&mut self) -> Result<()> {
        self.journal.say(RunEvent::Resumed {
            at_ms: self.journal.now_ms(),
            unix_ms: unix_ms(),
            step: self.state.step,
            process: std::process::id(),
            device: self.chosen.kind.to_string(),
        })
    }

    fn warn_of_precision(&mut self) -> Result<()> {
        let (precision, wanted) = (self.plan.precision, self.plan.device);
        match precision.allowed_on(&self.chosen, wanted)? {
            Some(message) => self.journal.warn("slow_precision", message),
            None => Ok(()),
        }
    }

    fn position(&self) -> Position {
        Position {
            step: self.state.step,
            batch: self.plan.effective_batch,
            state_bytes: (self.learner.state_bytes()).max(self.pilot.standing_bytes()),
        }
    }

    /// Asks the pilot and says what it answered. Where a checkpoint had to be written first the answer is old by then: it is
    /// asked anew.
    pub(crate) fn ask(
        &mut self,
        remaining: usize,
        phase: Phase,
        position: (u64, usize),
    ) -> Result<Answer> {
        let answer = self.ask_once(remaining, phase, position)?;
        match answer.decision.checkpoint_first && self.save_ahead()? {
            true => self.ask_once(remaining, phase, position),
            false => Ok(answer),
        }
    }

    fn ask_once(
        &mut self,
        remaining: usize,
        phase: Phase,
        position: (u64, usize),
    ) -> Result<Answer> {
        self.pilot.set_spare(self.spare_bytes());
        self.pilot
            .set_disk_free(fs4::available_space(&self.run.path).ok());
        let usual = self.plan.sample_cost();
        self.pilot.set_sample_cost(match phase {
            Phase::Train => self.feed.sample_cost(usual),
            Phase::Evaluate => self.held_out.sample_cost(usual),
        });
        let answer = self.pilot.ask(remaining, phase, position)?;
        if let Some(notice) = self.pilot.take_notice() {
            self.journal.warn("memory_source", notice)?;
        }
        if phase == Phase::Train {
            let blocks = answer.decision.checkpoint_blocks;
            self.learner.checkpoint_blocks(blocks);
        }
        self.feed.set_prefetch(answer.decision.prefetch);
        self.held_out.set_prefetch(answer.decision.prefetch);
        self.pilot.set_spare(self.spare_bytes());
        let at = self.position();
        if answer.decision.release_caches && self.pilot.state().level() > Level::Normal {
            self.feed.release();
            self.held_out.release();
        }
        if let Some(prediction) = self.pilot.take_prediction() {
            self.journal.predicted(prediction, at.step)?;
        }
        self.journal.answer(&self.pilot, &answer, phase, at)?;
        self.keep_moments(answer.decision.moments)?;
        Ok(answer)
    }

    fn spare_bytes(&self) -> u64 {
        self.feed.spare_bytes() + self.held_out.spare_bytes()
    }

    /// Fetches what a piece of `size` needs. A file that cannot be read is skipped and said.
    pub(crate) fn gather(&mut self, pending: &mut Pending<Sample>, size: usize) -> Result<()> {
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

    /// A fixed micro-batch is never shrunk: on the CPU, where a refused allocation ends the process, what it needs is
    /// measured first, on one sample and on two whose gradients are dropped.
    pub(crate) fn weigh(&mut self, pending: &mut Pending<Sample>) -> Result<()> {
        let cost = self.feed.sample_cost(self.plan.sample_cost());
        self.pilot.set_sample_cost(cost);
        for size in [1, 2] {
            if pending.remaining() < 2 || !self.pilot.must_weigh() {
                return Ok(());
            }
            self.gather(pending, 2)?;
            let samples = pending.piece(size);
            if samples.is_empty() {
                return Ok(());
            }
            self.pilot.begin_weighing()?;
            self.pilot.begin(samples.len())?;
            let cancel = self.control.cancel();
            match with_autorelease_pool(|| self.learner.gradients(cancel, samples)) {
                Ok(_) => self.pilot.ended(Outcome::Ok),
                Err(error) if error.is_cancelled() => {
                    self.pilot.abandon();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One optimizer step from a whole effective batch.
    pub(crate) fn update(&mut self, whole: Whole) -> Result<()> {
        let step = self.state.step;
        self.whole = false;
        let update = self.learner.update(&whole, step);
        let suspect = whole.suspect().and_then(|index| self.feed.file(index));
        let update = update.map_err(|error| self.with_last_good(error).naming(suspect))?;
        self.whole = true;
        self.state.step += 1;
        self.state.loss = Some(whole.loss);
        let seconds = self.step_begun.elapsed().as_secs_f64();
        let waited_ms = self.feed.waited_ms();
        let at_ms = self.journal.now_ms();
        let measures = whole.measures.of_step(update.skipped.as_ref());
        if let Some(mut skipped) = update.skipped {
            if let Some(file) = suspect {
                skipped.what = loss_of(file);
            }
            self.journal.skip_step(self.state.step, skipped)?;
        }
        self.journal.say(RunEvent::Step {
            at_ms,
            step: self.state.step,
            epoch: step / self.plan.steps_per_epoch.max(1),
            loss: whole.loss,
            learning_rate: update.learning_rate,
            gradient_norm: update.gradient_norm,
            samples_per_second: f64::from(whole.samples()) / seconds.max(1e-9),
            wait_ms: waited_ms - self.waited_ms,
            pieces: whole.pieces,
            blocks: match whole.blocks.iter().all(|blocks| *blocks == 0) {
                true => Vec::new(),
                false => whole.blocks,
            },
            measures,
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
        self.feed.restart(self.state.step);
    }
}
