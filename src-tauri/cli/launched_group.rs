//! A training that a launcher such as `mpirun` started on several machines, seen from one of its
//! processes. Rank 0 alone prints; the others report their errors to it.

use super::failure::Failure;
use super::output;
use runlog::{RunFolder, RunStore};
use std::path::PathBuf;
use trainer::RunGroup;

/// Does `work` as one rank of `group`, and leaves the group. An error ends the run on all ranks.
pub fn in_group(
    group: &RunGroup,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if group.is_alone() {
        return work();
    }
    if !group.keeps_run() {
        output::silence();
    }
    // Leaving may end this process if another rank was lost, so the error is printed before.
    let done = work().map_err(|failure| {
        group.fail(failure.sentence());
        failure.printed()
    });
    // Everything is saved: a rank that is lost from here on has lost nothing.
    let _ = group.leave();
    done
}

/// Refuses a command that cannot run on several machines yet, if a launcher started several
/// processes of it.
pub fn refuse_group(what: &str) -> Result<(), Failure> {
    let group = RunGroup::join_launched()?;
    if group.is_alone() {
        return Ok(());
    }
    in_group(&group, || {
        Err(Failure::usage(format!(
            "{what} does not work on several machines yet; use it on one machine, without mpirun"
        )))
    })
}

/// The folder of a rank that does not keep the run. Removed on drop.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Creates a folder for this process, with a run in it.
    pub fn create(group: &RunGroup, name: &str) -> Result<(ScratchFolder, RunFolder), Failure> {
        let (rank, process) = (group.rank(), std::process::id());
        let path = std::env::temp_dir().join(format!("ebb-rank-{rank}-{process}"));
        let scratch = ScratchFolder(path.clone());
        let run = RunStore::open(path).create(name)?;
        Ok((scratch, run))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What is left over is in the system's folder for temporary files.
        let _ = disk::remove_dir_all(&self.0);
    }
}
