//! Runs on disk and in memory: configs, events, the run store, the fold of events, and reports.
//!
//! A run is a stream of [`RunEvent`]s in the file `events.jsonl` of its [`RunFolder`]. Everything
//! that is shown of a run is folded from these events by [`Run`]:
//!
//! ```
//! use runlog::{EventWriter, Run, RunEvent, RunStatus, RunStore, Started, StopReason, read_events};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = tempfile::tempdir()?;
//! let folder = RunStore::open(root.path()).create("birds")?;
//! let mut writer = EventWriter::append(&folder)?;
//! writer.write(&RunEvent::Started(Box::new(Started {
//!     name: "birds".into(),
//!     steps: 2,
//!     ..Started::default()
//! })))?;
//! writer.write(&RunEvent::Stopped {
//!     at_ms: 61_000,
//!     step: 2,
//!     reason: StopReason::Finished,
//!     message: "Finished at step 2".into(),
//! })?;
//!
//! let mut run = Run::default();
//! for event in read_events(&folder.events_path())? {
//!     run.apply(&event);
//! }
//! assert_eq!(run.status(), RunStatus::Finished);
//! assert_eq!(run.summary_line(), "Finished at step 2 of 2, 1:01");
//! # Ok(())
//! # }
//! ```

// Events, and the files that contain them.
mod machines;
mod event;
pub mod json_floats;
mod run_folder;
mod event_file;
mod notes;
mod tags;
mod run_store;
mod run_archive;

// The fold: from events to a run.
mod changes;
mod live_state;
mod metric_text;
mod records;
mod baseline_text;
mod non_finite_gradients;
mod level_spans;
mod machine_memory;
mod group_view;
mod fold_events;
mod time_series;
mod step_series;
mod loss_smoothing;
mod status_text;
mod throughput;
mod run_view;

// Reading a folded run.
mod run_accessors;
mod crash_report;
mod current_status_line;
mod decimate;
mod load_run;
mod run_summary;
mod run_index;
mod curves_csv;
mod live_view;
mod drawn_report;
mod chart_data;
mod step_curves;

// Settings.
mod checkpoint_blocks;
mod choice_settings;
mod config_file;
mod checkpoint_interval;
mod quantize;
mod trainable_layers;
mod preset;
mod settings;
mod settings_check;
mod settings_as_text;
mod settings_by_memory;

// Errors and text.
mod error;
mod amounts;

#[doc(hidden)]
pub mod check_typescript_bindings;

pub use amounts::{
    MISSING, counted, format_bytes, format_count, format_duration, format_in_unit, format_io_error,
    format_percent, most_like, nearest, parse_bytes,
};
pub use baseline_text::describe_baseline;
pub use chart_data::{Pull, Query};
pub use checkpoint_blocks::CheckpointBlocks;
pub use checkpoint_interval::CheckpointInterval;
pub use choice_settings::{
    AdapterKind, AdapterScaling, Augmentation, BaselineChoice, ClassWeights, DeviceChoice,
    DropPolicyChoice, DuplicatesChoice, ExchangeChoice, LengthBuckets, LossBalance, LossOn,
    MixChoice, OptimizerChoice, PackingChoice, PolicyTraining, PowerPolicyChoice, PrecisionChoice,
    ScheduleChoice, ShardingChoice, TaskChoice,
};
pub use current_status_line::format_speed;
pub use curves_csv::curves_csv;
pub use drawn_report::{report, report_pages, report_pdf};
pub use error::RunlogError;
pub use event::{
    CheckpointReason, FULL_SPEED, MemoryLimits, MemoryPeak, NonFiniteGradient, PromptAnswer, RESTS,
    RunEvent, Started, StopReason,
};
pub use event_file::{EventReader, EventWriter, Tail, read_events};
pub use fold_events::Run;
pub use group_view::{GroupChange, GroupView, RankView};
pub use machines::{GroupMember, MachineShare, describe_group};
pub use metric_text::{describe_run_metrics, format_metrics, headline_metric, is_fraction};
pub use notes::RunNotes;
pub use preset::{preset, preset_measurement, preset_name, preset_names, preset_purpose};
pub use quantize::Quantize;
pub use records::{AnswersRecord, BaselineRecord, PredictionRecord};
pub use run_archive::{ExportedRun, ImportedRun};
pub use run_folder::{Claim, RunFolder, SavedCheckpoint};
pub use run_index::ListedRun;
pub use run_store::RunStore;
pub use run_summary::{RunSummary, StartSummary};
pub use run_view::{Figures, PullHeader, RunStatus, StepProgress};
pub use settings::{Allowed, Group, RunConfig, SETTINGS, Setting, setting};
pub use status_text::{checkpoint_saved, detail_in_terminal};
pub use step_curves::StepCurves;
pub use tags::{change_tags, parse_tag, parse_tags, same_tag};
pub use trainable_layers::TrainableLayers;
