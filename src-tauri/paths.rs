//! Where Ebb keeps files beside its runs.

use runlog::RunStore;
use std::path::PathBuf;

/// The file that remembers whether the GPU passed its check.
pub fn device_check_path() -> PathBuf {
    RunStore::default_root().with_file_name("doctor.json")
}
