//! Measures the duration of an optimizer step and the time it waited for data.

use std::time::Instant;

/// Runs from the start of a step.
pub struct StepTimer {
    started: Instant,
    /// Total wait for data when the step started, in milliseconds.
    waited_ms: f64,
}

impl StepTimer {
    pub fn new() -> Self {
        StepTimer {
            started: Instant::now(),
            waited_ms: 0.0,
        }
    }

    /// Seconds since the step started.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Milliseconds that the step waited for data, if the total since the start of the run is
    /// `total_ms`.
    pub fn wait_ms(&self, total_ms: f64) -> f64 {
        total_ms - self.waited_ms
    }

    /// Starts the next step.
    pub fn next_step(&mut self, total_wait_ms: f64) {
        self.waited_ms = total_wait_ms;
        self.restart();
    }

    /// Excludes the time until now, such as a pause or an evaluation.
    pub fn restart(&mut self) {
        self.started = Instant::now();
    }
}
