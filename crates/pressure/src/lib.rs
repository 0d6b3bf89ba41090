//! Sense memory pressure and decide the micro-batch. Pure below `source` and `monitor`: time and readings come in as
//! values. Refuses to know what a tensor, a model or a file of samples is.

mod budget;
mod controller;
mod cost;
mod decision;
mod drill;
mod error;
mod fallback;
mod growth;
mod keeping;
mod ladder;
mod learnt;
mod lines;
mod memory_model;
mod monitor;
mod policy;
mod prefetch;
mod rungs;
mod sample;
mod signal;
mod sizing;
pub mod source;
mod state;
mod stopping;
mod suggest;
mod turn;
mod waiting;
mod wake_up;
mod words;

pub use budget::{Budget, budget_bytes};
pub use controller::{decide, notice, observe, should_cancel};
pub use cost::thread_cpu_ms;
pub use decision::{
    Action, Ask, Change, Decision, Moments, Outcome, Phase, Piece, PieceKind, Prefetch, SampleCost,
};
pub use drill::{drill_bytes, drill_is_full, drill_is_over};
pub use error::PressureError;
pub use ladder::{
    LADDER, Recovery, Rung, Stuck, first_help, offered, suggest_recovery, what_would_help,
};
pub use learnt::Learnt;
pub use lines::LinePilot;
pub use memory_model::{Allocator, MemoryModel};
pub use monitor::Monitor;
pub use policy::Policy;
pub use rungs::Reserve;
pub use sample::{Component, Level, MemorySample, Thermal};
pub use signal::{LevelTracker, Reading, pressure};
pub use source::{DeviceReadings, MemorySource, own_footprint_bytes, take_own_peak_bytes};
pub use state::State;
pub use suggest::{
    DataNeed, DeviceRoom, DoesNotFit, Form, ModelNeed, Peak, Processes, SuggestedConfig,
    sensible_sizes, suggest_config,
};
pub use words::sentence;
