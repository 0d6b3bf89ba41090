//! The report of an evaluation: metrics for each class and each regression target, with confidence
//! intervals.

use super::{ConfusionEntry, EvaluatedMicroBatch, Metrics, RegressionReport};
use crate::error::{Result, at};
use dataset::{Split, TargetColumn};
use runlog::{RunFolder, format_count};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Perplexities from here on are shown as a power of ten.
const LARGE_PERPLEXITY: f64 = 1e9;

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
    /// The weights that the run started from, on the same samples; only for language models that
    /// were fine-tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseReport>,
}

/// The evaluation of the weights that a language model was fine-tuned from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BaseReport {
    /// Mean loss per learned token, in nats.
    #[serde(deserialize_with = "runlog::json_floats::or_null")]
    pub loss: f64,
    /// Bits per byte of the evaluated text.
    #[serde(deserialize_with = "runlog::json_floats::or_null")]
    pub bits_per_byte: f64,
}

/// One measure of a language model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LanguageMeasure {
    /// "Perplexity".
    pub label: &'static str,
    /// Its name in JSON: "perplexity".
    pub key: &'static str,
    /// Its value before the fine-tuning; `None` if the model was trained from random weights.
    pub before: Option<f64>,
    /// Its value after the training.
    pub after: f64,
}

impl LanguageMeasure {
    /// Its value before the fine-tuning as text.
    pub fn before_text(&self) -> Option<String> {
        self.before.map(|value| self.text(value))
    }

    /// Its value after the training as text.
    pub fn after_text(&self) -> String {
        self.text(self.after)
    }

    /// Perplexities have two decimals, or none if they are large; all others have three.
    fn text(&self, value: f64) -> String {
        match self.key {
            "perplexity" if value < 100.0 => format!("{value:.2}"),
            "perplexity" if value < LARGE_PERPLEXITY => format_count(value.round() as u64),
            "perplexity" if value.is_finite() => format!("{value:.1e}"),
            _ => format!("{value:.3}"),
        }
    }
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
            base: None,
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

    /// The loss per learned token in nats, the perplexity and the bits per byte of a language
    /// model; empty for other models and for preferences. The perplexity is the exponential of the
    /// loss. Models with other tokens have other losses and perplexities, but their bits per byte
    /// can be compared.
    pub fn language_measures(&self) -> Vec<LanguageMeasure> {
        let Some(bits) = self.metrics.get("bits_per_byte").copied() else {
            return Vec::new();
        };
        let base = self.base;
        let measure = |label, key, of_base: fn(BaseReport) -> f64, after| LanguageMeasure {
            label,
            key,
            before: base.map(of_base),
            after,
        };
        vec![
            measure("Loss per token", "loss", |base| base.loss, self.loss),
            measure(
                "Perplexity",
                "perplexity",
                |base| base.loss.exp(),
                self.loss.exp(),
            ),
            measure(
                "Bits per byte",
                "bits_per_byte",
                |base| base.bits_per_byte,
                bits,
            ),
        ]
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
    use crate::task::{Heads, ImageTask, LanguageTask, MetricInputs, Task};

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
    fn the_perplexity_is_the_exponential_of_the_loss_per_token() {
        let sum = EvaluatedMicroBatch {
            samples: 2,
            weight: 10.0,
            loss: 20.0,
            ..EvaluatedMicroBatch::default()
        };
        let inputs = MetricInputs {
            held_out_bytes: 40,
            heads: Heads::for_classes(0),
            columns: &[],
        };
        let about = ReportInputs {
            classes: &[],
            columns: &[],
            step: 3,
            part: split_name(Split::HeldOut),
        };
        let metrics = LanguageTask::metrics(&sum, &inputs);
        let mut report = EvaluationReport::new(&sum, &metrics, &about);
        let shown = |report: &EvaluationReport| -> Vec<_> {
            let measures = report.language_measures().into_iter();
            measures
                .map(|it| (it.key, it.before_text(), it.after_text()))
                .collect()
        };
        let [loss, perplexity, bits] = ["loss", "perplexity", "bits_per_byte"];
        let after = ["2.000", "7.39", "0.721"].map(str::to_owned);
        let [a, b, c] = after.clone();
        assert_eq!(
            shown(&report),
            [(loss, None, a), (perplexity, None, b), (bits, None, c)]
        );
        report.base = Some(BaseReport {
            loss: 30.0,
            bits_per_byte: 10.82,
        });
        let before = ["30.000", "1.1e13", "10.820"].map(|text| Some(text.to_owned()));
        let found = shown(&report);
        assert!(
            found.iter().map(|(_, before, _)| before).eq(&before),
            "{found:?}"
        );
        assert!(found.iter().map(|(.., after)| after).eq(&after));
        let text = serde_json::to_string(&report).expect("it can be written");
        let read: EvaluationReport = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(read, report);
        // Other tasks have no tokens.
        report.metrics.clear();
        assert!(report.language_measures().is_empty());
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
