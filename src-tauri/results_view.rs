//! Converts the results of a run into what the results page shows. The page receives numbers for
//! its charts, and everything else as text.

use crate::judge_run::{facts_of_training, noun};
use crate::results_headline::headline;
use crate::window_types::{CommandError, RunRow};
use dataset::{ChatTemplate, Task};
use runlog::{
    AnswersRecord, MISSING, PromptAnswer, Run, RunConfig, Started, TaskChoice, format_bytes,
    format_count, format_duration, format_in_unit, format_percent, format_speed,
};
use serde::Serialize;
use std::path::Path;
use trainer::{Calibration, EvaluationReport, Results, Tone};
use ts_rs::TS;

/// Number of mistakes that the page shows at once.
pub const MISTAKES: usize = 60;
/// Number of labels that may be wrong that the page shows, like `ebb evaluate`.
const SUSPICIOUS_LABELS: usize = 10;
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
    /// Whether it is a language model that answers in conversations.
    pub chats: bool,
    /// Whether it started from another language model, to compare with.
    pub has_base: bool,
    /// The answers to the prompts of the run after its evaluations, the oldest first.
    pub answers: Vec<PromptAnswersView>,
}

/// The answers to the prompts of a run after one evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct PromptAnswersView {
    /// Completed steps.
    pub step: u64,
    /// Whether no evaluation was better.
    pub is_best: bool,
    /// The prompts with their answers.
    pub answers: Vec<PromptAnswer>,
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
    /// The samples whose labels are most likely wrong.
    pub suspicious: Vec<ResultSample>,
    /// Number of all labels that may be wrong.
    pub suspicious_count: u64,
    /// Epoch and headline metric of each held-out evaluation, as a fraction for an accuracy.
    pub curve: Vec<(u64, f64)>,
    /// "Accuracy by epoch".
    pub curve_title: String,
    /// Epoch of the evaluated checkpoint.
    pub best_epoch: u64,
    /// Regression targets.
    pub targets: Vec<TargetResultView>,
    /// The measures of a language model that was fine-tuned, before and after its training.
    pub measures: Vec<MeasureView>,
}

/// A measure of a language model before and after its training.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct MeasureView {
    /// "Perplexity".
    pub label: String,
    /// "24.10".
    pub before: String,
    /// "9.83".
    pub after: String,
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
    /// The entropy of the evaluated bytes, if the judgement needs it.
    pub byte_entropy: Option<f64>,
}

/// The view, without the state of a running evaluation.
pub fn view(sources: &Sources) -> ResultsView {
    let started = sources.run.started();
    let task = started.map_or("", |started| &*started.task);
    let sample_noun = noun(task);
    let judgement = sources.results.and_then(|results| {
        let facts = facts_of_training(sources.run, sources.config, sources.byte_entropy);
        let found = results.judge(&facts)?;
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
        chats: chats(task, sources.config),
        has_base: sources.config.from.is_some(),
        answers: prompt_answers(sources.run),
    }
}

fn prompt_answers(run: &Run) -> Vec<PromptAnswersView> {
    let best = run.figures().best_step;
    let answers = run.answers().iter();
    let view = |record: &AnswersRecord| PromptAnswersView {
        step: record.step,
        is_best: Some(record.step) == best,
        answers: record.answers.clone(),
    };
    answers.map(view).collect()
}

/// Whether the model of a run can chat: it was trained on conversations, or the model that it
/// started from has a chat template.
fn chats(task: &str, config: &RunConfig) -> bool {
    let has_template = |folder: &Path| matches!(ChatTemplate::from_folder(folder), Ok(Some(_)));
    let is_language_model = Task::from_name(task) == Some(Task::LanguageModel);
    is_language_model
        && (config.loss_on.is_some() || config.from.as_deref().is_some_and(has_template))
}

/// The rows beside the headline.
fn facts(sources: &Sources) -> Vec<(String, String)> {
    let run = sources.run;
    let results = sources.results;
    let mut rows = results.map_or_else(Vec::new, |results| facts_of_results(run, results));
    let seconds = run.now_ms() as f64 / 1000.0;
    rows.push(("Trained for", format_duration(seconds)));
    let speed = run.started().filter(|_| seconds > 0.0).map(|started| {
        let samples = run.figures().step as f64 * f64::from(started.effective_batch);
        format_speed(samples / seconds, Some(started))
    });
    rows.push(("Average speed", speed.unwrap_or_else(|| MISSING.to_owned())));
    rows.extend(footprints(run));
    rows.push(("Micro-batch", micro_batches(run)));
    let owned = rows
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value));
    owned.collect()
}

/// The largest footprint that was measured, and the one that was estimated before the start.
fn footprints(run: &Run) -> Vec<(&'static str, String)> {
    let shown = |bytes: Option<u64>| bytes.filter(|bytes| *bytes > 0).map(format_bytes);
    let measured = shown(run.highest_footprint()).unwrap_or_else(|| MISSING.to_owned());
    let estimated = run.started().map(|started| started.estimated_peak_bytes);
    let estimated = shown(estimated).map(|bytes| ("Estimated footprint", bytes));
    [("Largest footprint", measured)]
        .into_iter()
        .chain(estimated)
        .collect()
}

/// The rows beside the headline that the evaluation knows.
fn facts_of_results(run: &Run, results: &Results) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let report = &results.report;
    rows.push(("Checkpoint", best_checkpoint(run, report.step)));
    if !is_on_bytes(report) {
        rows.push(("Loss", format!("{:.3}", report.loss)));
    }
    if report.base.is_none() {
        // A table shows the measures of a model that was fine-tuned.
        let measures = report.language_measures().into_iter();
        let perplexity = measures.filter(|measure| measure.key == "perplexity");
        rows.extend(perplexity.map(|it| (it.label, it.after_text())));
    }
    if let Some(guessing) = results.guessing_accuracy {
        rows.push(("Largest class alone", format_percent(guessing)));
    }
    if report.preference_accuracy().is_some() {
        rows.push(("Guessing", format_percent(0.5)));
    }
    let baseline = run.baseline().and_then(|baseline| baseline.accuracy);
    let (alone, weight) = match run.started().and_then(Started::known_task) {
        Some(TaskChoice::ImageClassification) => {
            ("Edges and colors alone", "Weight of edges and colors")
        }
        _ => ("Word counts alone", "Weight of the word counts"),
    };
    rows.extend(baseline.map(|accuracy| (alone, format_percent(accuracy))));
    let network = report.metrics.get("network_accuracy");
    rows.extend(network.map(|accuracy| ("Network alone", format_percent(*accuracy))));
    let share = report.metrics.get("baseline_share");
    rows.extend(share.map(|share| (weight, format_percent(*share))));
    for (name, label) in [("top_5", "Top-5 accuracy"), ("macro_f1", "Macro F1")] {
        let value = report.metrics.get(name);
        let many = name != "top_5" || report.classes.len() > 5;
        rows.extend(
            value
                .filter(|_| many)
                .map(|value| (label, format_percent(*value))),
        );
    }
    rows
}

/// Whether bytes are predicted. The headline has their bits per byte, or says what a dropped byte
/// costs; the loss beside it would be another unit for the same value.
fn is_on_bytes(report: &EvaluationReport) -> bool {
    ["bits_per_byte", "loss_per_dropped"]
        .iter()
        .any(|metric| report.metrics.contains_key(*metric))
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
    if least == most {
        least.to_string()
    } else {
        format!("{least} to {most}")
    }
}

/// An evaluation on a folder that is not part of the run.
pub fn folder_report(results: &Results) -> ReportView {
    ReportView {
        classes: results.report.classes.iter().map(class).collect(),
        targets: targets(results),
        ..headline_view(results)
    }
}

fn report(run: &Run, results: &Results) -> ReportView {
    let report = &results.report;
    let mistakes = results.worst();
    let (suspicious, suspicious_count) = suspicious(results);
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
        suspicious,
        suspicious_count,
        curve: curve.collect(),
        curve_title: curve_title.to_owned(),
        best_epoch: best.map_or(0, |evaluation| evaluation.epoch),
        targets: targets(results),
        ..headline_view(results)
    }
}

/// The measures of a language model that was fine-tuned; empty for other models.
fn measures(report: &EvaluationReport) -> Vec<MeasureView> {
    let measures = report.language_measures().into_iter();
    let view = measures.filter_map(|measure| {
        Some(MeasureView {
            label: measure.label.to_owned(),
            before: measure.before_text()?,
            after: measure.after_text(),
        })
    });
    view.collect()
}

/// The samples whose labels are most likely wrong, and the number of all labels that may be wrong.
fn suspicious(results: &Results) -> (Vec<ResultSample>, u64) {
    let found = results.suspicious_labels();
    let listed = found.iter().take(SUSPICIOUS_LABELS);
    let places: Vec<usize> = listed.map(|label| label.place).collect();
    (samples(results, &places), found.len() as u64)
}

/// The title of the curve and the name of its metric; the loss without a metric.
fn curve_metric(report: &EvaluationReport) -> (&'static str, Option<&'static str>) {
    let known = [
        ("Accuracy by epoch", "accuracy"),
        ("Bits per byte by epoch", "bits_per_byte"),
        ("Reward by epoch", "reward"),
        ("Accuracy of preferences by epoch", "preference_accuracy"),
    ];
    let found = known
        .iter()
        .find(|(_, name)| report.metrics.contains_key(*name));
    found.map_or(("Held-out loss by epoch", None), |(title, name)| {
        (title, Some(name))
    })
}

fn headline_view(results: &Results) -> ReportView {
    let headline = headline(results);
    ReportView {
        title: headline.title,
        value: headline.value,
        unit: headline.unit,
        note: headline.note,
        measures: measures(&results.report),
        ..ReportView::default()
    }
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

/// "The model is overconfident by 4.2 percentage points; the expected calibration error is 5.1 %."
fn calibration_note(calibration: &Calibration) -> String {
    let points = 100.0 * calibration.overconfidence;
    let direction = if points > 2.0 {
        format!("The model is overconfident by {points:.1} percentage points")
    } else if points < -2.0 {
        format!(
            "The model is underconfident by {:.1} percentage points",
            -points
        )
    } else {
        "The model is right about as often as its confidence says".to_owned()
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
                format_in_unit(*value),
                format!("predicted {}", format_in_unit(*predicted)),
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

fn targets(results: &Results) -> Vec<TargetResultView> {
    let with_interval = |value: f64, (low, high): (f64, f64)| {
        format!(
            "{} ({} to {})",
            format_in_unit(value),
            format_in_unit(low),
            format_in_unit(high)
        )
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
            baseline: format_in_unit(target.mean_baseline_error),
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
    use crate::export_run::ExportView;
    use crate::try_it::{AnswersView, InputView, TryFilesView};
    use runlog::RunEvent;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn the_types_of_the_results_page_are_current() {
        let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui/src/generated");
        let fresh = tempfile::tempdir().expect("a temporary folder");
        let checked =
            runlog::check_typescript_bindings::check(&generated, fresh.path(), |config| {
                ResultsView::export_all(config)?;
                ExportView::export_all(config)?;
                InputView::export_all(config)?;
                TryFilesView::export_all(config)?;
                AnswersView::export_all(config)
            });
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn the_answers_after_the_best_evaluation_are_marked() {
        let mut run = Run::default();
        for (step, loss) in [(10, 2.0), (20, 1.0), (30, 1.5)] {
            run.apply(&RunEvent::Evaluation {
                at_ms: step,
                step,
                epoch: 1,
                samples: 4,
                loss,
                metrics: BTreeMap::new(),
                best: loss < 2.5,
            });
            run.apply(&RunEvent::Answers {
                at_ms: step,
                step,
                answers: vec![PromptAnswer::default()],
            });
        }
        let found = prompt_answers(&run);
        let marked: Vec<_> = found.iter().map(|it| (it.step, it.is_best)).collect();
        assert_eq!(marked, [(10, false), (20, true), (30, false)]);
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
            "The model is overconfident by 4.2 percentage points; the expected calibration error is 5.1 %."
        );
        assert!(note(-0.03).starts_with("The model is underconfident by 3.0 percentage points"));
        assert!(note(0.0).starts_with("The model is right about as often as its confidence says"));
    }

    #[test]
    fn the_estimated_footprint_stands_beside_the_measured_one() {
        let rows = |estimated_peak_bytes| {
            let mut run = Run::default();
            run.apply(&runlog::RunEvent::Started(Box::new(Started {
                estimated_peak_bytes,
                ..Started::default()
            })));
            footprints(&run)
        };
        let measured = ("Largest footprint", MISSING.to_owned());
        assert_eq!(rows(0), std::slice::from_ref(&measured));
        let estimated = ("Estimated footprint", "1.7 GB".to_owned());
        assert_eq!(rows((1.7 * 1_073_741_824.0) as u64), [measured, estimated]);
    }

    /// A loss in nats beside the same in bits would be a riddle.
    #[test]
    fn a_language_model_and_a_compression_have_no_loss_in_nats() {
        let labels = |task: &str, metrics: serde_json::Value| {
            let results = json!({
                "version": 1, "task": task, "guessing_accuracy": null, "calibration": null,
                "samples": [], "report": {
                    "step": 3, "part": "held-out", "samples": 243, "loss": 0.301,
                    "metrics": metrics, "accuracy_interval": null, "classes": [], "confusion": [],
                    "numbers": [],
                },
            });
            let results = serde_json::from_value(results).expect("it is written like a run's");
            let rows = facts_of_results(&Run::default(), &results);
            rows.into_iter().map(|(label, _)| label).collect::<Vec<_>>()
        };
        let bits = json!({"bits_per_byte": 2.25});
        assert_eq!(labels("language-model", bits), ["Checkpoint", "Perplexity"]);
        let kept = json!({"kept_fraction": 0.5, "loss_per_dropped": 1.25});
        assert_eq!(labels("token-compression", kept), ["Checkpoint"]);
        let preferred = labels("language-model", json!({"preference_accuracy": 0.9}));
        assert_eq!(preferred, ["Checkpoint", "Loss", "Guessing"]);
        let accuracy = labels("image-classification", json!({"accuracy": 0.9}));
        assert_eq!(accuracy, ["Checkpoint", "Loss"]);
    }

    #[test]
    fn a_fine_tuned_language_model_has_a_table_of_before_and_after() {
        let results = |base: serde_json::Value| {
            let results = json!({
                "version": 1, "task": "language-model", "guessing_accuracy": null,
                "calibration": null, "samples": [], "report": {
                    "step": 3, "part": "held-out", "samples": 243, "loss": 1.0,
                    "metrics": {"bits_per_byte": 0.5}, "accuracy_interval": null, "classes": [],
                    "confusion": [], "numbers": [], "base": base,
                },
            });
            serde_json::from_value::<Results>(results).expect("it is written like a run's")
        };
        let tuned = results(json!({"loss": 5.0, "bits_per_byte": 2.5}));
        let rows = folder_report(&tuned).measures;
        let rows: Vec<_> = rows
            .iter()
            .map(|row| [&*row.label, &*row.before, &*row.after])
            .collect();
        let expected = [
            ["Loss per token", "5.000", "1.000"],
            ["Perplexity", "148", "2.72"],
            ["Bits per byte", "2.500", "0.500"],
        ];
        assert_eq!(rows, expected);
        let labels = |results: &Results| {
            let rows = facts_of_results(&Run::default(), results);
            rows.into_iter().map(|(label, _)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&tuned), ["Checkpoint"], "the table has it");
        let scratch = results(json!(null));
        assert!(folder_report(&scratch).measures.is_empty());
        assert_eq!(labels(&scratch), ["Checkpoint", "Perplexity"]);
    }

    /// 60 ants and 60 bees. The model recognizes all except 12 of the ants. It predicts that these
    /// are bees, with more confidence for later ones.
    fn with_wrong_labels() -> Results {
        let sample = |index: u32| {
            let class = index % 2;
            let is_wrong = class == 0 && index < 24;
            let probability = if is_wrong {
                0.9 + f64::from(index) / 1000.0
            } else {
                0.8
            };
            let own = if is_wrong {
                1.0 - probability
            } else {
                probability
            };
            json!({
                "index": index, "file": format!("{index}.jpg"),
                "class": {
                    "class": class, "predicted": if is_wrong { 1 } else { class },
                    "probability": probability, "class_probability": own,
                },
            })
        };
        let class = |name: &str, recall: f64| {
            json!({
                "name": name, "samples": 60, "precision": recall, "recall": recall, "f1": recall,
            })
        };
        let results = json!({
            "version": 1, "task": "image-classification", "guessing_accuracy": 0.5,
            "calibration": null, "samples": (0..120).map(sample).collect::<Vec<_>>(),
            "report": {
                "step": 3, "part": "held-out", "samples": 120, "loss": 0.3,
                "metrics": {"accuracy": 0.9}, "accuracy_interval": [0.83, 0.94],
                "classes": [class("ant", 0.8), class("bee", 1.0)], "confusion": [], "numbers": [],
            },
        });
        serde_json::from_value(results).expect("it is written like the file of a run")
    }

    #[test]
    fn the_ten_most_suspicious_labels_are_shown_and_all_are_counted() {
        let (shown, count) = suspicious(&with_wrong_labels());
        assert_eq!((shown.len(), count), (SUSPICIOUS_LABELS, 12));
        let first = ResultSample {
            id: 22,
            file: "22.jpg".to_owned(),
            title: "ant".to_owned(),
            detail: "bee 92 %".to_owned(),
            text: None,
        };
        assert_eq!(shown[0], first);
    }
}
