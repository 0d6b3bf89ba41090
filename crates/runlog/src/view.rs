//! What a window or terminal shows of a run: types only. `reduce.rs` folds events into them, `window.rs` cuts a
//! time window out of them. They know nothing of how they are drawn.

use crate::event::Started;
use pressure::{Change, Component, Level};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// No step yet: data and device are being made ready.
    #[default]
    Starting,
    /// At work.
    Training,
    /// Paused by the user or by pressure.
    Paused,
    /// All planned steps are done.
    Finished,
    /// Stopped by request; can be resumed.
    Stopped,
    /// Ended by an error; the last checkpoint can be resumed.
    Failed,
    /// The process is gone without a last word; the last checkpoint can be resumed.
    EndedEarly,
}

/// The numbers above the charts. `None` is shown as "–" in the same width.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct Figures {
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch at work, from 1.
    pub epoch: u64,
    /// Samples per second, over the last seconds.
    pub samples_per_second: Option<f64>,
    /// Seconds left, by the pace of the last minute.
    pub seconds_left: Option<f64>,
    /// This process's footprint.
    pub own_bytes: Option<u64>,
    /// Footprint that Ebb allows itself.
    pub budget_bytes: Option<u64>,
    /// Pressure, `0.0..=1.0`.
    pub pressure: Option<f64>,
    /// Pressure level.
    pub level: Level,
    /// Since when the level holds, on the run's clock.
    pub level_since_ms: u64,
    /// The micro-batch at work.
    pub micro_batch: Option<u32>,
    /// Pieces a step.
    pub pieces: Option<u32>,
    /// Newest loss.
    pub loss: Option<f64>,
    /// Newest smoothed loss.
    pub smoothed_loss: Option<f64>,
    /// Newest held-out loss.
    pub held_out_loss: Option<f64>,
    /// Newest held-out accuracy, as a fraction.
    pub accuracy: Option<f64>,
    /// Best held-out accuracy, as a fraction.
    pub best_accuracy: Option<f64>,
    /// Newest learning rate.
    pub learning_rate: Option<f64>,
    /// Changes of the micro-batch in this run.
    pub changes: u32,
    /// Files skipped while training.
    pub skipped: u32,
    /// The newest of what the task measures beside its loss, by name. Those called `.._gradients` are counted over the whole run.
    pub measures: BTreeMap<String, f64>,
    /// What the newest evaluation measured beside its loss, by name.
    pub held_out: BTreeMap<String, f64>,
}

impl Figures {
    /// Takes in what a step measured.
    pub(crate) fn measure(&mut self, newest: &BTreeMap<String, f64>) {
        for (name, value) in newest {
            let before = self.measures.get(name).copied().unwrap_or(0.0);
            let counted = name.ends_with("_gradients");
            let value = if counted { before + value } else { *value };
            self.measures.insert(name.clone(), value);
        }
    }
}

/// The status line: what was done, then why; the second line says what it means.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct StatusLine {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// "Shrunk 16 to 8: another app took 6.1 GB in 20 s".
    pub sentence: String,
    /// "The training is unchanged: 64 samples a step, now in 8 pieces of 8."
    pub meaning: String,
    /// Level that the line's icon shows.
    pub level: Level,
}

/// A change of the micro-batch, marked in every panel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
pub struct Mark {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// What changed.
    pub change: Change,
    /// Size before.
    pub from: u32,
    /// Size after; 0 for a pause or park.
    pub to: u32,
    /// Component that spoke.
    pub cause: Component,
    /// "Shrunk 16 to 8".
    pub short: String,
    /// "another app took 6.1 GB in 20 s".
    pub reason: String,
}

/// A stretch of warning or critical level: the tint behind the panels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, TS)]
pub struct LevelSpan {
    /// Begin, on the run's clock.
    pub from_ms: u64,
    /// End, on the run's clock.
    pub to_ms: u64,
    /// Never `normal`.
    pub level: Level,
}

/// One packed array: `len` 64-bit floats from float `offset` of the data part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct PackedArray {
    /// Times (ms): `memory.at micro.at loss.at evaluation.at`; values: `memory.system memory.others memory.state
    /// memory.activations memory.budget` (bytes), `micro.value`, `loss.raw loss.smoothed`, `evaluation.loss`.
    /// The budget is where its line stands in the stack: system + others + the footprint that Ebb allows itself. The
    /// micro-batch is 0 while Ebb waits. A loss that is not a number is NaN.
    pub name: String,
    /// First float.
    pub offset: u32,
    /// Number of floats.
    pub len: u32,
}

/// The head of one pull. On the wire: u32 LE length of this head as JSON, the JSON, zeroes up to a multiple of 8 bytes,
/// then the packed arrays as little-endian 64-bit floats. At most two points per pixel column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct PullHeader {
    /// Events folded so far.
    pub version: u64,
    /// Nothing happened since the version the page has seen: everything below is empty.
    pub unchanged: bool,
    /// Where the run stands.
    pub status: RunStatus,
    /// The run's head.
    pub started: Option<Started>,
    /// The run's clock now; where it has ended, then.
    pub now_ms: u64,
    /// The same on the wall's clock, milliseconds since 1970.
    pub now_unix_ms: u64,
    /// Window shown.
    pub from_ms: u64,
    /// Window shown.
    pub to_ms: u64,
    /// Numbers above the charts.
    pub figures: Figures,
    /// Status line.
    pub line: StatusLine,
    /// Changes within the window.
    pub marks: Vec<Mark>,
    /// Level stretches within the window.
    pub spans: Vec<LevelSpan>,
    /// What the task measures beside its loss, in words: held out, then of the newest step.
    pub measured: Vec<String>,
    /// Latest warnings and skipped files, newest last, at most 20.
    pub notes: Vec<String>,
    /// What the flight recorder says of the last two minutes of a run that ended without a word; else empty.
    pub last_minutes: Vec<String>,
    /// What follows the head.
    pub arrays: Vec<PackedArray>,
}
