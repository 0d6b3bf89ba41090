//! Everything that can go wrong in training. Each message says what failed, where, and what to do
//! next. A stop by the user is not an error.

use runlog::counted;
use std::path::{Path, PathBuf};
use tape::{DeviceFault, TapeError};
use thiserror::Error;

/// Result of the trainer's functions.
pub type Result<T> = std::result::Result<T, TrainError>;

/// Why training failed.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The folder was read, but nothing can be trained from it.
    #[error("{message}")]
    NotTrainable {
        /// What is missing and what to do next.
        message: String,
    },
    /// A setting has a value that is not allowed.
    #[error("{key} = {value} does not work: {allowed}")]
    Setting {
        /// Key of the config.
        key: &'static str,
        /// The value found.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// The loss or a gradient was not finite in several consecutive steps.
    #[error(
        "the training diverged at step {step}: {item} was not finite {times} steps in a row; {}; start again with a learning rate below {learning_rate}",
        last_checkpoint(.checkpoint.as_deref())
    )]
    Diverged {
        /// Optimizer steps done.
        step: u64,
        /// "the loss", or a gradient or weight with its parameter's name.
        item: String,
        /// Number of consecutive steps.
        times: u32,
        /// Learning rate at that step.
        learning_rate: f64,
        /// Folder of the newest valid checkpoint, relative to the run folder.
        checkpoint: Option<String>,
    },
    /// The smallest allowed micro-batch does not fit in memory, and no other app can free any.
    #[error(
        "a micro-batch of {} needs {needed}, but only {available} is available to Ebb; {next}",
        samples(*.micro_batch)
    )]
    MicroBatchTooLarge {
        /// Samples in the micro-batch.
        micro_batch: u32,
        /// Expected peak footprint, formatted.
        needed: String,
        /// Largest possible footprint, formatted.
        available: String,
        /// What would help.
        next: String,
    },
    /// The device has no memory for the smallest allowed micro-batch.
    #[error(
        "the device refused a micro-batch of {} {times} times in a row ({source}); {next}",
        samples(*.micro_batch)
    )]
    DeviceOutOfMemory {
        /// Samples in the micro-batch.
        micro_batch: u32,
        /// Number of consecutive refusals.
        times: u32,
        /// The device's last error.
        source: Box<TrainError>,
        /// What would help.
        next: String,
    },
    /// The device fails again and again.
    #[error("the device failed {times} times in a row at {what} ({source}); {next}")]
    DeviceFailed {
        /// "step 12", or "a micro-batch of 1 sample".
        what: String,
        /// Number of consecutive failures.
        times: u32,
        /// The device's last error.
        source: Box<TrainError>,
        /// What to do next.
        next: &'static str,
    },
    /// The user ended the run while its GPU was being checked.
    #[error("the run was stopped during the check of the GPU; the next run repeats the check")]
    CheckStopped,
    /// According to the estimate, not even the smallest micro-batch fits beside other apps.
    #[error(
        "{needs}, but Ebb may only use {budget} here; close other apps until {enough} is available, or choose smaller images or another model"
    )]
    EstimateTooLarge {
        /// The model and the bytes it needs.
        needs: String,
        /// Bytes that Ebb may use, formatted.
        budget: String,
        /// Bytes that would be enough, formatted.
        enough: String,
    },
    /// The system cannot start threads with the stack that deep networks need.
    #[error(
        "the training threads could not be started ({0}); raise the limit set on this process (ulimit -v, ulimit -d), or use fewer --threads"
    )]
    NoThreads(String),
    /// No sample of an effective batch could be read.
    #[error(
        "no sample of step {step} could be read; check that Ebb may read the samples and that the folder {folder} is still there, then resume"
    )]
    NoData {
        /// The step.
        step: u64,
        /// The dataset folder.
        folder: PathBuf,
    },
    /// A checkpoint could not be written.
    #[error("the checkpoint {path} could not be saved: {source}{disk_space}")]
    CheckpointWrite {
        /// Folder of the checkpoint.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
        /// Free and needed disk space if the disk is full, else empty.
        disk_space: String,
    },
    /// A checkpoint is incomplete or was modified.
    #[error("the checkpoint {path} is damaged: {problem}; an earlier checkpoint may be valid")]
    CheckpointDamaged {
        /// Folder of the checkpoint.
        path: PathBuf,
        /// Which file does not match.
        problem: String,
    },
    /// The run has no valid checkpoint.
    #[error("{run} has no usable checkpoint to resume from; start it again with `ebb train`")]
    NoCheckpoint {
        /// The run folder.
        run: PathBuf,
    },
    /// A weight file belongs to another model.
    #[error("{path} does not fit this model: {problem}")]
    TensorMismatch {
        /// The weight file.
        path: PathBuf,
        /// The tensor and both shapes.
        problem: String,
    },
    /// An error ended a run that had done steps but has no checkpoint.
    #[error("{0}; no checkpoint was written yet, so start the run again")]
    NothingSaved(Box<TrainError>),
    /// A network, its pretrained weights or its export.
    #[error(transparent)]
    Model(models::ModelError),
    /// The memory script cannot be used.
    #[error(transparent)]
    Memory(#[from] pressure::PressureError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Run(#[from] runlog::RunlogError),
    /// The dataset folder cannot be used.
    #[error(transparent)]
    Data(#[from] dataset::DatasetError),
    /// A tape operation or the device failed.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// A file of the run folder cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The training thread panicked. The last checkpoint is valid.
    #[error(
        "the training thread stopped unexpectedly: {0}; the last checkpoint is valid; resume from that checkpoint"
    )]
    Panicked(String),
}

fn last_checkpoint(checkpoint: Option<&str>) -> String {
    match checkpoint {
        Some(path) => format!("the last valid checkpoint is {path}"),
        None => "no checkpoint was written".to_owned(),
    }
}

/// "1 sample", "8 samples".
pub(crate) fn samples(count: u32) -> String {
    counted(count.into(), "sample", "samples")
}

/// "the loss of owl/002.png".
pub(crate) fn loss_of(file: &Path) -> String {
    format!("the loss of {}", file.display())
}

impl TrainError {
    /// Stable code for the window and for events.
    pub fn code(&self) -> &'static str {
        match self {
            TrainError::NotTrainable { .. } => "not_trainable",
            TrainError::Setting { .. } => "invalid_setting",
            TrainError::Diverged { .. } => "diverged",
            TrainError::MicroBatchTooLarge { .. }
            | TrainError::DeviceOutOfMemory { .. }
            | TrainError::EstimateTooLarge { .. } => "out_of_memory",
            TrainError::CheckStopped => "stopped",
            TrainError::NoThreads(_) => "no_threads",
            TrainError::NoData { .. } => "no_data",
            TrainError::CheckpointWrite { .. } => "checkpoint_write",
            TrainError::CheckpointDamaged { .. } => "checkpoint_damaged",
            TrainError::NoCheckpoint { .. } => "no_checkpoint",
            TrainError::TensorMismatch { .. } => "weights_mismatch",
            TrainError::NothingSaved(error) => error.code(),
            TrainError::Model(error) => error.code(),
            TrainError::Memory(_) => "memory_source",
            TrainError::Run(_) => "run_folder",
            TrainError::Data(_) => "data",
            TrainError::Tape(_) | TrainError::DeviceFailed { .. } => "device",
            TrainError::File { .. } => "file",
            TrainError::Panicked(_) => "panicked",
        }
    }

    /// Whether the message says which checkpoint is left.
    pub(crate) fn names_checkpoint(&self) -> bool {
        matches!(
            self,
            TrainError::Diverged { .. } | TrainError::DeviceFailed { .. }
        )
    }

    /// Names the file whose loss caused a divergence, if there is a single one.
    pub(crate) fn with_file(mut self, file: Option<&Path>) -> Self {
        if let (TrainError::Diverged { item, .. }, Some(file)) = (&mut self, file) {
            *item = loss_of(file);
        }
        self
    }

    /// The fault of the device that caused this error, if it was one.
    pub fn device_fault(&self) -> Option<DeviceFault> {
        match self {
            TrainError::Tape(error) => error.device_fault(),
            TrainError::NothingSaved(error) => error.device_fault(),
            _ => None,
        }
    }

    /// Whether the device failed and can be used again.
    pub fn is_passing_fault(&self) -> bool {
        self.device_fault()
            .is_some_and(|fault| fault != DeviceFault::Lost)
    }

    /// Whether earlier work of the device may have failed with this error.
    pub fn is_deferred_fault(&self) -> bool {
        matches!(self, TrainError::Tape(error) if error.is_deferred_fault())
    }

    /// Whether the micro-batch was cancelled through its cancel flag.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TrainError::Tape(error) if error.is_cancelled())
    }
}

impl From<candle_core::Error> for TrainError {
    fn from(error: candle_core::Error) -> Self {
        TrainError::Tape(error.into())
    }
}

/// Adds the path to an I/O error.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::File {
        path: path.to_owned(),
        source,
    }
}
