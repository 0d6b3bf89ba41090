//! Say and keep: run config, run events, run store, reports. Refuses to know tensors, data sets and windows.

mod error;
mod event;
/// Floats that JSON cannot hold.
pub mod finite;
mod config;
mod config_file;
mod every;
mod keys;
mod preset;
mod view;
mod words;
#[doc(hidden)]
pub mod bindings;

pub use config::RunConfig;
pub use error::RunlogError;
pub use event::{CheckpointReason, RunEvent, Started, StopReason, decision_sentence};
pub use every::Every;
pub use preset::{preset, preset_names, preset_purpose};
pub use view::{Figures, LevelSpan, Mark, PackedArray, PullHeader, RunStatus, StatusLine};
pub use words::{
    MISSING, format_bytes, format_count, format_duration, format_percent, parse_bytes,
};
