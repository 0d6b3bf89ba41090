//! Handles Ctrl-C. For a training, the first one saves a checkpoint and stops it, and the second
//! one ends the process.

use super::failure::Failure;
use super::output::status;
use crate::signals::{EndSignal, EndSignals};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use tokio::runtime::Builder;
use trainer::{Control, Request};

/// From now on, the first interrupt stops the training, and the second one ends the process.
pub fn handle(control: &Control) -> Result<(), Failure> {
    let control = control.clone();
    ask_once(move || control.send(Request::Stop))
}

/// For a command that trains several times: sends the request to stop to the training that runs, or
/// to the next one.
#[derive(Clone, Default)]
pub struct AtWork {
    control: Arc<Mutex<Control>>,
    is_stopped: Arc<AtomicBool>,
}

impl AtWork {
    /// Handles interrupts from now on. Call this function once per process.
    pub fn handled() -> Result<AtWork, Failure> {
        let at_work = AtWork::default();
        let received = at_work.clone();
        ask_once(move || received.stop())?;
        Ok(at_work)
    }

    /// Stops the training that runs. If none does, the next one stops as soon as it begins.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.lock().send(Request::Stop);
    }

    /// Creates the [`Control`] of the next training.
    pub fn next(&self) -> Control {
        let control = Control::default();
        let mut current = self.lock();
        *current = control.clone();
        if self.is_stopped.load(Ordering::SeqCst) {
            control.send(Request::Stop);
        }
        control
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        // The value is complete at any time, so a panic of another thread does not matter.
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on, every interrupt calls `ask` and does not end the process. A process can call this
/// function only once.
pub fn on_interrupt(ask: impl Fn() + Send + 'static) -> Result<(), Failure> {
    set_handler(move |_| ask())
}

/// From now on, every signal that asks the process to end calls `ask`, and does not end the process
/// by itself. A process can call this function only once.
pub fn on_end_signal(ask: impl FnMut(EndSignal) + Send + 'static) -> Result<(), Failure> {
    set_handler(ask)
}

/// From now on, an interrupt prints this sentence and ends the process with exit code 0, without
/// saving anything. A process can call this function only once.
pub fn end_with(sentence: &'static str) -> Result<(), Failure> {
    set_handler(move |_| {
        status!("\nebb: {sentence}");
        std::process::exit(0);
    })
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
    set_handler(move |_| received())
}

fn set_handler(received: impl FnMut(EndSignal) + Send + 'static) -> Result<(), Failure> {
    listen(received).map_err(|error| {
        // The handler needs a thread of its own.
        Failure::new(format!(
            "ebb cannot handle Ctrl-C: {error}; raise the memory limits of this process (ulimit -v, ulimit -d)"
        ))
    })
}

/// Calls `received` at every signal on a thread with its own small runtime. All other threads of a
/// command compute.
fn listen(mut received: impl FnMut(EndSignal) + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _context = runtime.enter();
        EndSignals::new()?
    };
    let listening = async move {
        loop {
            received(signals.received().await);
        }
    };
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || runtime.block_on(listening)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_between_two_trainings_stops_the_next_one() {
        let at_work = AtWork::default();
        let first = at_work.next();
        assert!(!first.is_stopping());
        at_work.stop();
        assert!(first.is_stopping());
        assert!(
            at_work.next().is_stopping(),
            "it begins after the interrupt"
        );
    }
}
