//! What can go wrong with a folder as a whole, and with one file of it. A folder that can be read but not trained is
//! no error: that is an inspection with a refusal.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A folder that cannot be inspected or watched.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// Nothing stands at the path.
    #[error("There is no folder {}. Check the spelling, or connect the disk that it is on.", folder.display())]
    MissingFolder {
        /// What was asked for.
        folder: PathBuf,
    },
    /// Something else than a folder stands at the path.
    #[error("{} is a file, not a folder, and not one of texts (csv, tsv, jsonl, parquet, txt, md). Choose the folder that holds the class folders, or a file of texts.", path.display())]
    NotAFolder {
        /// What was asked for.
        path: PathBuf,
    },
    /// The system refuses to list the folder.
    #[error("No permission to read {}. Allow it in the system's privacy settings or the folder's permissions, then try again.", folder.display())]
    NoPermission {
        /// What was asked for.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The folder is there but cannot be listed.
    #[error("{} cannot be read: {source}. Check the disk, or copy the folder to another one.", folder.display())]
    Unreadable {
        /// What was asked for.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The folder's path is no Unicode text: it could not be written down for a resume.
    #[error("The path {} is not Unicode text. Rename the folder to use it.", folder.display())]
    NotText {
        /// What was asked for.
        folder: PathBuf,
    },
    /// A column that the user names is in no table.
    #[error("No table here has a column {column}; there are {columns}. Name one of these.")]
    NoColumn {
        /// What was asked for.
        column: String,
        /// What there is.
        columns: String,
    },
    /// A file of texts is not what it was when the folder was looked at.
    #[error("{} changed since it was looked at. Look at the folder again.", file.display())]
    Changed {
        /// Relative to the folder.
        file: PathBuf,
    },
    /// A file of texts cannot be read any more.
    #[error("{}: {reason}", file.display())]
    LostFile {
        /// Relative to the folder.
        file: PathBuf,
        /// What is wrong, and the next move.
        reason: String,
    },
    /// A `tokenizer.json` cannot be used, or none can be trained.
    #[error(
        "{what} is no tokenizer that can be used: {reason}. Take a tokenizer.json as Hugging Face folders hold it."
    )]
    Tokenizer {
        /// The file.
        what: String,
        /// The library's answer.
        reason: String,
    },
    /// A text stands before a tokenizer that has no token for it.
    #[error("The tokenizer cannot split a text: {reason}. Choose another tokenizer.")]
    NotTokenized {
        /// The library's answer.
        reason: String,
    },
    /// The system will not report changes of the folder.
    #[error("Changes in {} cannot be followed: {source}. Read the folder again by hand after changing it.", folder.display())]
    Unwatchable {
        /// What was asked for.
        folder: PathBuf,
        /// The system's answer.
        source: notify::Error,
    },
}

impl DatasetError {
    /// Names what the system's answer means for the user.
    pub(crate) fn of_folder(folder: &Path, source: io::Error) -> Self {
        let folder = folder.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::MissingFolder { folder },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path: folder },
            io::ErrorKind::PermissionDenied => Self::NoPermission { folder, source },
            _ => Self::Unreadable { folder, source },
        }
    }
}

/// One photograph that could not be had; the training goes on without it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} was skipped: {reason}", file.display())]
pub struct SampleError {
    /// Relative to the folder.
    pub file: PathBuf,
    /// What is wrong, and the next move.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_answer_becomes_a_sentence_with_a_next_move() {
        let check = |kind: io::ErrorKind, expected: &str| {
            let text = DatasetError::of_folder(Path::new("photos"), kind.into()).to_string();
            assert!(text.contains(expected) && text.contains("photos"), "{text}");
        };
        check(io::ErrorKind::NotFound, "Check the spelling");
        check(io::ErrorKind::NotADirectory, "Choose the folder");
        check(io::ErrorKind::PermissionDenied, "Allow it");
        check(io::ErrorKind::TimedOut, "Check the disk");
    }
}
