//! Everything that can go wrong in training. Each message says what failed, where, and what to do
//! next. A stop by the user is not an error.

use distributed::GroupError;
use runlog::{counted, format_io_error};
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
        "the training diverged at step {step}: {item} was not finite for {times} steps in a row; {}; start again with a learning rate below {learning_rate}",
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
    /// The user ended the run before its first step.
    #[error("stopped before the first step, and nothing was saved; start or resume the run again")]
    StoppedBeforeStart,
    /// According to the estimate, not even the smallest micro-batch fits beside other apps.
    #[error(
        "{needs}, but only {budget} is available to Ebb; close other apps until {enough} is available, or choose {smaller} or another model{help}"
    )]
    EstimateTooLarge {
        /// The model and the bytes it needs.
        needs: String,
        /// Bytes that Ebb may use, formatted.
        budget: String,
        /// Bytes that would be enough, formatted.
        enough: String,
        /// A smaller input: "smaller images" or "fewer --tokens".
        smaller: &'static str,
        /// The cheapest setting that would be enough, after a semicolon; empty if none would.
        help: String,
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
    #[error("the checkpoint {path} could not be saved: {}{disk_space}", format_io_error(.source))]
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
    /// Another version of Ebb wrote the checkpoint.
    #[error(
        "the checkpoint {path} has format {found}, but this version of Ebb reads format {read}; use the version of Ebb that wrote it"
    )]
    CheckpointVersion {
        /// Folder of the checkpoint.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format that can be read.
        read: u32,
    },
    /// The run has no valid checkpoint.
    #[error(
        "{run} has no usable checkpoint to resume from{damage}; start it again with `ebb train`"
    )]
    NoCheckpoint {
        /// The run folder.
        run: PathBuf,
        /// What is wrong with each checkpoint, in brackets; empty if there is none.
        damage: String,
    },
    /// The system refuses to read the run's only checkpoints.
    #[error(
        "the checkpoint cannot be read: {path}: {}; allow Ebb to read the run folder, then try again",
        format_io_error(.source)
    )]
    CheckpointUnreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A weight file belongs to another model.
    #[error("{path} does not fit this model: {problem}")]
    TensorMismatch {
        /// The weight file.
        path: PathBuf,
        /// The tensor and both shapes.
        problem: String,
    },
    /// The group of machines cannot start, or cannot continue the run.
    #[error("{source}{}", continuation(.checkpoint.as_deref()))]
    Group {
        /// Which machine, and what happened to it.
        source: GroupError,
        /// Folder of the newest valid checkpoint, relative to the run folder.
        checkpoint: Option<String>,
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
    #[error("{path}: {}", format_io_error(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The training thread panicked. The last checkpoint is valid.
    #[error(
        "the training thread stopped unexpectedly: {0}; the last checkpoint is valid, so resume from it"
    )]
    Panicked(String),
}

fn last_checkpoint(checkpoint: Option<&str>) -> String {
    match checkpoint {
        Some(path) => format!("the last valid checkpoint is {path}"),
        None => "no checkpoint was written".to_owned(),
    }
}

fn continuation(checkpoint: Option<&str>) -> String {
    checkpoint.map_or_else(String::new, |path| {
        format!("; the last valid checkpoint is {path}, so continue with `ebb resume`")
    })
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
    /// A panic of a thread that computed.
    pub(crate) fn from_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        TrainError::Panicked(text.unwrap_or("no message").to_owned())
    }

    /// Stable code for the window and for events.
    pub fn code(&self) -> &'static str {
        match self {
            TrainError::NotTrainable { .. } => "not_trainable",
            TrainError::Setting { .. } => "invalid_setting",
            TrainError::Diverged { .. } => "diverged",
            TrainError::MicroBatchTooLarge { .. }
            | TrainError::DeviceOutOfMemory { .. }
            | TrainError::EstimateTooLarge { .. } => "out_of_memory",
            TrainError::CheckStopped | TrainError::StoppedBeforeStart => "stopped",
            TrainError::NoThreads(_) => "no_threads",
            TrainError::NoData { .. } => "no_data",
            TrainError::CheckpointWrite { .. } => "checkpoint_write",
            TrainError::CheckpointDamaged { .. } => "checkpoint_damaged",
            TrainError::CheckpointVersion { .. } => "checkpoint_version",
            TrainError::NoCheckpoint { .. } => "no_checkpoint",
            TrainError::TensorMismatch { .. } => "weights_mismatch",
            TrainError::Group { .. } => "group",
            TrainError::NothingSaved(error) => error.code(),
            TrainError::Model(error) => error.code(),
            TrainError::Memory(_) => "memory_source",
            TrainError::Run(_) => "run_folder",
            TrainError::Data(_) => "data",
            TrainError::Tape(_) | TrainError::DeviceFailed { .. } => "device",
            TrainError::CheckpointUnreadable { .. } | TrainError::File { .. } => "file",
            TrainError::Panicked(_) => "panicked",
        }
    }

    /// The same error for a run without a checkpoint, which cannot be resumed.
    pub(crate) fn without_resume(self) -> Self {
        match self {
            TrainError::CheckpointWrite {
                path,
                source,
                disk_space,
            } => TrainError::CheckpointWrite {
                path,
                source,
                disk_space: disk_space.replace(" and resume", ""),
            },
            other => other,
        }
    }

    /// Whether the group has lost a rank. The others may continue without it.
    pub(crate) fn is_lost_rank(&self) -> bool {
        matches!(
            self,
            TrainError::Group {
                source: GroupError::Lost(_),
                ..
            }
        )
    }

    /// Whether the message says which checkpoint is left.
    pub(crate) fn names_checkpoint(&self) -> bool {
        matches!(
            self,
            TrainError::Diverged { .. }
                | TrainError::DeviceFailed { .. }
                | TrainError::Group {
                    checkpoint: Some(_),
                    ..
                }
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

    /// Whether the device failed for good: only a new one works again.
    pub fn is_lost_device(&self) -> bool {
        self.device_fault() == Some(DeviceFault::Lost)
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

    /// Whether everything on the device has to be loaded again: the device is lost, or a failure
    /// that was reported late may hide another one that damaged its memory.
    pub fn needs_reload(&self) -> bool {
        self.is_lost_device() || self.is_deferred_fault()
    }

    /// Whether the micro-batch was cancelled through its cancel flag.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TrainError::Tape(error) if error.is_cancelled())
    }
}

impl From<GroupError> for TrainError {
    fn from(source: GroupError) -> Self {
        TrainError::Group {
            source,
            checkpoint: None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_resumed_only_from_a_checkpoint() {
        let error = TrainError::CheckpointWrite {
            path: PathBuf::from("step-000004"),
            source: std::io::Error::from_raw_os_error(28),
            disk_space: "; the checkpoint needs 15 MB, and 4.0 MB is free on this disk; free 11 MB and resume".to_owned(),
        };
        assert_eq!(
            error.to_string(),
            "the checkpoint step-000004 could not be saved: the disk is full; the checkpoint needs 15 MB, and 4.0 MB is free on this disk; free 11 MB and resume"
        );
        let nothing = TrainError::NothingSaved(Box::new(error.without_resume()));
        let text = nothing.to_string();
        assert!(
            text.ends_with("; free 11 MB; no checkpoint was written yet, so start the run again"),
            "{text}"
        );
    }

    #[test]
    fn a_device_is_lost_after_an_exception_but_not_without_memory() {
        let exception = TrainError::from(TapeError::Exception("an assertion".to_owned()));
        assert!(exception.is_lost_device() && !exception.is_passing_fault());
        let memory = TrainError::from(TapeError::Memory("refused".to_owned()));
        assert!(!memory.is_lost_device() && memory.is_passing_fault());
    }

    #[test]
    fn after_a_failure_that_is_reported_late_everything_is_loaded_again() {
        let late = "Command buffer had following error: Insufficient Memory";
        for error in [
            TapeError::Lost("gone".to_owned()),
            TapeError::TooLong("timeout".to_owned()),
            TapeError::Memory(late.to_owned()),
        ] {
            assert!(TrainError::from(error).needs_reload());
        }
        let at_once = TapeError::Memory("Failed to create metal resource".to_owned());
        assert!(!TrainError::from(at_once).needs_reload());
    }
}
