//! What the commands answer: types only, exported to the window. Ids go in, views come out; a path
//! of the user's disk is shown but never taken from the page.

use pressure::Level;
use runlog::RunStatus;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Answer of `welcome`: what the window needs at its start and after a reload.
#[derive(Debug, Clone, Serialize, TS)]
pub struct Welcome {
    /// Ebb's version.
    pub version: String,
    /// "macos" or "linux".
    pub platform: String,
    /// "CPU, 2 threads: no GPU was found" or "Metal on M4 Pro, 16 operations checked on this Mac".
    pub device: String,
    /// What the bundled sample holds, or nothing where it is missing.
    pub sample: Option<SampleView>,
    /// What to show first: something given on the command line, dropped before the page was ready,
    /// or the active run.
    pub show: Option<Show>,
}

/// Something to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Show {
    /// A dropped folder.
    Inspection {
        /// Its id.
        id: String,
        /// The same as weights to begin with, where it holds a model: for whoever has a plan before
        /// him.
        weights: Option<WeightsView>,
    },
    /// A run.
    Run {
        /// Its id.
        id: String,
    },
}

/// A folder of published weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct WeightsView {
    /// Its id.
    pub id: String,
    /// The folder's name.
    pub name: String,
}

/// The bundled sample.
#[derive(Debug, Clone, Serialize, TS)]
pub struct SampleView {
    /// Photographs in it.
    pub images: u32,
    /// Classes in it.
    pub classes: u32,
    /// Its size on disk.
    pub bytes: u64,
}

/// Answer of `runs`: one row of the list of runs, newest first.
#[derive(Debug, Clone, Serialize, TS)]
pub struct RunRow {
    /// Id for `pull`, `resume` and `control`.
    pub id: String,
    /// The dropped folder's name.
    pub name: String,
    /// "Image classification, ConvNet".
    pub what: String,
    /// Where it stands.
    pub status: RunStatus,
    /// It trains in this process.
    pub here: bool,
    /// "Training in the terminal, epoch 2 of 4", "Stopped by you at step 1,180".
    pub line: String,
    /// Smoothed loss, at most 40 points.
    pub spark: Vec<f64>,
    /// What the best evaluation measured, and its name: "93.4 %", "accuracy".
    pub result: Option<(String, String)>,
    /// Seconds left while it trains.
    pub seconds_left: Option<f64>,
    /// There is a checkpoint to go on from.
    pub can_resume: bool,
    /// Last change, milliseconds since 1970.
    pub unix_ms: u64,
}

/// Answer of `inspection`: what a folder is, and why not.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct InspectionView {
    /// Its id.
    pub id: String,
    /// Counts up whenever the folder on disk changed.
    pub version: u64,
    /// The folder's name.
    pub name: String,
    /// The folder's path, to be shown only.
    pub path: String,
    /// Files looked at so far while reading, then all.
    pub files_seen: u64,
    /// Still reading.
    pub reading: bool,
    /// Why it cannot be trained, with the next move.
    pub refusal: Option<CommandError>,
    /// What it is for: "image classification", "numbers of photographs", "text classification",
    /// "language model"; empty while reading.
    pub task: String,
    /// What one sample is called: "image", "text", "document".
    pub sample: String,
    /// Classes with their samples.
    pub classes: Vec<ClassView>,
    /// Samples that can be used.
    pub samples: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Median width and height.
    pub typical_size: Option<(u32, u32)>,
    /// Files left out.
    pub skipped: Vec<SkippedView>,
    /// Sentences worth knowing: imbalance, a class missing in a split.
    pub notes: Vec<String>,
    /// "20 % of each class, 243 images, chosen by seed 7" or "folders train, val, test".
    pub split: String,
    /// What can be learnt from it, each with the settings Ebb suggests, the usual first; empty
    /// where it cannot be trained.
    pub plans: Vec<PlanView>,
}

/// One class of a folder.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ClassView {
    /// Folder name as shown.
    pub name: String,
    /// Samples.
    pub count: u32,
    /// Worth a look: far fewer than the largest.
    pub small: bool,
}

/// One file left out.
#[derive(Debug, Clone, Serialize, TS)]
pub struct SkippedView {
    /// Relative to the folder.
    pub file: String,
    /// What is wrong, and the next move.
    pub reason: String,
}

/// A suggested plan with what it means.
#[derive(Debug, Clone, Serialize, TS)]
pub struct PlanView {
    /// The settings themselves.
    pub settings: PlanSettings,
    /// The task as it is said: "Language model".
    pub task: String,
    /// What samples are for it: "One label per text."
    pub asks: String,
    /// What one sample of a step is called: "image", "text", "window".
    pub sample: String,
    /// Models that can be chosen, value and label.
    pub models: Vec<(String, String)>,
    /// Published weights may be what it begins with.
    pub can_begin: bool,
    /// What may train, word and label; everything where weights are drawn anew.
    pub trains: Vec<(String, String)>,
    /// Sides of the image in pixels that can be chosen; of texts, most tokens.
    pub resolutions: Vec<u32>,
    /// Samples trained on.
    pub train_samples: u64,
    /// Samples held out.
    pub held_out_samples: u64,
    /// Memory now, for the forecast bar.
    pub machine: MachineView,
    /// Budget line at the suggested max_system_fraction, as footprint plus others.
    pub budget_line_bytes: u64,
    /// The least that is left to others whatever the max_system_fraction.
    pub leave_least_bytes: u64,
}

/// Answer of `forecast`: what settings will need, and what to begin with.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ForecastView {
    /// Trained parameters.
    pub parameters: u64,
    /// Footprint without any piece: program, weights, moments, samples decoded ahead.
    pub state_bytes: u64,
    /// What the suggested pieces add to it.
    pub activations_bytes: u64,
    /// Highest footprint.
    pub peak_bytes: u64,
    /// Samples a piece to begin with.
    pub micro_batch: u32,
    /// Pieces a step.
    pub accumulation: u32,
    /// Blocks that are computed twice so that it fits.
    pub checkpoint_blocks: u32,
    /// Highest footprint by micro-batch, smallest first, as the pieces are suggested.
    pub peaks: Vec<(u32, u64)>,
    /// Why nothing fits, with what would do.
    pub refusal: Option<String>,
}

/// Settings that the page may change before Train.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(deny_unknown_fields)]
pub struct PlanSettings {
    /// What is learnt: "image-classification", "language-model", …
    pub task: String,
    /// Id of the published weights that it begins with; absent, they are drawn anew.
    pub from: Option<String>,
    /// What of them trains: "all", "last:2", "head", "adapter:8".
    pub trains: String,
    /// Model's name.
    pub model: String,
    /// Side of the square image in pixels; of texts, most tokens.
    pub resolution: u32,
    /// Samples a step.
    pub effective_batch: u32,
    /// Epochs.
    pub epochs: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// `none` or `standard`; nothing for texts.
    pub augment: Option<String>,
    /// `10min`, `2epochs`, `500steps`.
    pub checkpoint_every: String,
    /// Where the budget line stands: the share of all memory that everybody together may fill.
    pub max_system_fraction: f64,
    /// When the training rests: `auto`, `always` or `off`.
    pub courtesy: String,
    /// Seed.
    pub seed: u64,
}

/// Answer of `machine`: the status bar.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct MachineView {
    /// Pressure level.
    pub level: Level,
    /// Pressure, `0.0..=1.0`.
    pub pressure: f64,
    /// Physical memory.
    pub total_bytes: u64,
    /// In use by everybody.
    pub used_bytes: u64,
    /// The system's own.
    pub system_bytes: u64,
    /// This process.
    pub own_bytes: u64,
    /// Everybody else.
    pub others_bytes: u64,
    /// Swap in use.
    pub swap_bytes: u64,
    /// The machine's name and chip, where known.
    pub name: String,
}

/// What the page asks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum RunRequest {
    /// Stop & checkpoint.
    Stop,
    /// Checkpoint now.
    Checkpoint,
    /// Pause.
    Pause,
    /// Go on.
    Continue,
    /// Move the budget line.
    Leave {
        /// The share of all memory that everybody together may fill, from 0.5 to 0.95.
        max_system_fraction: f64,
    },
}

/// What the page asks of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DrillRequest {
    /// Take a quarter of what is available, unless one is at work.
    Begin,
    /// Say how it stands.
    Look,
    /// Give everything back.
    End,
}

/// Answer of `drill`: the one at work; zeros where there is none.
#[derive(Debug, Clone, Copy, Default, Serialize, TS)]
pub struct DrillView {
    /// What it takes.
    pub bytes: u64,
    /// Seconds until it gives everything back.
    pub seconds_left: f64,
}

/// A refusal, with a code where the window acts on it.
#[derive(Debug, Clone, Serialize, TS)]
pub struct CommandError {
    /// `unknown_id`, `busy`, `not_trainable`, `invalid_setting`, `failed`.
    pub code: String,
    /// What, where, and the next move.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_windows_types_are_current() {
        let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/generated");
        let fresh = tempfile::tempdir().expect("a temporary folder");
        let checked = runlog::bindings::check(&generated, fresh.path(), |config| {
            Welcome::export_all(config)?;
            WeightsView::export_all(config)?;
            RunRow::export_all(config)?;
            InspectionView::export_all(config)?;
            RunRequest::export_all(config)?;
            ForecastView::export_all(config)?;
            DrillRequest::export_all(config)?;
            DrillView::export_all(config)?;
            CommandError::export_all(config)
        });
        assert_eq!(checked, Ok(()));
    }
}
