//! A run as one file, `NAME.ebbrun`, to copy it to another machine: a tar archive, compressed with
//! gzip. Its first entry is a manifest with the length and the SHA-256 of every file.
//!
//! An archive may come from anyone. The manifest is checked before anything is created, the other
//! entries must match it one by one, and a run appears in its store only once it is whole.

mod export;
mod import;
mod manifest;

use crate::run_folder::RunFolder;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use tar::Header;

/// Bytes that are copied at once.
const BLOCK: usize = 1 << 18;
/// Bytes for the name in the header of an entry. GNU tar writes a longer path into an entry of its
/// own before the file, and the beginning of the path into the header.
const HEADER_NAME_BYTES: usize = 100;

/// An archive that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedRun {
    /// The archive.
    pub path: PathBuf,
    /// Number of files in it.
    pub files: usize,
    /// Bytes of these files before compression.
    pub bytes: u64,
}

/// A run that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedRun {
    /// Its new folder.
    pub folder: RunFolder,
    /// The id that it had, if another run of this store has it already.
    pub renamed_from: Option<String>,
    /// Number of its files.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Whether the header of an entry has no space for this path, not even if it is divided at a `/`.
fn needs_long_name(path: &str) -> bool {
    path.len() > HEADER_NAME_BYTES && Header::new_ustar().set_path(path).is_err()
}

/// The sum as hexadecimal digits.
fn hexadecimal(sum: Sha256) -> String {
    let bytes = sum.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
