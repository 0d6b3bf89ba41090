//! Atomic writes of small files in the run folder: a file is complete or absent.

use crate::error::{Result, at};
use std::fs;
use std::path::Path;

/// Writes `bytes` to a temporary file beside `path`, syncs it and renames it to `path`.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = path.with_extension("draft");
    let write = || -> std::io::Result<()> {
        fs::write(&draft, bytes)?;
        disk::sync_path(&draft)?;
        fs::rename(&draft, path)?;
        path.parent().map_or(Ok(()), disk::sync_path)
    };
    write().map_err(at(path))
}
