//! Training: tasks, the effective batch, checkpoints, the memory controller, and the loop
//! (`train.rs`).
//!
//! This crate does not depend on windows, terminals or the file formats of samples. Only the loop
//! reads a clock; everything else receives time as a value.
//!
//! Before a run starts, its folder is read and its config is checked against the folder:
//!
//! ```
//! use runlog::RunConfig;
//! use trainer::{Plan, read_dataset};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("reviews.csv");
//! # let mut rows = String::from("text,label\n");
//! # for day in 0..40 {
//! #     rows.push_str(&format!("the soup was cold on day {day},bad\n"));
//! #     rows.push_str(&format!("the cake was good on day {day},good\n"));
//! # }
//! # std::fs::write(&file, rows)?;
//! let config = RunConfig {
//!     epochs: Some(3),
//!     effective_batch: Some(16),
//!     ..RunConfig::default()
//! };
//! let found = read_dataset(&file, &config, &|_| {})?;
//! let plan = Plan::resolve(&config, &found)?;
//! assert_eq!(plan.task(), dataset::Task::TextClassification);
//! assert_eq!(plan.steps, 3 * plan.steps_per_epoch);
//!
//! // A setting that does not work is named together with the values that work.
//! let wrong = RunConfig {
//!     learning_rate: Some(100.0),
//!     ..config
//! };
//! let refused = Plan::resolve(&wrong, &found).expect_err("10 is the highest rate");
//! assert!(refused.to_string().contains("learning_rate"));
//! # Ok(())
//! # }
//! ```
//!
//! [`start`] trains the plan in a run folder and passes on every event.

// The plan: a checked config, and what it needs.
mod model_builder;
mod task_conversion;
mod plan;
mod precision;
mod lr_schedule;

pub mod estimate;

// Samples and tasks.
mod inspect_options;
mod preparation;
mod data;
mod augmentation_preview;
mod pending_samples;
mod baseline_file;
mod ngram_classifier;
mod kernel_ridge;
mod task;

mod sample_manifest;
mod compare_run_datasets;

// Weights: initialization, updates, export.
mod weight_ema;
mod gradient_accumulation;
mod export_inputs;
mod optimizer;
mod outer_step;
mod prompt_choice;
pub mod pretrained;
mod skipped_steps;
mod train_state;

// The memory controller, and the machine that it runs on.
mod keep_awake;
mod saved_controller_state;
mod device_check;
mod shared_device;
mod machine_sources;
mod memory_controller;
mod threads;

// One run: its loop, events and checkpoints.
mod checkpoint;
mod run_control;
mod error;
mod event_log;
mod live;
mod memory_reading;
mod replay;
mod run_group;
mod run_context;
mod session;
mod branch_weights;
mod train;
mod branch;

// Inference, and services beside the training.
mod batch_gradients;
mod trained_model;
mod results;

pub use batch_gradients::{BatchSettings, ElementType};
pub use branch::{Branch, BranchFrom};
pub use device_check::{BackgroundCheck, CheckObserver, DeviceCheck, Finding};
pub use error::{Result, TrainError};
pub use inspect_options::{inspect_options, read_dataset, text_options, with_classes};
pub use live::LiveObserver;
pub use machine_sources::{Machine, MemoryScript, ScriptBy};
pub use model_builder::{Estimate, ModelBuilder, Parts};
pub use models::{ModelId, PretrainedFamily, TextModel, TextSize};
pub use optimizer::OptimizerKind;
pub use plan::{DatasetRef, Plan, RunLength};
pub use precision::Precision;
pub use replay::Replay;
pub use results::{Calibration, Results, Tone, TrainingFacts};
pub use run_context::{RunContext, RunOutcome};
pub use run_control::{Control, Request};
pub use run_group::RunGroup;
pub use sample_manifest::RunDataset;
pub use tape::counting_allocator::{CountingAllocator, take_peak_bytes};
pub use tape::device::{
    CANDLE_ENVIRONMENT, DeviceKind, DevicePreference, SelectedDevice, default_threads,
    predict_device_kind, select_device, system_version,
};
pub use tape::kernels::{AllowedKernels, compiled as compiled_kernels};
pub use task::{ClassReport, EvaluationReport, Prediction, RegressionReport};
pub use task_conversion::{dataset_task, model_task};
pub use threads::{STACK_BYTES, on_threads};
pub use train::{resume_to, start};
pub use trained_model::{
    ChatModel, CompressedText, ExportFormat, GenerationOptions, Progress, QuestionModel,
    TrainedModel,
};

/// Internals that the tests of this crate and the benchmarks use.
#[doc(hidden)]
pub mod internals {
    pub use crate::batch_gradients::BatchGradients;
    pub use crate::data::{ImageLoader, PrefetchOptions, TrainLoader};
    pub use crate::device_check::checked_device;
    pub use crate::estimate::dry_run::DryRun;
    pub use crate::estimate::inefficient_size_hints::AttentionSize;
    pub use crate::export_inputs::tokenizer_file;
    pub use crate::gradient_accumulation::{AccumulatedBatch, EffectiveBatch};
    pub use crate::keep_awake::{Activity, current as current_activity};
    pub use crate::lr_schedule::{LrSchedule, Schedule};
    pub use crate::optimizer::OptimizerState;
    pub use crate::pending_samples::SampleQueue;
    pub use crate::plan::Augmentation;
    pub use crate::precision::LossScale;
    pub use crate::saved_controller_state::SavedControllerState;
    pub use crate::skipped_steps::Skipped;
    pub use crate::task::{
        CompressionTask, ForwardContext, ImageSample, ImageTask, LanguageTask, MetricInputs,
        MicroBatchResult, Sample, Sequence, Task, Text, TextTask,
    };
    pub use crate::train_state::TrainState;

    /// Loads the baseline in a run folder, as one of texts and as one of images.
    ///
    /// # Errors
    /// There is none, it is one of the other kind, or the file is damaged.
    pub fn load_baselines(run: &std::path::Path) -> [crate::Result<()>; 2] {
        use crate::{kernel_ridge::KernelRidge, ngram_classifier::NgramModel};
        [
            NgramModel::load(run).map(drop),
            KernelRidge::load(run).map(drop),
        ]
    }

    pub mod checkpoint {
        pub use crate::checkpoint::*;
    }
}
