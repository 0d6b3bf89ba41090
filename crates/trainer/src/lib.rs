//! Learn: models, tasks, the effective batch, checkpoints, the pilot, and the loop that reads like prose (`train.rs`).
//!
//! Refuses to know windows, terminals and file formats of samples. Time enters in the loop only; everybody else gets it as
//! a value.

mod activity;
mod certificate;
mod checkpoint;
mod control;
pub mod bench;
pub mod doctor;
pub mod forecast;
mod effective_batch;
mod error;
mod durable;
mod feed;
mod journal;
mod learner;
mod machine;
mod model_builder;
pub mod models;
mod onnx;
pub mod published;
mod origin;
mod optimizer;
mod average;
mod pending;
mod pilot;
mod plan;
pub mod receipt;
mod precision;
mod recorder;
mod replay;
mod roster;
mod saved;
mod schedule;
mod skipped;
mod session;
mod task;
mod train;

pub use certificate::Certificate;
pub use control::{Control, Request};
pub use error::{Result, TrainError};
pub use machine::{Machine, MemoryScript, ScriptBy};
pub use model_builder::{Estimate, ModelBuilder, Parts};
pub use origin::{Origin, TrainsChoice};
pub use plan::{
    Augmentation, Compression, DropPolicy, Dropped, Family, ImageSize, Learning, ModelKind,
    OptimizerKind, Plan, TextModel, TextSize,
};
pub use precision::{LossScale, Precision};
pub use replay::Replay;
pub use saved::{Compressed, Evaluated, Format, SavedRun, Wording, table_options};
pub use schedule::Course;
pub use tape::device::{
    DeviceKind, DevicePreference, SelectedDevice, default_threads, predict_device,
    predict_device_kind, select_device,
};
pub use tape::kernels::product::{allow_tensor_cores, tensor_cores_allowed};
pub use tape::kernels::{allow as allow_kernels, allowed as kernels_allowed};
pub use tape::memory::{Counting, Purge, take_peak_bytes};
pub use task::{
    Balance, ClassReport, EvaluationReport, Heads, Metrics, NumberReport, Prediction, Taken, wilson,
};
pub use train::{Ending, Flight, on_threads, resume, start};

/// The rooms behind the surface, opened for this crate's own claims.
#[doc(hidden)]
pub mod rooms {
    pub use crate::effective_batch::{EffectiveBatch, Whole};
    pub use crate::feed::{Ahead, TrainFeed};
    pub use crate::learner::{Learner, Update};
    pub use crate::optimizer::{Group, Optimizer};
    pub use crate::pending::Pending;
    pub use crate::published::Trained;
    pub use crate::schedule::Schedule;
    pub use crate::skipped::Skipped;
    pub use crate::task::{
        Data, ImageTask, Sample, Sequence, Sums, Supply, Text, TrainedPiece, Work,
    };

    pub mod checkpoint {
        pub use crate::checkpoint::*;
    }
}
