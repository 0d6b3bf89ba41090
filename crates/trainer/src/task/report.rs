//! An evaluation class by class and number by number, with intervals: what is printed as a table and kept with the run. Plain
//! numbers from sums; refuses to know samples.

use super::{EvaluatedPiece, Metrics, NumberReport};
use crate::durable::publish;
use crate::error::{Result, at};
use dataset::{Split, TargetColumn};
use runlog::RunFolder;
use serde::Serialize;
use std::collections::BTreeMap;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// One class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Samples of it.
    pub samples: u64,
    /// Of the samples taken for it, the fraction that is of it; nothing where none was.
    pub precision: Option<f64>,
    /// Of its samples, the fraction taken for it; nothing where it has none.
    pub recall: Option<f64>,
    /// Harmonic mean of the two; nothing where the class occurs neither as label nor as answer.
    pub f1: Option<f64>,
}

/// Which sample was taken for which, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// Place of the class that it is.
    pub class: u32,
    /// Place of the class that it was taken for.
    pub taken_for: u32,
    /// How often.
    pub count: u64,
}

/// A whole evaluation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// Step of the checkpoint.
    pub step: u64,
    /// `train`, `held-out` or `test`; `whole` of what the run has never seen.
    pub part: &'static str,
    /// Samples evaluated.
    pub samples: u64,
    /// Mean loss, in nats where there are classes alone.
    pub loss: f64,
    /// Metrics by name, as in the run's events.
    pub metrics: BTreeMap<String, f64>,
    /// 95 % interval of the accuracy (Wilson 1927).
    pub accuracy_interval: Option<(f64, f64)>,
    /// Classes in label order.
    pub classes: Vec<ClassReport>,
    /// Which class was taken for which; pairs that never occurred are left out.
    pub confusion: Vec<Taken>,
    /// Numbers, in the units of their columns.
    pub numbers: Vec<NumberReport>,
}

/// The name of a part in words and file names.
pub(crate) fn part_name(part: Split) -> &'static str {
    match part {
        Split::Train => "train",
        Split::HeldOut => "held-out",
        Split::Test => "test",
    }
}

impl EvaluationReport {
    /// What sums come to for classes and columns of these names.
    pub fn of(
        sum: &EvaluatedPiece,
        metrics: &Metrics,
        (classes, columns): (&[String], &[TargetColumn]),
        (step, part): (u64, &'static str),
    ) -> Self {
        let confusion: Vec<Taken> = sum.confusion.pairs().collect();
        let by_class = (0..).zip(classes);
        let class = |(label, name): (u32, &String)| {
            let count = |of: &dyn Fn(&Taken) -> bool| -> u64 {
                let pairs = confusion.iter().filter(|taken| of(taken));
                pairs.map(|taken| taken.count).sum()
            };
            let samples = count(&|taken| taken.class == label);
            let answers = count(&|taken| taken.taken_for == label);
            let right = count(&|taken| taken.class == label && taken.taken_for == label) as f64;
            let share = |of: u64| (of > 0).then(|| right / of as f64);
            ClassReport {
                name: name.clone(),
                samples,
                precision: share(answers),
                recall: share(samples),
                f1: share(samples + answers).map(|half| 2.0 * half),
            }
        };
        EvaluationReport {
            step,
            part,
            samples: metrics.samples,
            loss: metrics.loss,
            metrics: metrics.by_name.clone(),
            accuracy_interval: (!classes.is_empty()).then(|| wilson(sum.right, sum.samples)),
            classes: by_class.map(class).collect(),
            confusion,
            numbers: (sum.numbers.iter().zip(columns))
                .map(|(errors, column)| errors.report(column))
                .collect(),
        }
    }

    /// Classes of which nothing was evaluated.
    pub fn absent(&self) -> Vec<&str> {
        let absent = self.classes.iter().filter(|class| class.samples == 0);
        absent.map(|class| class.name.as_str()).collect()
    }

    /// The most frequent mistakes.
    pub fn mistakes(&self, most: usize) -> Vec<Taken> {
        let wrong = self.confusion.iter().filter(|t| t.class != t.taken_for);
        let mut wrong: Vec<Taken> = wrong.copied().collect();
        wrong.sort_by_key(|taken| std::cmp::Reverse(taken.count));
        wrong.truncate(most);
        wrong
    }

    /// Keeps the report with its run, as `metrics-test.json` for instance.
    ///
    /// # Errors
    /// The run folder cannot be written.
    pub fn keep(&self, run: &RunFolder) -> Result<()> {
        let path = run.path.join(format!("metrics-{}.json", self.part));
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other);
        publish(&path, &text.map_err(at(&path))?)
    }
}

/// The 95 % interval of a share of `right` in `all` (Wilson 1927): it stays within 0 and 1, and holds for few samples.
pub fn wilson(right: u64, all: u64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (all as f64, right as f64 / all as f64);
    let scale = 1.0 / (1.0 + Z * Z / n);
    let middle = scale * (p + Z * Z / (2.0 * n));
    let half = scale * Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::Heads;
    use super::*;
    use dataset::Task;

    #[test]
    fn the_interval_of_a_share_is_wilsons() {
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
    fn precision_and_recall_are_of_their_own_class() {
        let mut sum = EvaluatedPiece {
            samples: 10,
            weight: 10.0,
            right: 7,
            in_top_5: 10,
            ..EvaluatedPiece::default()
        };
        // 5 of 6 ants right, 2 of 4 bees, no cicada; one ant was taken for a bee, two bees for cicadas.
        for (label, found, count) in [(0, 0, 5), (0, 1, 1), (1, 1, 2), (1, 2, 2)] {
            (0..count).for_each(|_| sum.confusion.count(label, found));
        }
        let names = ["ant", "bee", "cicada", "dragonfly"].map(str::to_owned);
        let metrics = Metrics::of(
            &sum,
            Task::ImageClassification,
            0,
            (Heads::of_classes(4), &[]),
        );
        let report =
            EvaluationReport::of(&sum, &metrics, (&names, &[]), (3, part_name(Split::Test)));
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
            Taken {
                class: 1,
                taken_for: 2,
                count: 2
            }
        );
        assert_eq!(report.accuracy_interval, Some(wilson(7, 10)));
    }
}
