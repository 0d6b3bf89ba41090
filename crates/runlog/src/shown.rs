//! What others read of a folded run, beside the window's pull: results, a spark line, a line of `ebb runs`.

use crate::event::{Started, StopReason};
use crate::milestones::{Evaluated, Kept, Predicted};
use crate::reduce::Run;
use crate::view::{Figures, Mark, RunStatus, StatusLine};
use crate::words::{format_count, format_duration, format_percent};

impl Run {
    /// The run's head, once it has started.
    pub fn started(&self) -> Option<&Started> {
        self.started.as_ref()
    }

    /// Where it stands.
    pub fn status(&self) -> RunStatus {
        self.status
    }

    /// Why the run ended as it should, once it has.
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// The numbers above the charts.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The status line.
    pub fn line(&self) -> &StatusLine {
        &self.line
    }

    /// Changes of the micro-batch, oldest first.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Evaluations, oldest first.
    pub fn evaluations(&self) -> &[Evaluated] {
        &self.evaluations
    }

    /// Checkpoints that the events tell of, oldest first.
    pub fn checkpoints(&self) -> &[Kept] {
        &self.checkpoints
    }

    /// Predicted peaks beside the measured ones, oldest first.
    pub fn predictions(&self) -> &[Predicted] {
        &self.predictions
    }

    /// What the flight recorder says of the last two minutes of a run that ended without a word; else nothing.
    pub fn last_minutes(&self) -> &[String] {
        &self.last_minutes
    }

    /// The newest warnings and skipped files, newest last, at most 20.
    pub fn notes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// Counts up with everything that changes this run.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The run's clock: milliseconds of its life.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The same on the wall's clock: milliseconds since 1970.
    pub fn now_unix_ms(&self) -> u64 {
        let (at_ms, unix_ms) = self.begun;
        unix_ms + self.now_ms.saturating_sub(at_ms)
    }

    /// The evaluation with the highest accuracy, else the one with the lowest loss; the earlier one of two equals.
    pub fn best_evaluation(&self) -> Option<&Evaluated> {
        let better = |a: &Evaluated, b: &Evaluated| match (a.accuracy, b.accuracy) {
            (Some(a), Some(b)) => a > b,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => a.loss < b.loss,
        };
        let mut evaluations = self.evaluations.iter();
        let first = evaluations.next()?;
        Some(evaluations.fold(
            first,
            |best, next| if better(next, best) { next } else { best },
        ))
    }

    /// The highest footprint of Ebb among the readings, to about 1 part in 10 million.
    pub fn highest_footprint(&self) -> Option<u64> {
        let parts = self.memory.column(2).iter().zip(self.memory.column(3));
        let bytes =
            parts.map(|(state, activations)| (f64::from(*state) + f64::from(*activations)) as u64);
        bytes.max()
    }

    /// The smoothed loss in at most `points` points, the first and the last among them.
    pub fn spark(&self, points: usize) -> Vec<f64> {
        let all: Vec<f64> = self
            .loss
            .column(1)
            .iter()
            .map(|v| f64::from(*v))
            .filter(|v| v.is_finite())
            .collect();
        if all.len() <= points || points < 2 {
            return all.into_iter().take(points).collect();
        }
        let at = |i: usize| all[i * (all.len() - 1) / (points - 1)];
        (0..points).map(at).collect()
    }

    /// "Stopped at step 1,180 of 2,160, accuracy 93.4 %, 9:04" for a list of runs.
    pub fn summary_line(&self) -> String {
        let planned = self.started.as_ref().map_or(0, |started| started.steps);
        let status = match self.status {
            RunStatus::Starting => "Starting",
            RunStatus::Training => "Training",
            RunStatus::Paused => "Paused",
            RunStatus::Finished => "Finished",
            RunStatus::Stopped => "Stopped",
            RunStatus::Failed => "Failed",
            RunStatus::EndedEarly => "Ended early",
        };
        let mut line = format!("{status} at step {}", format_count(self.figures.step));
        if planned > 0 {
            line += &format!(" of {}", format_count(planned));
        }
        if let Some(accuracy) = self.figures.best_accuracy {
            line += &format!(", accuracy {}", format_percent(accuracy));
        } else if let Some(loss) = self.figures.smoothed_loss {
            line += &format!(", loss {loss:.3}");
        }
        line + ", " + &format_duration(self.now_ms as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunEvent;

    #[test]
    fn an_end_has_its_time_on_the_wall_also_after_a_night_between_two_lives() {
        let mut run = Run::default();
        let mut check = |event, expected| {
            run.apply(&event);
            assert_eq!(run.now_unix_ms(), expected);
        };
        let stopped = |at_ms| RunEvent::Stopped {
            at_ms,
            step: 3,
            why: StopReason::Requested,
            sentence: String::new(),
        };
        let started = Started {
            unix_ms: 1_000_000,
            ..Started::default()
        };
        check(RunEvent::Started(Box::new(started)), 1_000_000);
        check(stopped(5_000), 1_005_000);
        let resumed = RunEvent::Resumed {
            at_ms: 6_000,
            unix_ms: 90_000_000,
            step: 3,
            process: 1,
            device: String::new(),
        };
        check(resumed, 90_000_000);
        check(stopped(8_500), 90_002_500);
    }
}
