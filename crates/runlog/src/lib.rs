//! Say and keep: run config, run events, run store, reports. Refuses to know tensors, data sets and windows.

#[doc(hidden)]
pub mod bindings;
mod config;
mod event;
/// Floats that JSON cannot hold.
pub mod finite;
mod view;

pub use config::RunConfig;
pub use event::{CheckpointReason, RunEvent, Started, StopReason, decision_sentence};
pub use view::{Figures, LevelSpan, Mark, PackedArray, PullHeader, RunStatus, StatusLine};
