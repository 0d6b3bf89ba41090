//! Turns what happens into events: thins memory readings to one a second, writes the sentence of a decision, keeps the
//! run's clock. Writes to the run folder first, then tells whoever listens.

use crate::error::Result;
use crate::pilot::{Answer, Pilot, Prediction};
use crate::recorder::Recorder;
use crate::skipped::Skipped;
use pressure::{Action, MemorySample, Phase, describe_decision};
use runlog::{EventWriter, RunEvent, RunFolder, RunlogError};
use std::time::Instant;

/// Least distance of two memory events without a decision between them, in milliseconds.
const MEMORY_EVERY_MS: u64 = 1000;
/// Distance of two words about predicted peaks, in milliseconds: where nothing changed, and in any case.
const PREDICTION_EVERY_MS: u64 = 60_000;
const PREDICTION_APART_MS: u64 = 10_000;

/// Receives every event of a run, in order.
pub type Listener<'a> = &'a mut (dyn FnMut(&RunEvent) + Send);

/// The run's voice.
pub struct Journal<'a> {
    writer: EventWriter,
    listener: Listener<'a>,
    begun: Instant,
    earlier_ms: u64,
    last_memory_ms: Option<u64>,
    /// When a prediction was told, and of which size in which phase.
    last_prediction: Option<(u64, (Phase, u32))>,
    recorder: Option<Recorder>,
    trouble: Option<String>,
}

impl<'a> Journal<'a> {
    /// Opens the run folder's events. `earlier_ms` is the age of the run from its earlier lives. Without a flight recorder the
    /// training goes on and says why.
    pub fn open(
        run: &RunFolder,
        listener: Listener<'a>,
        earlier_ms: u64,
        recorder: std::result::Result<Recorder, RunlogError>,
    ) -> Result<Self> {
        let trouble = recorder.as_ref().err().map(RunlogError::to_string);
        Ok(Journal {
            writer: EventWriter::append(run)?,
            listener,
            begun: Instant::now(),
            earlier_ms,
            last_memory_ms: None,
            last_prediction: None,
            recorder: recorder.ok(),
            trouble,
        })
    }

    /// Milliseconds of the run's life.
    pub fn now_ms(&self) -> u64 {
        self.earlier_ms + self.begun.elapsed().as_millis() as u64
    }

    /// Writes and tells one event.
    pub fn say(&mut self, event: RunEvent) -> Result<()> {
        self.writer.write(&event)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.hear(&event);
        }
        (self.listener)(&event);
        Ok(())
    }

    /// Takes the monitor's readings for the flight recorder, where there is one.
    pub fn ear(&self) -> Option<impl FnMut(&MemorySample) + Send + use<>> {
        self.recorder.as_ref().map(Recorder::ear)
    }

    /// Tells how far a predicted peak was off: with the first piece of a new size and once a minute, at most six a minute.
    pub fn predicted(&mut self, prediction: Prediction, step: u64) -> Result<()> {
        let (at_ms, of) = (self.now_ms(), (prediction.phase, prediction.steady));
        let apart_ms = match self.last_prediction {
            Some((_, last)) if last == of => PREDICTION_EVERY_MS,
            _ => PREDICTION_APART_MS,
        };
        if self
            .last_prediction
            .is_some_and(|(last, _)| at_ms < last + apart_ms)
        {
            return Ok(());
        }
        self.last_prediction = Some((at_ms, of));
        self.say(RunEvent::Prediction {
            at_ms,
            step,
            phase: prediction.phase,
            micro_batch: prediction.micro_batch,
            predicted_peak_bytes: prediction.predicted_peak_bytes,
            measured_peak_bytes: prediction.measured_peak_bytes,
            error_fraction: prediction.error_fraction,
        })
    }

    /// A flight recorder that cannot write is said once; the training does not need it.
    fn warn_of_recorder(&mut self) -> Result<()> {
        let trouble = self.trouble.take();
        let recorder = self.recorder.as_ref();
        match trouble.or_else(|| recorder.and_then(Recorder::take_trouble)) {
            Some(why) => self.warn(
                "flight_recorder",
                format!("the last minutes of this run are not recorded: {why}"),
            ),
            None => Ok(()),
        }
    }

    /// Tells what the pilot answered: the reading once a second, the decision when it changes something.
    pub fn answer(
        &mut self,
        pilot: &Pilot,
        answer: &Answer,
        phase: Phase,
        at: Position,
    ) -> Result<()> {
        let due = self
            .last_memory_ms
            .is_none_or(|last| self.now_ms() >= last + MEMORY_EVERY_MS);
        if due || answer.changed {
            self.memory(
                pilot,
                answer.sample,
                answer.decision.budget_bytes,
                answer.decision.micro_batch,
                at,
            )?;
        }
        if !answer.changed {
            return Ok(());
        }
        let decision = answer.decision.clone();
        let pieces = match decision.action {
            Action::Run => at.batch.div_ceil(decision.micro_batch.max(1)),
            _ => 0,
        };
        self.say(RunEvent::Decision {
            at_ms: self.now_ms(),
            step: at.step,
            phase,
            previous_micro_batch: answer.previous,
            pieces,
            sentence: describe_decision(answer.previous, &decision),
            decision,
        })
    }

    /// Tells one reading.
    pub fn memory(
        &mut self,
        pilot: &Pilot,
        sample: MemorySample,
        budget_bytes: u64,
        micro_batch: u32,
        at: Position,
    ) -> Result<()> {
        let (at_ms, reading) = (self.now_ms(), pilot.state().reading());
        self.last_memory_ms = Some(at_ms);
        self.say(RunEvent::Memory {
            at_ms,
            sample,
            state_bytes: at.state_bytes,
            pressure: reading.value,
            level: pilot.state().level(),
            cause: reading.cause,
            budget_bytes,
            micro_batch,
        })?;
        self.warn_of_recorder()
    }

    /// Tells a reading taken while nothing is decided, at most one a second.
    pub fn reading(&mut self, pilot: &Pilot, sample: MemorySample, at: Position) -> Result<()> {
        if self
            .last_memory_ms
            .is_some_and(|last| self.now_ms() < last + MEMORY_EVERY_MS)
        {
            return Ok(());
        }
        self.memory(
            pilot,
            sample,
            pilot.budget_bytes(&sample),
            pilot.micro_batch(),
            at,
        )
    }

    /// Something the user should know.
    pub fn warn(&mut self, code: &str, message: String) -> Result<()> {
        self.say(RunEvent::Warning {
            at_ms: self.now_ms(),
            code: code.to_owned(),
            message,
        })
    }

    /// A file was left out.
    pub fn skip(&mut self, step: u64, what: String, reason: String) -> Result<()> {
        self.say(RunEvent::Skipped {
            at_ms: self.now_ms(),
            step,
            what,
            reason,
            gradients: Vec::new(),
        })
    }

    /// A step was left out.
    pub fn skip_step(&mut self, step: u64, skipped: Skipped) -> Result<()> {
        self.say(RunEvent::Skipped {
            at_ms: self.now_ms(),
            step,
            reason: skipped.reason(),
            what: skipped.what,
            gradients: skipped.gradients,
        })
    }
}

/// Where the run stands when something is said.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// Optimizer steps done.
    pub step: u64,
    /// Samples a step.
    pub batch: u32,
    /// Bytes of weights, gradients and moments.
    pub state_bytes: u64,
}
