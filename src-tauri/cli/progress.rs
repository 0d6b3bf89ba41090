//! The live display of a run: a bar on a terminal, plain lines elsewhere, JSON lines on
//! request. It shows only what the reducer returns.

mod live_status;
mod status_line;
mod token_compression_step_line;

use super::output::status;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use live_status::LiveStatus;
pub use live_status::evaluating;
use pressure::{MemorySample, Phase};
use runlog::{
    Run, RunEvent, Started, TaskChoice, counted, describe_baseline, format_bytes, format_count,
    format_in_unit, format_metrics, format_percent,
};
use status_line::{BAR_COLUMNS, columns_beside, status_line};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trainer::LiveObserver;

/// The length of a training: "20 epochs", "0.3 of an epoch", or "0.04 of an epoch".
fn epochs(started: &Started) -> String {
    let epochs = match started.effective_batch_tokens {
        Some(_) => started.steps as f64 / started.steps_per_epoch.max(1) as f64,
        None => {
            let seen = started.steps as f64 * f64::from(started.effective_batch);
            seen / started.train_samples.max(1) as f64
        }
    };
    match epochs {
        few if few < 0.095 => format!("{few:.2} of an epoch"),
        part if part < 0.95 => format!("{part:.1} of an epoch"),
        whole => counted(whole.round() as u64, "epoch", "epochs"),
    }
}

/// The size of a step: "32 samples", or "at most 8,192 tokens".
fn step_size(started: &Started) -> String {
    match started.effective_batch_tokens {
        Some(tokens) => format!("at most {} tokens", format_count(tokens.into())),
        None => format!("{} samples", started.effective_batch),
    }
}

/// Interval between two plain status lines.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Interval between two reports about the machines of a group.
const MACHINES_EVERY: Duration = Duration::from_secs(60);

/// Shows one run.
pub struct Progress {
    run: Run,
    json: bool,
    bar: Option<ProgressBar>,
    last_plain: Instant,
    last_machines: Option<Instant>,
    /// The newest memory sample.
    memory: Option<MemorySample>,
    /// Shows what happens between two events.
    live: Arc<LiveStatus>,
}

/// A bar on stderr with a message beside it; `None` if stderr is not a terminal.
pub fn terminal_bar() -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let template = format!("{{bar:{BAR_COLUMNS}.cyan}} {{pos}}/{{len}} {{wide_msg}}");
        let style = ProgressStyle::with_template(&template);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    })
}

impl Progress {
    /// Creates a display on stderr, or one that prints JSON lines on stdout.
    pub fn new(json: bool) -> Self {
        let bar = if json { None } else { terminal_bar() };
        Progress {
            run: Run::default(),
            json,
            live: Arc::new(LiveStatus::new(bar.clone())),
            bar,
            last_plain: Instant::now(),
            last_machines: None,
            memory: None,
        }
    }

    /// The observer that updates the status line between two events of this run; `None` if the
    /// output is JSON.
    pub fn live(&self) -> Option<Arc<dyn LiveObserver>> {
        let live = Arc::clone(&self.live) as Arc<dyn LiveObserver>;
        (!self.json).then_some(live)
    }

    /// Continues the display of a run that is resumed.
    pub fn from_run(run: Run, json: bool) -> Self {
        let progress = Progress {
            run,
            ..Progress::new(json)
        };
        progress.set_bar_length();
        progress
    }

    fn set_bar_length(&self) {
        if let (Some(bar), Some(started)) = (&self.bar, self.run.started()) {
            bar.set_length(started.steps);
        }
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
            RunEvent::Baseline { .. } => self.baseline(),
            RunEvent::Step { step, .. } => self.step(*step),
            RunEvent::Memory { sample, .. } => {
                self.memory = Some(*sample);
                self.refresh();
            }
            // The answers follow at the end.
            RunEvent::Prediction { .. }
            | RunEvent::StressTest { .. }
            | RunEvent::Answers { .. } => {}
            RunEvent::Decision { .. } => self.decision(event),
            RunEvent::Evaluation { .. } => self.evaluation(event),
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
            RunEvent::MemoryLimits { message, .. } | RunEvent::Group { message, .. } => {
                self.print(message);
            }
            RunEvent::Machine {
                rank,
                host,
                message,
                ..
            } => self.print(&format!("Rank {rank} ({host}): {message}")),
            RunEvent::Machines { .. } => self.machines(),
            RunEvent::Resumed { step, .. } => self.resume(*step),
            RunEvent::Stopped { message, .. } => self.stop(message),
            RunEvent::Failed { .. } => {
                self.end("Failed");
                self.print_gradients();
            }
        }
    }

    /// Prints a decision, unless an evaluation only starts or grows.
    fn decision(&self, event: &RunEvent) {
        if let RunEvent::Decision {
            phase,
            decision,
            message,
            ..
        } = event
            && (*phase == Phase::Train || decision.change.is_shown_in_evaluation())
        {
            self.print(message);
        }
    }

    /// Prints where a run goes on, and on which device.
    fn resume(&mut self, step: u64) {
        self.set_bar_length();
        self.print(&format!("Resumed at step {}", format_count(step)));
        if let Some(started) = self.run.started() {
            let (device, reason) = (&started.device, &started.device_reason);
            self.print(&format!("Device: {device} ({reason})"));
        }
    }

    /// Prints what each machine of a group does, once every few lines of status.
    fn machines(&mut self) {
        let is_recent = (self.last_machines).is_some_and(|at| at.elapsed() < MACHINES_EVERY);
        if is_recent {
            return;
        }
        self.last_machines = Some(Instant::now());
        for machine in self.run.machines() {
            self.print(&format!("Machine: {}", machine.describe()));
        }
        if let Some(exchange) = self.run.exchange_fraction() {
            let percent = format_percent(exchange);
            self.print(&format!("Exchange of gradients: {percent} of the time"));
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
            match started.known_task() {
                Some(TaskChoice::LanguageModel | TaskChoice::TokenCompression) => {
                    format!("windows of {} tokens", started.input_size)
                }
                Some(TaskChoice::TextClassification) => format!(
                    "{} classes, texts of at most {} tokens",
                    started.classes.len(),
                    started.input_size
                ),
                Some(TaskChoice::ImageClassification) | None =>
                    match (started.classes.len(), started.targets.len()) {
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
            "Plan: {} of {} ({} of {} samples), {} held out",
            counted(started.steps, "step", "steps"),
            step_size(started),
            epochs(started),
            format_count(started.train_samples),
            format_count(started.held_out_samples)
        ));
    }

    fn baseline(&self) {
        let train_samples = self
            .run
            .started()
            .map_or(0, |started| started.train_samples);
        if let Some(baseline) = self.run.baseline() {
            self.print(&describe_baseline(baseline, train_samples));
        }
    }

    fn evaluation(&mut self, event: &RunEvent) {
        let RunEvent::Evaluation {
            step,
            loss,
            metrics,
            best,
            ..
        } = event
        else {
            return;
        };
        let words = evaluated(self.run.started(), *loss, metrics);
        let best = if *best { ", the best so far" } else { "" };
        self.print(&format!(
            "Evaluated at step {}: {words}{best}",
            format_count(*step)
        ));
        self.live.evaluated();
        self.refresh();
    }

    fn stop(&self, message: &str) {
        self.end(message);
        self.print_gradients();
        if let Some(comparison) = self.run.compare_with_baseline() {
            status!("{comparison}");
        }
        self.print_answers();
    }

    /// Prints what the best evaluated weights answer to the prompts of the run, one line each.
    fn print_answers(&self) {
        if let Some(best) = self.run.best_answers() {
            status!("Answers at step {}:", format_count(best.step));
        }
        for line in self.run.describe_answers() {
            status!("  {line}");
        }
    }

    /// Prints how many steps were skipped because gradients were not finite.
    fn print_gradients(&self) {
        if let Some(gradients) = self.run.describe_gradients() {
            status!("Gradients: {gradients}");
        }
    }

    fn step(&mut self, step: u64) {
        let started = self.run.started();
        let unified = started.is_some_and(|started| started.device.starts_with("metal"));
        let task = started.and_then(Started::known_task);
        let compresses = task == Some(TaskChoice::TokenCompression);
        if compresses && (step.is_multiple_of(token_compression_step_line::EVERY) || step == 1) {
            let memory = self.memory.as_ref();
            self.print(&token_compression_step_line::line(
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
            let words = status_line(self.run.figures(), self.run.started(), usize::MAX);
            status!("Step {}: {words}", format_count(step));
        }
    }

    fn refresh(&self) {
        if let Some(bar) = &self.bar {
            let columns = columns_beside(bar);
            let evaluating = self.live.evaluating();
            let line = || status_line(self.run.figures(), self.run.started(), columns);
            bar.set_message(evaluating.unwrap_or_else(line));
        }
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

/// Describes an evaluation by the metrics of its task, such as "held-out loss 1.234, accuracy 93.4
/// %, macro-F1 92.8 %; mean absolute error: …".
fn evaluated(started: Option<&Started>, loss: f64, metrics: &BTreeMap<String, f64>) -> String {
    let numbers = numbers(started, metrics);
    let is_shown = |name: &String| ["accuracy", "bits_per_byte", "macro_f1"].contains(&&**name);
    let shown = metrics.iter().filter(|(name, _)| is_shown(name));
    let shown = shown.map(|(name, value)| (name.clone(), *value));
    let mut words = format_metrics(&shown.collect::<BTreeMap<_, _>>());
    if words.is_empty() && numbers.is_none() {
        words = format_metrics(metrics);
    }
    let mut line = format!("held-out loss {loss:.3}");
    if !words.is_empty() {
        line += &format!(", {words}");
    }
    match numbers {
        Some(numbers) => format!("{line}; {numbers}"),
        None => line,
    }
}

/// Describes the errors of the regression targets, such as "mean absolute error: calories 92.1
/// (predicting the mean: 180.3), mass_g 41.2 (…); averaged over all targets: 0.512 standard
/// deviations". The error of a single target is in the unit of its column.
fn numbers(started: Option<&Started>, metrics: &BTreeMap<String, f64>) -> Option<String> {
    let one = |name: &String| {
        let error = metrics.get(&format!("mae.{name}"))?;
        let of_mean = metrics.get(&format!("mae_of_mean.{name}"))?;
        Some(format!(
            "{name} {} (predicting the mean: {})",
            format_in_unit(*error),
            format_in_unit(*of_mean)
        ))
    };
    let all: Vec<String> = started?.targets.iter().filter_map(one).collect();
    // Of several targets, this mean decides which evaluation is the best.
    let mean = metrics.get("mae_standardized");
    let mean =
        mean.map(|error| format!("; averaged over all targets: {error:.3} standard deviations"));
    let mean = mean.unwrap_or_default();
    (!all.is_empty()).then(|| format!("mean absolute error: {}{mean}", all.join(", ")))
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
            "held-out loss 1.250; mean absolute error: calories 92.1 (predicting the mean: 180.3)",
        );
        check(
            &[
                ("mae.calories", 92.1),
                ("mae_of_mean.calories", 180.3),
                ("mae_standardized", 0.51234),
            ],
            "held-out loss 1.250; mean absolute error: calories 92.1 (predicting the mean: 180.3); averaged over all targets: 0.512 standard deviations",
        );
        check(
            &[("kept_fraction", 0.5), ("reward", -1.75)],
            "held-out loss 1.250, kept 50.0 %, reward -1.750",
        );
    }
}
