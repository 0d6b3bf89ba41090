//! Removes old checkpoints, except the best one and those that the config retains. After a crash,
//! completes or removes the checkpoints that it interrupted.

use super::{replace_checkpoint, state_json, verify};
use crate::error::{Result, TrainError, at};
use runlog::{RunFolder, SavedCheckpoint};
use std::io;
use std::path::Path;

/// Extension of the temporary name of a checkpoint that is removed.
const REMOVED: &str = "removed";

/// Which checkpoints are retained besides the one that was just written and the best one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The number of newest ones, the one that was just written included.
    pub newest: usize,
    /// Every Nth one of the run, if set.
    pub every: Option<u64>,
}

/// Finishes what a crash interrupted: a complete checkpoint under a temporary name gets its own
/// name unless there is a valid one, and everything else under temporary names is removed. Only for
/// the process that trains the run.
///
/// # Errors
/// The checkpoints cannot be listed, or one cannot be renamed.
pub fn recover(run: &RunFolder) -> Result<()> {
    let parent = run.checkpoints_path();
    if parent.is_dir() {
        for path in disk::list(&parent).map_err(at(&parent))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !disk::is_draft(&name) || name.contains(REMOVED) {
                continue;
            }
            if let Ok(state) = verify(&path) {
                let last = run.path.join(RunFolder::checkpoint_name(state.step));
                if verify(&last).is_err() {
                    replace_checkpoint(&path, &last).map_err(at(&last))?;
                }
            }
        }
        disk::remove_drafts(&parent);
    }
    disk::remove_drafts(&run.path);
    Ok(())
}

/// Removes the checkpoints up to `step`, the one that was just written, that are neither retained
/// nor the best, oldest first. Newer ones are damaged: the run has fallen back to an earlier one.
/// They stay until their step is written again, and are not counted. Also removes temporary folders
/// that earlier attempts left.
///
/// # Errors
/// The checkpoints cannot be listed, or one cannot be removed.
pub fn remove_old(
    run: &RunFolder,
    step: u64,
    best_step: Option<u64>,
    retention: Retention,
) -> Result<()> {
    disk::remove_drafts(&run.checkpoints_path());
    let mut checkpoints = run.checkpoints()?;
    checkpoints.retain(|checkpoint| checkpoint.step <= step);
    let old = checkpoints.len().saturating_sub(retention.newest.max(1));
    let replaced = |checkpoint: &&SavedCheckpoint| {
        Some(checkpoint.step) != best_step && !retention.retains_forever(&checkpoint.path)
    };
    for checkpoint in checkpoints.iter().take(old).filter(replaced) {
        remove(&checkpoint.path).map_err(at(&checkpoint.path))?;
    }
    Ok(())
}

impl Retention {
    /// Whether this is an Nth checkpoint of its run. A damaged one has no number.
    fn retains_forever(self, checkpoint: &Path) -> bool {
        self.every
            .is_some_and(|every| match state_json(checkpoint) {
                Ok(file) => file.state.number > 0 && file.state.number.is_multiple_of(every),
                Err(TrainError::CheckpointDamaged { .. }) => false,
                // The disk may answer again later.
                Err(_) => true,
            })
    }
}

/// Removes a checkpoint. It loses its name first, also on the disk, so that no part of it is taken
/// for a checkpoint.
fn remove(checkpoint: &Path) -> io::Result<()> {
    let removed = disk::draft_path(&checkpoint.with_extension(REMOVED));
    disk::rename(checkpoint, &removed)?;
    disk::sync_parent(checkpoint)?;
    disk::remove_dir_all(&removed)
}
