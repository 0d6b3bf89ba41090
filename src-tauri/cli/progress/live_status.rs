//! Updates the status line between two events of a run: shows the progress of an evaluation, and
//! what happens before the first step.

use super::super::output::status;
use super::PLAIN_EVERY;
use indicatif::ProgressBar;
use pressure::Phase;
use runlog::{RunEvent, StepProgress, format_count, format_duration};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trainer::LiveObserver;

/// Shows what happens between two events, on the bar or as plain lines.
#[derive(Debug)]
pub struct LiveStatus {
    bar: Option<ProgressBar>,
    running: Mutex<Option<Evaluating>>,
    /// Elapsed time of the newest plain line about the preparation.
    prepared: Mutex<Duration>,
}

/// The running evaluation.
#[derive(Debug)]
struct Evaluating {
    begun: Instant,
    /// Time of the newest plain line.
    printed: Instant,
    message: String,
}

impl LiveStatus {
    /// Will show what happens between two events on `bar`, or as plain lines if there is no bar.
    pub fn new(bar: Option<ProgressBar>) -> Self {
        LiveStatus {
            bar,
            running: Mutex::default(),
            prepared: Mutex::default(),
        }
    }

    /// The line about the running evaluation; `None` if none is running.
    pub fn evaluating(&self) -> Option<String> {
        self.running()
            .as_ref()
            .map(|running| running.message.clone())
    }

    /// The evaluation has ended.
    pub fn evaluated(&self) {
        *self.running() = None;
    }

    fn prepared(&self) -> MutexGuard<'_, Duration> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Evaluating>> {
        // The value is complete at any time, so a panic of another thread does not matter.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveObserver for LiveStatus {
    fn memory(&self, _event: &RunEvent) {}

    fn progress(&self, progress: StepProgress) {
        let mut running = self.running();
        if progress.phase == Phase::Train {
            *running = None;
            return;
        }
        if progress.samples_done == 0 {
            *running = None;
        }
        let now = Instant::now();
        let running = running.get_or_insert_with(|| Evaluating {
            begun: now,
            printed: now,
            message: String::new(),
        });
        let (done, all) = (progress.samples_done, progress.samples);
        running.message = evaluating(done.into(), all.into(), now - running.begun);
        match &self.bar {
            Some(bar) => bar.set_message(running.message.clone()),
            None if now - running.printed >= PLAIN_EVERY => {
                running.printed = now;
                status!("{}", running.message);
            }
            None => {}
        }
    }

    fn preparing(&self, message: &str, elapsed: Duration, left: Option<Duration>) {
        let line = preparing(message, elapsed, left);
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None if elapsed.is_zero() => status!("{message}"),
            None => {
                let mut printed = self.prepared();
                if elapsed.saturating_sub(*printed) >= PLAIN_EVERY || elapsed < *printed {
                    *printed = elapsed;
                    status!("{line}");
                }
            }
        }
    }
}

/// The line about work before the first step: "Tokenizing 286 MB of texts: 40.0 % · 0:12 left".
/// Without a known end, it has the time so far.
fn preparing(message: &str, elapsed: Duration, left: Option<Duration>) -> String {
    match left {
        Some(left) => format!("{message} · {} left", format_duration(left.as_secs_f64())),
        None => format!("{message}, {}", format_duration(elapsed.as_secs_f64())),
    }
}

/// The line about a running evaluation: "Evaluating, 120 of 512 · 0:12 left". The remaining time is
/// left out until the first sample is done.
pub fn evaluating(done: u64, all: u64, elapsed: Duration) -> String {
    let line = format!(
        "Evaluating, {} of {}",
        format_count(done),
        format_count(all)
    );
    if done == 0 {
        return line;
    }
    let rest = all.saturating_sub(done) as f64 / done as f64;
    let left = format_duration(elapsed.as_secs_f64() * rest);
    format!("{line} · {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(phase: Phase, samples_done: u32) -> StepProgress {
        StepProgress {
            phase,
            samples_done,
            samples: 1512,
            ..StepProgress::default()
        }
    }

    #[test]
    fn a_running_evaluation_is_shown_until_it_ends() {
        let live = LiveStatus::new(Some(ProgressBar::hidden()));
        live.progress(progress(Phase::Train, 8));
        assert_eq!(live.evaluating(), None);
        live.progress(progress(Phase::Evaluate, 0));
        assert_eq!(live.evaluating().as_deref(), Some("Evaluating, 0 of 1,512"));
        live.progress(progress(Phase::Evaluate, 120));
        let line = live.evaluating().unwrap_or_default();
        assert!(line.starts_with("Evaluating, 120 of 1,512 · "), "{line}");
        live.evaluated();
        assert_eq!(live.evaluating(), None);
    }

    #[test]
    fn work_before_the_first_step_shows_its_remaining_time_if_it_is_known() {
        let (elapsed, left) = (Duration::from_secs(5), Duration::from_secs(70));
        let line = preparing("Tokenizing 1 GB of texts: 7.0 %", elapsed, Some(left));
        assert_eq!(line, "Tokenizing 1 GB of texts: 7.0 % · 1:10 left");
        let line = preparing("Learning a vocabulary", elapsed, None);
        assert_eq!(line, "Learning a vocabulary, 0:05");
    }

    #[test]
    fn the_time_left_follows_from_the_samples_done() {
        let line = evaluating(120, 480, Duration::from_secs(20));
        assert_eq!(line, "Evaluating, 120 of 480 · 1:00 left");
    }
}
