//! The held-out samples, evaluated under the same pilot as the training.

use super::Session;
use crate::error::Result;
use crate::pending::Pending;
use crate::task::{EvaluatedPiece, EvaluationReport, Metrics, part_name};
use dataset::Part;
use pressure::{Action, Outcome, Phase};
use runlog::{CheckpointReason, RunEvent, StopReason};
use std::ops::ControlFlow;
use std::time::Instant;
use tape::device::piece_scope;

impl Session<'_> {
    pub(crate) fn evaluation_is_due(&self) -> bool {
        let every = self.plan.evaluate_every_epochs * self.plan.steps_per_epoch;
        self.held_out.len() > 0
            && (self.state.step.is_multiple_of(every.max(1)) || self.state.step == self.plan.steps)
    }

    /// A stop ended the evaluation of this step in an earlier life.
    pub(crate) fn evaluation_was_cut_short(&self) -> bool {
        self.state.step > 0
            && self.evaluation_is_due()
            && self.state.evaluated_step != self.state.step
    }

    /// Evaluates the held-out samples, every piece under the pilot. Breaks when the run is to stop: there is no result then,
    /// and the next life begins with this evaluation. Parked it begins again when memory is back.
    pub(crate) fn evaluate(&mut self) -> Result<ControlFlow<StopReason>> {
        self.held_out.begin();
        let mut pending = Pending::new(self.held_out.len());
        let mut sum = EvaluatedPiece::default();
        while pending.remaining() > 0 {
            if self.heed()? {
                return Ok(ControlFlow::Break(StopReason::Requested));
            }
            let answer = self.ask(pending.remaining(), Phase::Evaluate, (self.state.step, 0))?;
            let Some(size) = answer.decision.micro_batch() else {
                match answer.decision.action {
                    Action::Stop => {
                        return Ok(ControlFlow::Break(self.stopped_by(&answer.decision)));
                    }
                    Action::Suspend => {
                        // What was evaluated is soon evaluated again, once memory is back.
                        (pending, sum) = (Pending::new(self.held_out.len()), Default::default());
                        let step = self.state.step;
                        let parked = self.park(Phase::Evaluate, self.held_out.len())?;
                        if parked.is_break() || self.state.step != step {
                            return Ok(parked);
                        }
                        self.held_out.begin();
                    }
                    Action::Pause | Action::Run => self.pilot.wait(&self.control),
                }
                continue;
            };
            for lost in pending.deliver(self.held_out.fetch(pending.missing(size))) {
                self.journal.skip(
                    self.state.step,
                    lost.file.display().to_string(),
                    lost.reason,
                )?;
            }
            let samples = pending.piece(size);
            let count = samples.len();
            if count == 0 {
                continue;
            }
            self.pilot.begin(count)?;
            let cancel = self.control.cancel();
            match piece_scope(|| self.learner.evaluate(cancel, samples)) {
                Ok(piece) => {
                    self.pilot.ended(Outcome::Ok);
                    sum.add(piece);
                    pending.done(count);
                }
                Err(error) if error.is_memory() => self.pilot.refused(error, &self.control)?,
                Err(error) if error.is_cancelled() && self.control.is_stopping() => {
                    self.pilot.abandon()
                }
                Err(error) if error.is_cancelled() => self.pilot.retreat(Outcome::Cancelled)?,
                Err(error) => return Err(error),
            }
        }
        self.step_begun = Instant::now();
        self.state.evaluated_step = self.state.step;
        self.say_evaluated(sum)?;
        Ok(ControlFlow::Continue(()))
    }

    fn say_evaluated(&mut self, sum: EvaluatedPiece) -> Result<()> {
        if sum.samples == 0 {
            return self.journal.warn(
                "no_held_out",
                format!(
                    "no held-out {} could be read; nothing was evaluated",
                    self.plan.task().sample()
                ),
            );
        }
        let metrics = Metrics::of(
            &sum,
            self.plan.task(),
            self.held_out_bytes,
            (self.plan.heads(), &self.plan.columns),
        );
        let (loss, score) = (metrics.loss, metrics.score);
        let better = self.state.best.is_none_or(|(before, _)| score > before);
        // JSON has no word for NaN: a checkpoint keeps finite numbers only.
        let best = better && score.is_finite();
        if best {
            self.state.best = Some((score, self.state.step));
        }
        let finite = loss.is_finite() && score.is_finite();
        self.state.evaluation = finite.then_some((loss, score));
        self.journal.say(RunEvent::Evaluation {
            at_ms: self.journal.now_ms(),
            step: self.state.step,
            epoch: self.state.step.div_ceil(self.plan.steps_per_epoch.max(1)),
            samples: sum.samples,
            loss,
            metrics: metrics.by_name.clone(),
            best,
        })?;
        if best {
            let names = (self.plan.classes.as_slice(), self.plan.columns.as_slice());
            let about = (self.state.step, part_name(Part::HeldOut));
            let kept = EvaluationReport::of(&sum, &metrics, names, about).keep(&self.run);
            if let Err(error) = kept {
                // A table less; the training does not end for it.
                self.journal.warn("metrics_not_kept", error.to_string())?;
            }
            self.save_if_possible(CheckpointReason::Best)?;
        }
        Ok(())
    }
}
