//! The side of rank 0: what it tells the supervisor that started the group, and how it is stopped.

use super::super::failure::Failure;
use runlog::RunFolder;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::thread;
use trainer::{Control, Request, RunGroup};

/// Names the file in which rank 0 writes the path of its run.
pub const VARIABLE: &str = "EBB_SUPERVISOR";
/// The line that asks for a stop with a checkpoint.
pub const STOP: &str = "stop";

/// The supervisor of this process, if it has one.
pub struct Supervised(PathBuf);

impl Supervised {
    /// The supervisor that started this process as rank 0.
    pub fn from_environment(group: &RunGroup) -> Option<Supervised> {
        let file = std::env::var_os(VARIABLE).filter(|file| !file.is_empty())?;
        group.keeps_run().then(|| Supervised(file.into()))
    }

    /// Stops the training when the supervisor asks for it, or when it has ended.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn listen(&self, control: &Control) -> Result<(), Failure> {
        let control = control.clone();
        let read = move || {
            for line in io::stdin().lock().lines() {
                if line.is_ok_and(|line| line.trim() != STOP) {
                    continue;
                }
                break;
            }
            control.send(Request::Stop);
        };
        let thread = thread::Builder::new().name("supervisor".to_owned());
        thread.spawn(read).map(drop).map_err(|error| {
            Failure::new(format!(
                "no thread can be started to listen to the supervisor: {error}"
            ))
        })
    }

    /// Reports the run that this process trains.
    pub fn report_run(&self, run: &RunFolder) -> Result<(), Failure> {
        let path = std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
        let text = path.to_string_lossy().into_owned();
        disk::write_atomic(&self.0, text.as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", self.0.display())))
    }
}

/// The run that rank 0 has reported in this file.
pub fn reported_run(file: &Path) -> Option<RunFolder> {
    let path = std::fs::read_to_string(file).ok()?;
    RunFolder::open(path).ok()
}
