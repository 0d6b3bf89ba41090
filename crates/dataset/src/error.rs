//! Errors about a dataset as a whole, and about one sample. A dataset that can be read but not
//! trained on is not an error: its inspection carries a refusal.

use format::{format_count, format_io_error};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A dataset cannot be inspected, read or watched. The messages are complete sentences, since the
/// window shows them as they are.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The path does not exist.
    #[error("There is no folder {}. Check the spelling, or connect the disk that holds the folder.", folder.display())]
    MissingFolder {
        /// The path that was asked for.
        folder: PathBuf,
    },
    /// The path is not a folder, and not a file of texts either.
    #[error("{} is a file, not a folder. A single file must be a table or a text (such as .csv, .jsonl or .txt). Choose the folder that holds the class folders, or a file of texts.", path.display())]
    NotAFolder {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The path is an archive or a compressed file.
    #[error("{} is an archive or a compressed file, which Ebb does not unpack. Unpack it, then choose the unpacked folder or file.", path.display())]
    Archive {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The path is a pretrained model.
    #[error("{} is a language model (GGUF), not data. Open the texts or conversations to train on, then choose this file there as the model to start from (in the terminal: ebb train DATA --from FILE).", path.display())]
    Model {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The system refuses to list the folder.
    #[error("Ebb has no permission to read {}. Allow access in the folder's permissions and, on a Mac, in System Settings > Privacy & Security > Files and Folders. Then try again.", folder.display())]
    NoPermission {
        /// The path that was asked for.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder exists but cannot be listed.
    #[error("{} cannot be read: {}. Check the disk, or copy the folder to another disk.", folder.display(), format_io_error(source))]
    Unreadable {
        /// The path that was asked for.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is not Unicode, so it could not be written down for a resume.
    #[error("The path {} is not Unicode text. Rename the folder to use it.", folder.display())]
    NonUnicodePath {
        /// The path that was asked for.
        folder: PathBuf,
    },
    /// The folder has more files than can be held in memory.
    #[error("{} has more than {} files and folders, which is more than Ebb reads. Choose one of its sub-folders.", folder.display(), format_count(*limit))]
    TooManyFiles {
        /// The path that was asked for.
        folder: PathBuf,
        /// How many files and folders are read.
        limit: u64,
    },
    /// No table has a column that the user names.
    #[error(
        "No table in this folder has a column {column}. Available columns: {columns}. Choose one of these columns."
    )]
    UnknownColumn {
        /// The column that was asked for.
        column: String,
        /// The columns that exist.
        columns: String,
    },
    /// There is no table that could have the column that the user names.
    #[error("There is no column {column}, because {reason}.")]
    NoTable {
        /// The column that was asked for.
        column: String,
        /// Why no table has columns: "no table in this folder has a column of image names".
        reason: &'static str,
    },
    /// There is no class that the user names.
    #[error(
        "There is no class {class} in this folder. The classes are {classes}. Choose one of these classes."
    )]
    UnknownClass {
        /// The class that was asked for.
        class: String,
        /// The classes that exist.
        classes: String,
    },
    /// A file of texts changed after the inspection.
    #[error("{} changed after the folder was read. Put the old file back, or start a new run.", file.display())]
    FileChanged {
        /// Path relative to the dataset's folder.
        file: PathBuf,
    },
    /// A file of texts can no longer be read.
    #[error("{}: {reason}", file.display())]
    UnreadableFile {
        /// Path relative to the dataset's folder.
        file: PathBuf,
        /// The problem and how to fix it.
        reason: String,
    },
    /// A `tokenizer.json` cannot be used, or no vocabulary can be trained.
    #[error(
        "{subject} cannot be used as a tokenizer: {reason}. Choose a tokenizer.json from a Hugging Face folder."
    )]
    Tokenizer {
        /// The file, or the vocabulary that was to be trained.
        subject: String,
        /// The library's error.
        reason: String,
    },
    /// A chat template cannot be used.
    #[error("{} cannot be used as a chat template: {reason}. Download the file again, or choose another model.", file.display())]
    ChatTemplate {
        /// The file that contains the template.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// No conversation can be learned.
    #[error(
        "None of these conversations can be used: {reason}. Correct the conversations, or choose another model."
    )]
    Conversations {
        /// The most frequent problem.
        reason: String,
    },
    /// The tokenizer has no token for a part of a text, or fails on the text.
    #[error("The tokenizer cannot split {text}: {reason}. Choose another tokenizer.")]
    Encode {
        /// "a text", or which one: "text 12 of rows.csv".
        text: String,
        /// The library's error.
        reason: String,
    },
    /// The user stopped the work, or it failed for a reason that the caller knows.
    #[error("The work was stopped.")]
    Stopped,
    /// The system does not report changes of the folder.
    #[error("Ebb cannot watch {} for changes: {source}. After a change, read the folder again.", folder.display())]
    Unwatchable {
        /// The path that was asked for.
        folder: PathBuf,
        /// The system's error.
        source: notify::Error,
    },
}

impl DatasetError {
    /// The error of a tokenizer that names the text: the one with this row in this file. Other
    /// errors are as they were.
    pub fn in_text(mut self, file: &Path, row: u32) -> Self {
        if let Self::Encode { text, .. } = &mut self {
            *text = format!("text {} of {}", u64::from(row) + 1, file.display());
        }
        self
    }

    /// Chooses the variant for an I/O error on a folder.
    pub(crate) fn from_io(folder: &Path, source: io::Error) -> Self {
        let folder = folder.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::MissingFolder { folder },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path: folder },
            io::ErrorKind::PermissionDenied => Self::NoPermission { folder, source },
            _ => Self::Unreadable { folder, source },
        }
    }
}

/// One sample could not be loaded. Training continues without it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} was skipped: {reason}", file.display())]
pub struct SampleError {
    /// Path relative to the dataset's folder.
    pub file: PathBuf,
    /// The problem and how to fix it.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_becomes_a_sentence_with_a_next_step() {
        let check = |kind: io::ErrorKind, expected: &str| {
            let text = DatasetError::from_io(Path::new("photos"), kind.into()).to_string();
            assert!(text.contains(expected) && text.contains("photos"), "{text}");
        };
        check(io::ErrorKind::NotFound, "Check the spelling");
        check(io::ErrorKind::NotADirectory, "Choose the folder");
        check(io::ErrorKind::PermissionDenied, "Allow access");
        check(io::ErrorKind::TimedOut, "Check the disk");
    }
}
