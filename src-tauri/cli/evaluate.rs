//! `ebb evaluate`: measures a run, by class and by regression target.

use super::args;
use super::failure::Failure;
use super::output::{out, status};
use super::train::find;
use crate::paths::device_check_path;
use dataset::Task;
use runlog::format_count;
use serde_json::json;
use trainer::{DevicePreference, EvaluationReport, TrainedModel};

/// Number of the most frequent mistakes that are printed.
const MISTAKES: usize = 5;

/// Runs `ebb evaluate`.
pub fn run(args: &args::Evaluate) -> Result<(), Failure> {
    let run = find(&args.run)?;
    let saved = TrainedModel::load(&run, DevicePreference::Auto, Some(&device_check_path()))?;
    let evaluated = match &args.folder {
        Some(folder) => saved.evaluate(&saved.inspect(folder)?)?,
        None => saved.evaluate_own(&run)?,
    };
    for (file, reason) in &evaluated.skipped {
        status!("Skipped {}: {reason}", file.display());
    }
    let report = &evaluated.results.report;
    if args.folder.is_none() {
        report.save(&run)?;
        evaluated.results.save(&run)?;
    }
    if !args.json {
        return words(&saved, report);
    }
    let mut line = json!({
        "step": report.step, "part": report.part, "samples": report.samples, "loss": report.loss,
        "skipped": evaluated.skipped.len(),
        "accuracy_interval": report.accuracy_interval,
        "classes": report.classes, "confusion": report.confusion, "numbers": report.targets,
    });
    for (name, value) in &report.metrics {
        line[name] = json!(value);
    }
    out!("{line}");
    Ok(())
}

fn words(saved: &TrainedModel, report: &EvaluationReport) -> Result<(), Failure> {
    let percent = |name: &str| 100.0 * report.metrics.get(name).unwrap_or(&f64::NAN);
    let (count, samples) = (format_count(report.samples), saved.task().sample_noun());
    let interval = report
        .accuracy_interval
        .map(|(low, high)| format!(" (95 % interval {:.1} to {:.1})", 100.0 * low, 100.0 * high));
    let accuracy = format!(
        "accuracy {:.1} %{}, ",
        percent("accuracy"),
        interval.unwrap_or_default()
    );
    let macro_f1 = format!("macro-F1 {:.1} %, ", percent("macro_f1"));
    let came_to = match saved.task() {
        Task::ImageClassification if report.classes.is_empty() => String::new(),
        Task::ImageClassification => format!(
            "{accuracy}top-5 accuracy {:.1} %, {macro_f1}",
            percent("top_5")
        ),
        Task::TextClassification => format!("{accuracy}{macro_f1}"),
        Task::LanguageModel => {
            format!("{:.3} bits per byte, ", percent("bits_per_byte") / 100.0)
        }
        Task::TokenCompression => format!(
            "{:.2} % of the tokens kept, {:.3} nats per dropped token, reward {:.3}, ",
            percent("kept_fraction"),
            percent("loss_per_dropped") / 100.0,
            percent("reward") / 100.0
        ),
    };
    let windows = match saved.task() {
        Task::LanguageModel | Task::TokenCompression => "windows of ",
        Task::ImageClassification | Task::TextClassification => "",
    };
    let measured = match &*report.part {
        "whole" => "(the whole folder)".to_owned(),
        part => format!("of the {part} split"),
    };
    out!(
        "{count} {windows}{samples}s {measured}, checkpoint of step {}: {came_to}loss {:.3}",
        format_count(report.step),
        report.loss
    );
    of_classes(report);
    of_numbers(report);
    Ok(())
}

fn of_classes(report: &EvaluationReport) {
    if report.classes.is_empty() {
        return;
    }
    let widest = report
        .classes
        .iter()
        .map(|class| class.name.chars().count());
    let widest = widest.max().unwrap_or(0).max("Class".len());
    out!("{:widest$}  samples  precision  recall      F1", "Class");
    let share = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "-".to_owned(),
    };
    for class in &report.classes {
        out!(
            "{:widest$}  {:>7}  {:>9}  {:>6}  {:>6}",
            class.name,
            format_count(class.samples),
            share(class.precision),
            share(class.recall),
            share(class.f1)
        );
    }
    let absent = report.absent();
    match absent.as_slice() {
        [] => {}
        [one] => out!("One class has no sample in this data: {one}."),
        many => out!(
            "{} classes have no sample in this data: {}.",
            many.len(),
            many.join(", ")
        ),
    }
    let name = |class: u32| {
        report
            .classes
            .get(class as usize)
            .map_or("", |c| c.name.as_str())
    };
    for taken in report.mistakes(MISTAKES) {
        let times = if taken.count == 1 { "once" } else { "times" };
        let count = match taken.count {
            1 => times.to_owned(),
            n => format!("{} {times}", format_count(n)),
        };
        out!(
            "{} was mistaken for {} {count}",
            name(taken.class),
            name(taken.predicted)
        );
    }
}

fn of_numbers(report: &EvaluationReport) {
    if report.targets.is_empty() {
        return;
    }
    let widest = report
        .targets
        .iter()
        .map(|number| number.name.chars().count());
    let widest = widest.max().unwrap_or(0).max("Target".len());
    out!(
        "{:widest$}  samples  mean absolute error (95 %)  mean predictor  better by (95 %)",
        "Target"
    );
    for number in &report.targets {
        let digits = if number.mean_baseline_error.abs() < 10.0 {
            2
        } else {
            1
        };
        let (low, high) = number.interval;
        let error = format!(
            "{:.digits$} ({low:.digits$} to {high:.digits$})",
            number.mean_absolute_error
        );
        let (low, high) = number.improvement_interval;
        out!(
            "{:widest$}  {:>7}  {error:<26}  {:>14.digits$}  {:.digits$} ({low:.digits$} to {high:.digits$})",
            number.name,
            format_count(number.samples),
            number.mean_baseline_error,
            number.mean_baseline_error - number.mean_absolute_error,
        );
    }
}
