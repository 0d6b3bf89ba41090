//! Say and keep: run config, run events, run store, reports. Refuses to know tensors, data sets and windows.

mod aftermath;
#[doc(hidden)]
pub mod bindings;
mod blocks;
mod choices;
mod config_file;
mod decimate;
mod error;
mod event;
mod every;
/// Floats that JSON cannot hold.
pub mod finite;
mod flight;
mod folder;
mod gone;
mod lines;
mod log;
mod measured;
mod milestones;
mod pace;
mod preset;
mod reduce;
mod report;
mod resume;
mod series;
mod settings;
mod settings_check;
mod shown;
mod smooth;
mod store;
mod tier;
mod view;
mod window;
mod words;

pub use aftermath::Aftermath;
pub use blocks::Blocks;
pub use choices::{
    Augmentation, ClassWeights, DeviceChoice, DropPolicyChoice, LossBalance, MixChoice,
    OptimizerChoice, PolicyTraining, PrecisionChoice, ScheduleChoice, TaskChoice,
};
pub use error::RunlogError;
pub use event::{CheckpointReason, NonFiniteGradient, RunEvent, Started, StopReason};
pub use every::Every;
pub use flight::{FlightRecord, FlightRing, read_flight};
pub use folder::{Claim, RunFolder, SavedCheckpoint};
pub use log::{EventReader, EventWriter, Tail, read_events};
pub use measured::{in_words, measured, result};
pub use milestones::{Evaluated, Kept, Predicted};
pub use preset::{preset, preset_names, preset_purpose};
pub use reduce::Run;
pub use report::report;
pub use settings::{Allowed, Group, RunConfig, SETTINGS, Setting, setting};
pub use store::RunStore;
pub use tier::Tier;
pub use view::{Figures, LevelSpan, Mark, PackedArray, PullHeader, RunStatus, StatusLine};
pub use window::Pull;
pub use words::{
    MISSING, counted, format_bytes, format_count, format_duration, format_percent, most_like,
    parse_bytes,
};
