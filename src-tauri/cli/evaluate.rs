//! `ebb evaluate`: evaluates the model of a run, and prints the results for each class and each
//! regression target.

use super::args;
use super::evaluate_questions;
use super::evaluation_progress::with_progress;
use super::failure::Failure;
use super::interrupt::end_with;
use super::limited_lists::FILES_LISTED;
use super::output::{out, status};
use super::train::find;
use crate::judge_run::judge;
use crate::paths::device_check_path;
use dataset::Task;
use runlog::{RunFolder, counted, format_count, format_in_unit, format_percent};
use serde_json::json;
use trainer::{DevicePreference, EvaluationReport, Results, TrainedModel};

/// Number of mistakes that are printed, the most frequent ones first.
const MISTAKES: usize = 5;
/// Number of labels that are probably wrong that are printed, the most suspicious ones first.
const SUSPICIOUS_LABELS: usize = 10;
/// Number of characters of a text that are printed beside its label.
const TEXT_CHARACTERS: usize = 60;

/// Runs `ebb evaluate`.
pub fn run(args: &args::Evaluate) -> Result<(), Failure> {
    if evaluate_questions::is_asked(args)? {
        return evaluate_questions::run(args);
    }
    let run = find(&args.run)?;
    end_with("the evaluation was stopped, so there is no result")?;
    let saved = TrainedModel::load(&run, DevicePreference::Auto, Some(&device_check_path()))?;
    let evaluated = with_progress(&saved.progress, || match (&args.folder, args.baseline) {
        (Some(folder), false) => saved.evaluate(&saved.inspect(folder)?),
        (Some(folder), true) => saved.evaluate_baseline(&saved.inspect(folder)?),
        (None, false) => saved.evaluate_own(&run),
        (None, true) => saved.evaluate_baseline_own(&run),
    })?;
    for (file, reason) in evaluated.skipped.iter().take(FILES_LISTED) {
        status!("Skipped {}: {reason}", file.display());
    }
    if evaluated.skipped.len() > FILES_LISTED {
        let rest = format_count((evaluated.skipped.len() - FILES_LISTED) as u64);
        status!("Skipped {rest} more files.");
    }
    let report = &evaluated.results.report;
    if report.samples == 0 && !evaluated.skipped.is_empty() {
        let noun = saved.sample_noun();
        return Err(Failure::new(format!(
            "no {noun} of this dataset can be read; check that its folder is still there"
        )));
    }
    // The results of a run are those of its model.
    if args.folder.is_none() && !args.baseline {
        report.save(&run)?;
        evaluated.results.save(&run)?;
    }
    if !args.json {
        words(&saved, report, args.baseline)?;
        let own = args.folder.is_none().then_some(&run);
        print_suspicious_labels(&evaluated.results, own);
        let judged = own.filter(|_| !args.baseline);
        if let Some(judgement) = judged.and_then(|run| judge(run, &evaluated.results)) {
            out!("{judgement}");
        }
        return Ok(());
    }
    print_json(&evaluated.results, evaluated.skipped.len(), args.baseline);
    Ok(())
}

fn print_json(results: &Results, skipped: usize, is_baseline: bool) {
    let report = &results.report;
    let mut line = json!({
        "step": report.step, "part": report.part, "samples": report.samples, "loss": report.loss,
        "skipped": skipped,
        "accuracy_interval": report.accuracy_interval,
        "classes": report.classes, "confusion": report.confusion, "numbers": report.targets,
        "suspicious_labels": suspicious_as_json(results),
    });
    if is_baseline {
        line["model"] = json!("baseline");
        line["step"] = json!(0);
    }
    for (name, value) in &report.metrics {
        line[name] = json!(value);
    }
    for measure in report.language_measures() {
        line[measure.key] = json!(measure.after);
        if let Some(before) = measure.before {
            line["before"][measure.key] = json!(before);
        }
    }
    out!("{line}");
}

/// Bits per byte, or the metrics of preferences.
fn language_metrics(report: &EvaluationReport) -> String {
    let metric = |name: &str| report.metrics.get(name).copied();
    match report.preference_accuracy() {
        Some((accuracy, (low, high))) => format!(
            "preference accuracy {:.1} % (95 % interval {:.1} to {:.1}; guessing: 50 %), reward margin {:.3}, ",
            100.0 * accuracy,
            100.0 * low,
            100.0 * high,
            metric("reward_margin").unwrap_or(f64::NAN)
        ),
        None => format!(
            "{:.3} bits per byte, {}",
            metric("bits_per_byte").unwrap_or(f64::NAN),
            perplexity(report)
        ),
    }
}

/// "perplexity 12.31, ".
fn perplexity(report: &EvaluationReport) -> String {
    let measures = report.language_measures();
    let found = measures.iter().find(|it| it.key == "perplexity");
    found.map_or_else(String::new, |it| {
        format!("perplexity {}, ", it.after_text())
    })
}

/// The measures of a fine-tuned language model before and after its training, as a table.
fn of_fine_tuning(report: &EvaluationReport) {
    if report.base.is_none() {
        return;
    }
    let measures = report.language_measures();
    let widest = measures.iter().map(|measure| measure.label.len()).max();
    let widest = widest.unwrap_or(0);
    out!("{:widest$}  {:>10}  {:>10}", "", "before", "after");
    for measure in measures {
        out!(
            "{:widest$}  {:>10}  {:>10}",
            measure.label,
            measure.before_text().unwrap_or_default(),
            measure.after_text()
        );
    }
}

fn words(
    saved: &TrainedModel,
    report: &EvaluationReport,
    is_baseline: bool,
) -> Result<(), Failure> {
    let percent = |name: &str| 100.0 * report.metrics.get(name).unwrap_or(&f64::NAN);
    let (count, samples) = (format_count(report.samples), saved.sample_noun());
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
        Task::ImageClassification if report.metrics.contains_key("top_5") => format!(
            "{accuracy}top-5 accuracy {:.1} %, {macro_f1}",
            percent("top_5")
        ),
        Task::ImageClassification | Task::TextClassification => format!("{accuracy}{macro_f1}"),
        Task::LanguageModel => language_metrics(report),
        Task::TokenCompression => format!(
            "{:.2} % of the tokens kept, {:.3} nats per dropped token, reward {:.3}, ",
            percent("kept_fraction"),
            percent("loss_per_dropped") / 100.0,
            percent("reward") / 100.0
        ),
    };
    let is_in_windows = !report.metrics.contains_key("preference_accuracy");
    let windows = if saved.task().is_on_documents() && is_in_windows {
        "windows of "
    } else {
        ""
    };
    let measured = match &*report.part {
        "whole" => "(the whole folder)".to_owned(),
        part => format!("of the {part} split"),
    };
    let baseline = match saved.task() {
        Task::ImageClassification => "baseline of edges and colors",
        _ => "n-gram baseline",
    };
    let model = evaluated_model(report, baseline, is_baseline);
    out!(
        "{count} {windows}{samples}s {measured}, {model}: {came_to}loss {:.3}",
        report.loss
    );
    of_fine_tuning(report);
    of_classes(report);
    of_numbers(report);
    Ok(())
}

/// What was evaluated: the best weights, the baseline, or both together.
fn evaluated_model(report: &EvaluationReport, baseline: &str, is_baseline: bool) -> String {
    if is_baseline {
        return baseline.to_owned();
    }
    let weights = format!("best weights (step {})", format_count(report.step));
    let share = report.metrics.get("baseline_share").copied().unwrap_or(0.0);
    if share > 0.0 {
        let share = format_percent(share);
        return format!("{weights} and {baseline} (its weight: {share})");
    }
    weights
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

fn suspicious_as_json(results: &Results) -> Vec<serde_json::Value> {
    let found = results.suspicious_labels().into_iter();
    let listed = found.take(SUSPICIOUS_LABELS);
    let as_json = listed.map(|found| {
        json!({
            "file": found.sample.file, "index": found.sample.index,
            "label": found.label, "label_probability": found.label_probability,
            "predicted": found.predicted, "probability": found.probability,
        })
    });
    as_json.collect()
}

/// Prints the labels that are probably wrong. `own` is the run if its own samples were evaluated.
fn print_suspicious_labels(results: &Results, own: Option<&RunFolder>) {
    let found = results.suspicious_labels();
    if found.is_empty() {
        return;
    }
    let listed = &found[..found.len().min(SUSPICIOUS_LABELS)];
    out!(
        "{} may be wrong, because the model is sure of another class. Check these:",
        counted(found.len() as u64, "label", "labels")
    );
    let indices: Vec<u32> = listed.iter().map(|found| found.sample.index).collect();
    // Images have no texts, and the files of texts may have moved.
    let texts = own.and_then(|run| results.sample_texts(run, &indices).ok());
    for (place, found) in listed.iter().enumerate() {
        let text = texts.as_ref().and_then(|texts| texts.get(place));
        out!(
            "  {}: labeled {} ({}), predicted {} ({})",
            describe_sample(
                &found.sample.file,
                found.sample.index,
                text.map(String::as_str)
            ),
            found.label,
            format_percent(found.label_probability),
            found.predicted,
            format_percent(found.probability)
        );
    }
}

/// The text of a sample, shortened to one line, or its file, or its number.
fn describe_sample(file: &str, index: u32, text: Option<&str>) -> String {
    match (text, file) {
        (Some(text), _) => {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let start: String = text.chars().take(TEXT_CHARACTERS).collect();
            let more = if start == text { "" } else { "…" };
            format!("“{start}{more}”")
        }
        (None, "") => format!("sample {}", format_count(u64::from(index) + 1)),
        (None, file) => file.to_owned(),
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
        "{:widest$}  samples  mean absolute error (95 % interval)  error of predicting the mean  improvement (95 % interval)",
        "Target"
    );
    for number in &report.targets {
        let with_interval = |value: f64, (low, high): (f64, f64)| {
            let [value, low, high] = [value, low, high].map(format_in_unit);
            format!("{value} ({low} to {high})")
        };
        let better = number.mean_baseline_error - number.mean_absolute_error;
        out!(
            "{:widest$}  {:>7}  {:<35}  {:>28}  {}",
            number.name,
            format_count(number.samples),
            with_interval(number.mean_absolute_error, number.interval),
            format_in_unit(number.mean_baseline_error),
            with_interval(better, number.improvement_interval),
        );
    }
}
