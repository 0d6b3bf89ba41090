//! The one stream of events that a run is: folded by the window, the terminal, the run folder and the report.
//! An event holds plain data for its readers; it knows no tensor and no widget.

use pressure::{Component, Decision, Level, MemorySample, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// Something that happened in a run. `at_ms` counts milliseconds of the run's life, resumed lives included, so that a
/// chart has no gap; wall-clock time stands in `Started` and `Resumed` only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEvent {
    /// The first event of every run: what is trained, on what, and how.
    Started(Box<Started>),
    /// One reading of the machine; at most one a second, and one with every decision that changes something.
    Memory {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// The reading itself.
        sample: MemorySample,
        /// Footprint without any piece: weights, gradients and optimizer state by Ebb's own count, and once pieces have shown it
        /// what the program and waiting samples take too.
        state_bytes: u64,
        /// Pressure, `0.0..=1.0`.
        #[serde(deserialize_with = "crate::finite::or_null")]
        pressure: f64,
        /// Pressure level, with hysteresis.
        level: Level,
        /// Which component is the highest.
        cause: Component,
        /// Footprint that Ebb allows itself.
        budget_bytes: u64,
        /// The micro-batch at work.
        micro_batch: u32,
    },
    /// The pilot decided something that differs from the decision before.
    Decision {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Training or evaluation.
        phase: Phase,
        /// Size before this decision; 0 at the start of a phase.
        previous_micro_batch: u32,
        /// Pieces that the effective batch will now take.
        pieces: u32,
        /// What was decided, and why.
        decision: Decision,
        /// The sentence shown: "Shrunk 16 to 8: another app took 6.1 GB in 20 s".
        sentence: String,
    },
    /// How far the predicted peak of a piece was off: with the first piece of a new size and once a minute, at most six a
    /// minute.
    Prediction {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Training or evaluation.
        phase: Phase,
        /// Samples of the piece.
        micro_batch: u32,
        /// Footprint that the piece was expected to reach.
        predicted_peak_bytes: u64,
        /// Footprint that it reached.
        measured_peak_bytes: u64,
        /// `predicted / measured - 1`: +0.04 is 4 % too high.
        #[serde(deserialize_with = "crate::finite::or_null")]
        error_fraction: f64,
    },
    /// One optimizer step.
    Step {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done, this one included.
        step: u64,
        /// Epoch that the step belongs to, from 0.
        epoch: u64,
        /// Mean loss over the effective batch.
        #[serde(with = "crate::finite")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        loss: f64,
        /// Learning rate used.
        #[serde(deserialize_with = "crate::finite::or_null")]
        learning_rate: f64,
        /// Global norm of the gradient before clipping.
        #[serde(with = "crate::finite")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        gradient_norm: f64,
        /// Samples worked per second of this step.
        #[serde(deserialize_with = "crate::finite::or_null")]
        samples_per_second: f64,
        /// Milliseconds that the step waited for data.
        #[serde(deserialize_with = "crate::finite::or_null")]
        wait_ms: f64,
        /// The pieces that were added, in order: the exact micro-batch schedule, for replay.
        pieces: Vec<u32>,
        /// Blocks that each of these kept the input of only; empty where none did, and in runs of an earlier version.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[ts(optional, as = "Option<Vec<u32>>")]
        blocks: Vec<u32>,
        /// What the task measures beside its loss, by name; empty where it measures nothing. Of a token compression `kept_fraction`,
        /// `reconstruction_loss`, `loss_per_dropped`, `reward`, `policy_entropy`, and how many values of the gradients were
        /// not finite: `nan_gradients` and `infinite_gradients`.
        #[serde(
            default,
            skip_serializing_if = "BTreeMap::is_empty",
            deserialize_with = "crate::finite::map_or_null"
        )]
        #[ts(optional, as = "Option<BTreeMap<String, f64>>")]
        measures: BTreeMap<String, f64>,
    },
    /// The held-out samples were evaluated.
    Evaluation {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Epochs begun.
        epoch: u64,
        /// Held-out samples.
        samples: u64,
        /// Mean held-out loss.
        #[serde(with = "crate::finite")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        loss: f64,
        /// Metrics by name: `accuracy`, `top_5`, `macro_f1` as fractions, `bits_per_byte`; `mae.COLUMN`, the mean absolute error
        /// in the column's unit, and `mae_of_mean.COLUMN`, the same of the mean of what is trained on.
        #[serde(deserialize_with = "crate::finite::map_or_null")]
        metrics: BTreeMap<String, f64>,
        /// The best evaluation of the run so far.
        best: bool,
    },
    /// A checkpoint is on disk, synced and renamed.
    Checkpoint {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Folder inside the run folder: `checkpoints/step-000400`.
        path: String,
        /// Bytes written.
        bytes: u64,
        /// Milliseconds from request to durable.
        #[serde(deserialize_with = "crate::finite::or_null")]
        ms: f64,
        /// Why it was written.
        why: CheckpointReason,
    },
    /// Something was left out; the training goes on.
    Skipped {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// A file relative to the dropped folder, or a parameter's name.
        what: String,
        /// Why, and the next move.
        reason: String,
        /// The gradients that were not finite, where a step was left out; empty for a file.
        #[serde(default)]
        gradients: Vec<NonFiniteGradient>,
    },
    /// Something the user should know; the training goes on.
    Warning {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Code for the window to act on.
        code: String,
        /// What, where, and the next move.
        message: String,
    },
    /// The run goes on from a checkpoint. Steps after `step` of the earlier life are void.
    Resumed {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Wall clock, milliseconds since 1970.
        unix_ms: u64,
        /// Step of the checkpoint.
        step: u64,
        /// Process that trains now.
        process: u32,
        /// Device of this life.
        device: String,
    },
    /// The run ended as it should: finished, or by request.
    Stopped {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Why.
        why: StopReason,
        /// The sentence shown: "Stopped at step 258. Checkpoint saved in 0.8 s".
        sentence: String,
    },
    /// The run ended by an error; the last checkpoint stands.
    Failed {
        /// Milliseconds of the run's life.
        at_ms: u64,
        /// Optimizer steps done.
        step: u64,
        /// Code for the window to act on.
        code: String,
        /// What, where, and the next move.
        message: String,
    },
}

/// What is trained, on what, and how: the head of every run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Started {
    /// Milliseconds of the run's life: 0.
    pub at_ms: u64,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Process that trains.
    pub process: u32,
    /// Ebb's version.
    pub version: String,
    /// Name shown: the dropped folder's.
    pub name: String,
    /// Task, in the words of `--task`.
    pub task: String,
    /// Model, in the words of `--model`.
    pub model: String,
    /// Class names in label order.
    pub classes: Vec<String>,
    /// Numbers that are learnt, by the names of their columns; none in runs of an earlier version.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Samples trained on.
    pub train_samples: u64,
    /// Samples held out.
    pub held_out_samples: u64,
    /// Trained parameters.
    pub parameters: u64,
    /// Side of the square image, in pixels; of texts, most tokens.
    pub image_size: u32,
    /// Samples a step.
    pub effective_batch: u32,
    /// Epochs planned.
    pub epochs: u64,
    /// Steps planned.
    pub steps: u64,
    /// Steps an epoch: ceil(train_samples / effective_batch).
    pub steps_per_epoch: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Optimizer's name.
    pub optimizer: String,
    /// `cpu`, `metal` or `cuda`, with the chip's name.
    pub device: String,
    /// Why this device.
    pub device_reason: String,
    /// What pieces are computed in: `f32`, `bf16`, `f16` or `f64`.
    pub precision: String,
    /// Blocks that keep their input only and run again in backward.
    #[serde(default)]
    pub checkpoint_blocks: u32,
    /// Threads of the CPU kernels.
    pub threads: u32,
    /// The loader's configuration in one line.
    pub loader: String,
    /// Where memory readings come from.
    pub memory_source: String,
    /// Physical memory.
    pub total_bytes: u64,
    /// Seed of everything random.
    pub seed: u64,
}

/// A gradient with values that are not finite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct NonFiniteGradient {
    /// The parameter's name.
    pub parameter: String,
    /// Values that are not a number.
    pub nan: u64,
    /// Values that are infinite.
    pub infinite: u64,
}

/// Why a checkpoint was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointReason {
    /// `--checkpoint-every`.
    Periodic,
    /// The best evaluation so far.
    Best,
    /// The run stops.
    Stop,
    /// "Checkpoint now".
    Requested,
    /// Memory reached the warning level.
    Pressure,
}

/// Why a run ended as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// All planned steps are done.
    Finished,
    /// Stop & checkpoint.
    Requested,
    /// The run was parked for longer than it may be.
    Memory,
    /// The disk has too little room left for checkpoints.
    Disk,
}

impl RunEvent {
    /// Milliseconds of the run's life at which this happened.
    pub fn at_ms(&self) -> u64 {
        match self {
            RunEvent::Started(started) => started.at_ms,
            RunEvent::Memory { at_ms, .. }
            | RunEvent::Decision { at_ms, .. }
            | RunEvent::Prediction { at_ms, .. }
            | RunEvent::Step { at_ms, .. }
            | RunEvent::Evaluation { at_ms, .. }
            | RunEvent::Checkpoint { at_ms, .. }
            | RunEvent::Skipped { at_ms, .. }
            | RunEvent::Warning { at_ms, .. }
            | RunEvent::Resumed { at_ms, .. }
            | RunEvent::Stopped { at_ms, .. }
            | RunEvent::Failed { at_ms, .. } => *at_ms,
        }
    }
}
