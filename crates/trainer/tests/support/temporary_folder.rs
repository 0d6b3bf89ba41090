//! Folders for runs that nothing has to outlive.

use std::path::Path;
use tempfile::TempDir;

/// A temporary folder, in memory if there is such a disk: runs do not wait until their checkpoints
/// are on a disk.
pub fn temporary_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}
