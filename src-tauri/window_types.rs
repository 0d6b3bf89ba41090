//! The types that the commands return, exported to the window. The page sends ids and receives
//! views; it may show a path, but never sends one.

use crate::language::Language;
use crate::recovery_view::RecoveryView;
use pressure::Level;
use runlog::{PowerPolicyChoice, RunStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// Result of `welcome`: what the window needs when it starts and after a reload.
#[derive(Debug, Clone, Serialize, TS)]
pub struct Welcome {
    /// Ebb's version.
    pub version: String,
    /// The language of the window: "en" or "de".
    pub language: Language,
    /// The language that the user chose; `None` follows the system.
    pub language_choice: Option<Language>,
    /// "macos" or "linux".
    pub platform: String,
    /// What the bundled sample contains; `None` if it is missing.
    pub sample: Option<SampleView>,
    /// What to show first: an argument of the command line, a folder that was dropped before the
    /// page was ready, or the active run.
    pub show: Option<Show>,
    /// What to report about it.
    pub notice: Option<NoticeView>,
}

/// A sentence that the page shows above its view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct NoticeView {
    /// The sentence.
    pub text: String,
    /// Whether it is about something that failed.
    pub is_error: bool,
}

/// Something to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Show {
    /// A dropped folder.
    Inspection {
        /// Its id.
        id: String,
        /// The folder as pretrained weights, if it contains a model. A plan page that is open uses
        /// it.
        weights: Option<WeightsView>,
    },
    /// A run.
    Run {
        /// Its id.
        id: String,
    },
}

/// A folder of pretrained weights.
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
    /// Number of images.
    pub images: u32,
    /// Number of classes.
    pub classes: u32,
    /// Size on disk.
    pub bytes: u64,
}

/// Answer of `runs`: one row of the list of runs, newest first.
#[derive(Debug, Clone, Serialize, TS)]
pub struct RunRow {
    /// Id for `pull`, `resume` and `control`.
    pub id: String,
    /// The dropped folder's name, or what the user calls the run.
    pub name: String,
    /// What the user noted about it.
    pub note: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// "Image classification, ConvNet".
    pub what: String,
    /// Status of the run.
    pub status: RunStatus,
    /// Whether it trains in this process.
    pub here: bool,
    /// "Training in the terminal, epoch 2 of 4", "Stopped by you at step 1,180".
    pub line: String,
    /// Smoothed loss, at most 40 points.
    pub spark: Vec<f64>,
    /// The best evaluation, and what it measures: "93.4 %", "accuracy".
    pub result: Option<(String, String)>,
    /// Seconds left while it trains.
    pub seconds_left: Option<f64>,
    /// Whether there is a checkpoint to resume from.
    pub can_resume: bool,
    /// Complete epochs.
    pub epochs_done: u64,
    /// Planned epochs.
    pub epochs: u64,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Last change, milliseconds since 1970.
    pub unix_ms: u64,
}

/// Result of `run_list`.
#[derive(Debug, Clone, Serialize, TS)]
pub struct RunList {
    /// Changes if a row has changed.
    pub version: u64,
    /// The rows of `runs`.
    pub rows: Vec<RunRow>,
}

/// Result of `repeat_run`: what a new plan takes over from a run. Absent settings stay as Ebb
/// suggests them.
#[derive(Debug, Clone, Serialize, TS)]
pub struct RepeatView {
    /// Id of the inspection of the run's folder.
    pub inspection: String,
    /// The weights that it started from.
    pub weights: Option<WeightsView>,
    /// The trainable part, if it started from weights.
    pub trains: Option<String>,
    /// Its settings.
    pub settings: ChangedSettings,
}

/// Settings of a run, named as in `PlanSettings`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, TS)]
pub struct ChangedSettings {
    /// The task.
    pub task: String,
    /// Model's name.
    pub model: String,
    /// Side of the square image in pixels, or length of texts in tokens.
    pub resolution: u32,
    /// Samples per step.
    pub effective_batch: u32,
    /// Epochs.
    pub epochs: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Seed.
    pub seed: u64,
    /// `none` or `standard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub augment: Option<String>,
    /// `auto`, `10min`, `2epochs`, `500steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub checkpoint_every: Option<String>,
    /// Fraction of all memory that Ebb and all other apps may use together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub max_system_fraction: Option<f64>,
    /// When the training rests: `auto`, `always` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub courtesy: Option<String>,
    /// Its settings that are only in the sheet of all settings.
    pub other_settings: BTreeMap<String, String>,
}

/// The training of this process in one line, for every page and the menu bar.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct ActiveView {
    /// Id of the run.
    pub run: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: RunStatus,
    /// The current epoch, from 1.
    pub epoch: u64,
    /// All epochs.
    pub epochs: u64,
    /// The newest step. The page has it from the run itself, so that it does not redraw here.
    #[serde(skip)]
    #[ts(skip)]
    pub step: u64,
    /// Completed share of the steps.
    pub fraction: f64,
    /// Seconds left, once known.
    pub seconds_left: Option<f64>,
}

/// Result of `inspection`: what a folder contains, and why it cannot be trained.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct InspectionView {
    /// Its id.
    pub id: String,
    /// Grows by one whenever the folder on disk changes.
    pub version: u64,
    /// The folder's name.
    pub name: String,
    /// The folder's path, only for display.
    pub path: String,
    /// Files read so far; all files once reading is done.
    pub files_seen: u64,
    /// Whether the folder is still being read.
    pub reading: bool,
    /// Why it cannot be trained, and what to do.
    pub refusal: Option<CommandError>,
    /// The task: "image classification", "image regression", "text classification", "language
    /// model"; empty while reading.
    pub task: String,
    /// What one sample is called: "image", "text", "document".
    pub sample: String,
    /// Classes with their samples.
    pub classes: Vec<ClassView>,
    /// Samples that can be used.
    pub samples: u64,
    /// Size of these samples.
    pub bytes: u64,
    /// Median width and height.
    pub typical_size: Option<(u32, u32)>,
    /// Files left out.
    pub skipped: Vec<SkippedView>,
    /// Notes, for example about imbalance, or a class that is missing in a split.
    pub notes: Vec<String>,
    /// "20 % of each class, 243 images, chosen by seed 7" or "from the folders train and val".
    pub split: String,
    /// The tasks that the folder can be trained for, each with the settings that Ebb suggests, the
    /// usual one first; empty if it cannot be trained.
    pub plans: Vec<PlanView>,
}

/// One class of a folder.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ClassView {
    /// Name of its folder.
    pub name: String,
    /// Number of samples.
    pub count: u32,
    /// Whether it has far fewer samples than the largest class.
    pub small: bool,
}

/// One file left out.
#[derive(Debug, Clone, Serialize, TS)]
pub struct SkippedView {
    /// Relative to the folder.
    pub file: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// A suggested plan.
#[derive(Debug, Clone, Serialize, TS)]
pub struct PlanView {
    /// Settings that the page can change.
    pub settings: PlanSettings,
    /// Name of the task as shown: "Language model".
    pub task: String,
    /// What the samples must have: "One label per text."
    pub asks: String,
    /// What one sample of a step is called: "image", "text", "window".
    pub sample: String,
    /// Models that can be chosen, as value and label.
    pub models: Vec<(String, String)>,
    /// The image size that Ebb suggests for each model; empty if it does not depend on the model.
    pub model_sizes: Vec<(String, u32)>,
    /// Whether training can start from pretrained weights.
    pub can_begin: bool,
    /// Trainable parts that can be chosen, as value and label; only "everything" without pretrained
    /// weights.
    pub trains: Vec<(String, String)>,
    /// Image sizes in pixels, or lengths of texts in tokens, that can be chosen.
    pub resolutions: Vec<u32>,
    /// Samples trained on.
    pub train_samples: u64,
    /// Samples held out.
    pub held_out_samples: u64,
    /// Memory now, for the bar of the estimate.
    pub machine: MachineView,
    /// Budget line at the suggested max_system_fraction: Ebb's footprint plus the memory of others.
    pub budget_line_bytes: u64,
    /// Memory that is left to others even at the largest max_system_fraction.
    pub leave_least_bytes: u64,
}

/// Result of `estimate`: the memory that settings need, and the first micro-batch.
#[derive(Debug, Clone, Serialize, TS)]
pub struct EstimateView {
    /// Trained parameters.
    pub parameters: u64,
    /// Footprint between micro-batches: program, weights, optimizer state, samples decoded ahead.
    pub state_bytes: u64,
    /// Memory that the suggested micro-batch adds.
    pub activations_bytes: u64,
    /// Highest footprint.
    pub peak_bytes: u64,
    /// The least and the largest footprint to expect, as multiples of `peak_bytes`.
    pub interval: [f64; 2],
    /// Samples of the first micro-batch.
    pub micro_batch: u32,
    /// Micro-batches per step.
    pub accumulation: u32,
    /// Blocks whose activations are recomputed so that the plan fits.
    pub checkpoint_blocks: u32,
    /// Learning rate that Ebb suggests for these settings.
    pub learning_rate: f64,
    /// Number of labeled texts that are probably longer than the model reads, and cut.
    pub cut_texts: u64,
    /// Highest footprint by micro-batch, smallest first.
    pub peaks: Vec<(u32, u64)>,
    /// Why no micro-batch fits; `None` if one does.
    pub refusal: Option<DoesNotFitView>,
    /// What would save memory but change the result, if none fits. Only the user may choose it.
    pub recovery: Vec<RecoveryView>,
}

/// Why not even the smallest micro-batch fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, TS)]
pub struct DoesNotFitView {
    /// Memory that Ebb would need.
    pub needed_bytes: u64,
    /// Memory that Ebb may use now.
    pub available_bytes: u64,
}

/// Settings that the page may change before training starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS)]
#[serde(deny_unknown_fields)]
pub struct PlanSettings {
    /// The task: "image-classification", "language-model", …
    pub task: String,
    /// Id of the pretrained weights; absent if the weights start random.
    pub from: Option<String>,
    /// Trainable part: "all", "last:2", "head", "adapter:8".
    pub trains: String,
    /// Model's name.
    pub model: String,
    /// Side of the square image in pixels, or length of texts in tokens.
    pub resolution: u32,
    /// Samples per step.
    pub effective_batch: u32,
    /// Epochs.
    pub epochs: u64,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// `none` or `standard`; absent for texts.
    pub augment: Option<String>,
    /// `auto`, `10min`, `2epochs`, `500steps`.
    pub checkpoint_every: String,
    /// Fraction of all memory that Ebb and all other apps may use together.
    pub max_system_fraction: f64,
    /// When the training rests: `auto`, `always` or `off`.
    pub courtesy: String,
    /// Seed.
    pub seed: u64,
    /// Settings that are only in the sheet of all settings, by key, as typed on the command line.
    #[serde(default)]
    pub other_settings: BTreeMap<String, String>,
}

/// Result of `machine`: the numbers of the status bar.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct MachineView {
    /// Changes if something that can be seen has changed.
    pub version: u64,
    /// Pressure level.
    pub level: Level,
    /// Pressure, `0.0..=1.0`.
    pub pressure: f64,
    /// Physical memory.
    pub total_bytes: u64,
    /// Memory in use by all processes.
    pub used_bytes: u64,
    /// Memory of the system itself.
    pub system_bytes: u64,
    /// Memory of this process.
    pub own_bytes: u64,
    /// Memory of all other apps.
    pub others_bytes: u64,
    /// Swap in use.
    pub swap_bytes: u64,
    /// The machine's name and chip, if known.
    pub name: String,
    /// The device of the next run, and what its check found: "CPU, 2 threads: no GPU was found", or
    /// "Metal on Apple M4 Pro, 61 operations checked on this Mac".
    pub device: String,
    /// How far the check of the GPU is that precedes its first run.
    pub device_check: Option<DeviceCheckView>,
    /// The training of this process, while it runs.
    pub active: Option<ActiveView>,
    /// Number of runs in the queue.
    pub queued: u32,
}

/// Progress of a device check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct DeviceCheckView {
    /// The run that waits for it, if any. A stop of the run ends the check.
    pub run: Option<String>,
    /// Comparisons done.
    pub done: u32,
    /// All comparisons.
    pub total: u32,
}

/// A request of the page to a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum RunRequest {
    /// Stop with a checkpoint.
    Stop,
    /// Checkpoint now.
    Checkpoint,
    /// Pause.
    Pause,
    /// Continue after a pause.
    Continue,
    /// Change how much memory is left to other apps.
    Leave {
        /// Fraction of all memory that Ebb and all other apps may use together, from 0.5 to 0.95.
        max_system_fraction: f64,
    },
    /// Set or remove the memory cap.
    MemoryCap {
        /// Maximum memory footprint of Ebb, at least 64 MB; `None` removes the cap.
        bytes: Option<u64>,
    },
    /// Change when the training rests.
    Courtesy {
        /// `auto`, `always` or `off`.
        #[ts(as = "String")]
        when: PowerPolicyChoice,
    },
}

/// Result of `memory_limits`: what can be changed in a running training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, TS)]
pub struct LimitsView {
    /// Maximum memory footprint of Ebb; `None` without a cap.
    pub memory_cap_bytes: Option<u64>,
    /// Fraction of all memory that Ebb and all other apps may use together.
    pub max_system_fraction: f64,
    /// Physical memory.
    pub total_bytes: u64,
    /// Memory that is left to others even at the largest fraction.
    pub leave_least_bytes: u64,
    /// When the training rests: `auto`, `always` or `off`.
    #[ts(as = "String")]
    pub courtesy: PowerPolicyChoice,
}

/// A request of the page to the stress test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DrillRequest {
    /// Take a quarter of the available memory, unless a test is running.
    Begin,
    /// Report the state.
    Look,
    /// Give the memory back.
    End,
}

/// Result of `drill`: the running stress test; zeros if there is none.
#[derive(Debug, Clone, Copy, Default, Serialize, TS)]
pub struct DrillView {
    /// Memory that it takes.
    pub bytes: u64,
    /// Seconds until the memory is given back.
    pub seconds_left: f64,
    /// What would make the training shrink, if that much cannot be taken safely.
    pub needed_bytes: Option<u64>,
}

/// An error, with a code that the window may act on.
#[derive(Debug, Clone, Serialize, TS)]
pub struct CommandError {
    /// `unknown_id`, `busy`, `not_trainable`, `data_missing`, `invalid_setting`, `name_taken`,
    /// `replaced`, `device_lost`, `failed`.
    pub code: String,
    /// What happened, where, and what to do.
    pub message: String,
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::path::Path;
    use ts_rs::{Config, ExportError};

    /// Compares the exported types with the committed ones.
    pub fn current_types(export: impl FnOnce(&Config) -> Result<(), ExportError>) {
        let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/generated");
        let fresh = tempfile::tempdir().expect("a temporary folder");
        let checked = runlog::check_typescript_bindings::check(&generated, fresh.path(), export);
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn the_windows_types_are_current() {
        current_types(|config| {
            Welcome::export_all(config)?;
            WeightsView::export_all(config)?;
            RunList::export_all(config)?;
            InspectionView::export_all(config)?;
            RunRequest::export_all(config)?;
            EstimateView::export_all(config)?;
            LimitsView::export_all(config)?;
            RepeatView::export_all(config)?;
            DrillRequest::export_all(config)?;
            DrillView::export_all(config)?;
            CommandError::export_all(config)
        });
    }
}
