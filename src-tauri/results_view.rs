//! The results of a run as the window shows them: numbers for its charts, and everything else as
//! text.

use crate::window_types::{CommandError, RunRow};
use dataset::Task;
use runlog::{
    MISSING, Run, RunConfig, format_bytes, format_count, format_duration, format_percent,
};
use serde::Serialize;
use trainer::{Calibration, EvaluationReport, Results, Tone, TrainingFacts, usual_learning_rate};
use ts_rs::TS;

/// Number of mistakes that the page shows at once.
pub const MISTAKES: usize = 60;
/// Points of a scatter plot; more cannot be told apart.
const POINTS: usize = 600;

/// Answer of `results`.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ResultsView {
    /// The run as a row of the list.
    pub run: RunRow,
    /// "image-classification", …
    pub task: String,
    /// What one sample is called: "image", "text", "window".
    pub sample: String,
    /// Whether a training runs in this process: then an evaluation only starts if it is asked for.
    pub busy: bool,
    /// The evaluation; `None` before there is one.
    pub report: Option<ReportView>,
    /// Samples done and all samples of an evaluation that runs now.
    pub evaluating: Option<(u64, u64)>,
    /// Why the last evaluation failed.
    pub problem: Option<CommandError>,
    /// Rows of label and value.
    pub facts: Vec<(String, String)>,
    /// How good the model is, in one line.
    pub judgement: Option<JudgementView>,
}

/// One line about a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct JudgementView {
    /// `normal` or `warning`.
    pub level: String,
    /// The sentences.
    pub text: String,
}

/// An evaluation.
#[derive(Debug, Clone, Default, Serialize, TS)]
pub struct ReportView {
    /// "Held-out accuracy".
    pub title: String,
    /// "93.4".
    pub value: String,
    /// "%".
    pub unit: String,
    /// What the number means.
    pub note: String,
    /// Classes in label order.
    pub classes: Vec<ClassResultView>,
    /// Correct class, predicted class, number of samples; without zeros.
    pub confusion: Vec<(u32, u32, u64)>,
    /// Samples, mean confidence and accuracy of ten bins of confidence.
    pub calibration: Vec<(u64, f64, f64)>,
    /// What the calibration means.
    pub calibration_note: String,
    /// The most confident mistakes.
    pub mistakes: Vec<ResultSample>,
    /// Number of all mistakes.
    pub mistake_count: u64,
    /// Epoch and headline metric of each held-out evaluation, as a fraction for an accuracy.
    pub curve: Vec<(u64, f64)>,
    /// "Accuracy by epoch".
    pub curve_title: String,
    /// Epoch of the evaluated checkpoint.
    pub best_epoch: u64,
    /// Regression targets.
    pub targets: Vec<TargetResultView>,
}

/// One class of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct ClassResultView {
    /// Its name.
    pub name: String,
    /// Evaluated samples.
    pub samples: u64,
    /// Correctly classified ones.
    pub correct: u64,
    /// Fraction of its predictions that are correct.
    pub precision: Option<f64>,
    /// Fraction of its samples that are classified correctly.
    pub recall: Option<f64>,
    /// Harmonic mean of the two.
    pub f1: Option<f64>,
}

/// One evaluated sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct ResultSample {
    /// Id for `result_thumbnail`.
    pub id: u32,
    /// Name of its file, for display.
    pub file: String,
    /// The correct answer: "llama".
    pub title: String,
    /// What the model answered: "kangaroo 98 %".
    pub detail: String,
    /// The beginning of a text.
    pub text: Option<String>,
}

/// One regression target.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct TargetResultView {
    /// Name of the column.
    pub name: String,
    /// Samples that have it.
    pub samples: u64,
    /// "80.1 (72.3 to 88.0)".
    pub error: String,
    /// Error of always predicting the mean: "89.5".
    pub baseline: String,
    /// "9.4 (1.2 to 17.7)".
    pub better: String,
    /// True and predicted values, in the column's unit.
    pub points: Vec<(f64, f64)>,
}

/// What a view is made from.
pub struct Sources<'a> {
    pub row: RunRow,
    pub run: &'a Run,
    pub config: &'a RunConfig,
    pub results: Option<&'a Results>,
}

/// The view, without the state of a running evaluation.
pub fn view(sources: &Sources) -> ResultsView {
    let started = sources.run.started();
    let task = started.map_or("", |started| &*started.task);
    let sample_noun = noun(task);
    let judgement = sources.results.and_then(|results| {
        let found = results.judge(&facts_of_training(sources, sample_noun))?;
        let level = match found.tone {
            Tone::Good | Tone::Hint => "normal",
            Tone::Bad => "warning",
        };
        Some(JudgementView {
            level: level.to_owned(),
            text: found.text,
        })
    });
    ResultsView {
        run: sources.row.clone(),
        task: task.to_owned(),
        sample: sample_noun.to_owned(),
        busy: false,
        report: sources.results.map(|results| report(sources.run, results)),
        evaluating: None,
        problem: None,
        facts: facts(sources),
        judgement,
    }
}

fn noun(task: &str) -> &'static str {
    let task = [
        Task::ImageClassification,
        Task::TextClassification,
        Task::LanguageModel,
        Task::TokenCompression,
    ]
    .into_iter()
    .find(|known| known.name() == task);
    task.unwrap_or(Task::ImageClassification).sample_noun()
}

fn facts_of_training(sources: &Sources, sample_noun: &str) -> TrainingFacts {
    let evaluations = sources.run.evaluations().iter();
    TrainingFacts {
        learning_rate: sources
            .run
            .started()
            .map_or(0.0, |started| started.learning_rate),
        usual_learning_rate: usual_learning_rate(sources.config),
        held_out_losses: evaluations.map(|evaluation| evaluation.loss).collect(),
        training_loss: sources.run.figures().smoothed_loss,
        sample_noun: sample_noun.to_owned(),
        from_scratch: sources.config.from.is_none(),
    }
}

/// The rows beside the headline.
fn facts(sources: &Sources) -> Vec<(String, String)> {
    let run = sources.run;
    let mut rows: Vec<(&str, String)> = Vec::new();
    if let Some(results) = sources.results {
        let report = &results.report;
        rows.push(("Checkpoint", best_checkpoint(run, report.step)));
        rows.push(("Loss", format!("{:.3}", report.loss)));
        if let Some(guessing) = results.guessing_accuracy {
            rows.push(("Largest class alone", format_percent(guessing)));
        }
        for (name, label) in [("top_5", "Top-5 accuracy"), ("macro_f1", "Macro F1")] {
            let value = report.metrics.get(name);
            let many = name != "top_5" || report.classes.len() > 5;
            rows.extend(
                value
                    .filter(|_| many)
                    .map(|value| (label, format_percent(*value))),
            );
        }
    }
    let seconds = run.now_ms() as f64 / 1000.0;
    rows.push(("Trained for", format_duration(seconds)));
    let speed = run.started().filter(|_| seconds > 0.0).map(|started| {
        let samples = run.figures().step as f64 * f64::from(started.effective_batch);
        format!("{:.1}/s", samples / seconds)
    });
    rows.push(("Average speed", speed.unwrap_or_else(|| MISSING.to_owned())));
    let footprint = run.highest_footprint().filter(|bytes| *bytes > 0);
    rows.push((
        "Largest footprint",
        footprint.map_or(MISSING.to_owned(), format_bytes),
    ));
    rows.push(("Micro-batch", micro_batches(run)));
    let owned = rows
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value));
    owned.collect()
}

/// "epoch 27 of 30".
fn best_checkpoint(run: &Run, step: u64) -> String {
    let evaluation = run.evaluations().iter().find(|e| e.step == step);
    match (evaluation, run.started()) {
        (Some(evaluation), Some(started)) => {
            format!("epoch {} of {}", evaluation.epoch, started.epochs)
        }
        _ => format!("step {}", format_count(step)),
    }
}

/// "8 to 16".
fn micro_batches(run: &Run) -> String {
    let sizes = run.marks().iter().flat_map(|mark| [mark.from, mark.to]);
    let sizes: Vec<u32> = sizes
        .chain(run.figures().micro_batch)
        .filter(|size| *size > 0)
        .collect();
    let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else {
        return MISSING.to_owned();
    };
    match least == most {
        true => least.to_string(),
        false => format!("{least} to {most}"),
    }
}

/// Answer of `compare_results`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct ComparisonView {
    /// Headline of the other run: "88.1 %".
    pub value: String,
    /// What the difference means.
    pub note: String,
}

/// Two evaluations beside each other.
pub fn compare(results: &Results, other: &Results) -> ComparisonView {
    let shown = headline(other);
    let noun = noun(&results.task);
    let note = match results.compare(other) {
        Some(found) => {
            let meaning = if found.first_correct == found.second_correct {
                "They are equally good.".to_owned()
            } else {
                let better = match found.first_correct > found.second_correct {
                    true => "This run is better",
                    false => "The other run is better",
                };
                let chance = found.chance;
                if chance < 0.001 {
                    format!("{better}; chance alone hardly explains the difference (p < 0.001).")
                } else if chance < 0.05 {
                    format!("{better}; chance alone hardly explains the difference (p = {chance:.3}).")
                } else {
                    format!("{better}, but the difference may be chance (p = {chance:.2}).")
                }
            };
            format!(
                "Of the {} {noun}s in both evaluations, this run has {} right, and the other run has {} right. {meaning}",
                format_count(found.shared),
                format_count(found.first_correct),
                format_count(found.second_correct)
            )
        }
        None if results.samples.is_empty() || other.samples.is_empty() => {
            "The two runs were evaluated separately; compare their results only if the data is the same."
                .to_owned()
        }
        None => format!("The two runs share no held-out {noun}, so their results cannot be compared."),
    };
    ComparisonView {
        value: format!("{} {}", shown.value, shown.unit)
            .trim_end()
            .to_owned(),
        note,
    }
}

/// An evaluation on a folder that is not part of the run.
pub fn folder_report(results: &Results) -> ReportView {
    ReportView {
        classes: results.report.classes.iter().map(class).collect(),
        targets: targets(results),
        ..headline(results)
    }
}

fn report(run: &Run, results: &Results) -> ReportView {
    let report = &results.report;
    let mistakes = results.worst();
    let (curve_title, metric) = curve_metric(report);
    let evaluations = run.evaluations().iter();
    let curve = evaluations.filter_map(|evaluation| {
        let value = match metric {
            Some(name) => *evaluation.metrics.get(name)?,
            None => evaluation.loss,
        };
        value.is_finite().then_some((evaluation.epoch, value))
    });
    let best = run.evaluations().iter().find(|e| e.step == report.step);
    ReportView {
        classes: report.classes.iter().map(class).collect(),
        confusion: (report.confusion.iter())
            .map(|entry| (entry.class, entry.predicted, entry.count))
            .collect(),
        calibration: bins(results.calibration.as_ref()),
        calibration_note: results
            .calibration
            .as_ref()
            .map(calibration_note)
            .unwrap_or_default(),
        mistake_count: mistakes.len() as u64,
        mistakes: samples(results, &mistakes[..mistakes.len().min(MISTAKES)]),
        curve: curve.collect(),
        curve_title: curve_title.to_owned(),
        best_epoch: best.map_or(0, |evaluation| evaluation.epoch),
        targets: targets(results),
        ..headline(results)
    }
}

/// The title of the curve and the name of its metric; the loss without a metric.
fn curve_metric(report: &EvaluationReport) -> (&'static str, Option<&'static str>) {
    let known = [
        ("Accuracy by epoch", "accuracy"),
        ("Bits per byte by epoch", "bits_per_byte"),
        ("Reward by epoch", "reward"),
    ];
    let found = known
        .iter()
        .find(|(_, name)| report.metrics.contains_key(*name));
    found.map_or(("Held-out loss by epoch", None), |(title, name)| {
        (title, Some(name))
    })
}

/// The large number, its title and what it means.
fn headline(results: &Results) -> ReportView {
    let part = match &*results.report.part {
        "test" => "Test",
        "whole" => "Folder",
        _ => "Held-out",
    };
    let shown = accuracy_headline(results)
        .or_else(|| text_headline(&results.report))
        .or_else(|| target_headline(results))
        .unwrap_or_else(|| ReportView {
            title: "loss".to_owned(),
            value: format!("{:.3}", results.report.loss),
            ..ReportView::default()
        });
    ReportView {
        title: format!("{part} {}", shown.title),
        ..shown
    }
}

/// "93.4 %: 227 of 243 images."
fn accuracy_headline(results: &Results) -> Option<ReportView> {
    let report = &results.report;
    let accuracy = *report.metrics.get("accuracy")?;
    let (low, high) = report.accuracy_interval?;
    let correct = (accuracy * report.samples as f64).round() as u64;
    Some(ReportView {
        title: "accuracy".to_owned(),
        value: format!("{:.1}", 100.0 * accuracy),
        unit: "%".to_owned(),
        note: format!(
            "{} of {} {}s. At this number of samples, the true accuracy is likely between {:.1} and {:.1} %.",
            format_count(correct),
            format_count(report.samples),
            noun(&results.task),
            100.0 * low,
            100.0 * high
        ),
        ..ReportView::default()
    })
}

/// Bits per byte of a language model, or the kept tokens of a compression.
fn text_headline(report: &EvaluationReport) -> Option<ReportView> {
    let metric = |name: &str| report.metrics.get(name).copied();
    let windows = format_count(report.samples);
    if let Some(bits) = metric("bits_per_byte") {
        return Some(ReportView {
            title: "text".to_owned(),
            value: format!("{bits:.2}"),
            unit: "bits per byte".to_owned(),
            note: format!(
                "The model needs this many bits for one byte of unseen text; without a model, one byte takes 8 bits. {windows} windows were evaluated."
            ),
            ..ReportView::default()
        });
    }
    let kept = metric("kept_fraction")?;
    let lost = metric("loss_per_dropped").unwrap_or(f64::NAN);
    Some(ReportView {
        title: "compression".to_owned(),
        value: format!("{:.1}", 100.0 * kept),
        unit: "%".to_owned(),
        note: format!(
            "of the tokens are kept. Filling in a dropped token costs {lost:.2} nats. {windows} windows were evaluated."
        ),
        ..ReportView::default()
    })
}

/// The error of the first regression target.
fn target_headline(results: &Results) -> Option<ReportView> {
    let target = results.report.targets.first()?;
    Some(ReportView {
        title: "error".to_owned(),
        value: in_unit(target.mean_absolute_error),
        unit: target.name.clone(),
        note: format!(
            "Predictions of {} are off by this much on average. Always predicting the mean would be off by {}. {} {}s were evaluated.",
            target.name,
            in_unit(target.mean_baseline_error),
            format_count(results.report.samples),
            noun(&results.task)
        ),
        ..ReportView::default()
    })
}

fn class(class: &trainer::ClassReport) -> ClassResultView {
    let correct = class.recall.unwrap_or(0.0) * class.samples as f64;
    ClassResultView {
        name: class.name.clone(),
        samples: class.samples,
        correct: correct.round() as u64,
        precision: class.precision,
        recall: class.recall,
        f1: class.f1,
    }
}

fn bins(calibration: Option<&Calibration>) -> Vec<(u64, f64, f64)> {
    let bins = calibration.map_or(&[][..], |calibration| &calibration.bins);
    bins.iter()
        .map(|bin| (bin.samples, bin.confidence, bin.accuracy))
        .collect()
}

/// "The model is too sure of itself, by 4.2 percentage points; the expected calibration error is
/// 5.1 %."
fn calibration_note(calibration: &Calibration) -> String {
    let points = 100.0 * calibration.overconfidence;
    let direction = if points > 2.0 {
        format!("The model is too sure of itself, by {points:.1} percentage points")
    } else if points < -2.0 {
        format!(
            "The model is less sure than it could be, by {:.1} percentage points",
            -points
        )
    } else {
        "The model is right as often as its percentages predict".to_owned()
    };
    let error = format_percent(calibration.expected_error);
    format!("{direction}; the expected calibration error is {error}.")
}

/// The samples at these places of the results.
pub fn samples(results: &Results, places: &[usize]) -> Vec<ResultSample> {
    let name = |class: u32| {
        let class = results.report.classes.get(class as usize);
        class.map_or_else(String::new, |class| class.name.clone())
    };
    let shown = |place: usize| {
        let sample = results.samples.get(place)?;
        let (title, detail) = match (sample.class, sample.targets.first()) {
            (Some(class), _) => (
                name(class.class),
                format!(
                    "{} {:.0} %",
                    name(class.predicted),
                    100.0 * class.probability
                ),
            ),
            (None, Some(Some((value, predicted)))) => (
                in_unit(*value),
                format!("predicted {}", in_unit(*predicted)),
            ),
            (None, _) => (String::new(), String::new()),
        };
        Some(ResultSample {
            id: place as u32,
            file: sample.file.clone(),
            title,
            detail,
            text: None,
        })
    };
    places.iter().filter_map(|place| shown(*place)).collect()
}

/// "80.1", or "0.82" below 10.
fn in_unit(value: f64) -> String {
    match value.abs() < 10.0 {
        true => format!("{value:.2}"),
        false => format!("{value:.1}"),
    }
}

fn targets(results: &Results) -> Vec<TargetResultView> {
    let with_interval = |value: f64, (low, high): (f64, f64)| {
        format!("{} ({} to {})", in_unit(value), in_unit(low), in_unit(high))
    };
    let target = |(place, target): (usize, &trainer::RegressionReport)| {
        let values = results.samples.iter();
        let values: Vec<(f64, f64)> = values
            .filter_map(|sample| sample.targets.get(place).copied().flatten())
            .collect();
        let step = values.len().div_ceil(POINTS).max(1);
        let better = target.mean_baseline_error - target.mean_absolute_error;
        TargetResultView {
            name: target.name.clone(),
            samples: target.samples,
            error: with_interval(target.mean_absolute_error, target.interval),
            baseline: in_unit(target.mean_baseline_error),
            better: with_interval(better, target.improvement_interval),
            points: values.into_iter().step_by(step).collect(),
        }
    };
    results
        .report
        .targets
        .iter()
        .enumerate()
        .map(target)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::ExportView;
    use crate::try_it::{AnswerView, InputView};
    use std::path::Path;

    #[test]
    fn the_types_of_the_results_page_are_current() {
        let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/generated");
        let fresh = tempfile::tempdir().expect("a temporary folder");
        let checked = runlog::bindings::check(&generated, fresh.path(), |config| {
            ResultsView::export_all(config)?;
            ComparisonView::export_all(config)?;
            ExportView::export_all(config)?;
            InputView::export_all(config)?;
            AnswerView::export_all(config)
        });
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn calibration_is_put_in_words() {
        let note = |overconfidence: f64| {
            calibration_note(&Calibration {
                bins: Vec::new(),
                expected_error: 0.051,
                overconfidence,
            })
        };
        assert_eq!(
            note(0.042),
            "The model is too sure of itself, by 4.2 percentage points; the expected calibration error is 5.1 %."
        );
        assert!(
            note(-0.03)
                .starts_with("The model is less sure than it could be, by 3.0 percentage points")
        );
        assert!(note(0.0).starts_with("The model is right as often as its percentages predict"));
    }
}
