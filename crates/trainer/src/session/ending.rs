//! The last words of a run, however it ends.

use super::Session;
use crate::error::{Result, TrainError};
use crate::train::Ending;
use dataset::Task;
use pressure::{Component, Decision};
use runlog::{CheckpointReason, RunEvent, StopReason, format_count};
use std::time::Instant;

impl Session<'_> {
    /// The pilot ends the run: why, for the event and for the last words.
    pub(crate) fn stopped_by(&mut self, decision: &Decision) -> StopReason {
        let (why, help) = match decision.cause {
            Component::Disk => (StopReason::Disk, None),
            _ => {
                let missing = self.pilot.missing_bytes();
                (StopReason::Memory, self.pilot.cheapest_setting(1, missing))
            }
        };
        let reason = &decision.reason;
        self.stopped_by = Some(match help {
            Some(help) => format!("{reason}; {help}"),
            None => reason.clone(),
        });
        why
    }

    /// The last words of a run that ended as it should.
    pub(crate) fn land(&mut self, why: StopReason) -> Result<Ending> {
        let begun = Instant::now();
        if self.saved.step != Some(self.state.step) {
            match why {
                // What ends the run must not turn its end into a failure: the last good checkpoint stands.
                StopReason::Memory | StopReason::Disk => {
                    self.save_if_possible(CheckpointReason::Stop)?;
                }
                StopReason::Finished | StopReason::Requested => {
                    self.save(CheckpointReason::Stop)?
                }
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let step = format_count(self.state.step);
        let sentence = match (why, self.state.best) {
            _ if self.saved.step != Some(self.state.step) => {
                format!("Ended at step {step}. The last good checkpoint stands")
            }
            (StopReason::Requested, _) => {
                format!("Stopped at step {step}. Checkpoint saved in {seconds:.1} s")
            }
            (StopReason::Memory | StopReason::Disk, _) => {
                let reason = self.stopped_by.as_deref().unwrap_or("memory is short");
                format!("Stopped at step {step}, checkpoint saved: {reason}")
            }
            (StopReason::Finished, Some((best, _))) => match self.plan.task() {
                Task::LanguageModel => format!(
                    "Finished at step {step}: best held-out {:.3} bits per byte",
                    -best
                ),
                Task::TokenCompression => format!(
                    "Finished at step {step}: best held-out loss {:.3} nats a token",
                    -best
                ),
                Task::ImageClassification if self.plan.classes.is_empty() => format!(
                    "Finished at step {step}: best held-out mean absolute error {:.2} deviations",
                    -best
                ),
                Task::ImageClassification | Task::TextClassification => format!(
                    "Finished at step {step}: best held-out accuracy {:.1} %",
                    100.0 * best
                ),
            },
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
            accuracy: match self.plan.task() {
                _ if self.plan.classes.is_empty() => None,
                _ => self.state.evaluation.map(|(_, accuracy)| accuracy),
            },
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
