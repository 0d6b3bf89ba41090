//! Training: tasks, the effective batch, checkpoints, the memory controller, and the loop
//! (`train.rs`).
//!
//! This crate does not depend on windows, terminals or the file formats of samples. Only the loop
//! reads a clock; everything else receives time as a value.

// The plan: a checked config, and what it needs.
mod model_builder;
mod model_task;
mod plan;
mod precision;
mod schedule;

pub mod estimate;

// Samples and tasks.
mod data;
mod sample_queue;
mod task;

mod manifest;

// Weights: initialization, updates, export.
mod average;
mod effective_batch;
mod export;
mod optimizer;
pub mod pretrained;
mod skipped;
mod train_state;

// The memory controller, and the machine that it runs on.
mod activity;
mod controller_state;
mod device_check;
mod machine;
mod memory_controller;
mod threads;

// One run: its loop, events and checkpoints.
mod checkpoint;
mod control;
mod durable;
mod error;
mod event_log;
mod live;
mod memory_reading;
mod replay;
mod run_context;
mod session;
mod train;

// Inference, and services beside the training.
mod batch_gradients;
mod inference;

pub use batch_gradients::{BatchGradients, BatchSettings, ElementType};
pub use control::{Control, Request};
pub use device_check::{CheckObserver, DeviceCheck, Finding, RefusedKernels, checked_device};
pub use effective_batch::{AccumulatedBatch, EffectiveBatch};
pub use error::{Result, TrainError};
pub use inference::{CompressedText, ExportFormat, GenerationOptions, TrainedModel, table_options};
pub use live::LiveObserver;
pub use machine::{Machine, MemoryScript, ScriptBy};
pub use model_builder::{Estimate, ModelBuilder, Parts};
pub use model_task::model_task;
pub use models::{ModelId, PretrainedFamily, TextModel, TextSize};
pub use optimizer::{OptimizerKind, OptimizerState};
pub use plan::{DatasetRef, Plan, device_preference};
pub use precision::{LossScale, Precision};
pub use replay::Replay;
pub use run_context::{RunContext, RunOutcome};
pub use tape::device::{
    CANDLE_ENVIRONMENT, DeviceKind, DevicePreference, SelectedDevice, default_threads,
    predict_device, predict_device_kind, select_device,
};
pub use tape::kernels::product::{allow_tensor_cores, tensor_cores_allowed};
pub use tape::kernels::{allow as allow_kernels, allowed as kernels_allowed};
pub use tape::memory::{Counting, take_peak_bytes};
pub use task::{EvaluationReport, MicroBatchResult, Prediction};
pub use threads::on_threads;
pub use train::{resume, start};

/// Internals that the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::data::{ImageLoader, PrefetchOptions, TrainLoader};
    pub use crate::effective_batch::{AccumulatedBatch, EffectiveBatch};
    pub use crate::export::tokenizer_file;
    pub use crate::optimizer::OptimizerState;
    pub use crate::plan::Augmentation;
    pub use crate::sample_queue::SampleQueue;
    pub use crate::schedule::{LrSchedule, Schedule};
    pub use crate::skipped::Skipped;
    pub use crate::task::{
        CompressionTask, ForwardContext, ImageSample, ImageTask, LanguageTask, MetricInputs,
        MicroBatchResult, Sample, Sequence, Task, Text, TextTask,
    };
    pub use crate::train_state::TrainState;

    pub mod checkpoint {
        pub use crate::checkpoint::*;
    }
}
