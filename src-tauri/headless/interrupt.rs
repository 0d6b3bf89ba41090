//! Ctrl-C: once stops and checkpoints, twice aborts.

use super::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use trainer::{Control, Request};

/// Turns the first interrupt into a stop, the second into the end of the process.
pub fn heed(control: &Control) -> Result<(), Failure> {
    let (control, asked) = (control.clone(), AtomicBool::new(false));
    let heard = move || {
        if asked.swap(true, Ordering::Relaxed) {
            eprintln!("\nebb: aborted; the last checkpoint is good");
            std::process::exit(1);
        }
        eprintln!("\nStopping and saving a checkpoint. Ctrl-C again aborts.");
        control.ask(Request::Stop);
    };
    ctrlc::set_handler(heard)
        .map_err(|error| Failure::new(format!("Ctrl-C cannot be heeded: {error}")))
}
