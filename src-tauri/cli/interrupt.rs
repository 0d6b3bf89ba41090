//! Ctrl-C: the first one stops with a checkpoint, the second one aborts.

use super::failure::Failure;
use super::output::status;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trainer::{Control, Request};

/// The first interrupt stops the training, the second one ends the process.
pub fn handle(control: &Control) -> Result<(), Failure> {
    let control = control.clone();
    ask_once(move || control.send(Request::Stop))
}

/// Sends requests to the training that runs now, for commands that train several times.
#[derive(Clone, Default)]
pub struct AtWork(Arc<Mutex<Control>>);

impl AtWork {
    /// Handles interrupts from now on. A process can call this function only once.
    pub fn handled() -> Result<AtWork, Failure> {
        let at_work = AtWork::default();
        let received = at_work.clone();
        ask_once(move || received.lock().send(Request::Stop))?;
        Ok(at_work)
    }

    /// A new control, for the next training.
    pub fn next(&self) -> Control {
        let control = Control::default();
        *self.lock() = control.clone();
        control
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        // The value is complete at any time, so a panic of another thread does not matter.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask_once(ask: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let asked = AtomicBool::new(false);
    let received = move || {
        if asked.swap(true, Ordering::Relaxed) {
            status!("\nebb: aborted; the last checkpoint is valid");
            std::process::exit(1);
        }
        ask();
        status!("\nStopping and saving a checkpoint. Press Ctrl-C again to abort.");
    };
    ctrlc::set_handler(received).map_err(|error| {
        // The handler needs a thread of its own.
        Failure::new(format!(
            "ebb cannot handle Ctrl-C: {error}; raise the memory limits of this process (ulimit -v, ulimit -d)"
        ))
    })
}
