//! What can go wrong in a training, in the user's words: what, where, and the next move. Stopping is not an error.

use runlog::counted;
use std::path::{Path, PathBuf};
use tape::TapeError;
use thiserror::Error;

/// Result of everything in the trainer.
pub type Result<T> = std::result::Result<T, TrainError>;

/// Why a training did not go on.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The folder was read and cannot be trained.
    #[error("{sentence}")]
    NotTrainable {
        /// What is missing, and the next move.
        sentence: String,
    },
    /// A setting outside what works.
    #[error("{key} = {value} does not work: {allowed}")]
    Setting {
        /// The config's key.
        key: &'static str,
        /// The value that came.
        value: String,
        /// What works.
        allowed: String,
    },
    /// The loss or gradient was not finite several steps in a row.
    #[error(
        "the training diverged at step {step}: {what} was not finite {times} steps in a row; {}; start again with a lower learning rate than {learning_rate}",
        last_good(.checkpoint.as_deref())
    )]
    Diverged {
        /// Optimizer steps done.
        step: u64,
        /// "the loss", or the gradient or weight with the parameter's name.
        what: String,
        /// Steps in a row.
        times: u32,
        /// Learning rate at that step.
        learning_rate: f64,
        /// Folder of the last good checkpoint inside the run folder.
        checkpoint: Option<String>,
    },
    /// Even the smallest piece that may be worked does not fit, and waiting would not help.
    #[error(
        "a piece of {} needs {needed}, and {available} are there for Ebb; {next}",
        samples(*.micro_batch)
    )]
    NoRoom {
        /// Samples of the piece.
        micro_batch: u32,
        /// Footprint that it reaches.
        needed: String,
        /// Footprint that is possible.
        available: String,
        /// What would help.
        next: String,
    },
    /// The device refuses even the smallest piece that may be worked.
    #[error(
        "a piece of {} was refused {times} times in a row ({source}); {next}",
        samples(*.micro_batch)
    )]
    Refused {
        /// Samples of the piece.
        micro_batch: u32,
        /// Times in a row.
        times: u32,
        /// What the device said.
        source: Box<TrainError>,
        /// What would help.
        next: String,
    },
    /// By the forecast not even the smallest piece fits beside what others use.
    #[error(
        "{needs}, and Ebb may use {budget} here; {enough} would do: close other apps, or choose smaller images or another model"
    )]
    DoesNotFit {
        /// What takes how much.
        needs: String,
        /// What Ebb may use.
        budget: String,
        /// What would be enough.
        enough: String,
    },
    /// The system gives no threads of the size that deep networks need.
    #[error(
        "the training's threads could not be started ({0}); raise the limit that is set on this process (ulimit -v, ulimit -d), or use fewer --threads"
    )]
    NoThreads(String),
    /// Every sample of an effective batch was unreadable.
    #[error(
        "no sample of step {step} could be read; check that the folder {folder} is still there, then resume"
    )]
    NoData {
        /// The step.
        step: u64,
        /// The dropped folder.
        folder: PathBuf,
    },
    /// A checkpoint could not be written.
    #[error("the checkpoint {path} could not be saved: {source}{room}")]
    CheckpointWrite {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// How much room is left and what to do, where that is the trouble.
        room: String,
    },
    /// A checkpoint that is not whole.
    #[error("the checkpoint {path} is damaged: {what}; an earlier one may be good")]
    CheckpointDamaged {
        /// Where.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Nothing to resume from.
    #[error("{run} has no usable checkpoint to go on from; start it again with `ebb train`")]
    NoCheckpoint {
        /// The run folder.
        run: PathBuf,
    },
    /// A weight file that belongs to another model.
    #[error("{path} does not fit this model: {what}")]
    Misfit {
        /// Where.
        path: PathBuf,
        /// The tensor and both shapes.
        what: String,
    },
    /// A network, its pretrained weights or its export.
    #[error(transparent)]
    Model(models::ModelError),
    /// The memory script cannot be used.
    #[error(transparent)]
    Memory(#[from] pressure::PressureError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Run(#[from] runlog::RunlogError),
    /// The dropped folder cannot be used.
    #[error(transparent)]
    Data(#[from] dataset::DatasetError),
    /// The tape or the device.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// A file of the run folder.
    #[error("{path}: {source}")]
    File {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The training thread died of a bug. The last checkpoint stands.
    #[error(
        "the training thread stopped unexpectedly: {0}; the last checkpoint is good, resume from it"
    )]
    Panicked(String),
}

fn last_good(checkpoint: Option<&str>) -> String {
    match checkpoint {
        Some(path) => format!("the last good checkpoint is {path}"),
        None => "no checkpoint had been written".to_owned(),
    }
}

/// "1 sample", "8 samples".
fn samples(count: u32) -> String {
    counted(count.into(), "sample", "samples")
}

/// "the loss of owl/002.png".
pub(crate) fn loss_of(file: &Path) -> String {
    format!("the loss of {}", file.display())
}

impl TrainError {
    /// Code for the window and the event.
    pub fn code(&self) -> &'static str {
        match self {
            TrainError::NotTrainable { .. } => "not_trainable",
            TrainError::Setting { .. } => "invalid_setting",
            TrainError::Diverged { .. } => "diverged",
            TrainError::NoRoom { .. }
            | TrainError::Refused { .. }
            | TrainError::DoesNotFit { .. } => "no_room",
            TrainError::NoThreads(_) => "no_threads",
            TrainError::NoData { .. } => "no_data",
            TrainError::CheckpointWrite { .. } => "checkpoint_write",
            TrainError::CheckpointDamaged { .. } => "checkpoint_damaged",
            TrainError::NoCheckpoint { .. } => "no_checkpoint",
            TrainError::Misfit { .. } => "misfit",
            TrainError::Model(error) => error.code(),
            TrainError::Memory(_) => "memory_source",
            TrainError::Run(_) => "run_folder",
            TrainError::Data(_) => "data",
            TrainError::Tape(_) => "device",
            TrainError::File { .. } => "file",
            TrainError::Panicked(_) => "panicked",
        }
    }

    /// Names the file whose loss is not finite, where one is to blame.
    pub(crate) fn naming(mut self, file: Option<&Path>) -> Self {
        if let (TrainError::Diverged { what, .. }, Some(file)) = (&mut self, file) {
            *what = loss_of(file);
        }
        self
    }

    /// The device had no memory: a smaller piece may fit.
    pub fn is_memory(&self) -> bool {
        matches!(self, TrainError::Tape(error) if error.is_memory())
    }

    /// The piece was cancelled on purpose.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, TrainError::Tape(error) if error.is_cancelled())
    }
}

impl From<candle_core::Error> for TrainError {
    fn from(error: candle_core::Error) -> Self {
        TrainError::Tape(error.into())
    }
}

/// Turns an I/O error into one with its path.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> TrainError + '_ {
    move |source| TrainError::File {
        path: path.to_owned(),
        source,
    }
}
