//! The live display of a run: a bar on a terminal, plain lines elsewhere, JSON lines on
//! request. It shows only what the reducer returns.

mod token_compression;

use super::output::status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pressure::{Level, MemorySample};
use runlog::{
    MISSING, Run, RunEvent, Started, counted, format_bytes, format_count, format_duration,
    format_metrics,
};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// "20 epochs", "0.3 of an epoch", or "0.04 of an epoch".
fn epochs(started: &Started) -> String {
    let seen = started.steps as f64 * f64::from(started.effective_batch);
    let epochs = seen / started.train_samples.max(1) as f64;
    match epochs {
        few if few < 0.095 => format!("{few:.2} of an epoch"),
        part if part < 0.95 => format!("{part:.1} of an epoch"),
        whole => counted(whole.round() as u64, "epoch", "epochs"),
    }
}

/// Interval between two plain status lines.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Shows one run.
pub struct Progress {
    run: Run,
    json: bool,
    bar: Option<ProgressBar>,
    last_plain: Instant,
    /// The newest memory sample.
    memory: Option<MemorySample>,
}

impl Progress {
    /// Creates a display on stderr, or one that prints JSON lines on stdout.
    pub fn new(json: bool) -> Self {
        let bar = (!json && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:24.cyan} {pos}/{len} {wide_msg}");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress {
            run: Run::default(),
            json,
            bar,
            last_plain: Instant::now(),
            memory: None,
        }
    }

    /// Continues the display of a run that is resumed.
    pub fn from_run(run: Run, json: bool) -> Self {
        let progress = Progress {
            run,
            ..Progress::new(json)
        };
        if let (Some(bar), Some(started)) = (&progress.bar, progress.run.started()) {
            bar.set_length(started.steps);
        }
        progress
    }

    /// Shows one event.
    pub fn receive(&mut self, event: &RunEvent) {
        self.run.apply(event);
        if self.json {
            return print_json(event);
        }
        match event {
            RunEvent::Started(started) => self.begin(started),
            RunEvent::DeviceCheck { done, total, .. } => self.device_check(*done, *total),
            RunEvent::Step { step, .. } => self.step(*step),
            RunEvent::Memory { sample, .. } => {
                self.memory = Some(*sample);
                self.refresh();
            }
            RunEvent::Prediction { .. } => {}
            RunEvent::Decision {
                message: sentence, ..
            } => self.print(sentence),
            RunEvent::Evaluation {
                step,
                loss,
                metrics,
                best,
                ..
            } => {
                let words = evaluated(self.run.started(), *loss, metrics);
                let best = if *best { ", the best so far" } else { "" };
                self.print(&format!(
                    "Evaluated at step {}: {words}{best}",
                    format_count(*step)
                ));
            }
            RunEvent::Checkpoint {
                step,
                bytes,
                duration_ms: ms,
                ..
            } => {
                let (step, size) = (format_count(*step), format_bytes(*bytes));
                self.print(&format!(
                    "Checkpoint at step {step}: {size} in {:.1} s",
                    ms / 1000.0
                ));
            }
            RunEvent::Skipped {
                item: what, reason, ..
            } => self.print(&format!("Skipped {what}: {reason}")),
            RunEvent::Warning { message, .. } => self.print(&format!("Warning: {message}")),
            RunEvent::Resumed { step, .. } => {
                self.print(&format!("Resumed at step {}", format_count(*step)))
            }
            RunEvent::Stopped {
                message: sentence, ..
            } => self.end(sentence),
            RunEvent::Failed { .. } => self.end("Failed"),
        }
    }

    /// Shows the progress of the GPU check, which takes a minute or more before the first run on a
    /// GPU.
    fn device_check(&mut self, done: u32, total: u32) {
        let sentence = format!("Checking this machine's GPU, {done} of {total}");
        match &self.bar {
            Some(bar) => bar.set_message(sentence),
            None if done == 0 || self.last_plain.elapsed() >= PLAIN_EVERY => {
                self.last_plain = Instant::now();
                self.print(&sentence);
            }
            None => {}
        }
    }

    fn begin(&self, started: &Started) {
        if let Some(bar) = &self.bar {
            bar.set_length(started.steps);
        }
        self.print(&format!(
            "Device: {} ({}), {} threads, {}",
            started.device, started.device_reason, started.threads, started.precision
        ));
        self.print(&started.loader);
        self.print(&format!(
            "Memory: {}, {}",
            format_bytes(started.total_bytes),
            started.memory_source
        ));
        self.print(&format!(
            "Model: {} with {} parameters, {}{}",
            started.model,
            format_count(started.parameters),
            match started.task.as_str() {
                "language-model" | "token-compression" => {
                    format!("windows of {} tokens", started.input_size)
                }
                "text-classification" => format!(
                    "{} classes, texts of at most {} tokens",
                    started.classes.len(),
                    started.input_size
                ),
                _ => match (started.classes.len(), started.targets.len()) {
                    (classes, 0) => format!("{classes} classes at {} px", started.input_size),
                    (0, targets) =>
                        format!("{targets} regression targets at {} px", started.input_size),
                    (classes, numbers) => format!(
                        "{classes} classes and {numbers} regression targets at {} px",
                        started.input_size
                    ),
                },
            },
            match started.checkpoint_blocks {
                0 => String::new(),
                1 => ", 1 block checkpointed".to_owned(),
                blocks => format!(", {blocks} blocks checkpointed"),
            }
        ));
        self.print(&format!(
            "Plan: {} of {} samples ({} of {} samples), {} held out",
            counted(started.steps, "step", "steps"),
            started.effective_batch,
            epochs(started),
            format_count(started.train_samples),
            format_count(started.held_out_samples)
        ));
    }

    fn step(&mut self, step: u64) {
        let started = self.run.started();
        let unified = started.is_some_and(|started| started.device.starts_with("metal"));
        let compresses = started.is_some_and(|started| started.task == "token-compression");
        if compresses && (step.is_multiple_of(token_compression::EVERY) || step == 1) {
            let memory = self.memory.as_ref();
            self.print(&token_compression::line(
                step,
                unified,
                memory,
                self.run.figures(),
            ));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            return self.refresh();
        }
        if self.last_plain.elapsed() >= PLAIN_EVERY || step == 1 {
            self.last_plain = Instant::now();
            status!("Step {}: {}", format_count(step), self.status());
        }
    }

    fn refresh(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.status());
        }
    }

    /// "loss 1.234 · 230 samples/s · 3:20 left · 0.9 of 21.6 GB · normal · micro-batch 16".
    fn status(&self) -> String {
        let figures = self.run.figures();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or(MISSING.to_owned(), |v| format!("{v:.digits$}"))
        };
        let bytes = |value: Option<u64>| value.map_or(MISSING.to_owned(), format_bytes);
        let level = match figures.level {
            Level::Normal => "normal",
            Level::Warning => "warning",
            Level::Critical => "critical",
        };
        format!(
            "loss {} · {} samples/s · {} left · {} of {} · {level} · micro-batch {}",
            number(figures.smoothed_loss, 3),
            number(figures.samples_per_second, 0),
            figures
                .seconds_left
                .map_or(MISSING.to_owned(), format_duration),
            bytes(figures.own_bytes),
            bytes(figures.budget_bytes),
            figures
                .micro_batch
                .map_or(MISSING.to_owned(), |m| m.to_string()),
        )
    }

    fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => status!("{line}"),
        }
    }

    fn end(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        status!("{line}");
    }
}

/// "held-out loss 1.234, accuracy 93.4 %, macro-F1 92.8 %; mean absolute error: …": the metrics
/// that the task has.
fn evaluated(started: Option<&Started>, loss: f64, metrics: &BTreeMap<String, f64>) -> String {
    let numbers = numbers(started, metrics);
    let percent = |of: &str, name: &str| {
        let value = 100.0 * metrics.get(of)?;
        Some(format!("{name} {value:.1} %"))
    };
    let bits = metrics.get("bits_per_byte");
    let known = [
        percent("accuracy", "accuracy"),
        bits.map(|bits| format!("{bits:.3} bits per byte")),
        percent("macro_f1", "macro-F1"),
    ];
    let mut parts: Vec<String> = known.into_iter().flatten().collect();
    if parts.is_empty() && numbers.is_none() {
        parts.extend(Some(format_metrics(metrics)).filter(|words| !words.is_empty()));
    }
    parts.insert(0, format!("held-out loss {loss:.3}"));
    let parts = parts.join(", ");
    numbers.map_or(parts.clone(), |numbers| format!("{parts}; {numbers}"))
}

/// "mean absolute error: calories 92.1 (mean predictor 180.3), mass_g 41.2 (…)", in the columns'
/// units.
fn numbers(started: Option<&Started>, metrics: &BTreeMap<String, f64>) -> Option<String> {
    let one = |name: &String| {
        let error = metrics.get(&format!("mae.{name}"))?;
        let of_mean = metrics.get(&format!("mae_of_mean.{name}"))?;
        let digits = if of_mean.abs() < 10.0 { 2 } else { 1 };
        Some(format!(
            "{name} {error:.digits$} (mean predictor {of_mean:.digits$})"
        ))
    };
    let all: Vec<String> = started?.targets.iter().filter_map(one).collect();
    (!all.is_empty()).then(|| format!("mean absolute error: {}", all.join(", ")))
}

fn print_json(event: &RunEvent) {
    if let Ok(line) = serde_json::to_string(event) {
        // A closed pipe ends the output, not the training.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_training_is_a_positive_fraction_of_an_epoch() {
        for (steps, output) in [
            (1, "0.02 of an epoch"),
            (30, "0.6 of an epoch"),
            (49, "1 epoch"),
            (1000, "20 epochs"),
        ] {
            let started = Started {
                steps,
                effective_batch: 4,
                train_samples: 200,
                ..Started::default()
            };
            assert_eq!(epochs(&started), output);
        }
    }

    #[test]
    fn an_evaluation_reports_only_the_metrics_of_its_task() {
        let images = Started {
            targets: vec!["calories".to_owned()],
            ..Started::default()
        };
        let check = |measures: &[(&str, f64)], expected: &str| {
            let metrics = measures
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value));
            let output = evaluated(Some(&images), 1.25, &metrics.collect());
            assert_eq!(output, expected);
        };
        check(&[], "held-out loss 1.250");
        check(
            &[("bits_per_byte", 2.5)],
            "held-out loss 1.250, 2.500 bits per byte",
        );
        check(
            &[("accuracy", 0.934), ("macro_f1", 0.9), ("top_5", 0.99)],
            "held-out loss 1.250, accuracy 93.4 %, macro-F1 90.0 %",
        );
        check(
            &[("mae.calories", 92.1), ("mae_of_mean.calories", 180.3)],
            "held-out loss 1.250; mean absolute error: calories 92.1 (mean predictor 180.3)",
        );
        check(
            &[("kept_fraction", 0.5), ("reward", -1.75)],
            "held-out loss 1.250, kept 50.0 %, reward -1.750",
        );
    }
}
