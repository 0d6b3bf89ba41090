//! Ends the process of a test that hangs, and names the seed that it played.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the process if no schedule ends for a while: a thread that hangs cannot be stopped.
pub(crate) struct Watchdog(Sender<u64>);

impl Watchdog {
    /// Watches schedules whose seed the environment variable `variable` sets.
    pub(crate) fn new(variable: &'static str, hangs_after: Duration) -> Self {
        let (begins, next) = channel();
        std::thread::spawn(move || {
            let mut seed = 0;
            loop {
                match next.recv_timeout(hangs_after) {
                    Ok(next) => seed = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("the schedule hangs: {variable}={seed}");
                        std::process::exit(101);
                    }
                }
            }
        });
        Watchdog(begins)
    }

    /// The schedule of this seed begins.
    pub(crate) fn begin(&self, seed: u64) {
        self.0.send(seed).expect("the thread watches");
    }
}
