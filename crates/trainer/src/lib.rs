//! Learn: models, tasks, the effective batch, checkpoints, the pilot, and the loop that reads like prose (`train.rs`).
//!
//! Refuses to know windows, terminals and file formats of samples. Time enters in the loop only; everybody else gets it as
//! a value.

mod activity;
mod batch_gradients;
mod checkpoint;
mod control;
mod device_check;
pub mod estimate;
mod effective_batch;
mod error;
mod durable;
mod feed;
mod event_log;
mod learner;
mod machine;
mod manifest;
mod model_builder;
mod export;
pub mod pretrained;
mod optimizer;
mod average;
mod pending;
mod controller_state;
mod memory_controller;
mod plan;
mod precision;
mod replay;
mod sample_queue;
mod schedule;
mod skipped;
mod run_context;
mod session;
mod task;
mod threads;
mod train;
mod train_state;

pub use batch_gradients::{BatchGradients, BatchSettings, ElementType};
pub use control::{Control, Request};
pub use device_check::{DeviceCheck, Finding, checked_device};
pub use effective_batch::{EffectiveBatch, Whole};
pub use error::{Result, TrainError};
pub use inference::{
    CompressedText, Evaluation, ExportFormat, GenerationOptions, TrainedModel, table_options,
};
pub use machine::{Machine, MemoryScript, ScriptBy};
pub use model_builder::{Estimate, ModelBuilder, Parts};
pub use optimizer::Optimizer;
pub use origin::{Origin, TrainsChoice};
pub use plan::{
    Augmentation, Compression, DatasetRef, DropPolicy, PretrainedFamily, ImageModel, Learning, ModelId,
    Plan, TextModel, TextSize,
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
    Balance, ClassReport, EvaluationReport, Heads, Metrics, NumberReport, Prediction, Taken,
    TrainedPiece, wilson,
};
pub use threads::on_threads;
pub use train::{resume, start};

/// The rooms behind the surface, opened for this crate's own claims.
#[doc(hidden)]
pub mod rooms {
    pub use crate::data::{ImageLoader, PrefetchOptions, TrainLoader};
    pub use crate::effective_batch::{AccumulatedBatch, EffectiveBatch};
    pub use crate::optimizer::{OptimizerState, ParameterGroup};
    pub use crate::sample_queue::SampleQueue;
    pub use crate::schedule::Schedule;
    pub use crate::skipped::Skipped;
    pub use crate::task::{
        CompressionTask, ForwardContext, ImageSample, ImageTask, LanguageTask, MetricSums,
        MicroBatchResult, Sample, Sequence, Task, Text, TextTask,
    };
    pub use crate::train_state::{TrainState, Update};

    pub mod checkpoint {
        pub use crate::checkpoint::*;
    }
}
