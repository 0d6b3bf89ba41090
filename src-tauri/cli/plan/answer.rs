//! The answer of `ebb plan`, and how it is printed as JSON.

use super::LISTED_MICRO_BATCHES;
use super::planned_machine::PlannedMachine;
use super::sharing::Sharing;
use crate::cli::conversation_examples;
use crate::cli::failure::Failure;
use dataset::ConversationExample;
use pressure::{DoesNotFit, ModelNeed, SuggestedConfig, options_needing_consent};
use serde_json::{Value, json};
use trainer::estimate::MemoryEstimate;
use trainer::{Estimate, Parts};

/// One model at one resolution, and whether it fits.
pub(super) struct Row {
    pub memory: MemoryEstimate,
    pub need: ModelNeed,
    pub parts: Parts,
    pub suggested: Result<SuggestedConfig, DoesNotFit>,
}

/// How long an epoch or a step takes.
pub(super) struct Time {
    pub seconds: f64,
    /// "epoch" or "step".
    pub of: &'static str,
    /// What the time was estimated from, such as "a measured micro-batch".
    pub from: &'static str,
}

/// Everything that `ebb plan` prints.
pub(super) struct Answer {
    /// Name of the folder or workload.
    pub subject: String,
    pub machine: PlannedMachine,
    /// How the planned devices share the run.
    pub sharing: Sharing,
    pub effective_batch: u32,
    pub optimizer: String,
    /// Unit of the resolutions: "px" or "tokens".
    pub unit: &'static str,
    pub rows: Vec<Row>,
    /// Index in `rows` of the model and resolution that the user plans to train.
    pub chosen: usize,
    /// Models and resolutions that were not estimated within the time limit.
    pub left_out: Vec<(String, u32)>,
    /// Large networks; Ebb plans such a network only if the user names it.
    pub large_models: Vec<&'static str>,
    /// How long an epoch or a step takes; `None` if unknown.
    pub time: Option<Time>,
    /// Seconds per step of each row, `None` if they are not known; absent if the rows are not one
    /// model with texts of several lengths.
    pub step_seconds: Option<Vec<Option<f64>>>,
    pub estimate_ms: f64,
    /// Whether the estimates are corrected by what earlier runs on the machine needed.
    pub is_corrected: bool,
    /// Weights on this machine that the run could start from, as a sentence.
    pub starting_point: Option<String>,
    /// A few conversations as the model reads them.
    pub examples: Vec<ConversationExample>,
}

impl Row {
    pub fn new(estimate: Estimate, machine: &PlannedMachine) -> Self {
        Row {
            suggested: estimate.suggest_config(
                &machine.device,
                &machine.processes,
                machine.trainings,
            ),
            need: estimate.need(&LISTED_MICRO_BATCHES),
            parts: estimate.parts(&LISTED_MICRO_BATCHES),
            memory: estimate.memory,
        }
    }

    /// Number of checkpointed blocks in the suggested config. If nothing fits, the number in the
    /// user's plan.
    pub fn blocks(&self) -> u32 {
        let planned = self.need.variants.first();
        let planned = planned.map_or(0, |variant| variant.checkpoint_blocks);
        self.suggested
            .as_ref()
            .map_or(planned, |config| config.checkpoint_blocks)
    }

    fn as_json(&self) -> Value {
        let mut line = json!({
            "model": self.memory.model, "resolution": self.memory.resolution, "parameters": self.memory.parameters,
            "state_bytes": self.need.state_bytes, "baseline": self.memory.baseline, "precision": self.need.precision,
            "variants": self.need.variants, "parts": self.parts, "is_measured": self.memory.is_measured(),
        });
        match &self.suggested {
            Ok(found) => line["suggested"] = json!(found),
            Err(no) => {
                line["does_not_fit"] = json!(no);
                let offers = options_needing_consent(&self.memory.stuck(no)).into_iter();
                line["offered"] = offers.map(|(recovery, bytes)| json!({"step": recovery.step, "description": recovery.description, "frees_bytes": bytes})).collect();
            }
        }
        line
    }
}

impl Answer {
    /// The model and resolution that the user plans to train.
    pub fn chosen(&self) -> &Row {
        &self.rows[self.chosen]
    }

    /// What each of several devices computes and holds, as a sentence without a full stop.
    pub fn describe_sharing(&self) -> Option<String> {
        let moments_bytes = self.chosen().memory.baseline.moments_bytes;
        self.sharing.describe(self.effective_batch, moments_bytes)
    }

    /// Notes on the sizes of the model and its micro-batch, as sentences without full stops.
    pub fn notes(&self) -> Vec<String> {
        let row = self.chosen();
        match &row.suggested {
            Ok(found) => {
                let samples = self.sharing.samples_per_device(self.effective_batch);
                let blocks = row.blocks();
                row.memory.size_notes(blocks, found.micro_batch, samples)
            }
            Err(_) => Vec::new(),
        }
    }

    /// The interval in which the highest footprint of the suggested config is expected, in bytes.
    /// `None` if nothing fits, and for a workload, whose estimate is not corrected.
    pub fn interval_bytes(&self) -> Option<[u64; 2]> {
        let found = self.chosen().suggested.as_ref().ok()?;
        let predicted = found.predicted_peak_bytes as f64;
        let interval = self.machine.correction.interval();
        self.is_corrected
            .then(|| interval.map(|of| (of * predicted) as u64))
    }

    /// The error for a run that does not fit in memory.
    pub fn refusal(&self, no: &DoesNotFit) -> Failure {
        let cap_bytes = self.machine.device.memory_cap_bytes;
        let memory = &self.chosen().memory;
        memory.does_not_fit(self.unit, no, cap_bytes).into()
    }

    pub fn as_json(&self) -> Value {
        let chosen = &self.chosen().memory;
        let machine = &self.machine;
        let mut line = json!({
            "subject": self.subject, "effective_batch": self.effective_batch, "optimizer": self.optimizer,
            "device": machine.kind.name(), "device_limits": machine.device, "processes": machine.processes,
            "trainings": machine.trainings, "assumed": machine.assumed, "budget_bytes": machine.budget_bytes(),
            "models": self.rows.iter().map(Row::as_json).collect::<Vec<_>>(),
            "chosen": {"model": chosen.model, "resolution": chosen.resolution},
            "left_out": self.left_out.iter().map(|(model, side)| json!({"model": model, "resolution": side})).collect::<Vec<_>>(),
            "by_name": self.large_models, "notes": self.notes(), "estimate_ms": self.estimate_ms,
            "correction": machine.correction, "devices": self.sharing.devices,
            "divides_optimizer": self.sharing.divides_optimizer,
            "samples_per_device": self.sharing.samples_per_device(self.effective_batch),
        });
        if let Some([low, high]) = self.interval_bytes() {
            line["estimate_interval"] = json!({"low_bytes": low, "high_bytes": high});
        }
        if !self.examples.is_empty() {
            line["conversations"] = conversation_examples::as_json(&self.examples);
        }
        if let Some(time) = &self.time {
            line[format!("seconds_per_{}", time.of)] = time.seconds.into();
            line["seconds_from"] = time.from.into();
        }
        for (place, seconds) in self.step_seconds.iter().flatten().enumerate() {
            line["models"][place]["seconds_per_step"] = json!(seconds);
        }
        line
    }
}
