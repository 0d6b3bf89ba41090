//! Emits the events of a run: first to the run folder, then to the observer. Keeps the run's clock
//! and limits how often memory readings and predictions are emitted.

use crate::error::Result;
use crate::live::LiveMemory;
use crate::memory_controller::Prediction;
use crate::memory_reading::MemoryReading;
use crate::skipped_steps::Skipped;
use dataset::SampleError;
use pressure::{Decision, Phase, describe_decision};
use runlog::{EventWriter, RunEvent, RunFolder, StepProgress};

/// Shortest time between two memory events without a decision, in milliseconds.
const MEMORY_INTERVAL_MS: u64 = 1000;
/// Shortest time between two predictions for the same micro-batch, in milliseconds.
const SAME_PREDICTION_INTERVAL_MS: u64 = 60_000;
/// Shortest time between any two predictions, in milliseconds.
const PREDICTION_INTERVAL_MS: u64 = 10_000;

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

/// Writes and forwards the events of one run.
pub struct EventLog<'a> {
    writer: EventWriter,
    observer: Observer<'a>,
    live: LiveMemory,
    last_memory_ms: Option<u64>,
    /// Time of the newest prediction, and the phase and micro-batch it was for.
    last_prediction: Option<(u64, (Phase, u32))>,
}

impl<'a> EventLog<'a> {
    /// Appends to the events of a run folder.
    pub(crate) fn open(run: &RunFolder, observer: Observer<'a>, live: LiveMemory) -> Result<Self> {
        Ok(EventLog {
            writer: EventWriter::append(run)?,
            observer,
            live,
            last_memory_ms: None,
            last_prediction: None,
        })
    }

    /// Training time of the run so far, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.live.clock().now_ms()
    }

    /// Shows that a micro-batch begins.
    pub(crate) fn progress(&self, progress: StepProgress) {
        self.live.progress(progress);
    }

    /// Writes an event and passes it to the observer.
    pub fn emit(&mut self, event: RunEvent) -> Result<()> {
        self.writer.write(&event)?;
        (self.observer)(&event);
        Ok(())
    }

    /// Emits a memory reading with the highest footprint since the one before, after the readings
    /// of a micro-batch that took long.
    pub fn memory(&mut self, reading: &MemoryReading) -> Result<()> {
        let at_ms = self.now_ms();
        let (waiting, peak) = self.live.end_interval(at_ms, reading);
        for earlier in waiting {
            self.emit(earlier.reading.event(earlier.at_ms, Some(earlier.peak)))?;
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
            message: describe_decision(record.previous_micro_batch, &record.decision),
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

    /// Emits a warning.
    pub fn warn(&mut self, code: &str, message: String) -> Result<()> {
        self.emit(RunEvent::Warning {
            at_ms: self.now_ms(),
            code: code.to_owned(),
            message,
        })
    }

    /// Emits that samples were skipped because their files could not be read.
    pub fn skipped_samples(&mut self, step: u64, errors: Vec<SampleError>) -> Result<()> {
        for error in errors {
            self.emit(RunEvent::Skipped {
                at_ms: self.now_ms(),
                step,
                item: error.file.display().to_string(),
                reason: error.reason,
                gradients: Vec::new(),
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
            gradients: skipped.gradients,
        })
    }
}
