//! The status line of a run that trains: what is true now. A decision is shown for a while, then
//! it becomes the second line's matter.

use crate::amounts::{format_bytes, format_count, format_duration};
use crate::event::Started;
use crate::fold_events::Run;
use crate::run_view::{Figures, RunStatus, StatusLine};
use crate::status_text;
use pressure::{Change, Component, Level, Phase};

/// How long a decision is the headline, in milliseconds.
const HEADLINE_MS: u64 = 10_000;

impl Run {
    /// The status line at the run's clock.
    pub(crate) fn current_status_line(&self) -> StatusLine {
        let figures = self.live_figures();
        let decided = StatusLine {
            level: if self.status.has_ended() {
                self.status_line.level
            } else {
                figures.level
            },
            ..self.status_line.clone()
        };
        if self.last_decision().is_none() {
            return decided;
        }
        let (message, detail) = match self.live.progress {
            Some(progress) if progress.phase == Phase::Evaluate => (
                format!(
                    "Evaluating on {} held-out samples",
                    format_count(progress.samples.into())
                ),
                self.evaluated_now(progress.samples_done),
            ),
            _ => {
                let rest = self.rest_reason.as_deref().map(sentence);
                let detail = rest.unwrap_or_else(|| self.split_now(&figures));
                (self.training_now(&figures), detail)
            }
        };
        StatusLine {
            at_ms: self.now_ms,
            message,
            detail,
            ..decided
        }
    }

    /// How far the evaluation is, and in micro-batches of how many samples it runs.
    fn evaluated_now(&self, samples_done: u32) -> String {
        let done = format_count(samples_done.into());
        match self.evaluation_micro_batch {
            0 => format!(
                "{done} samples have been evaluated. After the evaluation, the training continues by itself."
            ),
            size => format!(
                "{done} samples have been evaluated, in micro-batches of at most {size}. After the evaluation, the training continues by itself."
            ),
        }
    }

    /// The newest decision once it is no longer the headline.
    pub(crate) fn last_decision(&self) -> Option<&StatusLine> {
        let is_old = self.now_ms >= self.status_line.at_ms + HEADLINE_MS;
        (self.status == RunStatus::Training && is_old).then_some(&self.status_line)
    }

    fn training_now(&self, figures: &Figures) -> String {
        if let (Level::Warning | Level::Critical, Some(size)) = (figures.level, figures.micro_batch)
        {
            let others = self.newest_others_bytes().map_or(String::new(), |bytes| {
                format!(": other apps use {}", format_bytes(bytes))
            });
            return format!("Training with a micro-batch of {size}{others}");
        }
        let started = self.started.as_ref();
        let speed = figures
            .samples_per_second
            .map(|speed| format_speed(speed, started));
        let left = figures
            .seconds_left
            .map(|seconds| format!("{} left", format_duration(seconds)));
        let facts: Vec<String> = speed.into_iter().chain(left).collect();
        if facts.is_empty() {
            "Training".to_owned()
        } else {
            format!("Training: {}", facts.join(", "))
        }
    }

    /// How a step is split, and why it is not split less.
    fn split_now(&self, figures: &Figures) -> String {
        let (Some(size), Some(started)) = (figures.micro_batch, &self.started) else {
            return String::new();
        };
        let (step, split) = (started.describe_step(), status_text::split(started, size));
        let newest = self.marks.iter().rev().find(|mark| mark.from != mark.to);
        let outlook = match newest.filter(|mark| mark.change == Change::Shrink) {
            Some(mark) if mark.cause == Component::Speed => {
                " A larger micro-batch is no faster here."
            }
            Some(mark) if mark.cause == Component::Device => {
                " The micro-batch grows again when the device allows it."
            }
            Some(_) => " The micro-batch grows again when memory is free.",
            None => "",
        };
        format!("{step}, {split}.{outlook}")
    }

    fn newest_others_bytes(&self) -> Option<u64> {
        let newest = self.live.points().last().or_else(|| self.memory.last());
        newest.map(|(_, [_, others, ..])| others as u64)
    }
}

/// "26.1 samples/s", or "29,491 tokens/s" for a task whose samples are windows of tokens.
pub fn format_speed(samples_per_second: f64, started: Option<&Started>) -> String {
    match started.and_then(Started::tokens_per_sample) {
        Some(tokens) => {
            let tokens_per_second = samples_per_second * f64::from(tokens);
            format!(
                "{} tokens/s",
                format_count(tokens_per_second.round() as u64)
            )
        }
        None => format!("{samples_per_second:.1} samples/s"),
    }
}

/// A message as a sentence of the window.
fn sentence(message: &str) -> String {
    let mut characters = message.chars();
    let first = characters.next().map(|first| first.to_uppercase());
    let first: String = first.into_iter().flatten().collect();
    format!("{first}{}.", characters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_models_have_tokens_per_second() {
        let shown = |task: &str| {
            let started = Started {
                task: task.into(),
                input_size: 128,
                ..Started::default()
            };
            format_speed(230.4, Some(&started))
        };
        assert_eq!(shown("language-model"), "29,491 tokens/s");
        assert_eq!(shown("token-compression"), "29,491 tokens/s");
        assert_eq!(shown("text-classification"), "230.4 samples/s");
        assert_eq!(format_speed(2.26, None), "2.3 samples/s");
    }
}
