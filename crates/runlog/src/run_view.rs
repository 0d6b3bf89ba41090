//! The types that the window and the terminal show of a run. `fold_events.rs` folds events into
//! them, `chart_data.rs` selects a time range.

use crate::event::Started;
use crate::group_view::GroupView;
use pressure::{Change, Component, Level, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// Status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The data and the device are being prepared; no step was done yet.
    #[default]
    Starting,
    /// Steps are being done.
    Training,
    /// Paused by the user or by memory pressure.
    Paused,
    /// All planned steps are done.
    Finished,
    /// Stopped before the planned end; it can be resumed.
    Stopped,
    /// Ended with an error; it can be resumed from its last checkpoint.
    Failed,
    /// The process exited without an end event; the run can be resumed from its last checkpoint.
    EndedEarly,
}

impl RunStatus {
    /// The status as a person reads it: "Ended early".
    pub fn label(self) -> &'static str {
        match self {
            RunStatus::Starting => "Starting",
            RunStatus::Training => "Training",
            RunStatus::Paused => "Paused",
            RunStatus::Finished => "Finished",
            RunStatus::Stopped => "Stopped",
            RunStatus::Failed => "Failed",
            RunStatus::EndedEarly => "Ended early",
        }
    }

    /// True if the run will not continue unless it is resumed.
    pub fn has_ended(self) -> bool {
        match self {
            RunStatus::Starting | RunStatus::Training | RunStatus::Paused => false,
            RunStatus::Finished
            | RunStatus::Stopped
            | RunStatus::Failed
            | RunStatus::EndedEarly => true,
        }
    }
}

/// The numbers above the charts. `None` is shown as "–" in the same width.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Figures {
    /// Completed optimizer steps.
    pub step: u64,
    /// Current epoch, from 1.
    pub epoch: u64,
    /// Samples per second over the last seconds.
    pub samples_per_second: Option<f64>,
    /// Estimated remaining seconds at the speed of the last minute.
    pub seconds_left: Option<f64>,
    /// Footprint of this process: the highest since the previous reading.
    pub own_bytes: Option<u64>,
    /// Highest footprint of the run.
    pub peak_own_bytes: Option<u64>,
    /// The footprint that Ebb allows itself.
    pub budget_bytes: Option<u64>,
    /// Pressure, `0.0..=1.0`.
    pub pressure: Option<f64>,
    /// Pressure level.
    pub level: Level,
    /// Since when the level holds, on the run's clock.
    pub level_since_ms: u64,
    /// Samples of the current micro-batch; `None` while the run waits.
    pub micro_batch: Option<u32>,
    /// Micro-batches per step.
    pub micro_batches: Option<u32>,
    /// Latest loss.
    pub loss: Option<f64>,
    /// Latest smoothed loss.
    pub smoothed_loss: Option<f64>,
    /// Latest held-out loss.
    pub held_out_loss: Option<f64>,
    /// Latest held-out accuracy, as a fraction.
    pub accuracy: Option<f64>,
    /// Best held-out accuracy, as a fraction.
    pub best_accuracy: Option<f64>,
    /// Step of the best evaluation.
    pub best_step: Option<u64>,
    /// Latest learning rate.
    pub learning_rate: Option<f64>,
    /// Number of decisions that changed something in this run.
    pub changes: u32,
    /// Number of files and steps skipped in training.
    pub skipped: u32,
    /// Latest training metrics beside the loss, by name. Names that end in `_gradients` are summed
    /// over the run.
    pub step_metrics: BTreeMap<String, f64>,
    /// Metrics of the latest evaluation beside the loss, by name.
    pub held_out_metrics: BTreeMap<String, f64>,
}

impl Figures {
    /// Updates `step_metrics` with the metrics of a step.
    pub(crate) fn add_step_metrics(&mut self, latest: &BTreeMap<String, f64>) {
        for (name, value) in latest {
            let previous = self.step_metrics.get(name).copied().unwrap_or(0.0);
            let is_count = name.ends_with("_gradients");
            let value = if is_count { previous + value } else { *value };
            self.step_metrics.insert(name.clone(), value);
        }
    }
}

/// How far the running step is, or the running evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
pub struct StepProgress {
    /// Training or evaluation.
    pub phase: Phase,
    /// Samples that are done.
    pub samples_done: u32,
    /// All samples of the step or the evaluation.
    pub samples: u32,
    /// The running micro-batch, from 1.
    pub micro_batch: u32,
    /// Micro-batches of this size that the step takes in all.
    pub micro_batches: u32,
}

/// The status line: what was done and why. The second line says what it means for the training.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct StatusLine {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// "Micro-batch reduced from 16 to 8: another app took 6.1 GB in 20 s".
    pub message: String,
    /// "The training is unchanged: 64 samples per step, now in 8 micro-batches of 8."
    pub detail: String,
    /// Level of the line's icon.
    pub level: Level,
}

/// A decision that changed something, marked in every panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Mark {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// Completed optimizer steps.
    pub step: u64,
    /// What changed.
    pub change: Change,
    /// Micro-batch before.
    pub from: u32,
    /// Micro-batch after; 0 if the run waits.
    pub to: u32,
    /// The component that caused the change.
    pub cause: Component,
    /// Pressure level at that time.
    pub level: Level,
    /// "Micro-batch reduced from 16 to 8".
    pub short: String,
    /// "another app took 6.1 GB in 20 s".
    pub reason: String,
}

/// A period of warning or critical level: the tint behind the panels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, TS)]
pub struct LevelSpan {
    /// Start, on the run's clock.
    pub from_ms: u64,
    /// End, on the run's clock.
    pub to_ms: u64,
    /// Never `normal`.
    pub level: Level,
}

/// One packed array: `len` 64-bit floats, beginning at float `offset` of the data part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct PackedArray {
    /// `GROUP.at` has the times (ms) of all arrays of its group. Memory is in bytes.
    ///
    /// The budget is its line's position in the stack: system + others + the footprint that Ebb
    /// allows itself. The micro-batch is 0 while Ebb waits. What is unknown is NaN, and so is a
    /// loss that is not a number.
    pub name: String,
    /// Index of the first float.
    pub offset: u32,
    /// Number of floats.
    pub len: u32,
}

/// A time in which the stress test of the window held memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct StressTestSpan {
    /// Start, on the run's clock.
    pub from_ms: u64,
    /// End, or the run's clock while it holds the memory.
    pub to_ms: u64,
    /// The memory.
    pub bytes: u64,
}

/// The header of one pull. On the wire: the length of this header as JSON (u32, little endian), the
/// JSON, zeros up to a multiple of 8 bytes, then the packed arrays as little-endian 64-bit floats.
/// An array has at most two points per pixel column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct PullHeader {
    /// Number of changes so far.
    pub version: u64,
    /// Nothing changed since the version that the page has seen: all fields below are empty.
    pub unchanged: bool,
    /// Status of the run.
    pub status: RunStatus,
    /// The run's head.
    pub started: Option<Started>,
    /// The run's clock: now, or at its end.
    pub now_ms: u64,
    /// `now_ms` on the wall clock, milliseconds since 1970.
    pub now_unix_ms: u64,
    /// Start of the time range, on the run's clock.
    pub from_ms: u64,
    /// End of the time range, on the run's clock.
    pub to_ms: u64,
    /// The numbers above the charts.
    pub figures: Figures,
    /// How far the running step is; `None` if that is unknown.
    pub progress: Option<StepProgress>,
    /// The status line: what is true now.
    pub status_line: StatusLine,
    /// The newest decision, if the status line is about something else by now.
    pub last_decision: Option<StatusLine>,
    /// Changes within the time range.
    pub marks: Vec<Mark>,
    /// Periods of warning and critical level within the time range.
    pub spans: Vec<LevelSpan>,
    /// Stress tests within the time range.
    pub stress_tests: Vec<StressTestSpan>,
    /// Metrics beside the loss as text: those of the latest evaluation, then those of the latest
    /// step.
    pub metrics_text: Vec<String>,
    /// Name of the main metric, which the array `evaluation.metric` has: "accuracy".
    pub metric_name: Option<String>,
    /// Latest warnings and skipped files, newest last, at most 20.
    pub notes: Vec<String>,
    /// The crash report of a run whose process exited without an end event; empty otherwise.
    pub last_minutes: Vec<String>,
    /// The machines; missing if the run has only trained on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub group: Option<GroupView>,
    /// The rank whose memory the arrays `machine.*` have; missing if they are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub shown_rank: Option<u32>,
    /// The arrays that follow this header.
    pub arrays: Vec<PackedArray>,
}
