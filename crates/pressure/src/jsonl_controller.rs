//! The controller over JSON lines, so that another trainer or a recorded trace can use it. Pure:
//! one line in, lines out. Time comes with the samples.

use crate::controller::{decide, observe, should_cancel};
use crate::controller_state::ControllerState;
use crate::decision::{
    Action, Decision, DecisionInput, MicroBatchKind, MicroBatchRecord, Outcome, Phase, SampleCost,
};
use crate::error::PressureError;
use crate::memory_model::{Allocator, MemoryModel};
use crate::memory_sample::MemorySample;
use crate::policy::{MAX_INTEGER, MAX_SAMPLE_GAP_MS, Policy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Keys that are fractions, `0.0..=1.0`.
const FRACTIONS: [&str; 2] = ["stall_fraction", "compressor_fraction"];
/// Keys that a sample must have.
const REQUIRED: [&str; 4] = ["at_ms", "total_bytes", "available_bytes", "own_bytes"];
/// The largest batch; every sample of it is processed.
const MAX_BATCH: u64 = 1 << 20;
/// The largest cost of a sample: those of a batch add up to at most [`MAX_INTEGER`].
const MAX_COST: u64 = MAX_INTEGER / MAX_BATCH;

/// The kind of every micro-batch. Costs are in samples.
const KIND: MicroBatchKind = MicroBatchKind {
    phase: Phase::Train,
    checkpoint_blocks: 0,
    element_bytes: 4,
    input_size: 1,
};

const NO_SAMPLE: &str =
    "no memory sample precedes this line; write a line of kind \"sample\" first";
const NOT_RUNNING: &str = "no micro-batch is running; write an ask line first, and one micro_batch line for each answer \"run\"";
const STILL_RUNNING: &str =
    "the micro-batch of the last answer has not ended; write its micro_batch line first";

/// The controller behind JSON lines.
#[derive(Debug)]
pub struct JsonlController {
    policy: Policy,
    state: ControllerState,
    model: MemoryModel,
    /// Number of lines so far.
    lines: usize,
    sample: Option<MemorySample>,
    /// How long micro-batches ran after the newest sample, in milliseconds.
    unsampled_ms: f64,
    running: Option<Running>,
}

/// The micro-batch that the last decision started.
#[derive(Debug)]
struct Running {
    /// The time of the newest sample before it.
    begun_at_ms: u64,
    /// How long other micro-batches ran between this sample and the decision, in milliseconds.
    unsampled_ms: f64,
    /// Costs of the samples that were left.
    costs: Vec<SampleCost>,
    /// State of the decision with every sample since, as the monitor's thread has it while a
    /// micro-batch runs.
    watched: ControllerState,
    cancelled: bool,
}

impl Running {
    /// Checks that this micro-batch can have ended like this. `newest_ms` is the time of the newest
    /// sample.
    fn check(&self, ended: &Ended, newest_ms: u64) -> Result<(), String> {
        let samples = self.costs.len();
        if ended.size as usize > samples {
            return Err(format!(
                "\"size\" is {}, but only {samples} samples were left",
                ended.size
            ));
        }
        let watched_ms = newest_ms - self.begun_at_ms;
        if ended.ms > (watched_ms + MAX_SAMPLE_GAP_MS) as f64 {
            return Err(format!(
                "\"ms\" is {}, but the newest memory sample is from {watched_ms} ms after the decision; write memory samples also while a micro-batch runs",
                ended.ms
            ));
        }
        Ok(())
    }

    /// How long micro-batches have run since the newest sample when this one ends, in milliseconds.
    fn unsampled_after(&self, ended: &Ended, newest_ms: u64) -> f64 {
        let watched_ms = (newest_ms - self.begun_at_ms) as f64;
        (self.unsampled_ms + ended.ms - watched_ms).max(0.0)
    }
}

/// A line about a micro-batch that ended.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    size: u32,
    #[serde(default)]
    peak_bytes: u64,
    ms: f64,
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionRequest {
    #[serde(default)]
    remaining: Option<u64>,
    /// Cost of each sample that is left.
    #[serde(default)]
    costs: Option<Vec<u64>>,
}

impl DecisionRequest {
    /// The costs of the samples that are left; 1 each if none are given.
    fn sample_costs(&self) -> Result<Vec<SampleCost>, String> {
        let Some(costs) = &self.costs else {
            let remaining = self.remaining.ok_or(
                "\"remaining\" is missing; write the number of samples, or their \"costs\"",
            )?;
            let ones = |count| vec![SampleCost(1); count as usize];
            return check_batch("remaining", remaining).map(ones);
        };
        let count = check_batch("costs", costs.len() as u64)?;
        if let Some(remaining) = self.remaining.filter(|remaining| *remaining != count) {
            return Err(format!(
                "\"remaining\" is {remaining}, but \"costs\" has {count} numbers"
            ));
        }
        if let Some(cost) = costs.iter().find(|cost| !(1..=MAX_COST).contains(*cost)) {
            return Err(format!(
                "\"costs\" contains {cost}; the cost of a sample is from 1 to {MAX_COST}"
            ));
        }
        Ok(costs.iter().copied().map(SampleCost).collect())
    }
}

/// Checks the number of samples that `key` gives.
fn check_batch(key: &str, count: u64) -> Result<u64, String> {
    if (1..=MAX_BATCH).contains(&count) {
        return Ok(count);
    }
    Err(match key {
        "costs" => format!("\"costs\" has {count} numbers; ask for 1 to {MAX_BATCH} samples"),
        _ => format!("\"{key}\" is {count}; ask for 1 to {MAX_BATCH} samples"),
    })
}

impl JsonlController {
    /// A controller without any sample.
    pub fn new(policy: Policy) -> Self {
        Self {
            // The caller decides when a run ends, since checkpoints and their disk are unknown
            // here.
            policy: Policy {
                max_suspended_ms: u64::MAX,
                min_disk_bytes: 0,
                ..policy
            },
            state: ControllerState::default(),
            model: MemoryModel::new(Allocator::Exact),
            lines: 0,
            sample: None,
            unsampled_ms: 0.0,
            running: None,
        }
    }

    /// Takes one line and returns the lines that answer it: a decision for each `ask`, and a
    /// `cancel` if a sample requires one.
    ///
    /// # Errors
    /// The line is not a sample, a micro-batch or a question, time goes back, samples are too far
    /// apart, or the newest sample is too old for a decision. The error has the line's number.
    pub fn handle_line(&mut self, line: &str) -> Result<Vec<String>, PressureError> {
        self.lines += 1;
        let answers = self.answer(line);
        answers.map_err(|problem| PressureError::JsonLine {
            line: self.lines,
            problem,
        })
    }

    fn answer(&mut self, line: &str) -> Result<Vec<String>, String> {
        if line.trim().is_empty() {
            return Err("the line is empty".into());
        }
        let value: Value = serde_json::from_str(line)
            .map_err(|e| format!("this is not JSON ({})", on_one_line(&e)))?;
        let Value::Object(mut object) = value else {
            return Err("this is not a JSON object".into());
        };
        let kind = object.remove("kind");
        check_bounds(&object)?;
        match kind.as_ref().and_then(Value::as_str) {
            Some("sample") => self.record_sample(object),
            // `piece` is the former name.
            Some("micro_batch" | "piece") => self.record_ended(object).map(|()| Vec::new()),
            Some("ask") => self.decide(object),
            Some(other) => Err(format!(
                "the kind \"{other}\" is unknown; known kinds are sample, micro_batch and ask"
            )),
            None => Err("\"kind\" is missing; write sample, micro_batch or ask".into()),
        }
    }

    /// Takes a sample. While a micro-batch runs, it may be answered by a cancel, once.
    fn record_sample(&mut self, object: Map<String, Value>) -> Result<Vec<String>, String> {
        if let Some(missing) = REQUIRED.iter().find(|key| !object.contains_key(**key)) {
            return Err(format!("the sample has no \"{missing}\""));
        }
        let sample: MemorySample = read(object, "sample")?;
        if sample.available_bytes > sample.total_bytes {
            return Err(format!(
                "available_bytes is {}, more than total_bytes ({})",
                sample.available_bytes, sample.total_bytes
            ));
        }
        if let Some(before) = self.sample.map(|before| before.at_ms) {
            if sample.at_ms < before {
                return Err(format!(
                    "times must not decrease, but {} ms follows {before} ms",
                    sample.at_ms
                ));
            }
            if sample.at_ms - before > MAX_SAMPLE_GAP_MS {
                return Err(format!(
                    "{} ms passed without a memory sample; the longest allowed gap is {MAX_SAMPLE_GAP_MS} ms",
                    sample.at_ms - before
                ));
            }
        }
        self.sample = Some(sample);
        self.unsampled_ms = 0.0;
        self.state.record(&self.policy, &sample);
        let running = self.running.as_mut();
        let Some(running) = running.filter(|running| !running.cancelled) else {
            return Ok(Vec::new());
        };
        running.watched.record(&self.policy, &sample);
        let cancel = should_cancel(&self.policy, &running.watched, &sample);
        running.cancelled = cancel.is_some();
        if let Some(reason) = &cancel {
            self.state.cancelled(reason.clone());
        }
        let line = |reason| json!({"kind": "cancel", "reason": reason}).to_string();
        Ok(cancel.map(line).into_iter().collect())
    }

    fn record_ended(&mut self, object: Map<String, Value>) -> Result<(), String> {
        let ended: Ended = read(object, "micro-batch")?;
        if ended.size == 0 {
            return Err("a micro-batch must have at least one sample".into());
        }
        if !(ended.ms >= 0.0 && ended.ms.is_finite()) {
            return Err(format!("\"ms\" is {}, which is not a duration", ended.ms));
        }
        let newest = self.sample.ok_or(NO_SAMPLE)?;
        let running = self.running.take().ok_or(NOT_RUNNING)?;
        running.check(&ended, newest.at_ms)?;
        self.unsampled_ms = running.unsampled_after(&ended, newest.at_ms);
        let asked = running.costs.iter().take(ended.size as usize);
        let record = MicroBatchRecord {
            at_ms: running.begun_at_ms + ended.ms as u64,
            kind: KIND,
            micro_batch: ended.size,
            cost: asked.map(|cost| cost.0).sum(),
            peak_bytes: ended.peak_bytes,
            ms: ended.ms,
            outcome: ended.outcome,
        };
        let state = std::mem::take(&mut self.state);
        let model = std::mem::take(&mut self.model);
        (self.state, self.model) = observe(&self.policy, state, model, &record);
        Ok(())
    }

    fn decide(&mut self, object: Map<String, Value>) -> Result<Vec<String>, String> {
        let question: DecisionRequest = read(object, "ask")?;
        let costs = question.sample_costs()?;
        let sample = self.sample.ok_or(NO_SAMPLE)?;
        if self.running.is_some() {
            return Err(STILL_RUNNING.into());
        }
        if self.unsampled_ms > MAX_SAMPLE_GAP_MS as f64 {
            return Err(format!(
                "micro-batches ran for {} ms since the newest memory sample; the longest allowed gap is {MAX_SAMPLE_GAP_MS} ms, so write a new sample first",
                self.unsampled_ms as u64
            ));
        }
        let ask = DecisionInput {
            sample,
            remaining: &costs,
            kind: KIND,
            spare_bytes: 0,
        };
        let state = std::mem::take(&mut self.state);
        let (state, decision) = decide(&self.policy, state, &ask, &self.model);
        self.state = state;
        self.running = (decision.action == Action::Run).then(|| Running {
            begun_at_ms: sample.at_ms,
            unsampled_ms: self.unsampled_ms,
            costs,
            watched: self.state.clone(),
            cancelled: false,
        });
        Ok(vec![decision_line(&decision)])
    }
}

/// Refuses numbers so large that their sums could overflow, and fractions outside `0.0..=1.0`.
fn check_bounds(object: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in object {
        let number = value.as_f64().unwrap_or(0.0);
        if number > MAX_INTEGER as f64 {
            return Err(format!(
                "\"{key}\" is {value}; the largest allowed number is {MAX_INTEGER}"
            ));
        }
        if FRACTIONS.contains(&key.as_str()) && !(0.0..=1.0).contains(&number) {
            return Err(format!("\"{key}\" is {value}; it must be from 0 to 1"));
        }
    }
    Ok(())
}

fn read<T: for<'de> Deserialize<'de>>(object: Map<String, Value>, kind: &str) -> Result<T, String> {
    serde_json::from_value(Value::Object(object))
        .map_err(|error| format!("this line is not a valid {kind} ({error})"))
}

/// The parser's error without its line number, which is always 1.
fn on_one_line(error: &serde_json::Error) -> String {
    error
        .to_string()
        .replace(" at line 1 column ", " at character ")
}

fn decision_line(decision: &Decision) -> String {
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
mod tests;
