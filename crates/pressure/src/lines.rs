//! The pilot by lines: JSON in, JSON out, so that anybody can fly the controller from outside Ebb. Pure: a line is taken in
//! and lines come out. Time is the samples'. Refuses to know where lines come from and who works the pieces.

use crate::controller::{decide, notice, observe, should_cancel};
use crate::decision::{Action, Ask, Decision, Outcome, Phase, Piece, PieceKind, SampleCost};
use crate::error::PressureError;
use crate::memory_model::{Allocator, MemoryModel};
use crate::policy::Policy;
use crate::sample::MemorySample;
use crate::state::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Samples further apart than this leave a hole: the forecast cannot look across it, milliseconds.
pub const HOLE_MS: u64 = 10_000;
/// The largest number that every program reads alike; sums of a few stay far from the end of 64 bits.
pub(crate) const LARGEST: u64 = 1 << 53;
/// Parts of a whole: 0 to 1.
const SHARES: [&str; 2] = ["stall_fraction", "compressor_fraction"];
/// What a reading must hold; the rest may be absent.
const NEEDED: [&str; 4] = ["at_ms", "total_bytes", "available_bytes", "own_bytes"];
/// The largest batch that is taken: every sample of it is looked at.
const MOST_SAMPLES: u64 = 1 << 20;

/// The controller behind lines: what it remembers, and the piece at work.
#[derive(Debug)]
pub struct LinePilot {
    policy: Policy,
    state: State,
    model: MemoryModel,
    heard: usize,
    sample: Option<MemorySample>,
    at_work: Option<AtWork>,
}

/// The piece that the last decision started.
#[derive(Debug)]
struct AtWork {
    begun_at_ms: u64,
    /// State of the decision, noticing every sample since: what the monitor's thread sees while a piece runs.
    watched: State,
    cancelled: bool,
}

/// A piece as it is told: how many samples, what it took, how it ended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    size: u32,
    #[serde(default)]
    peak_bytes: u64,
    ms: f64,
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    remaining: u64,
}

impl LinePilot {
    /// A pilot that has seen nothing.
    pub fn new(policy: Policy) -> Self {
        Self {
            // Whether a run ends is its driver's to say: here is neither a checkpoint nor its disk.
            policy: Policy {
                parked_most_ms: u64::MAX,
                disk_least_bytes: 0,
                ..policy
            },
            state: State::default(),
            model: MemoryModel::new(Allocator::Exact),
            heard: 0,
            sample: None,
            at_work: None,
        }
    }

    /// Takes one line in and gives the lines it calls for: a decision for each ask, a cancel where a sample asks for one.
    ///
    /// # Errors
    /// A line that is no reading, piece or ask, a hole in the trace and time that goes back, each by line number.
    pub fn hear(&mut self, line: &str) -> Result<Vec<String>, PressureError> {
        self.heard += 1;
        let answers = self.answer(line);
        answers.map_err(|wrong| PressureError::TraceLine {
            line: self.heard,
            wrong,
        })
    }

    fn answer(&mut self, line: &str) -> Result<Vec<String>, String> {
        if line.trim().is_empty() {
            return Err("the line is empty; a trace has no holes".into());
        }
        let value: Value = serde_json::from_str(line)
            .map_err(|e| format!("this is not JSON ({})", of_one_line(&e)))?;
        let Value::Object(mut object) = value else {
            return Err("this is not an object in braces".into());
        };
        let kind = object.remove("kind");
        within_bounds(&object)?;
        match kind.as_ref().and_then(Value::as_str) {
            Some("sample") => self.see(object),
            Some("piece") => self.learn(object).map(|()| Vec::new()),
            Some("ask") => self.decide(object),
            Some(other) => Err(format!(
                "the kind \"{other}\" is unknown; known are sample, piece, ask"
            )),
            None => Err("\"kind\" is missing: sample, piece or ask".into()),
        }
    }

    /// A reading. While a piece is at work it may call for a cancel, once.
    fn see(&mut self, object: Map<String, Value>) -> Result<Vec<String>, String> {
        if let Some(missing) = NEEDED.iter().find(|key| !object.contains_key(**key)) {
            return Err(format!("the sample has no \"{missing}\""));
        }
        let sample: MemorySample = read(object, "sample")?;
        if sample.available_bytes > sample.total_bytes {
            return Err(format!(
                "{} bytes are available of {} there are",
                sample.available_bytes, sample.total_bytes
            ));
        }
        if let Some(before) = self.sample.map(|before| before.at_ms) {
            if sample.at_ms < before {
                return Err(format!(
                    "time must go on, but {} ms follows {before} ms",
                    sample.at_ms
                ));
            }
            if sample.at_ms - before > HOLE_MS {
                return Err(format!(
                    "{} ms without a sample: a trace has no holes over {HOLE_MS} ms",
                    sample.at_ms - before
                ));
            }
        }
        self.sample = Some(sample);
        self.state = notice(&self.policy, std::mem::take(&mut self.state), &sample);
        let Some(piece) = self.at_work.as_mut().filter(|piece| !piece.cancelled) else {
            return Ok(Vec::new());
        };
        piece.watched = notice(&self.policy, std::mem::take(&mut piece.watched), &sample);
        let cancel = should_cancel(&self.policy, &piece.watched, &sample);
        piece.cancelled = cancel.is_some();
        let line = |reason| json!({"kind": "cancel", "reason": reason}).to_string();
        Ok(cancel.map(line).into_iter().collect())
    }

    fn learn(&mut self, object: Map<String, Value>) -> Result<(), String> {
        let told: Told = read(object, "piece")?;
        if told.size == 0 {
            return Err("a piece holds at least one sample".into());
        }
        if !(told.ms >= 0.0 && told.ms.is_finite()) {
            return Err(format!("\"ms\" is {}, which is no time", told.ms));
        }
        let begun = self.at_work.take().map(|piece| piece.begun_at_ms);
        let now = self.sample.map(|sample| sample.at_ms);
        let begun = begun.or(now).ok_or(NO_SAMPLE)?;
        let piece = Piece {
            at_ms: begun + told.ms as u64,
            kind: KIND,
            micro_batch: told.size,
            cost: u64::from(told.size),
            peak_bytes: told.peak_bytes,
            ms: told.ms,
            outcome: told.outcome,
        };
        let state = std::mem::take(&mut self.state);
        let model = std::mem::take(&mut self.model);
        (self.state, self.model) = observe(&self.policy, state, model, &piece);
        Ok(())
    }

    fn decide(&mut self, object: Map<String, Value>) -> Result<Vec<String>, String> {
        let asked: Asked = read(object, "ask")?;
        if !(1..=MOST_SAMPLES).contains(&asked.remaining) {
            return Err(format!(
                "\"remaining\" is {}; ask with 1 to {MOST_SAMPLES} samples",
                asked.remaining
            ));
        }
        let sample = self.sample.ok_or(NO_SAMPLE)?;
        let ask = Ask {
            sample,
            remaining: &vec![SampleCost(1); asked.remaining as usize],
            kind: KIND,
            spare_bytes: 0,
        };
        let state = std::mem::take(&mut self.state);
        let (state, decision) = decide(&self.policy, state, &ask, &self.model);
        self.state = state;
        self.at_work = (decision.action == Action::Run).then(|| AtWork {
            begun_at_ms: sample.at_ms,
            watched: self.state.clone(),
            cancelled: false,
        });
        Ok(vec![said(&decision)])
    }
}

/// Every piece from outside is of one kind, in samples.
const KIND: PieceKind = PieceKind {
    phase: Phase::Train,
    checkpoint_blocks: 0,
    element_bytes: 4,
    resolution: 1,
};

const NO_SAMPLE: &str = "no sample stands before this; begin with one";

/// No number so large that sums of it would go round, no share above the whole.
fn within_bounds(object: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in object {
        let number = value.as_f64().unwrap_or(0.0);
        if number > LARGEST as f64 {
            return Err(format!("\"{key}\" is {value}; {LARGEST} is the most"));
        }
        if SHARES.contains(&key.as_str()) && !(0.0..=1.0).contains(&number) {
            return Err(format!("\"{key}\" is {value}; a share is 0 to 1"));
        }
    }
    Ok(())
}

fn read<T: for<'de> Deserialize<'de>>(object: Map<String, Value>, kind: &str) -> Result<T, String> {
    serde_json::from_value(Value::Object(object))
        .map_err(|error| format!("this is no {kind} ({error})"))
}

/// What the parser says, without its own count of lines: it saw one.
fn of_one_line(error: &serde_json::Error) -> String {
    error
        .to_string()
        .replace(" at line 1 column ", " at character ")
}

fn said(decision: &Decision) -> String {
    json!({
        "kind": "decision",
        "action": decision.action,
        "micro_batch": decision.micro_batch,
        "change": decision.change,
        "release_caches": decision.release_caches,
        "checkpoint_first": decision.checkpoint_first,
        "predicted_peak_bytes": decision.predicted_peak_bytes,
        "budget_bytes": decision.budget_bytes,
        "reason": decision.reason,
    })
    .to_string()
}

#[cfg(test)]
#[path = "lines/tests.rs"]
mod tests;
