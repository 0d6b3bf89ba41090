//! What can go wrong with a network or its weights: what happened, where, and what to do next.

use format::format_io_error;
use std::path::{Path, PathBuf};
use tape::TapeError;
use thiserror::Error;

/// Result of everything in this crate that touches files or settings.
pub type Result<T> = std::result::Result<T, ModelError>;

/// Why a network could not be built, read or written.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A fine-tuning setting that does not work.
    #[error("{key} = {value} does not work: {allowed}")]
    Setting {
        /// Key of the run config.
        key: &'static str,
        /// The value given.
        value: String,
        /// Values that work, or what to do instead.
        allowed: String,
    },
    /// A folder of pretrained weights, or one of its files, that cannot be read or written, or that
    /// Ebb's networks cannot express.
    #[error("{path}: {reason}")]
    HubFolder {
        /// The folder or one of its files.
        path: PathBuf,
        /// The problem, and the next step if there is one.
        reason: String,
    },
    /// Tensors that do not match the folder's own `config.json`.
    #[error(
        "the weights in {folder} do not match its config.json: {}; download the folder again, or use another one",
        .complaints.join("; ")
    )]
    WeightsMisfit {
        /// The folder.
        folder: PathBuf,
        /// One sentence for each missing, misshaped or unknown tensor, sorted by name.
        complaints: Vec<String>,
    },
    /// Weights that are only available in pickled files, which can run any program when read.
    #[error(
        "{folder} has only pickled weights ({files}), which could run any program when they are read; use the model.safetensors of the same model, or convert the files if you trust them"
    )]
    Pickled {
        /// The folder.
        folder: PathBuf,
        /// Names of the pickled files.
        files: String,
    },
    /// A file of adapters for another model.
    #[error("{path} does not fit this model: {what}")]
    Misfit {
        /// The file.
        path: PathBuf,
        /// The tensors that do not fit, with both shapes.
        what: String,
    },
    /// A network that the export format cannot hold.
    #[error("{0}")]
    NotExportable(String),
    /// A file that cannot be read or written.
    #[error("{path}: {}", format_io_error(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The tape or the device.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

impl ModelError {
    /// Stable code for the window and for events.
    pub fn code(&self) -> &'static str {
        match self {
            ModelError::Setting { .. } => "invalid_setting",
            ModelError::HubFolder { .. } => "published",
            ModelError::WeightsMisfit { .. } | ModelError::Misfit { .. } => "misfit",
            ModelError::Pickled { .. } => "pickled",
            ModelError::NotExportable(_) => "not_trainable",
            ModelError::File { .. } => "file",
            ModelError::Tape(_) => "device",
        }
    }

    /// An error about a folder of pretrained weights or one of its files.
    pub(crate) fn hub_folder(path: &Path, reason: impl Into<String>) -> Self {
        ModelError::HubFolder {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    /// An error about a fine-tuning setting.
    pub(crate) fn setting(
        key: &'static str,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        ModelError::Setting {
            key,
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }
}

impl From<candle_core::Error> for ModelError {
    fn from(error: candle_core::Error) -> Self {
        ModelError::Tape(error.into())
    }
}

/// Adds the path to an I/O error.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> ModelError + '_ {
    move |source| ModelError::File {
        path: path.to_owned(),
        source,
    }
}

/// Adds the name of a parameter to a shape error: `weight (blocks.0.up)`.
pub(crate) fn naming<T>(name: &str, result: tape::Result<T>) -> tape::Result<T> {
    result.map_err(|error| match error {
        TapeError::Shape {
            op,
            what,
            expected,
            found,
        } => TapeError::Shape {
            op,
            what: format!("{what} ({name})"),
            expected,
            found,
        },
        error => error,
    })
}
