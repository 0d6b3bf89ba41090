//! Read access to a folded run: its status, records and result. The time range that the window
//! draws is in `chart_data.rs`.

use crate::amounts::{format_count, format_duration, format_percent};
use crate::baseline_text::{Accuracies, MixtureAccuracy, compare_with_baseline};
use crate::event::{MemoryLimits, PromptAnswer, Started, StopReason};
use crate::fold_events::Run;
use crate::group_view::{GroupView, RankView};
use crate::metric_text::headline_metric;
use crate::records::{
    self, AnswersRecord, BaselineRecord, CheckpointRecord, EvaluationRecord, PredictionRecord,
};
use crate::run_view::{Figures, Mark, RunStatus, StatusLine};

/// Code of an error of a run whose smallest micro-batch does not fit into memory.
const OUT_OF_MEMORY: &str = "out_of_memory";
/// A run with fewer steps has no median speed.
const MIN_SPEEDS: usize = 3;
/// Characters of a prompt that a line shows.
const SHOWN_PROMPT: usize = 60;
/// Characters of an answer that a line shows.
const SHOWN_ANSWER: usize = 120;

impl Run {
    /// The run's head, once it has started.
    pub fn started(&self) -> Option<&Started> {
        self.started.as_ref()
    }

    /// The status.
    pub fn status(&self) -> RunStatus {
        self.status
    }

    /// Why the run ended, if it finished or was stopped.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.stop_reason
    }

    /// Whether the run is suspended because memory is short, or ended for this reason.
    pub fn is_short_of_memory(&self) -> bool {
        match self.status {
            RunStatus::Paused => self.is_suspended,
            RunStatus::Stopped => self.stop_reason == Some(StopReason::Memory),
            RunStatus::Failed => self.failure_code == OUT_OF_MEMORY,
            _ => false,
        }
    }

    /// The numbers above the charts.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Median throughput of the steps, in samples per second; `None` if only a few were measured.
    pub fn median_samples_per_second(&self) -> Option<f64> {
        let speeds = self.steps.samples_per_second().iter();
        let mut speeds: Vec<f32> = speeds.copied().filter(|speed| *speed > 0.0).collect();
        if speeds.len() < MIN_SPEEDS {
            return None;
        }
        let middle = speeds.len() / 2;
        let (_, median, _) = speeds.select_nth_unstable_by(middle, f32::total_cmp);
        Some(f64::from(*median)).filter(|speed| speed.is_finite())
    }

    /// The status line.
    pub fn status_line(&self) -> &StatusLine {
        &self.status_line
    }

    /// Decisions that changed something, oldest first.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The simple model that was trained before the first step, if there is one.
    pub fn baseline(&self) -> Option<&BaselineRecord> {
        self.baseline.as_ref()
    }

    /// Weight of the baseline in the best evaluation, from 0 to 1; `None` if the predictions do not
    /// combine the network and the baseline.
    pub fn baseline_share(&self) -> Option<f64> {
        let evaluation = self.best_evaluation()?;
        evaluation.metrics.get("baseline_share").copied()
    }

    /// How the best evaluation compares with the baseline, as a sentence; `None` if one of the two
    /// is missing.
    pub fn compare_with_baseline(&self) -> Option<String> {
        let evaluation = self.best_evaluation()?;
        let metric = |name: &str| evaluation.metrics.get(name).copied();
        let parts = self.baseline_share().zip(metric("network_accuracy"));
        Some(compare_with_baseline(&Accuracies {
            best: self.figures.best_accuracy?,
            baseline: self.baseline.as_ref()?.accuracy?,
            mixture: parts.map(|(baseline_share, network)| MixtureAccuracy {
                baseline_share,
                network,
            }),
        }))
    }

    /// The machines that train the run together, in the order of ranks; empty for a run on one
    /// machine.
    pub fn machines(&self) -> &[RankView] {
        &self.machines.views
    }

    /// The machines and what changed in their group; `None` if the run has only trained on one.
    pub fn group(&self) -> Option<GroupView> {
        self.machines.view()
    }

    /// Part of the time in which the machines added up their gradients, `0.0..=1.0`; `None` for a
    /// run on one machine.
    pub fn exchange_fraction(&self) -> Option<f64> {
        self.machines.exchange_fraction
    }

    /// Evaluations, oldest first.
    pub fn evaluations(&self) -> &[EvaluationRecord] {
        &self.evaluations
    }

    /// The answers to the prompts of the run after its evaluations, oldest first. Of a run with
    /// very many evaluations, some are missing.
    pub fn answers(&self) -> &[AnswersRecord] {
        &self.answers
    }

    /// The answers after the best evaluation, or the newest ones if those are missing; `None` if
    /// the run has no answers.
    pub fn best_answers(&self) -> Option<&AnswersRecord> {
        let best = self.figures.best_step;
        let found = self
            .answers
            .iter()
            .rfind(|record| Some(record.step) == best);
        found.or(self.answers.last())
    }

    /// The answers after the best evaluation, one line for each prompt: `"Who are you?" "I am
    /// …"`. Long texts are cut.
    pub fn describe_answers(&self) -> Vec<String> {
        let best = self.best_answers();
        let answers = best.map_or(&[][..], |best| &best.answers);
        let line = |found: &PromptAnswer| {
            let (prompt, _) = one_line(&found.prompt, SHOWN_PROMPT);
            let (answer, is_long) = one_line(&found.answer, SHOWN_ANSWER);
            let more = if found.is_cut && !is_long { "…" } else { "" };
            format!("\"{prompt}\" \"{answer}{more}\"")
        };
        answers.iter().map(line).collect()
    }

    /// Checkpoints, oldest first. Some may have been removed from the disk since.
    pub fn checkpoints(&self) -> &[CheckpointRecord] {
        &self.checkpoints
    }

    /// Predicted peaks beside the measured ones, oldest first.
    pub fn predictions(&self) -> &[PredictionRecord] {
        &self.predictions
    }

    /// The crash report of a run whose process exited without an end event; empty otherwise.
    pub fn last_minutes(&self) -> &[String] {
        &self.last_minutes
    }

    /// The latest warnings and skipped files, newest last, at most 20.
    pub fn notes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// How many steps were skipped because gradients were NaN or infinite; `None` before the first
    /// step, and if an early version of Ebb did not count them.
    pub fn describe_gradients(&self) -> Option<String> {
        self.non_finite_gradients.describe(self.figures.step)
    }

    /// A number that grows with every change of this run.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The run's clock: milliseconds of training, over all lives.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The run's clock as wall-clock time: milliseconds since 1970.
    pub(crate) fn now_unix_ms(&self) -> u64 {
        self.life_start.unix_ms + self.now_ms.saturating_sub(self.life_start.at_ms)
    }

    /// The evaluation with the highest accuracy, or with the lowest loss if there is no accuracy.
    /// Of two equal evaluations the earlier one is returned.
    pub(crate) fn best_evaluation(&self) -> Option<&EvaluationRecord> {
        records::best_evaluation(&self.evaluations)
    }

    /// Footprint without a micro-batch at the newest memory event, in bytes; 0 before the first.
    pub fn state_bytes(&self) -> u64 {
        let newest = self.memory.last();
        newest.map_or(0, |(_, [_, _, state, ..])| state as u64)
    }

    /// The memory limits, if the user has changed those of the config since the training began or
    /// was resumed.
    pub fn changed_limits(&self) -> Option<MemoryLimits> {
        self.limits
    }

    /// Ebb's highest sampled footprint in bytes, with a relative error of about 1e-7.
    pub fn highest_footprint(&self) -> Option<u64> {
        let [_, _, state, activations, cached, ..] = self.memory.columns();
        let parts = state.iter().zip(activations).zip(cached);
        let bytes = parts.map(|((state, activations), cached)| {
            (f64::from(*state) + f64::from(*activations) + f64::from(*cached)) as u64
        });
        bytes.max()
    }

    /// The smoothed loss in at most `points` points, including the first and the last.
    pub fn sparkline(&self, points: usize) -> Vec<f64> {
        let all: Vec<f64> = self
            .steps
            .smoothed_losses()
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

    /// One line for a list of runs: "Stopped at step 1,180 of 2,160, accuracy 93.4 %, 9:04".
    pub fn summary_line(&self) -> String {
        let planned = self.started.as_ref().map_or(0, |started| started.steps);
        let status = self.status.label();
        let mut line = format!("{status} at step {}", format_count(self.figures.step));
        if planned > 0 {
            line += &format!(" of {}", format_count(planned));
        }
        if let Some(accuracy) = self.figures.best_accuracy {
            line += &format!(", accuracy {}", format_percent(accuracy));
        } else if let Some((value, name)) = headline_metric(self) {
            line += &format!(", {value} {name}");
        } else if let Some(loss) = self.figures.smoothed_loss {
            line += &format!(", loss {loss:.3}");
        }
        line + ", " + &format_duration(self.now_ms as f64 / 1000.0)
    }
}

/// A text in one line, cut after `most` characters, and whether it was cut.
fn one_line(text: &str, most: usize) -> (String, bool) {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(most) {
        Some((end, _)) => (format!("{}…", &words[..end]), true),
        None => (words, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunEvent;

    #[test]
    fn answers_are_described_in_one_line_each() {
        let answer = |prompt: &str, answer: &str, is_cut| PromptAnswer {
            prompt: prompt.to_owned(),
            answer: answer.to_owned(),
            is_cut,
        };
        let mut run = Run::default();
        assert!(run.describe_answers().is_empty());
        run.apply(&RunEvent::Answers {
            at_ms: 1,
            step: 5,
            answers: vec![
                answer("Who are\nyou?", " I am\n\na model", true),
                answer(&"a".repeat(61), &"ü".repeat(121), true),
            ],
        });
        let long = format!("\"{}…\" \"{}…\"", "a".repeat(60), "ü".repeat(120));
        let short = "\"Who are you?\" \"I am a model…\"".to_owned();
        assert_eq!(run.describe_answers(), [short, long]);
    }

    #[test]
    fn wall_clock_time_includes_the_break_between_lives() {
        let mut run = Run::default();
        let mut check = |event, expected| {
            run.apply(&event);
            assert_eq!(run.now_unix_ms(), expected);
        };
        let stopped = |at_ms| RunEvent::Stopped {
            at_ms,
            step: 3,
            reason: StopReason::Requested,
            message: String::new(),
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
            device_reason: String::new(),
            steps: 0,
            epochs: 0,
        };
        check(resumed, 90_000_000);
        check(stopped(8_500), 90_002_500);
    }
}
