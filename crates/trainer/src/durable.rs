//! Atomic writes of small files in the run folder: a file is complete or absent.

use crate::error::{Result, at};
use std::fs::{self, File};
use std::path::Path;

/// Writes `bytes` to a temporary file beside `path`, syncs it and renames it to `path`.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = path.with_extension("draft");
    let write = || -> std::io::Result<()> {
        fs::write(&draft, bytes)?;
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, path)?;
        path.parent()
            .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    write().map_err(at(path))
}
