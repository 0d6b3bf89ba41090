//! A small file of the run folder, written so that it is whole or not there: drafted beside its place, synced, renamed.

use crate::error::{Result, at};
use std::fs::{self, File};
use std::path::Path;

/// Writes `bytes` to `path`. As durable as the checkpoints that mean nothing without it.
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
