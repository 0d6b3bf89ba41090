//! The report of an evaluation: metrics for each class and each regression target, with confidence
//! intervals.

use super::{ConfusionEntry, EvaluatedMicroBatch, Metrics, RegressionReport};
use crate::error::{Result, at};
use dataset::{Split, TargetColumn};
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// The evaluation of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Name of the class.
    pub name: String,
    /// Evaluated samples of this class.
    pub samples: u64,
    /// Fraction of its predictions that are correct; absent if it was never predicted.
    pub precision: Option<f64>,
    /// Fraction of its samples that are classified correctly; absent if it has none.
    pub recall: Option<f64>,
    /// Harmonic mean of the two; absent if the class is neither a label nor a prediction.
    pub f1: Option<f64>,
}

/// A complete evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// Step of the checkpoint.
    pub step: u64,
    /// `train`, `held-out` or `test`; `whole` for a dataset that the run has never seen.
    pub part: String,
    /// Samples evaluated.
    pub samples: u64,
    /// Mean loss, in nats if there are only classes.
    #[serde(deserialize_with = "runlog::json_floats::or_null")]
    pub loss: f64,
    /// Metrics by name, as in the events of the run.
    #[serde(deserialize_with = "runlog::json_floats::map_or_null")]
    pub metrics: BTreeMap<String, f64>,
    /// 95 % interval of the accuracy (Wilson 1927); absent without classes.
    pub accuracy_interval: Option<(f64, f64)>,
    /// Classes in label order.
    pub classes: Vec<ClassReport>,
    /// The confusion matrix, without its zeros.
    pub confusion: Vec<ConfusionEntry>,
    /// Regression targets, in the units of their columns.
    #[serde(rename = "numbers")]
    pub targets: Vec<RegressionReport>,
}

/// The name of a split in text and file names.
pub(crate) fn split_name(part: Split) -> &'static str {
    match part {
        Split::Train => "train",
        Split::HeldOut => "held-out",
        Split::Test => "test",
    }
}

/// What a report says besides the metrics.
#[derive(Debug, Clone, Copy)]
pub struct ReportInputs<'a> {
    /// Class names in label order.
    pub classes: &'a [String],
    /// The columns of the regression targets.
    pub columns: &'a [TargetColumn],
    /// Step of the checkpoint.
    pub step: u64,
    /// The evaluated split.
    pub part: &'static str,
}

impl EvaluationReport {
    /// Reports an evaluation of the checkpoint at `step` on the split `part`.
    pub fn new(sum: &EvaluatedMicroBatch, metrics: &Metrics, about: &ReportInputs) -> Self {
        let ReportInputs {
            classes, columns, ..
        } = *about;
        let confusion: Vec<ConfusionEntry> = sum.confusion.entries().collect();
        let by_class = (0..).zip(classes);
        let class = |(label, name): (u32, &String)| {
            let count = |matches: &dyn Fn(&ConfusionEntry) -> bool| -> u64 {
                let entries = confusion.iter().filter(|entry| matches(entry));
                entries.map(|entry| entry.count).sum()
            };
            let samples = count(&|entry| entry.class == label);
            let predictions = count(&|entry| entry.predicted == label);
            let correct = count(&|entry| entry.class == label && entry.predicted == label) as f64;
            let share = |of: u64| (of > 0).then(|| correct / of as f64);
            ClassReport {
                name: name.clone(),
                samples,
                precision: share(predictions),
                recall: share(samples),
                f1: share(samples + predictions).map(|half| 2.0 * half),
            }
        };
        EvaluationReport {
            step: about.step,
            part: about.part.to_owned(),
            samples: metrics.samples,
            loss: metrics.loss,
            metrics: metrics.by_name.clone(),
            accuracy_interval: (!classes.is_empty()).then(|| wilson(sum.correct, sum.samples)),
            classes: by_class.map(class).collect(),
            confusion,
            targets: (sum.targets.iter().zip(columns))
                .map(|(errors, column)| errors.report(column))
                .collect(),
        }
    }

    /// The fraction of preferences whose chosen answer has the higher reward, with its 95 %
    /// interval (Wilson 1927); `None` for a run that learned no preferences. Guessing reaches one
    /// half.
    pub fn preference_accuracy(&self) -> Option<(f64, (f64, f64))> {
        let accuracy = *self.metrics.get(super::preferences::ACCURACY)?;
        let correct = (accuracy * self.samples as f64).round() as u64;
        Some((accuracy, wilson(correct, self.samples)))
    }

    /// Classes without a sample in the evaluation.
    pub fn absent(&self) -> Vec<&str> {
        let absent = self.classes.iter().filter(|class| class.samples == 0);
        absent.map(|class| class.name.as_str()).collect()
    }

    /// The most frequent mistakes.
    pub fn mistakes(&self, limit: usize) -> Vec<ConfusionEntry> {
        let wrong = self.confusion.iter().filter(|t| t.class != t.predicted);
        let mut wrong: Vec<ConfusionEntry> = wrong.copied().collect();
        wrong.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        wrong.truncate(limit);
        wrong
    }

    /// Saves the report in the run folder, for example as `metrics-test.json`.
    ///
    /// # Errors
    /// The run folder cannot be written.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        let path = run.path.join(format!("metrics-{}.json", self.part));
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other);
        disk::write_atomic(&path, &text.map_err(at(&path))?).map_err(at(&path))
    }
}

/// The 95 % interval of the fraction `correct / all` (Wilson 1927). It stays within 0 and 1 and is
/// valid for few samples.
pub fn wilson(correct: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (all as f64, correct as f64 / all as f64);
    let scale = 1.0 / (1.0 + Z * Z / n);
    let middle = scale * (p + Z * Z / (2.0 * n));
    let half = scale * Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Heads, ImageTask, MetricInputs, Task};

    #[test]
    fn the_accuracy_interval_matches_published_values() {
        // From the formula by hand: 81 of 263 (Newcombe 1998, table I).
        let (low, high) = wilson(81, 263);
        assert!(
            (low - 0.2553).abs() < 5e-5 && (high - 0.3662).abs() < 5e-5,
            "{low} {high}"
        );
        // 0 of 20, 1 of 29: the same table.
        let (low, high) = wilson(0, 20);
        assert!(low == 0.0 && (high - 0.1611).abs() < 5e-5, "{high}");
        let (low, high) = wilson(1, 29);
        assert!(
            (low - 0.0061).abs() < 5e-5 && (high - 0.1718).abs() < 5e-5,
            "{low} {high}"
        );
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }

    #[test]
    fn precision_and_recall_are_computed_per_class() {
        let mut sum = EvaluatedMicroBatch {
            samples: 10,
            weight: 10.0,
            correct: 7,
            in_top_5: 10,
            ..EvaluatedMicroBatch::default()
        };
        // 5 of 6 ants and 2 of 4 bees are correct; one ant is classified as a bee, two bees as
        // cicadas.
        for (label, predicted, count) in [(0, 0, 5), (0, 1, 1), (1, 1, 2), (1, 2, 2)] {
            (0..count).for_each(|_| sum.confusion.count(label, predicted));
        }
        let names = ["ant", "bee", "cicada", "dragonfly"].map(str::to_owned);
        let inputs = MetricInputs {
            held_out_bytes: 0,
            heads: Heads::for_classes(4),
            columns: &[],
        };
        let metrics = ImageTask::metrics(&sum, &inputs);
        let about = ReportInputs {
            classes: &names,
            columns: &[],
            step: 3,
            part: split_name(Split::Test),
        };
        let report = EvaluationReport::new(&sum, &metrics, &about);
        let [ant, bee, cicada, dragonfly] = &report.classes[..] else {
            panic!("{report:?}")
        };
        assert_eq!((ant.precision, ant.recall), (Some(1.0), Some(5.0 / 6.0)));
        assert_eq!((bee.precision, bee.recall), (Some(2.0 / 3.0), Some(0.5)));
        assert_eq!(
            (cicada.precision, cicada.recall, cicada.f1),
            (Some(0.0), None, Some(0.0))
        );
        assert_eq!((dragonfly.precision, dragonfly.f1), (None, None));
        let f1 = [ant, bee, cicada].map(|class| class.f1.unwrap_or(f64::NAN));
        assert!((f1[0] - 10.0 / 11.0).abs() < 1e-12 && (f1[1] - 4.0 / 7.0).abs() < 1e-12);
        let macro_f1 = metrics.get("macro_f1").unwrap_or(f64::NAN);
        assert!((macro_f1 - f1.iter().sum::<f64>() / 3.0).abs() < 1e-12);
        assert_eq!(report.absent(), ["cicada", "dragonfly"]);
        assert_eq!(
            report.mistakes(1)[0],
            ConfusionEntry {
                class: 1,
                predicted: 2,
                count: 2
            }
        );
        assert_eq!(report.accuracy_interval, Some(wilson(7, 10)));
    }
}
