//! Emits the events of a run: first to the run folder, then to the observer. Keeps the run's clock
//! and limits how often memory readings and predictions are emitted.

use crate::error::Result;
use crate::live::{LiveMemory, SharedWriter};
use crate::memory_controller::Prediction;
use crate::memory_reading::MemoryReading;
use crate::skipped_steps::Skipped;
use dataset::SampleError;
use pressure::{Change, Decision, Phase, describe_decision, describe_evaluation_decision};
use runlog::{EventWriter, MemoryLimits, RunEvent, RunFolder, RunlogError, StepProgress, counted};
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Shortest time between two memory events without a decision, in milliseconds.
const MEMORY_INTERVAL_MS: u64 = 1000;
/// Shortest time between two predictions for the same micro-batch, in milliseconds.
const SAME_PREDICTION_INTERVAL_MS: u64 = 60_000;
/// Shortest time between any two predictions, in milliseconds.
const PREDICTION_INTERVAL_MS: u64 = 10_000;

/// Most events that wait for space on the disk, about 2 MB.
const MOST_WAITING: usize = 4096;

/// Most messages that a rank of a group reports after a step.
const MOST_MESSAGES: usize = 20;

/// Receives every event of a run, in order.
pub type Observer<'a> = &'a mut (dyn FnMut(&RunEvent) + Send);

/// A decision as its event reports it.
#[derive(Debug, Clone)]
pub struct DecisionRecord {
    /// Optimizer steps done.
    pub step: u64,
    /// Training or evaluation.
    pub phase: Phase,
    /// The micro-batch before.
    pub previous_micro_batch: u32,
    /// Micro-batches per effective batch from now on.
    pub micro_batches: u32,
    pub decision: Decision,
}

/// Writes and forwards the events of one run. A run does not end because its disk is full or fails:
/// the events then wait in memory.
pub struct EventLog<'a> {
    writer: SharedWriter,
    /// Events that could not be written yet, the oldest first.
    waiting: VecDeque<RunEvent>,
    /// The number of older ones that were dropped.
    dropped: u64,
    observer: Observer<'a>,
    live: LiveMemory,
    last_memory_ms: Option<u64>,
    /// The newest prediction of a peak: when it was made, and for which phase and micro-batch size.
    last_prediction: Option<(u64, (Phase, u32))>,
    /// Messages for rank 0, if this is another rank of a group.
    messages: Option<Vec<String>>,
    /// Files that were reported as skipped, each with the reason.
    skipped_files: HashSet<(PathBuf, String)>,
}

impl<'a> EventLog<'a> {
    /// Appends to the events of a run folder.
    pub(crate) fn open(run: &RunFolder, observer: Observer<'a>, live: LiveMemory) -> Result<Self> {
        let writer = Arc::new(Mutex::new(EventWriter::append(run)?));
        live.write_to(Arc::clone(&writer));
        Ok(EventLog {
            writer,
            waiting: VecDeque::new(),
            dropped: 0,
            observer,
            live,
            last_memory_ms: None,
            last_prediction: None,
            messages: None,
            skipped_files: HashSet::new(),
        })
    }

    /// Training time of the run so far, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.live.clock().now_ms()
    }

    /// Keeps decisions and warnings from now on, for the rank that keeps the run.
    pub(crate) fn keep_messages(&mut self) {
        self.messages = Some(Vec::new());
    }

    /// The decisions and warnings since the last call, if they are kept.
    pub(crate) fn take_messages(&mut self) -> Vec<String> {
        self.messages.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    fn keep_message(&mut self, event: &RunEvent) {
        let Some(messages) = &mut self.messages else {
            return;
        };
        let message = match event {
            RunEvent::Decision {
                decision, message, ..
            } if !matches!(decision.change, Change::Start | Change::Hold) => message.clone(),
            RunEvent::Warning { message, .. } => message.clone(),
            RunEvent::Skipped { item, reason, .. } => {
                format!("{item} cannot be read here ({reason}), so rank 0 processes it")
            }
            _ => return,
        };
        if messages.len() < MOST_MESSAGES {
            messages.push(message);
        }
    }

    /// Shows that a micro-batch begins.
    pub(crate) fn progress(&self, progress: StepProgress) {
        self.live.progress(progress);
    }

    /// Writes an event and passes it to the observer. If it cannot be written, it waits, and the
    /// observer gets a warning.
    pub fn emit(&mut self, event: RunEvent) -> Result<()> {
        self.keep_message(&event);
        if matches!(event, RunEvent::Stopped { .. } | RunEvent::Failed { .. }) {
            self.live.stop_writing();
        }
        let written = self.write_waiting().and_then(|()| self.write(&event));
        (self.observer)(&event);
        if let Err(error) = written {
            let is_first = self.waiting.is_empty();
            self.wait(event);
            if is_first {
                let warning = self.not_written_warning(&error);
                (self.observer)(&warning);
                self.wait(warning);
            }
        }
        Ok(())
    }

    /// Emits that a session begins. The observer sees the event only if it is written.
    ///
    /// # Errors
    /// It cannot be written: a session that leaves no trace must not begin.
    pub(crate) fn emit_beginning(&mut self, event: RunEvent) -> Result<()> {
        self.write_waiting()?;
        self.write(&event)?;
        (self.observer)(&event);
        Ok(())
    }

    fn write(&self, event: &RunEvent) -> std::result::Result<(), RunlogError> {
        let writer = self.writer.lock();
        // Every write leaves whole lines, or knows that it did not.
        let mut writer = writer.unwrap_or_else(PoisonError::into_inner);
        writer.write(event)
    }

    fn write_waiting(&mut self) -> std::result::Result<(), RunlogError> {
        if self.dropped > 0 {
            let lost = counted(self.dropped, "event was", "events were");
            let at_ms = self.now_ms();
            self.write(&RunEvent::Warning {
                at_ms,
                code: "events_lost".to_owned(),
                message: format!("{lost} lost, because too many events were waiting to be written"),
            })?;
            self.dropped = 0;
        }
        while let Some(event) = self.waiting.front() {
            self.write(event)?;
            self.waiting.pop_front();
            if self.waiting.is_empty() {
                self.live.write_to(Arc::clone(&self.writer));
            }
        }
        Ok(())
    }

    fn wait(&mut self, event: RunEvent) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(event);
    }

    fn not_written_warning(&self, error: &RunlogError) -> RunEvent {
        RunEvent::Warning {
            at_ms: self.now_ms(),
            code: "events_not_written".to_owned(),
            message: format!(
                "{error}; the training continues, and its events are written once the disk accepts them"
            ),
        }
    }

    /// Emits a memory reading with the highest footprint since the one before, after the readings
    /// of a micro-batch that took long.
    pub fn memory(&mut self, reading: &MemoryReading) -> Result<()> {
        let at_ms = self.now_ms();
        let (waiting, peak) = self.live.end_interval(at_ms, reading);
        for earlier in waiting {
            let event = earlier.reading.event(earlier.at_ms, Some(earlier.peak));
            if earlier.is_written {
                (self.observer)(&event);
            } else {
                self.emit(event)?;
            }
        }
        self.last_memory_ms = Some(at_ms);
        self.emit(reading.event(at_ms, Some(peak)))
    }

    /// Emits a memory reading unless one was emitted within the last second.
    pub fn memory_if_due(&mut self, reading: &MemoryReading) -> Result<()> {
        let now_ms = self.now_ms();
        let is_due = |last| now_ms >= last + MEMORY_INTERVAL_MS;
        if self.last_memory_ms.is_none_or(is_due) {
            self.memory(reading)?;
        }
        Ok(())
    }

    /// Emits a decision.
    pub fn decision(&mut self, record: DecisionRecord) -> Result<()> {
        self.emit(RunEvent::Decision {
            at_ms: self.now_ms(),
            step: record.step,
            phase: record.phase,
            previous_micro_batch: record.previous_micro_batch,
            micro_batches: record.micro_batches,
            message: match record.phase {
                Phase::Train => describe_decision(record.previous_micro_batch, &record.decision),
                Phase::Evaluate => {
                    describe_evaluation_decision(record.previous_micro_batch, &record.decision)
                }
            },
            decision: record.decision,
        })
    }

    /// Emits the error of a predicted peak: at most once a minute for the same micro-batch, and at
    /// most six times a minute in all.
    pub fn prediction(&mut self, prediction: &Prediction, step: u64) -> Result<()> {
        let now_ms = self.now_ms();
        let subject = (prediction.phase, prediction.steady_micro_batch);
        if let Some((last_ms, last_subject)) = self.last_prediction {
            let interval_ms = if last_subject == subject {
                SAME_PREDICTION_INTERVAL_MS
            } else {
                PREDICTION_INTERVAL_MS
            };
            if now_ms < last_ms + interval_ms {
                return Ok(());
            }
        }
        self.last_prediction = Some((now_ms, subject));
        self.emit(RunEvent::Prediction {
            at_ms: now_ms,
            step,
            phase: prediction.phase,
            micro_batch: prediction.micro_batch,
            predicted_peak_bytes: prediction.predicted_peak_bytes,
            measured_peak_bytes: prediction.measured_peak_bytes,
            error_fraction: prediction.error_fraction,
        })
    }

    /// Emits that the user changed a memory limit.
    pub fn memory_limits(
        &mut self,
        step: u64,
        limits: MemoryLimits,
        message: String,
    ) -> Result<()> {
        self.emit(RunEvent::MemoryLimits {
            at_ms: self.now_ms(),
            step,
            memory_cap_bytes: limits.memory_cap_bytes,
            max_system_fraction: limits.max_system_fraction,
            message,
        })
    }

    /// Emits that a stress test took memory `at` this time, or gave it back.
    pub fn stress_test(&mut self, step: u64, bytes: u64, seconds: u64, at: Instant) -> Result<()> {
        self.emit(RunEvent::StressTest {
            at_ms: self.live.clock().at_ms(at),
            step,
            bytes,
            seconds,
        })
    }

    /// Emits a warning.
    pub fn warn(&mut self, code: &str, message: String) -> Result<()> {
        self.emit(RunEvent::Warning {
            at_ms: self.now_ms(),
            code: code.to_owned(),
            message,
        })
    }

    /// Emits that samples were skipped because their files could not be read: once for each file,
    /// although every epoch tries it again.
    pub fn skipped_samples(&mut self, step: u64, errors: Vec<SampleError>) -> Result<()> {
        for error in errors {
            let is_new = (self.skipped_files).insert((error.file.clone(), error.reason.clone()));
            if !is_new {
                continue;
            }
            self.emit(RunEvent::Skipped {
                at_ms: self.now_ms(),
                step,
                item: error.file.display().to_string(),
                reason: error.reason,
                gradients: Some(Vec::new()),
            })?;
        }
        Ok(())
    }

    /// Emits that an optimizer step was skipped.
    pub fn skipped_step(&mut self, step: u64, skipped: Skipped) -> Result<()> {
        self.emit(RunEvent::Skipped {
            at_ms: self.now_ms(),
            step,
            reason: skipped.reason(),
            item: skipped.item,
            gradients: Some(skipped.gradients),
        })
    }
}
