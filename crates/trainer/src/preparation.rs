//! The work of a run before its first step, such as tokenizing its texts: shows how far it is, and
//! ends it if the user stops the run.

use crate::error::TrainError;
use crate::live::LiveObserver;
use crate::run_control::Control;
use dataset::DatasetError;
use runlog::format_percent;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Interval at which a stop request is noticed.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Interval between two messages about the work.
const SHOWN_EVERY: Duration = Duration::from_secs(1);
/// Work that is done to less than this fraction tells nothing about the remaining time.
const MIN_FRACTION: f64 = 0.01;

/// Who watches the work, and who can stop it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Preparation<'a> {
    control: Option<&'a Control>,
    live: Option<&'a dyn LiveObserver>,
}

impl<'a> Preparation<'a> {
    /// Work that `live` sees and `control` stops.
    pub fn new(control: &'a Control, live: Option<&'a dyn LiveObserver>) -> Self {
        Preparation {
            control: Some(control),
            live,
        }
    }

    /// Whether the user has stopped the run.
    pub(crate) fn is_stopping(self) -> bool {
        self.control.is_some_and(Control::is_stopping)
    }

    /// Begins work on `total` bytes. `message` names the work, such as "Tokenizing 3 GB of texts".
    /// It is shown if the work takes longer than a second.
    pub(crate) fn begin(self, message: String, total: u64) -> PreparationWork<'a> {
        let now = Instant::now();
        PreparationWork {
            preparation: self,
            message,
            total,
            begun: now,
            polled: Cell::new(now),
            shown: Cell::new(now),
        }
    }
}

/// Work that has begun.
pub(crate) struct PreparationWork<'a> {
    preparation: Preparation<'a>,
    message: String,
    total: u64,
    begun: Instant,
    polled: Cell<Instant>,
    shown: Cell<Instant>,
}

impl PreparationWork<'_> {
    /// Shows that `done` bytes are done. Returns false if the user has stopped the run. May be
    /// called as often as the caller likes.
    pub fn goes_on(&self, done: u64) -> bool {
        let now = Instant::now();
        if now - self.polled.get() < STOP_POLL {
            return true;
        }
        self.polled.set(now);
        self.show(now, Some(done as f64 / self.total.max(1) as f64));
        !self.preparation.is_stopping()
    }

    /// Shows at once that the work has begun.
    pub fn show_begun(&self) {
        if let Some(live) = self.preparation.live {
            live.preparing(&self.message, Duration::ZERO, None);
        }
    }

    /// Shows that the work goes on, if it is not known how much is done.
    pub fn show_elapsed(&self) {
        self.show(Instant::now(), None);
    }

    fn show(&self, now: Instant, fraction: Option<f64>) {
        let Some(live) = self.preparation.live else {
            return;
        };
        if now - self.shown.get() < SHOWN_EVERY {
            return;
        }
        self.shown.set(now);
        let elapsed = now - self.begun;
        match fraction.filter(|fraction| *fraction >= MIN_FRACTION) {
            Some(fraction) => {
                let message = format!("{}: {}", self.message, format_percent(fraction.min(1.0)));
                live.preparing(&message, elapsed, Some(remaining(elapsed, fraction)));
            }
            None => live.preparing(&self.message, elapsed, None),
        }
    }
}

/// The time that work of this fraction still takes at its speed so far.
fn remaining(elapsed: Duration, fraction: f64) -> Duration {
    elapsed.mul_f64((1.0 / fraction - 1.0).max(0.0))
}

/// A run that is stopped during the work has not begun.
pub(crate) fn stopped_before_start(error: DatasetError) -> TrainError {
    match error {
        DatasetError::Stopped => TrainError::StoppedBeforeStart,
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_control::Request;

    #[test]
    fn work_ends_soon_after_a_stop() {
        let control = Control::default();
        let work = Preparation::new(&control, None).begin("Reading".to_owned(), 100);
        assert!(work.goes_on(1));
        control.send(Request::Stop);
        let stopped = Instant::now();
        let mut done = 1;
        while work.goes_on(done) {
            done += 1;
            assert!(stopped.elapsed() < Duration::from_secs(10), "it never ends");
        }
        assert!(Preparation::default().begin(String::new(), 0).goes_on(5));
    }

    #[test]
    fn the_remaining_time_follows_from_the_speed() {
        let after = |seconds: u64, fraction: f64| remaining(Duration::from_secs(seconds), fraction);
        assert_eq!(after(10, 0.25), Duration::from_secs(30));
        assert_eq!(after(10, 1.0), Duration::ZERO);
        assert_eq!(after(10, 1.5), Duration::ZERO);
    }
}
