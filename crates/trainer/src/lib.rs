//! Training: tasks, the effective batch, checkpoints, the memory controller, and the loop
//! (`train.rs`).
//!
//! This crate does not depend on windows, terminals or the file formats of samples. Only the loop
//! reads a clock; everything else receives time as a value.

// The plan: a checked config, and what it needs.
mod model_builder;
mod task_conversion;
mod plan;
mod precision;
mod lr_schedule;

pub mod estimate;

// Samples and tasks.
mod inspect_options;
mod data;
mod drawn_samples;
mod sample_queue;
mod task;

mod manifest;

// Weights: initialization, updates, export.
mod weight_ema;
mod effective_batch;
mod export_inputs;
mod optimizer;
pub mod pretrained;
mod skipped_steps;
mod train_state;

// The memory controller, and the machine that it runs on.
mod keep_awake;
mod controller_state;
mod device_check;
mod machine;
mod memory_controller;
mod threads;

// One run: its loop, events and checkpoints.
mod checkpoint;
mod run_control;
mod write_atomic;
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
mod trained_model;
mod results;

pub use batch_gradients::{BatchGradients, BatchSettings, ElementType};
pub use device_check::{CheckObserver, DeviceCheck, Finding, RefusedKernels, checked_device};
pub use drawn_samples::drawn_images;
pub use effective_batch::{AccumulatedBatch, EffectiveBatch};
pub use error::{Result, TrainError};
pub use inspect_options::{inspect_options, leave_out_classes, merge_classes, text_options};
pub use live::LiveObserver;
pub use machine::{Machine, MemoryScript, ScriptBy};
pub use manifest::{dataset_folder, relocate_dataset};
pub use model_builder::{Estimate, ModelBuilder, Parts};
pub use models::{ModelId, PretrainedFamily, TextModel, TextSize};
pub use optimizer::{OptimizerKind, OptimizerState};
pub use plan::{DatasetRef, Plan, device_preference, usual_learning_rate};
pub use precision::{LossScale, Precision};
pub use replay::Replay;
pub use results::{
    Calibration, CalibrationBin, Comparison, Judgement, Results, SampleResult, Tone, TrainingFacts,
    sample_texts,
};
pub use run_context::{RunContext, RunOutcome};
pub use run_control::{Control, Request};
pub use tape::counting_allocator::{CountingAllocator, take_peak_bytes};
pub use tape::device::{
    CANDLE_ENVIRONMENT, DeviceKind, DevicePreference, SelectedDevice, default_threads,
    predict_device, predict_device_kind, select_device,
};
pub use tape::kernels::matmul::{allow_tensor_cores, tensor_cores_allowed};
pub use tape::kernels::{
    CompiledKernel, allow as allow_kernels, allowed as kernels_allowed,
    compiled as compiled_kernels,
};
pub use task::{
    ClassPrediction, ClassReport, ConfusionEntry, EvaluationReport, MicroBatchResult, Prediction,
    RegressionReport,
};
pub use task_conversion::model_task;
pub use threads::on_threads;
pub use train::{resume, start};
pub use trained_model::{
    CompressedText, Evaluation, ExportFormat, GenerationOptions, Progress, Saliency, TrainedModel,
};

/// Internals that the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::data::{ImageLoader, PrefetchOptions, TrainLoader};
    pub use crate::effective_batch::{AccumulatedBatch, EffectiveBatch};
    pub use crate::export_inputs::tokenizer_file;
    pub use crate::lr_schedule::{LrSchedule, Schedule};
    pub use crate::optimizer::OptimizerState;
    pub use crate::plan::Augmentation;
    pub use crate::sample_queue::SampleQueue;
    pub use crate::skipped_steps::Skipped;
    pub use crate::task::{
        CompressionTask, ForwardContext, ImageSample, ImageTask, LanguageTask, MetricInputs,
        MicroBatchResult, Sample, Sequence, Task, Text, TextTask,
    };
    pub use crate::train_state::TrainState;

    pub mod checkpoint {
        pub use crate::checkpoint::*;
    }
}
