//! Where Ebb keeps files beside its runs.

use runlog::RunStore;
use std::path::{Path, PathBuf};

/// The file that remembers whether the GPU passed its check.
pub fn device_check_path() -> PathBuf {
    RunStore::default_root().with_file_name("doctor.json")
}

/// The file that remembers how far memory estimates were off.
pub fn estimates_path() -> PathBuf {
    RunStore::default_root().with_file_name("estimates.json")
}

/// The folder of the models that Ebb downloads.
pub fn hub_path() -> PathBuf {
    RunStore::default_root().with_file_name("hub")
}

/// The folder of unpacked GGUF files.
pub fn gguf_path() -> PathBuf {
    RunStore::default_root().with_file_name("gguf")
}

/// The file of the runs that wait for their turn.
#[cfg(feature = "desktop")]
pub fn queue_path() -> PathBuf {
    RunStore::default_root().with_file_name("queue.json")
}

/// The file that remembers the folders that were opened last in the window.
#[cfg(feature = "desktop")]
pub fn recent_folders_path() -> PathBuf {
    RunStore::default_root().with_file_name("recent.json")
}

/// The file that remembers the language that the user chose for the window.
#[cfg(feature = "desktop")]
pub fn language_path() -> PathBuf {
    RunStore::default_root().with_file_name("language.json")
}

/// Whether a path is in a folder. The path need not exist; Ebb resolves links in the part of the
/// path that exists.
pub fn is_within(path: &Path, folder: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute
        .ancestors()
        .find_map(|path| path.canonicalize().ok());
    let folder = folder.canonicalize().ok().filter(|folder| folder.is_dir());
    existing.is_some_and(|path| folder.is_some_and(|folder| path.starts_with(folder)))
}
