//! The running training in one line, for every page, the menu-bar item and notifications.

use crate::current_training::Training;
use crate::run_row;
use crate::window_types::ActiveView;
use runlog::{RunStatus, StopReason, format_count, format_duration};
use std::time::{Duration, Instant};

/// The line about a training; `None` before its first event.
pub fn for_training(training: &Training) -> Option<ActiveView> {
    let notes = training.folder.notes();
    let run = training.run();
    let (started, figures) = (run.started()?, run.figures());
    Some(ActiveView {
        run: training.id.clone(),
        name: run_row::name(&training.id, &notes, &run),
        status: run.status(),
        epoch: figures.epoch.max(1),
        epochs: started.epochs,
        step: figures.step,
        fraction: figures.step as f64 / started.steps.max(1) as f64,
        seconds_left: figures.seconds_left,
    })
}

impl ActiveView {
    /// "groceries, epoch 12 of 60, step 1,229, 4:15 left".
    pub fn line(&self) -> String {
        let Self {
            name,
            epoch,
            epochs,
            ..
        } = self;
        let step = format_count(self.step);
        let place = format!("epoch {epoch} of {epochs}, step {step}");
        match (self.status, self.seconds_left) {
            (RunStatus::Paused, _) => format!("{name}, paused in {place}"),
            (_, Some(left)) => format!("{name}, {place}, {} left", format_duration(left)),
            _ => format!("{name}, {place}"),
        }
    }
}

/// The title of the notification about the end of a run; `None` if the user stopped it.
pub fn news(name: &str, status: RunStatus, reason: Option<StopReason>) -> Option<String> {
    match (status, reason) {
        (RunStatus::Finished, _) => Some(format!("{name} finished")),
        (RunStatus::Failed | RunStatus::EndedEarly, _) => Some(format!("{name} ended early")),
        (RunStatus::Stopped, Some(StopReason::Memory | StopReason::Disk)) => {
            Some(format!("{name} needs your help"))
        }
        _ => None,
    }
}

/// How long a training waits for memory before that is news.
const LONG_WAIT: Duration = Duration::from_secs(120);

/// Whether the user knows that a training waits for memory. Each wait is reported once.
#[derive(Debug, Default)]
pub struct MemoryWait {
    /// The run that waits, and since when.
    since: Option<(String, Instant)>,
    is_reported: bool,
}

impl MemoryWait {
    /// Whether it is time to tell the user. `waiting` is the run that is suspended at `now`, if one
    /// is.
    pub fn is_news(&mut self, waiting: Option<&str>, now: Instant) -> bool {
        let Some(run) = waiting else {
            *self = MemoryWait::default();
            return false;
        };
        match &self.since {
            Some((known, since)) if known == run => {
                let is_news = !self.is_reported && now.duration_since(*since) >= LONG_WAIT;
                self.is_reported |= is_news;
                is_news
            }
            _ => {
                *self = MemoryWait {
                    since: Some((run.to_owned(), now)),
                    is_reported: false,
                };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_for_memory_is_reported_once() {
        let (mut wait, begin) = (MemoryWait::default(), Instant::now());
        let mut reported_at = |seconds: u64, run: Option<&str>| {
            wait.is_news(run, begin + Duration::from_secs(seconds))
        };
        assert!(!reported_at(0, Some("a")));
        assert!(!reported_at(119, Some("a")));
        assert!(reported_at(120, Some("a")));
        assert!(!reported_at(600, Some("a")), "it was told");
        assert!(!reported_at(700, None), "it trains again");
        assert!(!reported_at(701, Some("a")));
        assert!(reported_at(821, Some("a")), "another wait");
        assert!(!reported_at(822, Some("b")), "another run");
    }

    fn active() -> ActiveView {
        ActiveView {
            run: "a".into(),
            name: "groceries".into(),
            status: RunStatus::Training,
            epoch: 12,
            epochs: 60,
            step: 1229,
            fraction: 0.2,
            seconds_left: None,
        }
    }

    #[test]
    fn the_line_names_progress_and_time() {
        assert_eq!(active().line(), "groceries, epoch 12 of 60, step 1,229");
        let timed = ActiveView {
            seconds_left: Some(255.0),
            ..active()
        };
        assert_eq!(
            timed.line(),
            "groceries, epoch 12 of 60, step 1,229, 4:15 left"
        );
        let paused = ActiveView {
            status: RunStatus::Paused,
            ..timed
        };
        assert_eq!(
            paused.line(),
            "groceries, paused in epoch 12 of 60, step 1,229"
        );
    }

    #[test]
    fn only_an_end_that_the_user_did_not_choose_is_news() {
        let check = |status, reason, title: Option<&str>| {
            assert_eq!(news("birds", status, reason).as_deref(), title);
        };
        check(RunStatus::Finished, None, Some("birds finished"));
        check(RunStatus::Failed, None, Some("birds ended early"));
        check(
            RunStatus::Stopped,
            Some(StopReason::Disk),
            Some("birds needs your help"),
        );
        check(RunStatus::Stopped, Some(StopReason::Requested), None);
        check(RunStatus::Paused, None, None);
    }
}
