//! Moves a run to the trash of the system, for the window and for `ebb runs trash`.

#[cfg_attr(target_os = "macos", path = "move_to_trash/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "move_to_trash/linux.rs")]
mod platform;

use runlog::{RunFolder, RunlogError};
use std::fmt::Display;
use std::path::Path;

/// Why a run is not in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMoved {
    /// A process trains the run.
    Training,
    /// The system refused to move it, for this reason.
    Refused(String),
}

/// Moves a run to the trash, unless a process trains it.
///
/// # Errors
/// A process trains the run, or the system has no trash for its disk.
pub fn move_to_trash(run: &RunFolder) -> Result<(), NotMoved> {
    move_by(platform::move_to_trash, run)
}

/// Moves a run by `move_folder`. Meanwhile no process can begin to train it.
fn move_by<E: Display>(
    move_folder: impl FnOnce(&Path) -> Result<(), E>,
    run: &RunFolder,
) -> Result<(), NotMoved> {
    let claim = run.claim();
    if matches!(claim, Err(RunlogError::Busy { .. })) {
        return Err(NotMoved::Training);
    }
    // A folder that cannot be locked, because it is read-only or damaged, may still be moved.
    move_folder(&run.path).map_err(|error| NotMoved::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_locked_while_it_moves_to_the_trash() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let folder = RunFolder {
            path: home.path().join("r1"),
        };
        std::fs::create_dir(&folder.path).expect("it can be made");
        let trash = home.path().join("trash");
        let moves = |path: &Path| {
            let refused = folder.claim().expect_err("it is locked");
            assert!(matches!(refused, RunlogError::Busy { .. }), "{refused}");
            std::fs::rename(path, &trash)
        };
        let claim = folder.claim().expect("it is free");
        assert_eq!(move_by(moves, &folder), Err(NotMoved::Training));
        assert!(folder.path.is_dir() && !trash.exists());
        drop(claim);
        let refused = |_: &Path| Err("no trash");
        let expected = Err(NotMoved::Refused("no trash".to_owned()));
        assert_eq!(move_by(refused, &folder), expected);
        move_by(moves, &folder).expect("it moves");
        assert!(!folder.path.exists() && trash.join("lock").is_file());
    }
}
