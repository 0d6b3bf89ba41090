//! Folds events into what is shown of a run: figures, status line, marks and series. The window,
//! the terminal, the report and the replay use this one fold. It reads no file and no clock; time
//! comes in as `at_ms`.

use crate::crash_report::CrashReport;
use crate::event::{FULL_SPEED, MemoryLimits, PromptAnswer, RESTS, RunEvent, Started, StopReason};
use crate::group_view::Machines;
use crate::level_spans::LevelSpans;
use crate::live_state::{LiveState, MEMORY_COLUMNS, memory_values};
use crate::non_finite_gradients::NonFiniteGradients;
use crate::records::{
    AnswersRecord, BaselineRecord, CheckpointRecord, EvaluationRecord, PredictionRecord,
    best_evaluation,
};
use crate::run_view::{Figures, Mark, RunStatus, StatusLine, StressTestSpan};
use crate::status_text::{self, StatusText};
use crate::step_series::StepSeries;
use crate::throughput::Throughput;
use crate::time_series::Series;
use pressure::{Action, Change, Decision, Level, Phase};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of warnings and skipped files in memory.
const MAX_NOTES: usize = 20;
/// Largest number of evaluations whose answers are in memory.
const MAX_ANSWERS: usize = 200;

/// A run, folded from its events so far.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub(crate) version: u64,
    pub(crate) now_ms: u64,
    pub(crate) life_start: LifeStart,
    pub(crate) started: Option<Started>,
    pub(crate) status: RunStatus,
    pub(crate) stop_reason: Option<StopReason>,
    /// The newest decision suspended the run.
    pub(crate) is_suspended: bool,
    /// Code of the error that ended the run; empty if none did.
    pub(crate) failure_code: String,
    pub(crate) figures: Figures,
    pub(crate) status_line: StatusLine,
    pub(crate) marks: Vec<Mark>,
    pub(crate) spans: LevelSpans,
    pub(crate) notes: VecDeque<String>,
    pub(crate) non_finite_gradients: NonFiniteGradients,
    /// Why training rests, while it does.
    pub(crate) rest_reason: Option<String>,
    pub(crate) baseline: Option<BaselineRecord>,
    pub(crate) evaluations: Vec<EvaluationRecord>,
    /// The answers to the prompts of the run; see [`MAX_ANSWERS`].
    pub(crate) answers: Vec<AnswersRecord>,
    pub(crate) checkpoints: Vec<CheckpointRecord>,
    pub(crate) predictions: Vec<PredictionRecord>,
    /// The memory limits of the config, once the user has changed them.
    pub(crate) limits: Option<MemoryLimits>,
    /// With their planned ends, which may be in the future.
    pub(crate) stress_tests: Vec<StressTestSpan>,
    /// The crash report of a run whose process exited; empty otherwise.
    pub(crate) last_minutes: Vec<String>,
    /// See `live_state::memory_values`.
    pub(crate) memory: Series<MEMORY_COLUMNS>,
    /// What is known beyond the newest event.
    pub(crate) live: LiveState,
    /// Micro-batch in training; a point for each change.
    pub(crate) micro: Series<1>,
    /// Micro-batch of the newest evaluation; 0 if it is not known.
    pub(crate) evaluation_micro_batch: u32,
    pub(crate) steps: StepSeries,
    /// The machines of a run that several train.
    pub(crate) machines: Machines,
    throughput: Throughput,
}

/// When the current life of the run began, on the run's clock and on the wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LifeStart {
    pub at_ms: u64,
    pub unix_ms: u64,
}

impl Run {
    /// Folds one event.
    pub fn apply(&mut self, event: &RunEvent) {
        self.version += 1;
        self.now_ms = self.now_ms.max(event.at_ms());
        match event {
            RunEvent::Started(started) => self.start(started),
            RunEvent::DeviceCheck { .. } => {}
            RunEvent::Baseline { .. } => self.apply_baseline(event),
            RunEvent::Memory { .. } => self.apply_memory(event),
            RunEvent::Decision { .. } => self.apply_decision(event),
            RunEvent::Prediction { .. } => {
                self.predictions.extend(PredictionRecord::from_event(event));
            }
            RunEvent::Step { .. } => self.apply_step(event),
            RunEvent::Evaluation { .. } => self.apply_evaluation(event),
            RunEvent::Answers { step, answers, .. } => self.apply_answers(*step, answers),
            RunEvent::Checkpoint { .. } => self.apply_checkpoint(event),
            RunEvent::Skipped {
                step,
                item,
                reason,
                gradients,
                ..
            } => {
                self.figures.skipped += 1;
                self.non_finite_gradients.add(*step, gradients.as_deref());
                self.add_note(format!("{item}: {reason}"));
            }
            RunEvent::Warning { code, message, .. } => self.apply_warning(code, message),
            RunEvent::MemoryLimits { .. } => self.apply_limits(event),
            RunEvent::StressTest {
                at_ms,
                bytes,
                seconds,
                ..
            } => self.apply_stress_test(*at_ms, *bytes, *seconds),
            RunEvent::Group { .. } | RunEvent::Machines { .. } | RunEvent::Machine { .. } => {
                self.apply_group(event);
            }
            RunEvent::Resumed { .. } => self.apply_resumed(event),
            RunEvent::Stopped { .. } => self.apply_stopped(event),
            RunEvent::Failed {
                at_ms,
                code,
                message,
                ..
            } => {
                self.end(RunStatus::Failed);
                self.machines.apply(event);
                code.clone_into(&mut self.failure_code);
                let detail = status_text::resume_detail(self.figures.step, self.checkpoints.last());
                self.set_status_line(*at_ms, message.clone(), detail);
                self.status_line.level = Level::Critical;
            }
        }
    }

    /// Marks a run without an end event as ended early. Call it if no process trains the run.
    /// Returns false and changes nothing if the run had already ended.
    pub fn mark_process_exited(&mut self) -> bool {
        if self.status.has_ended() {
            return false;
        }
        self.version += 1;
        self.end(RunStatus::EndedEarly);
        let message = status_text::ended_early(self.figures.step, None);
        let detail = status_text::resume_detail(self.figures.step, self.checkpoints.last());
        self.set_status_line(self.now_ms, message, detail);
        true
    }

    /// Adds the crash report to a run that ended early.
    pub(crate) fn set_crash_report(&mut self, report: CrashReport) {
        self.version += 1;
        self.status_line.message = status_text::ended_early(self.figures.step, Some(report.level));
        self.status_line.level = report.level;
        self.last_minutes = report.messages;
    }

    fn start(&mut self, started: &Started) {
        let (version, now_ms) = (self.version, started.at_ms);
        *self = Run {
            version,
            now_ms,
            life_start: LifeStart {
                at_ms: now_ms,
                unix_ms: started.unix_ms,
            },
            started: Some(started.clone()),
            ..Run::default()
        };
        self.figures.level_since_ms = now_ms;
        self.set_status_text(now_ms, status_text::started(started));
    }

    fn apply_resumed(&mut self, event: &RunEvent) {
        let RunEvent::Resumed {
            at_ms,
            unix_ms,
            step,
            device,
            device_reason,
            steps,
            epochs,
            ..
        } = event
        else {
            return;
        };
        self.life_start = LifeStart {
            at_ms: *at_ms,
            unix_ms: *unix_ms,
        };
        // The new process starts with the limits of the config.
        self.limits = None;
        let has_changed = self.set_length(*steps, *epochs);
        self.resume(*at_ms, *step, device);
        if let Some(started) = &mut self.started {
            started.device_reason.clone_from(device_reason);
        }
        if let Some(started) = self.started.as_ref().filter(|_| has_changed) {
            self.status_line.detail = status_text::length_changed(started);
        }
    }

    fn apply_baseline(&mut self, event: &RunEvent) {
        let Some(baseline) = BaselineRecord::from_event(event) else {
            return;
        };
        let train_samples = self
            .started
            .as_ref()
            .map_or(0, |started| started.train_samples);
        let text = status_text::baseline(&baseline, train_samples);
        self.set_status_text(event.at_ms(), text);
        self.baseline = Some(baseline);
    }

    fn apply_memory(&mut self, event: &RunEvent) {
        let RunEvent::Memory {
            at_ms,
            sample,
            pressure,
            level,
            budget_bytes,
            micro_batch,
            peak,
            ..
        } = event
        else {
            return;
        };
        self.live.event_arrived(*at_ms);
        self.figures.pressure = Some(*pressure);
        let own_bytes = peak.map_or(sample.own_bytes, |peak| peak.own_bytes);
        self.figures.own_bytes = Some(own_bytes);
        self.figures.peak_own_bytes = self.figures.peak_own_bytes.max(Some(own_bytes));
        self.figures.budget_bytes = Some(*budget_bytes);
        if let Some(values) = memory_values(event) {
            self.memory.push(*at_ms as f64, values);
        }
        self.set_level(*at_ms, *level);
        if self.micro.len() == 0 && *micro_batch > 0 {
            self.set_micro_batch(*at_ms, *micro_batch);
        }
    }

    fn set_level(&mut self, at_ms: u64, level: Level) {
        self.spans.add(at_ms, level);
        if level != self.figures.level {
            (self.figures.level, self.figures.level_since_ms) = (level, at_ms);
            self.status_line.level = level;
        }
    }

    fn apply_decision(&mut self, event: &RunEvent) {
        let RunEvent::Decision {
            at_ms,
            phase,
            previous_micro_batch,
            decision,
            message,
            ..
        } = event
        else {
            return;
        };
        let waits = decision.action != Action::Run;
        self.is_suspended = decision.action == Action::Suspend;
        if *phase == Phase::Evaluate && !waits {
            self.evaluation_micro_batch = decision.micro_batch;
            if self.status != RunStatus::Paused {
                return self.apply_evaluation_change(*at_ms, decision, message);
            }
        }
        if waits {
            self.status = RunStatus::Paused;
            self.throughput.reset();
            (self.figures.samples_per_second, self.figures.seconds_left) = (None, None);
        } else if self.status == RunStatus::Paused {
            self.status = self.active_status();
        }
        // An evaluation that continues leaves training at its size.
        let micro_batch = match phase {
            Phase::Evaluate if !waits => *previous_micro_batch,
            Phase::Evaluate | Phase::Train => decision.micro_batch,
        };
        self.set_micro_batch(*at_ms, micro_batch);
        let mut message = status_text::decision_message(decision, self.figures.step, message);
        // The size of an evaluation's micro-batch is not shown as that of training.
        let decision = &Decision {
            micro_batch,
            ..decision.clone()
        };
        if decision.change != Change::Start && decision.change != Change::Hold {
            let completed = self.add_change(*at_ms, *previous_micro_batch, decision);
            message = completed.unwrap_or(message);
        }
        let detail =
            status_text::decision_detail(decision, self.started.as_ref(), self.figures.step);
        self.set_status_line(*at_ms, message, detail);
    }

    /// Shows that an evaluation uses smaller micro-batches. Those of training stay.
    fn apply_evaluation_change(&mut self, at_ms: u64, decision: &Decision, message: &str) {
        if !matches!(decision.change, Change::Shrink | Change::Cancel) {
            return;
        }
        self.add_evaluation_change(at_ms, decision);
        let detail = status_text::EVALUATION_DETAIL.to_owned();
        self.set_status_line(at_ms, message.to_owned(), detail);
    }

    fn apply_group(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Group {
                at_ms,
                message,
                sync_every,
                ..
            } => {
                self.machines.apply(event);
                let detail = if *sync_every > 0 {
                    status_text::RARE_EXCHANGE_DETAIL
                } else {
                    status_text::GROUP_DETAIL
                };
                self.set_status_line(*at_ms, message.clone(), detail.to_owned());
            }
            RunEvent::Machine {
                rank,
                host,
                message,
                ..
            } => {
                self.machines.apply(event);
                self.add_note(format!("rank {rank} ({host}): {message}"));
            }
            _ => self.machines.apply(event),
        }
    }

    fn apply_stress_test(&mut self, at_ms: u64, bytes: u64, seconds: u64) {
        // The one before has ended, at the latest now.
        if let Some(last) = self.stress_tests.last_mut() {
            last.to_ms = last.to_ms.min(at_ms.max(last.from_ms));
        }
        if bytes > 0 {
            self.stress_tests.push(StressTestSpan {
                from_ms: at_ms,
                to_ms: at_ms.saturating_add(seconds.saturating_mul(1000)),
                bytes,
            });
        }
    }

    fn apply_limits(&mut self, event: &RunEvent) {
        let RunEvent::MemoryLimits {
            at_ms,
            memory_cap_bytes,
            max_system_fraction,
            message,
            ..
        } = event
        else {
            return;
        };
        self.limits = Some(MemoryLimits {
            memory_cap_bytes: *memory_cap_bytes,
            max_system_fraction: *max_system_fraction,
        });
        self.add_limits(*at_ms, message);
        // While it pauses, the status line has to name the way out.
        if self.status == RunStatus::Training {
            let detail = status_text::LIMITS_DETAIL.to_owned();
            self.set_status_line(*at_ms, message.clone(), detail);
        }
    }

    fn set_micro_batch(&mut self, at_ms: u64, size: u32) {
        if self
            .micro
            .last()
            .is_none_or(|(_, [last])| last != f64::from(size))
        {
            self.micro.push(at_ms as f64, [f64::from(size)]);
        }
        let effective = self.effective_batch();
        self.figures.micro_batch = (size > 0).then_some(size);
        self.figures.micro_batches = (size > 0 && effective > 0).then(|| effective.div_ceil(size));
    }

    fn apply_step(&mut self, event: &RunEvent) {
        let RunEvent::Step {
            at_ms,
            step,
            epoch,
            loss,
            learning_rate,
            samples_per_second,
            micro_batches,
            metrics,
            ..
        } = event
        else {
            return;
        };
        if !matches!(self.status, RunStatus::Training | RunStatus::Paused) {
            self.status = RunStatus::Training;
        }
        self.live.progress = None;
        let smoothed = self.steps.push(event);
        if let Some(size) = micro_batches.iter().max().filter(|_| self.micro.len() == 0) {
            self.set_micro_batch(*at_ms, *size);
        }
        let samples = micro_batches.iter().map(|size| f64::from(*size)).sum();
        self.throughput
            .add_step(*at_ms, samples, *samples_per_second);
        let planned = self.started.as_ref().map_or(0, |started| started.steps);
        let figures = &mut self.figures;
        (figures.step, figures.epoch) = (*step, epoch + 1);
        (figures.loss, figures.smoothed_loss) = (Some(*loss), smoothed);
        figures.learning_rate = Some(*learning_rate);
        figures.add_step_metrics(metrics);
        figures.samples_per_second = self.throughput.samples_per_second();
        let left = planned.checked_sub(*step).filter(|_| planned > 0);
        figures.seconds_left = left.and_then(|left| self.throughput.seconds_for(left));
    }

    fn apply_evaluation(&mut self, event: &RunEvent) {
        self.evaluations.extend(EvaluationRecord::from_event(event));
        self.live.progress = None;
        self.update_held_out_figures();
    }

    /// Adds the answers after an evaluation. Of very many, every second one is forgotten, except
    /// those of the best evaluation.
    fn apply_answers(&mut self, step: u64, answers: &[PromptAnswer]) {
        self.answers.retain(|record| record.step < step);
        if self.answers.len() >= MAX_ANSWERS {
            let best = best_evaluation(&self.evaluations).map(|best| best.step);
            let mut place = 0;
            self.answers.retain(|record| {
                place += 1;
                place % 2 == 1 || Some(record.step) == best
            });
        }
        self.answers.push(AnswersRecord {
            step,
            answers: answers.to_vec(),
        });
    }

    fn apply_checkpoint(&mut self, event: &RunEvent) {
        let RunEvent::Checkpoint {
            at_ms,
            step,
            path,
            duration_ms,
            reason,
            ..
        } = event
        else {
            return;
        };
        self.checkpoints.push(CheckpointRecord {
            at_ms: *at_ms,
            step: *step,
            path: path.clone(),
        });
        if let Some(text) = status_text::checkpoint(*step, *duration_ms, *reason) {
            self.set_status_text(*at_ms, text);
        }
    }

    fn apply_stopped(&mut self, event: &RunEvent) {
        let RunEvent::Stopped {
            at_ms,
            step,
            reason,
            message,
        } = event
        else {
            return;
        };
        self.figures.step = *step;
        self.stop_reason = Some(*reason);
        self.end(match reason {
            StopReason::Finished => RunStatus::Finished,
            StopReason::Requested | StopReason::Memory | StopReason::Disk => RunStatus::Stopped,
        });
        let best = best_evaluation(&self.evaluations);
        let planned = self.started.as_ref().map_or(0, |started| started.steps);
        let detail = status_text::stopped_detail(*step, planned, *reason, best);
        self.set_status_line(*at_ms, message.clone(), detail);
    }

    /// Returns to the checkpoint of `step` and discards everything after it.
    fn resume(&mut self, at_ms: u64, step: u64, device: &str) {
        self.now_ms = at_ms;
        self.live = LiveState::default();
        self.evaluation_micro_batch = 0;
        self.rest_reason = None;
        self.steps.truncate_after(step);
        self.evaluations
            .retain(|evaluation| evaluation.step <= step);
        self.answers.retain(|record| record.step <= step);
        self.checkpoints
            .retain(|checkpoint| checkpoint.step <= step);
        self.predictions
            .retain(|prediction| prediction.at_ms <= at_ms);
        self.non_finite_gradients.truncate_after(step);
        self.last_minutes.clear();
        // The clock may have been set back to that of the checkpoint.
        self.memory.truncate_after(at_ms as f64);
        self.micro.truncate_after(at_ms as f64);
        self.marks.retain(|mark| mark.at_ms <= at_ms);
        self.stress_tests.retain(|test| test.from_ms <= at_ms);
        self.spans.truncate_after(at_ms);
        self.throughput.reset();
        self.stop_reason = None;
        self.is_suspended = false;
        // A group names itself after it has resumed.
        self.machines.end(at_ms);
        self.failure_code.clear();
        self.figures = self.figures_at(at_ms, step);
        self.add_resumption(at_ms, step, device);
        self.update_held_out_figures();
        self.status = self.active_status();
        if let Some(started) = &mut self.started {
            started.device = device.to_owned();
        }
        self.set_status_text(at_ms, status_text::resumed(step, device));
    }

    /// Takes the planned length of a run that was resumed. Returns whether it has changed.
    fn set_length(&mut self, steps: u64, epochs: u64) -> bool {
        let Some(started) = &mut self.started else {
            return false;
        };
        if steps == 0 || started.steps == steps {
            return false;
        }
        (started.steps, started.epochs) = (steps, epochs);
        true
    }

    /// The figures of a run that was resumed at `step`.
    fn figures_at(&mut self, at_ms: u64, step: u64) -> Figures {
        let steps_per_epoch = self
            .started
            .as_ref()
            .map_or(0, |started| started.steps_per_epoch);
        let completed_epochs = step.saturating_sub(1).checked_div(steps_per_epoch);
        Figures {
            step,
            epoch: completed_epochs.map_or(0, |epochs| epochs + 1),
            loss: self.steps.last_loss(),
            smoothed_loss: self.steps.last_smoothed_loss(),
            changes: self.marks.len() as u32,
            skipped: self.figures.skipped,
            step_metrics: std::mem::take(&mut self.figures.step_metrics),
            level_since_ms: at_ms,
            peak_own_bytes: self.highest_footprint(),
            ..Figures::default()
        }
    }

    fn update_held_out_figures(&mut self) {
        let last = self.evaluations.last();
        self.figures.held_out_loss = last.map(|evaluation| evaluation.loss);
        self.figures.accuracy = last.and_then(|evaluation| evaluation.accuracy);
        self.figures.held_out_metrics =
            last.map_or_else(BTreeMap::new, |last| last.metrics.clone());
        let best = best_evaluation(&self.evaluations);
        self.figures.best_accuracy = best.and_then(|best| best.accuracy);
        self.figures.best_step = best.map(|best| best.step);
    }

    fn effective_batch(&self) -> u32 {
        self.started
            .as_ref()
            .map_or(0, |started| started.effective_batch)
    }

    /// The status of a run that neither waits nor has ended.
    fn active_status(&self) -> RunStatus {
        if self.steps.is_empty() {
            RunStatus::Starting
        } else {
            RunStatus::Training
        }
    }

    fn end(&mut self, status: RunStatus) {
        self.status = status;
        self.live = LiveState::default();
        (self.figures.samples_per_second, self.figures.seconds_left) = (None, None);
    }

    fn set_status_text(&mut self, at_ms: u64, text: StatusText) {
        self.set_status_line(at_ms, text.message, text.detail);
    }

    fn set_status_line(&mut self, at_ms: u64, message: String, detail: String) {
        self.status_line = StatusLine {
            at_ms,
            message,
            detail,
            level: self.figures.level,
        };
    }

    fn apply_warning(&mut self, code: &str, message: &str) {
        match code {
            RESTS => self.rest_reason = Some(message.to_owned()),
            FULL_SPEED => self.rest_reason = None,
            _ => {}
        }
        self.add_note(message.to_owned());
    }

    fn add_note(&mut self, note: String) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crashed(level: Level) -> Run {
        let mut run = Run::default();
        run.apply(&RunEvent::Started(Box::default()));
        assert!(run.mark_process_exited() && !run.mark_process_exited());
        run.set_crash_report(CrashReport {
            end_unix_ms: 2,
            sample_unix_ms: 1,
            level,
            highest_pressure: 0.9,
            messages: vec!["The last memory sample was taken at 14:02:11".into()],
        });
        run
    }

    #[test]
    fn a_crash_names_the_memory_level() {
        for (level, memory) in [
            (Level::Normal, ""),
            (Level::Warning, " while memory was short"),
            (Level::Critical, " while memory was critical"),
        ] {
            let run = crashed(level);
            let message = format!("Ended before the first step{memory}: Ebb quit unexpectedly");
            assert_eq!(run.status_line().message, message);
            assert_eq!(
                run.last_minutes(),
                ["The last memory sample was taken at 14:02:11"]
            );
        }
    }

    #[test]
    fn a_new_life_clears_the_crash_report() {
        for event in [
            RunEvent::Started(Box::<Started>::default()),
            RunEvent::Resumed {
                at_ms: 5,
                unix_ms: 0,
                step: 0,
                process: 1,
                device: "cpu".into(),
                device_reason: String::new(),
                steps: 0,
                epochs: 0,
            },
        ] {
            let mut run = crashed(Level::Critical);
            run.apply(&event);
            assert!(run.last_minutes().is_empty(), "{event:?}");
        }
    }
}
