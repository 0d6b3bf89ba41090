//! Ctrl-C: once stops and checkpoints, twice aborts.

use super::failure::Failure;
use super::say::aside;
use std::sync::atomic::{AtomicBool, Ordering};
use trainer::{Control, Request};

/// Turns the first interrupt into a stop, the second into the end of the process.
pub fn heed(control: &Control) -> Result<(), Failure> {
    let (control, asked) = (control.clone(), AtomicBool::new(false));
    let heard = move || {
        if asked.swap(true, Ordering::Relaxed) {
            aside!("\nebb: aborted; the last checkpoint is good");
            std::process::exit(1);
        }
        control.ask(Request::Stop);
        aside!("\nStopping and saving a checkpoint. Ctrl-C again aborts.");
    };
    ctrlc::set_handler(heard).map_err(|error| {
        // It needs a thread of its own.
        Failure::new(format!(
            "Ctrl-C cannot be heeded ({error}); raise the limit that is set on this process (ulimit -v, ulimit -d)"
        ))
    })
}
