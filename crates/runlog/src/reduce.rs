//! Folds events into what is shown of a run: figures, status line, marks, series. One fold for window, terminal,
//! report and replay. Refuses to know pixels, files and clocks; time comes in as `at_ms`.

use crate::event::{RunEvent, Started, StopReason};
use crate::lines;
use crate::milestones::{Evaluated, Kept, Predicted};
use crate::pace::Pace;
use crate::series::Series;
use crate::smooth::Smooth;
use crate::view::{Figures, LevelSpan, Mark, RunStatus, StatusLine};
use pressure::{Action, Change, Decision, Level, MemorySample, Phase};
use std::collections::{BTreeMap, VecDeque};

/// Warnings and skipped files that are kept.
const NOTES: usize = 20;

/// A run, folded from its events so far.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub(crate) version: u64,
    pub(crate) now_ms: u64,
    /// When this life began: on the run's clock and on the wall, in milliseconds.
    pub(crate) begun: (u64, u64),
    pub(crate) started: Option<Started>,
    pub(crate) status: RunStatus,
    pub(crate) stopped: Option<StopReason>,
    pub(crate) figures: Figures,
    pub(crate) line: StatusLine,
    pub(crate) marks: Vec<Mark>,
    pub(crate) spans: Vec<LevelSpan>,
    pub(crate) notes: VecDeque<String>,
    pub(crate) evaluations: Vec<Evaluated>,
    pub(crate) checkpoints: Vec<Kept>,
    pub(crate) predictions: Vec<Predicted>,
    /// What the flight recorder says of an end without a word.
    pub(crate) last_minutes: Vec<String>,
    /// System, others, state, activations, budget line; in bytes.
    pub(crate) memory: Series<5>,
    /// Micro-batch of training; a point at each change.
    pub(crate) micro: Series<1>,
    /// Raw and smoothed.
    pub(crate) loss: Series<2>,
    /// Step of each point of `loss`.
    pub(crate) steps: Vec<u64>,
    pub(crate) smooth: Smooth,
    pub(crate) pace: Pace,
}

impl Run {
    /// Folds one event.
    pub fn apply(&mut self, event: &RunEvent) {
        self.version += 1;
        self.now_ms = self.now_ms.max(event.at_ms());
        match event {
            RunEvent::Started(started) => self.begin(started),
            RunEvent::Memory {
                at_ms,
                sample,
                state_bytes,
                pressure,
                level,
                budget_bytes,
                micro_batch,
                ..
            } => {
                self.figures.pressure = Some(*pressure);
                self.memory(*at_ms, sample, *state_bytes, *budget_bytes);
                self.level(*at_ms, *level);
                if self.micro.len() == 0 && *micro_batch > 0 {
                    self.micro_batch(*at_ms, *micro_batch);
                }
            }
            RunEvent::Decision {
                at_ms,
                phase,
                previous_micro_batch,
                decision,
                sentence,
                ..
            } => {
                self.decision(*at_ms, *phase, *previous_micro_batch, decision, sentence);
            }
            RunEvent::Prediction {
                at_ms,
                micro_batch,
                predicted_peak_bytes,
                measured_peak_bytes,
                error_fraction,
                ..
            } => self.predictions.push(Predicted {
                at_ms: *at_ms,
                micro_batch: *micro_batch,
                predicted_peak_bytes: *predicted_peak_bytes,
                measured_peak_bytes: *measured_peak_bytes,
                error_fraction: *error_fraction,
            }),
            RunEvent::Step { .. } => self.step(event),
            RunEvent::Evaluation {
                at_ms,
                step,
                epoch,
                loss,
                metrics,
                ..
            } => {
                let accuracy = metrics.get("accuracy").copied().filter(|a| a.is_finite());
                self.evaluations.push(Evaluated {
                    at_ms: *at_ms,
                    step: *step,
                    epoch: *epoch,
                    loss: *loss,
                    accuracy,
                    metrics: metrics.clone(),
                });
                self.held_out_figures();
            }
            RunEvent::Checkpoint {
                at_ms,
                step,
                path,
                ms,
                why,
                ..
            } => {
                self.checkpoints.push(Kept {
                    at_ms: *at_ms,
                    step: *step,
                    path: path.clone(),
                });
                if let Some((sentence, meaning)) = lines::checkpoint(*step, *ms, *why) {
                    self.say(*at_ms, sentence, meaning);
                }
            }
            RunEvent::Skipped { what, reason, .. } => {
                self.figures.skipped += 1;
                self.note(format!("{what}: {reason}"));
            }
            RunEvent::Warning { message, .. } => self.note(message.clone()),
            RunEvent::Resumed {
                at_ms,
                unix_ms,
                step,
                device,
                ..
            } => {
                self.begun = (*at_ms, *unix_ms);
                self.resume(*at_ms, *step, device);
            }
            RunEvent::Stopped {
                at_ms,
                step,
                why,
                sentence,
            } => {
                self.figures.step = *step;
                self.stopped = Some(*why);
                self.end(match why {
                    StopReason::Finished => RunStatus::Finished,
                    StopReason::Requested | StopReason::Memory | StopReason::Disk => {
                        RunStatus::Stopped
                    }
                });
                self.say(
                    *at_ms,
                    sentence.clone(),
                    lines::stopped(*step, *why, self.best_evaluation()),
                );
            }
            RunEvent::Failed { at_ms, message, .. } => {
                self.end(RunStatus::Failed);
                self.say(
                    *at_ms,
                    message.clone(),
                    lines::last_checkpoint(self.checkpoints.last()),
                );
                self.line.level = Level::Critical;
            }
        }
    }

    fn begin(&mut self, started: &Started) {
        let (version, now_ms) = (self.version, started.at_ms);
        *self = Run {
            version,
            now_ms,
            begun: (now_ms, started.unix_ms),
            started: Some(started.clone()),
            ..Run::default()
        };
        self.figures.level_since_ms = now_ms;
        let (sentence, meaning) = lines::started(started);
        self.say(now_ms, sentence, meaning);
    }

    fn memory(&mut self, at_ms: u64, sample: &MemorySample, state_bytes: u64, budget_bytes: u64) {
        self.figures.own_bytes = Some(sample.own_bytes);
        self.figures.budget_bytes = Some(budget_bytes);
        let (system, others) = (sample.system_bytes as f64, sample.others_bytes() as f64);
        let state = state_bytes.min(sample.own_bytes) as f64;
        let activations = sample.own_bytes as f64 - state;
        // The budget is a footprint; its line stands on top of what everybody else uses.
        let line = system + others + budget_bytes as f64;
        self.memory
            .push(at_ms as f64, [system, others, state, activations, line]);
    }

    fn level(&mut self, at_ms: u64, level: Level) {
        if let Some(span) = self
            .spans
            .last_mut()
            .filter(|_| self.figures.level != Level::Normal)
        {
            span.to_ms = at_ms.max(span.from_ms);
        }
        if level == self.figures.level {
            return;
        }
        (self.figures.level, self.figures.level_since_ms) = (level, at_ms);
        self.line.level = level;
        if level != Level::Normal {
            self.spans.push(LevelSpan {
                from_ms: at_ms,
                to_ms: at_ms,
                level,
            });
        }
    }

    fn decision(
        &mut self,
        at_ms: u64,
        phase: Phase,
        from: u32,
        decision: &Decision,
        sentence: &str,
    ) {
        let resting = decision.action != Action::Run;
        let moved = decision.change != Change::Start && decision.change != Change::Hold;
        // An evaluation's pieces are its own affair, unless it has to wait.
        if phase == Phase::Evaluate && !resting && self.status != RunStatus::Paused {
            return;
        }
        if resting {
            self.status = RunStatus::Paused;
            self.pace.interrupt();
            (self.figures.samples_per_second, self.figures.seconds_left) = (None, None);
        } else if self.status == RunStatus::Paused {
            self.status = self.working();
        }
        if phase == Phase::Train || resting {
            self.micro_batch(at_ms, decision.micro_batch);
        }
        if moved {
            self.marks.push(Mark {
                at_ms,
                change: decision.change,
                from,
                to: decision.micro_batch,
                cause: decision.cause,
                short: lines::short(decision, from),
                reason: decision.reason.clone(),
            });
            self.figures.changes = self.marks.len() as u32;
        }
        let effective = self
            .started
            .as_ref()
            .map_or(0, |started| started.effective_batch);
        self.say(
            at_ms,
            sentence.to_owned(),
            lines::meaning(decision, effective, self.figures.step),
        );
    }

    fn micro_batch(&mut self, at_ms: u64, size: u32) {
        if self
            .micro
            .last()
            .is_none_or(|(_, [last])| last != f64::from(size))
        {
            self.micro.push(at_ms as f64, [f64::from(size)]);
        }
        let effective = self
            .started
            .as_ref()
            .map_or(0, |started| started.effective_batch);
        self.figures.micro_batch = (size > 0).then_some(size);
        self.figures.pieces = (size > 0 && effective > 0).then(|| effective.div_ceil(size));
    }

    fn step(&mut self, event: &RunEvent) {
        let RunEvent::Step {
            at_ms,
            step,
            epoch,
            loss,
            learning_rate,
            samples_per_second,
            pieces,
            measures,
            ..
        } = event
        else {
            return;
        };
        if !matches!(self.status, RunStatus::Training | RunStatus::Paused) {
            self.status = RunStatus::Training;
        }
        let smoothed = self.smooth.next(*loss);
        self.loss
            .push(*at_ms as f64, [*loss, smoothed.unwrap_or(f64::NAN)]);
        self.steps.push(*step);
        if let Some(size) = pieces.iter().max().filter(|_| self.micro.len() == 0) {
            self.micro_batch(*at_ms, *size);
        }
        let samples = pieces.iter().map(|size| f64::from(*size)).sum();
        self.pace.step(*at_ms, samples, *samples_per_second);
        let planned = self.started.as_ref().map_or(0, |started| started.steps);
        let figures = &mut self.figures;
        (figures.step, figures.epoch) = (*step, epoch + 1);
        (figures.loss, figures.smoothed_loss) = (Some(*loss), smoothed);
        figures.learning_rate = Some(*learning_rate);
        figures.measure(measures);
        figures.samples_per_second = self.pace.samples_per_second();
        let left = planned.checked_sub(*step).filter(|_| planned > 0);
        figures.seconds_left = left.and_then(|left| self.pace.seconds_for(left));
    }

    pub(crate) fn held_out_figures(&mut self) {
        let last = self.evaluations.last();
        self.figures.held_out_loss = last.map(|evaluation| evaluation.loss);
        self.figures.accuracy = last.and_then(|evaluation| evaluation.accuracy);
        self.figures.held_out = last.map_or_else(BTreeMap::new, |last| last.metrics.clone());
        self.figures.best_accuracy = self.best_evaluation().and_then(|best| best.accuracy);
    }

    pub(crate) fn working(&self) -> RunStatus {
        match self.steps.is_empty() {
            true => RunStatus::Starting,
            false => RunStatus::Training,
        }
    }

    pub(crate) fn end(&mut self, status: RunStatus) {
        self.status = status;
        (self.figures.samples_per_second, self.figures.seconds_left) = (None, None);
    }

    pub(crate) fn say(&mut self, at_ms: u64, sentence: String, meaning: String) {
        let level = self.figures.level;
        self.line = StatusLine {
            at_ms,
            sentence,
            meaning,
            level,
        };
    }

    fn note(&mut self, note: String) {
        if self.notes.len() == NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }
}
