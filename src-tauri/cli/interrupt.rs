//! Ctrl-C: once stops and checkpoints, twice aborts.

use super::failure::Failure;
use super::output::status;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trainer::{Control, Request};

/// Turns the first interrupt into a stop, the second into the end of the process.
pub fn handle(control: &Control) -> Result<(), Failure> {
    let control = control.clone();
    ask_once(move || control.send(Request::Stop))
}

/// The control of the training at work, where several follow one another.
#[derive(Clone, Default)]
pub struct AtWork(Arc<Mutex<Control>>);

impl AtWork {
    /// Heeds interrupts from now on. A process can do so once.
    pub fn handled() -> Result<AtWork, Failure> {
        let at_work = AtWork::default();
        let received = at_work.clone();
        ask_once(move || received.lock().send(Request::Stop))?;
        Ok(at_work)
    }

    /// A control of its own for the next training.
    pub fn next(&self) -> Control {
        let control = Control::default();
        *self.lock() = control.clone();
        control
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        // A control is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask_once(ask: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let asked = AtomicBool::new(false);
    let received = move || {
        if asked.swap(true, Ordering::Relaxed) {
            status!("\nebb: aborted; the last checkpoint is good");
            std::process::exit(1);
        }
        ask();
        status!("\nStopping and saving a checkpoint. Ctrl-C again aborts.");
    };
    ctrlc::set_handler(received).map_err(|error| {
        // It needs a thread of its own.
        Failure::new(format!(
            "Ctrl-C cannot be heeded ({error}); raise the limit that is set on this process (ulimit -v, ulimit -d)"
        ))
    })
}
