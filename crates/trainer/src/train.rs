//! The training loop. For each micro-batch it handles the user's requests, asks the memory
//! controller for a size and accumulates gradients. A complete effective batch is one optimizer
//! step, followed by an evaluation and a checkpoint if they are due.

mod evaluate;
mod finish;
mod requests;
mod suspend;

use crate::effective_batch::{EffectiveBatch, AccumulatedBatch};
use crate::error::{Result, TrainError};
use crate::event_log::Observer;
use crate::pretrained;
use crate::plan::Plan;
use crate::manifest;
use crate::run_context::{RunContext, RunOutcome};
use crate::session::Session;
use crate::task::Data;
use dataset::DetectedDataset;
use pressure::{Action, Outcome, Phase};
use requests::handle_requests;
use runlog::{CheckpointReason, RunFolder, StopReason};
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use tape::device::with_autorelease_pool;

/// Trains a new run in `run` and blocks until it ends. `observer` receives every event.
pub fn start(
    mut plan: Plan,
    found: impl Into<DetectedDataset>,
    run: &RunFolder,
    context: RunContext,
    observer: Observer,
) -> Result<RunOutcome> {
    let found = found.into();
    run.write_config(&plan.config)?;
    manifest::write(run, &found)?;
    if let Some(pretrained) = &plan.pretrained {
        plan.pretrained = Some(Arc::new(pretrained.copy_into(&run.path)?));
    }
    on_threads(plan.threads as usize, || {
        let data = Data::open(&plan, &found, run)?;
        let plan = with_window_counts(plan, &data);
        run.write_config(&plan.config)?;
        train(Session::start(&plan, &data, run, context, observer)?)
    })
}

/// Continues a run from its newest valid checkpoint with the same samples, schedule and seeds.
pub fn resume(run: &RunFolder, context: RunContext, observer: Observer) -> Result<RunOutcome> {
    let found = manifest::read(run)?;
    let plan = Plan::check(&pretrained::config_of(run)?, &found)?;
    on_threads(plan.threads as usize, || {
        let data = Data::open(&plan, &found, run)?;
        let plan = with_window_counts(plan, &data);
        train(Session::resume(&plan, &data, run, context, observer)?)
    })
}

/// Sets the number of windows in the plan of a language model, which is known once the documents
/// have been tokenized.
pub(crate) fn with_window_counts(plan: Plan, data: &Data) -> Plan {
    match data.windows(plan.input_size) {
        Some(windows) => plan.counted(windows),
        None => plan,
    }
}

/// Trains to the end and emits how it ended.
fn train(mut session: Session) -> Result<RunOutcome> {
    let outcome = train_loop(&mut session).and_then(|reason| finish(&mut session, reason));
    if let Err(error) = &outcome {
        session.save_after_error();
        emit_failed(&mut session, error);
    }
    outcome
}

fn train_loop(session: &mut Session) -> Result<StopReason> {
    if evaluation_was_interrupted(session)
        && let ControlFlow::Break(reason) = evaluate(session)?
    {
        return Ok(reason);
    }
    while session.state.step < session.plan.steps {
        match accumulate(session)? {
            Accumulated::Batch(batch) => session.update(batch)?,
            Accumulated::Repeat => continue,
            Accumulated::Stop(reason) => return Ok(reason),
        }
        if evaluation_is_due(session)
            && let ControlFlow::Break(reason) = evaluate(session)?
        {
            return Ok(reason);
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
                        Action::Park => {
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
                match with_autorelease_pool(|| {
                    self.learner.gradients(self.control.cancel(), samples)
                }) {
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
    }
    Ok(StopReason::Finished)
}

/// How an effective batch ended.
enum Accumulated {
    /// All its gradients are accumulated.
    Batch(Whole),
    /// Its gradients are lost: start the step again.
    Repeat,
    /// The run ends.
    Stop(StopReason),
}

/// Accumulates the gradients of one effective batch in micro-batches.
fn accumulate(session: &mut Session) -> Result<Accumulated> {
    let mut batch = EffectiveBatch::new(session.begin_step());
    session.probe_memory(&mut batch.pending)?;
    while batch.pending.remaining() > 0 {
        if handle_requests(session)? {
            return Ok(Accumulated::Stop(StopReason::Requested));
        }
        let remaining = batch.pending.remaining();
        let answer = session.next_micro_batch(Phase::Train, remaining, batch.micro_batches())?;
        let Some(size) = answer.decision.micro_batch() else {
            match answer.decision.action {
                Action::Stop => {
                    let reason = stop_for_shortage(session, &answer.decision);
                    return Ok(Accumulated::Stop(reason));
                }
                Action::Park => {
                    drop(batch);
                    let samples = session.plan.effective_batch as usize;
                    return Ok(match suspend(session, Phase::Train, samples)? {
                        ControlFlow::Break(reason) => Accumulated::Stop(reason),
                        ControlFlow::Continue(()) => Accumulated::Repeat,
                    });
                }
                Action::Pause | Action::Run => session.controller.wait(&session.control),
            }
            continue;
        };
        session.fetch_samples(&mut batch.pending, size)?;
        let samples = batch.pending.micro_batch(size);
        if samples.is_empty() {
            continue;
        }
        session.controller.begin(samples.len())?;
        if session.control.is_stopping() {
            // The stop arrived after the last poll, and `begin` has cleared its cancel flag.
            session.controller.discard();
            continue;
        }
        match piece_scope(|| session.learner.gradients(session.control.cancel(), samples)) {
            Ok(gradients) => {
                session.controller.record(Outcome::Ok);
                if let Err(error) = batch.add(gradients) {
                    session.redo_step(error)?;
                    return Ok(Accumulated::Repeat);
                }
                batch.record_checkpoint_blocks(answer.decision.checkpoint_blocks);
            }
            Err(error) => session.recover(error)?,
        }
    }
    let batch = batch.finish().ok_or_else(|| TrainError::NoData {
        step: session.state.step,
        folder: session.plan.folder.clone(),
    })?;
    Ok(Accumulated::Batch(batch))
}
