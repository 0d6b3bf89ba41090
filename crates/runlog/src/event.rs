//! The event stream of a run. The window, the terminal, the run folder and the report all read the
//! same events. An event holds plain data.
//!
//! Fields are added and renamed, never reused: an old name stays as an `alias`, and unknown fields
//! are ignored, so that every version reads the files of every other.

use crate::amounts::format_count;
use crate::choice_settings::TaskChoice;
use crate::machines::{GroupMember, MachineShare};
use pressure::{Component, Decision, Level, MemorySample, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// Code of the warning that training rests from now on, to save power or to cool the machine.
pub const RESTS: &str = "courtesy";
/// Code of the warning that training no longer rests.
pub const FULL_SPEED: &str = "full_speed";

/// Something that happened in a run.
///
/// `at_ms` is the run's clock: the milliseconds that the run has been trained, earlier lives
/// included, so that charts have no gap after a resume. Only `Started` and `Resumed` hold
/// wall-clock time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunEvent {
    /// The first event of every run: what is trained, on which data, and how.
    Started(Box<Started>),
    /// The GPU is being checked before the run starts. Only for observers: never in a run folder.
    DeviceCheck {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Comparisons done.
        done: u32,
        /// All comparisons.
        total: u32,
    },
    /// A simple model was trained on the training samples before the first step: the bar for the
    /// network. Missing in runs of early versions and of runs without classes.
    Baseline {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// The model: "word and character n-grams", or "edge directions and colors".
        name: String,
        /// Training samples that it was trained on.
        samples: u64,
        /// Seconds for training and evaluating it.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        seconds: f64,
        /// Mean held-out loss.
        #[serde(with = "crate::json_floats")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        loss: f64,
        /// Metrics on the held-out samples by name, as in `Evaluation`.
        #[serde(deserialize_with = "crate::json_floats::map_or_null")]
        metrics: BTreeMap<String, f64>,
    },
    /// A memory sample: at most one per second, plus one with every decision that changes
    /// something.
    Memory {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// The sample itself.
        sample: MemorySample,
        /// Footprint without any micro-batch, in bytes. At first Ebb's own count of weights,
        /// gradients and optimizer state; once micro-batches were measured, also the program itself
        /// and the samples that wait to be trained on.
        state_bytes: u64,
        /// Pressure, `0.0..=1.0`.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        pressure: f64,
        /// Pressure level, with hysteresis.
        level: Level,
        /// The component with the highest pressure.
        cause: Component,
        /// The footprint that Ebb allows itself, in bytes.
        budget_bytes: u64,
        /// Samples of the current micro-batch.
        micro_batch: u32,
        /// The moment since the previous memory event in which Ebb used the most; missing in runs
        /// of early versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        peak: Option<MemoryPeak>,
        /// What all processes together may use while Ebb trains, in bytes; 0 in runs of early
        /// versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[ts(optional, as = "Option<u64>")]
        limit_bytes: u64,
    },
    /// The memory controller made a decision that differs from the previous one.
    Decision {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Training or evaluation.
        phase: Phase,
        /// Micro-batch of training before this decision, also in an evaluation; 0 before the
        /// first decision of training.
        previous_micro_batch: u32,
        /// Number of micro-batches that an effective batch, or the held-out samples, now take; 0
        /// while the run waits.
        #[serde(alias = "pieces")]
        micro_batches: u32,
        /// The decision and its reason.
        decision: Decision,
        /// The decision as a sentence: "Micro-batch reduced from 16 to 8: another app took 6.1 GB
        /// in 20 s".
        #[serde(alias = "sentence")]
        message: String,
    },
    /// A predicted peak beside the measured one. Written for the first micro-batch of a new size
    /// and once a minute, at most six times a minute.
    Prediction {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Training or evaluation.
        phase: Phase,
        /// Samples of the micro-batch.
        micro_batch: u32,
        /// The predicted peak footprint.
        predicted_peak_bytes: u64,
        /// The measured peak footprint.
        measured_peak_bytes: u64,
        /// `predicted / measured - 1`: +0.04 is 4 % too high.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        error_fraction: f64,
    },
    /// One optimizer step.
    Step {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps, including this one.
        step: u64,
        /// Epoch of this step, from 0.
        epoch: u64,
        /// Mean loss over the effective batch.
        #[serde(with = "crate::json_floats")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        loss: f64,
        /// Learning rate of this step.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        learning_rate: f64,
        /// Global norm of the gradient before clipping.
        #[serde(with = "crate::json_floats")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        gradient_norm: f64,
        /// Throughput of this step, in samples per second.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        samples_per_second: f64,
        /// Milliseconds that this step waited for data.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        wait_ms: f64,
        /// Mean time of the GPU per command buffer, in milliseconds, as the host measures it: an
        /// upper bound. The screen is drawn between two command buffers. Missing on devices without
        /// command buffers and in runs of early versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        command_buffer_ms: Option<f64>,
        /// The sizes of the micro-batches in order: the exact schedule, for a replay.
        #[serde(alias = "pieces")]
        micro_batches: Vec<u32>,
        /// Checkpointed blocks of each micro-batch: their activations were recomputed in the
        /// backward pass. Empty if no block was, and in runs of early versions.
        #[serde(default, alias = "blocks", skip_serializing_if = "Vec::is_empty")]
        #[ts(optional, as = "Option<Vec<u32>>")]
        checkpoint_blocks: Vec<u32>,
        /// Which process of a group processed which samples, one entry per micro-batch: rank, first
        /// sample of the effective batch, number of samples. Empty for a run on one machine.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[ts(optional, as = "Option<Vec<(u32, u32, u32)>>")]
        ledger: Vec<(u32, u32, u32)>,
        /// Metrics of the task beside its loss, by name; often empty. Token compression reports
        /// `kept_fraction`, `reconstruction_loss`, `loss_per_dropped`, `reward`, `policy_entropy`,
        /// and the numbers of non-finite gradient values, `nan_gradients` and `infinite_gradients`.
        /// Preferences report `preference_accuracy`, `reward_margin`, and the mean log probability
        /// of a token: `chosen_log_probability` and `rejected_log_probability`.
        #[serde(
            default,
            alias = "measures",
            skip_serializing_if = "BTreeMap::is_empty",
            deserialize_with = "crate::json_floats::map_or_null"
        )]
        #[ts(optional, as = "Option<BTreeMap<String, f64>>")]
        metrics: BTreeMap<String, f64>,
    },
    /// The held-out samples were evaluated.
    Evaluation {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Epochs begun.
        epoch: u64,
        /// Number of held-out samples.
        samples: u64,
        /// Mean held-out loss.
        #[serde(with = "crate::json_floats")]
        #[ts(type = "number | \"nan\" | \"inf\" | \"-inf\"")]
        loss: f64,
        /// Metrics by name: `accuracy`, `top_5` and `macro_f1` as fractions; `bits_per_byte`;
        /// `mae.COLUMN`, the mean absolute error in the column's unit; `mae_of_mean.COLUMN`, the
        /// error of always predicting the mean of the training samples; and `mae_standardized`, the
        /// mean over several targets in standard deviations, by which evaluations are compared.
        #[serde(deserialize_with = "crate::json_floats::map_or_null")]
        metrics: BTreeMap<String, f64>,
        /// True if this is the best evaluation of the run so far.
        best: bool,
    },
    /// A language model answered the prompts of its run after an evaluation, always with the most
    /// probable token. Missing in runs of early versions.
    Answers {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// The prompts with their answers. Prompts that were not answered, because the run was
        /// stopped or memory was short, are missing.
        answers: Vec<PromptAnswer>,
    },
    /// A checkpoint was written, synced and renamed into place.
    Checkpoint {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Folder inside the run folder: `checkpoints/step-000400`.
        path: String,
        /// Size in bytes.
        bytes: u64,
        /// Milliseconds from the request until the checkpoint was durable.
        #[serde(alias = "ms", deserialize_with = "crate::json_floats::or_null")]
        duration_ms: f64,
        /// Why it was written.
        #[serde(alias = "why")]
        reason: CheckpointReason,
    },
    /// A file or an optimizer step was skipped; the training continues.
    Skipped {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// A file relative to the dropped folder, or the gradient of a parameter.
        #[serde(alias = "what")]
        item: String,
        /// Why it was skipped, and what the user can do.
        reason: String,
        /// The gradients that were not finite if a step was skipped; empty for a file. Missing in
        /// runs of early versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        gradients: Option<Vec<NonFiniteGradient>>,
    },
    /// Something that the user should know; the training continues.
    Warning {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Identifies the warning for the window.
        code: String,
        /// What happened, where, and what the user can do.
        message: String,
    },
    /// The user changed a memory limit of the running training.
    MemoryLimits {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// The memory cap from now on.
        memory_cap_bytes: Option<u64>,
        /// Fraction of all memory that Ebb and all other apps may use together from now on.
        max_system_fraction: f64,
        /// The change: "Memory cap set to 4.0 GB".
        message: String,
    },
    /// The stress test of the window takes memory of the machine, or has given it back.
    StressTest {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Memory that it holds from now on; 0 if it has given it back.
        bytes: u64,
        /// Seconds after which it gives the memory back by itself.
        seconds: u64,
    },
    /// From now on, these processes train the run together. Runs on one machine have none.
    Group {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// The processes, in the order of their ranks.
        members: Vec<GroupMember>,
        /// The group as a sentence: "Training on 2 machines: studio (rank 0), air (rank 1)".
        message: String,
        /// Steps after which the processes exchange their weights, which changes the training. 0 if
        /// they exchange their gradients in each step.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[ts(optional, as = "Option<u64>")]
        sync_every: u64,
    },
    /// How the processes of a group shared the work since the previous event of this kind: about
    /// once a second.
    Machines {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Milliseconds in which the gradients were added up.
        #[serde(deserialize_with = "crate::json_floats::or_null")]
        exchange_ms: f64,
        /// What each of them did.
        machines: Vec<MachineShare>,
    },
    /// A decision or a warning of another process of the group.
    Machine {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Number of the process.
        rank: u32,
        /// Name of its machine.
        host: String,
        /// What happened there: "Micro-batch reduced from 16 to 8: another app took 6.1 GB in 20
        /// s".
        message: String,
    },
    /// The run was resumed from a checkpoint. Later steps of the previous life are void.
    Resumed {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Wall clock, milliseconds since 1970.
        unix_ms: u64,
        /// Step of the checkpoint.
        step: u64,
        /// Id of the process that trains now.
        process: u32,
        /// Device of this life.
        device: String,
        /// Why this device was selected; empty in runs of early versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[ts(optional, as = "Option<String>")]
        device_reason: String,
        /// Planned steps, which a resume may change; 0 in runs of early versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[ts(optional, as = "Option<u64>")]
        steps: u64,
        /// Planned epochs; 0 in runs of early versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[ts(optional, as = "Option<u64>")]
        epochs: u64,
    },
    /// The run finished, or it stopped for a known reason.
    Stopped {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Why the run ended.
        #[serde(alias = "why")]
        reason: StopReason,
        /// The end as a sentence: "Stopped at step 258. Checkpoint saved in 0.8 s".
        #[serde(alias = "sentence")]
        message: String,
    },
    /// The run ended with an error. It can be resumed from its last checkpoint.
    Failed {
        /// Milliseconds on the run's clock.
        at_ms: u64,
        /// Completed optimizer steps.
        step: u64,
        /// Identifies the error for the window.
        code: String,
        /// What happened, where, and what the user can do.
        message: String,
    },
}

/// Memory limits that the user may change while a run trains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLimits {
    /// Maximum memory footprint of Ebb, in bytes; `None` without a cap.
    pub memory_cap_bytes: Option<u64>,
    /// Fraction of all memory that Ebb and all other apps may use together.
    pub max_system_fraction: f64,
}

/// The head of a run: what is trained, on which data, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Started {
    /// Milliseconds on the run's clock: 0.
    pub at_ms: u64,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Id of the process that trains.
    pub process: u32,
    /// Ebb's version.
    pub version: String,
    /// Display name: the name of the dropped folder.
    pub name: String,
    /// Task, as written after `--task`.
    pub task: String,
    /// Model, as written after `--model`.
    pub model: String,
    /// Class names in label order.
    pub classes: Vec<String>,
    /// Columns of the regression targets; empty in runs of early versions.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Number of training samples.
    pub train_samples: u64,
    /// Number of held-out samples.
    pub held_out_samples: u64,
    /// Held-out samples that are exact copies of training samples, as far as Ebb compared them.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[ts(optional, as = "Option<u64>")]
    pub held_out_copies: u64,
    /// Number of trained parameters.
    pub parameters: u64,
    /// Input size of the network: the side of the square image in pixels, or the longest sequence
    /// in tokens.
    #[serde(alias = "image_size")]
    pub input_size: u32,
    /// Samples per step; the average, rounded up, if `effective_batch_tokens` limits the steps.
    pub effective_batch: u32,
    /// The most tokens of a step, if they limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub effective_batch_tokens: Option<u32>,
    /// Planned epochs.
    pub epochs: u64,
    /// Planned steps.
    pub steps: u64,
    /// Steps per epoch: `ceil(train_samples / effective_batch)`, unless tokens limit the steps.
    pub steps_per_epoch: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Name of the optimizer.
    pub optimizer: String,
    /// `cpu`, `metal` or `cuda`, with the name of the chip.
    pub device: String,
    /// Why this device was selected.
    pub device_reason: String,
    /// Element type of activations: `f32`, `bf16`, `f16` or `f64`.
    pub precision: String,
    /// Number of checkpointed blocks: their activations are recomputed in the backward pass.
    #[serde(default)]
    pub checkpoint_blocks: u32,
    /// Threads of the CPU kernels.
    pub threads: u32,
    /// Configuration of the data loader in one line.
    pub loader: String,
    /// Name of the memory source.
    pub memory_source: String,
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The footprint that was estimated before the start, in bytes; 0 if none was.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[ts(optional, as = "Option<u64>")]
    pub estimated_peak_bytes: u64,
    /// The run and the step whose weights it started from; empty if it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[ts(optional, as = "Option<String>")]
    pub branched_from: String,
}

impl Started {
    /// Tokens in a sample of a language model or a token compression, which is a window of them;
    /// `None` for other tasks.
    pub fn tokens_per_sample(&self) -> Option<u32> {
        match self.known_task()? {
            TaskChoice::LanguageModel | TaskChoice::TokenCompression => Some(self.input_size),
            TaskChoice::ImageClassification | TaskChoice::TextClassification => None,
        }
    }

    /// "64 samples per step", or "8,192 tokens per step (about 12 samples)".
    pub fn describe_step(&self) -> String {
        let samples = format_count(self.effective_batch.into());
        match self.effective_batch_tokens {
            Some(tokens) => {
                let tokens = format_count(tokens.into());
                format!("{tokens} tokens per step (about {samples} samples)")
            }
            None => format!("{samples} samples per step"),
        }
    }
}

/// The moment of an interval in which Ebb used the most memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
pub struct MemoryPeak {
    /// Ebb's footprint, in bytes.
    pub own_bytes: u64,
    /// The part of it that the device's allocator held without using it, in bytes; 0 if unknown.
    pub cached_bytes: u64,
    /// Memory of other apps at that moment, in bytes.
    pub others_bytes: u64,
}

impl Started {
    /// The task; `None` if a newer version of Ebb wrote one that this version does not know.
    pub fn known_task(&self) -> Option<TaskChoice> {
        self.task.parse().ok()
    }
}

impl MemoryPeak {
    /// A single sample.
    pub fn from_sample(sample: &MemorySample) -> Self {
        let allocated = sample.device_allocated_bytes;
        MemoryPeak {
            own_bytes: sample.own_bytes,
            cached_bytes: allocated.saturating_sub(sample.device_live_bytes),
            others_bytes: sample.others_bytes(),
        }
    }

    /// The higher one.
    pub fn max(self, other: Self) -> Self {
        if other.own_bytes > self.own_bytes {
            other
        } else {
            self
        }
    }
}

/// A prompt of a run with an answer of its model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
pub struct PromptAnswer {
    /// What the model was asked.
    pub prompt: String,
    /// What it answered.
    pub answer: String,
    /// Whether the answer ends because it has the most tokens, because answering took too long, or
    /// because memory was short.
    pub is_cut: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A gradient with values that are not finite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct NonFiniteGradient {
    /// Name of the parameter.
    pub parameter: String,
    /// Number of NaN values.
    pub nan: u64,
    /// Number of infinite values.
    pub infinite: u64,
}

/// Why a checkpoint was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointReason {
    /// The interval of `--checkpoint-every` had passed.
    Periodic,
    /// The evaluation was the best so far.
    Best,
    /// The run stopped.
    Stop,
    /// The user asked for it.
    Requested,
    /// Memory pressure reached the warning level.
    Pressure,
    /// The machine was about to sleep, or its battery was low.
    Power,
}

/// Why a run ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// All planned steps are done.
    Finished,
    /// The user stopped it.
    Requested,
    /// The run was suspended for longer than `max_suspended_minutes`.
    Memory,
    /// The system has too little disk space left for swap.
    Disk,
}

impl RunEvent {
    /// When this happened, in milliseconds on the run's clock.
    pub fn at_ms(&self) -> u64 {
        match self {
            RunEvent::Started(started) => started.at_ms,
            RunEvent::DeviceCheck { at_ms, .. }
            | RunEvent::Baseline { at_ms, .. }
            | RunEvent::Memory { at_ms, .. }
            | RunEvent::Decision { at_ms, .. }
            | RunEvent::Prediction { at_ms, .. }
            | RunEvent::Step { at_ms, .. }
            | RunEvent::Evaluation { at_ms, .. }
            | RunEvent::Answers { at_ms, .. }
            | RunEvent::Checkpoint { at_ms, .. }
            | RunEvent::Skipped { at_ms, .. }
            | RunEvent::Warning { at_ms, .. }
            | RunEvent::MemoryLimits { at_ms, .. }
            | RunEvent::StressTest { at_ms, .. }
            | RunEvent::Group { at_ms, .. }
            | RunEvent::Machines { at_ms, .. }
            | RunEvent::Machine { at_ms, .. }
            | RunEvent::Resumed { at_ms, .. }
            | RunEvent::Stopped { at_ms, .. }
            | RunEvent::Failed { at_ms, .. } => *at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_newer_version_is_kept_and_unknown() {
        for (task, known) in [
            ("language-model", Some(TaskChoice::LanguageModel)),
            ("object-detection", None),
        ] {
            let started = Started {
                task: task.to_owned(),
                ..Started::default()
            };
            let json = serde_json::to_value(&started).expect("it can be written");
            let read: Started = serde_json::from_value(json).expect("it can be read");
            assert_eq!((read.task.as_str(), read.known_task()), (task, known));
        }
    }
}
