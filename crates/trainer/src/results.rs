//! The results of a run: an evaluation of its best checkpoint with the prediction for each sample,
//! as a file of the run folder. The window reads it, so that results open at once.

mod byte_entropy;
mod calibration;
mod two_model_comparison;
mod judgement;
mod evaluated_texts;
mod suspicious_labels;

pub use calibration::Calibration;
pub use judgement::{Tone, TrainingFacts};

use crate::error::{Result, at};
use crate::task::{ClassPrediction, EvaluationReport, SamplePrediction};
use dataset::{TargetColumn, Task};
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of the file. A file of another version is not read; the evaluation is repeated.
const VERSION: u32 = 1;

/// The splits that results are saved for, the more meaningful one first: the best checkpoint was
/// chosen by the held-out samples.
const PARTS: [&str; 2] = ["test", "held-out"];

/// Most bytes of a file. Each prediction takes a few hundred, and of a million samples they are
/// listed.
const MAX_BYTES: u64 = 320 << 20;
/// Most commas in a file: a prediction has up to ten, and a short value takes more bytes in memory
/// than in the file.
const MAX_COMMAS: usize = 12_000_000;

/// An evaluation with the prediction for each sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    version: u32,
    /// The name of the task.
    pub task: String,
    /// The report for each class and regression target.
    pub report: EvaluationReport,
    /// The accuracy of always predicting the most frequent class; absent without classes.
    pub guessing_accuracy: Option<f64>,
    /// Absent without classes.
    pub calibration: Option<Calibration>,
    /// The prediction for each sample; empty for documents.
    pub samples: Vec<SampleResult>,
}

/// The prediction for one sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleResult {
    /// Index of the sample in the evaluated split.
    pub index: u32,
    /// Its file, relative to the dataset folder; empty if it does not come from one.
    pub file: String,
    /// Absent without classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassPrediction>,
    /// For each regression target its value and the prediction, in the unit of its column; `None`
    /// if the sample does not have the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<Option<(f64, f64)>>,
}

impl SampleResult {
    /// The results of `predictions`; `file` names the file of a sample.
    pub(crate) fn all<'a>(
        predictions: &[SamplePrediction],
        columns: &[TargetColumn],
        file: impl Fn(u32) -> Option<&'a Path>,
    ) -> Vec<SampleResult> {
        let sample = |prediction: &SamplePrediction| {
            let targets = prediction.targets.iter().zip(columns);
            let in_unit = |(target, column): (&Option<(f64, f64)>, &TargetColumn)| {
                target.map(|(value, predicted)| {
                    (column.unstandardize(value), column.unstandardize(predicted))
                })
            };
            let file = file(prediction.index).map(|file| file.to_string_lossy().into_owned());
            SampleResult {
                index: prediction.index,
                file: file.unwrap_or_default(),
                class: prediction.class,
                targets: targets.map(in_unit).collect(),
            }
        };
        predictions.iter().map(sample).collect()
    }

    /// The prediction, if the class is wrong.
    pub fn mistake(&self) -> Option<ClassPrediction> {
        self.class.filter(|class| class.class != class.predicted)
    }
}

impl Results {
    /// The results that follow from a report and the predictions for its samples.
    pub fn new(task: Task, report: EvaluationReport, samples: Vec<SampleResult>) -> Self {
        Results {
            version: VERSION,
            task: task.name().to_owned(),
            guessing_accuracy: guessing_accuracy(&report),
            calibration: Calibration::new(samples.iter().filter_map(|sample| sample.class)),
            report,
            samples,
        }
    }

    /// The places in `samples` of the worst predictions, the worst first: the most confident
    /// mistakes, or without classes the largest errors of the first regression target.
    pub fn worst(&self) -> Vec<usize> {
        let badness = |sample: &SampleResult| match (sample.class, sample.targets.first()) {
            (Some(_), _) => Some(sample.mistake()?.probability),
            (None, Some(Some((value, predicted)))) => Some((value - predicted).abs()),
            (None, _) => None,
        };
        let places = self.samples.iter().enumerate();
        let bad = places.filter_map(|(place, sample)| Some((place, badness(sample)?)));
        let mut bad: Vec<(usize, f64)> = bad.collect();
        bad.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        bad.into_iter().map(|(place, _)| place).collect()
    }

    /// Saves the results in the run folder, for example as `results-held-out.json`.
    ///
    /// # Errors
    /// The run folder cannot be written.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        let path = path(run, &self.report.part);
        let text = serde_json::to_vec(self).map_err(std::io::Error::other);
        disk::write_atomic(&path, &text.map_err(at(&path))?).map_err(at(&path))
    }

    /// Reads the results of the newest evaluated checkpoint. Of two evaluations of one checkpoint
    /// it is the one on the test split. `None` if the run was not evaluated, or by a version of Ebb
    /// that writes another file.
    ///
    /// # Errors
    /// A file exists but cannot be read.
    pub fn load(run: &RunFolder) -> Result<Option<Results>> {
        let mut best: Option<Results> = None;
        for part in PARTS {
            let path = path(run, part);
            let text = match disk::read_limited(&path, MAX_BYTES) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(at(&path)(error)),
            };
            let is_small = text.iter().filter(|byte| **byte == b',').count() <= MAX_COMMAS;
            let found = is_small
                .then(|| serde_json::from_slice(&text).ok())
                .flatten();
            let found = found.filter(|found: &Results| found.version == VERSION);
            if let Some(found) = found
                && best
                    .as_ref()
                    .is_none_or(|best| found.report.step > best.report.step)
            {
                best = Some(found);
            }
        }
        Ok(best)
    }
}

fn path(run: &RunFolder, part: &str) -> PathBuf {
    run.path.join(format!("results-{part}.json"))
}

/// The accuracy of always predicting the most frequent class of the evaluated samples.
fn guessing_accuracy(report: &EvaluationReport) -> Option<f64> {
    let largest = report.classes.iter().map(|class| class.samples).max()?;
    Some(largest as f64 / report.samples.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::ClassReport;
    use std::collections::BTreeMap;

    pub(super) fn class_report(name: &str, samples: u64, recall: f64) -> ClassReport {
        ClassReport {
            name: name.to_owned(),
            samples,
            precision: Some(recall),
            recall: Some(recall),
            f1: Some(recall),
        }
    }

    pub(super) fn report(part: &str, step: u64, classes: Vec<ClassReport>) -> EvaluationReport {
        let samples = classes.iter().map(|class| class.samples).sum();
        let correct = |class: &ClassReport| class.samples as f64 * class.recall.unwrap_or(0.0);
        let correct: f64 = classes.iter().map(correct).sum();
        EvaluationReport {
            step,
            part: part.to_owned(),
            samples,
            loss: f64::NAN,
            metrics: BTreeMap::from([("accuracy".to_owned(), correct / samples.max(1) as f64)]),
            accuracy_interval: Some(crate::task::wilson(correct.round() as u64, samples)),
            classes,
            confusion: Vec::new(),
            targets: Vec::new(),
            base: None,
        }
    }

    /// A sample of class 0 or 1. The model gives it class 1 with probability `of_one`.
    pub(super) fn sample_of_two_classes(index: u32, class: u32, of_one: f64) -> SampleResult {
        let predicted = u32::from(of_one > 0.5);
        let probability = |class| if class == 1 { of_one } else { 1.0 - of_one };
        SampleResult {
            index,
            file: format!("{index}.jpg"),
            class: Some(ClassPrediction {
                class,
                predicted,
                probability: probability(predicted),
                class_probability: probability(class),
            }),
            targets: Vec::new(),
        }
    }

    fn results(part: &str, step: u64) -> Results {
        let classes = vec![class_report("ant", 3, 1.0), class_report("bee", 1, 0.0)];
        let samples = vec![
            sample_of_two_classes(0, 0, 0.1),
            sample_of_two_classes(1, 0, 0.6),
            sample_of_two_classes(2, 1, 0.2),
        ];
        Results::new(
            Task::ImageClassification,
            report(part, step, classes),
            samples,
        )
    }

    #[test]
    fn the_most_confident_mistake_or_the_largest_error_is_first() {
        let results = results("held-out", 3);
        assert_eq!(results.worst(), [2, 1]);
        assert_eq!(results.guessing_accuracy, Some(0.75));
        let target = |index, target| SampleResult {
            index,
            file: String::new(),
            class: None,
            targets: vec![target],
        };
        let regression = Results {
            samples: vec![
                target(0, Some((5.0, 6.0))),
                target(1, None),
                target(2, Some((5.0, 1.0))),
            ],
            ..results
        };
        assert_eq!(regression.worst(), [2, 0]);
    }

    #[test]
    fn the_newest_results_are_loaded_and_the_test_split_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().into(),
        };
        let loaded = |run: &RunFolder| {
            let found = Results::load(run).expect("it can be read")?;
            Some((found.report.part.clone(), found.report.step))
        };
        assert_eq!(loaded(&run), None);
        results("held-out", 3).save(&run).expect("it can be saved");
        let found = Results::load(&run).expect("it can be read").expect("saved");
        assert!(found.report.loss.is_nan(), "a loss may not be finite");
        assert_eq!(found.samples, results("held-out", 3).samples);
        results("test", 3).save(&run).expect("it can be saved");
        assert_eq!(loaded(&run), Some(("test".to_owned(), 3)));
        results("held-out", 5).save(&run).expect("it can be saved");
        assert_eq!(loaded(&run), Some(("held-out".to_owned(), 5)));
    }

    #[test]
    fn a_file_of_another_version_or_a_damaged_one_is_not_used() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().into(),
        };
        let later = Results {
            version: VERSION + 1,
            ..results("held-out", 3)
        };
        later.save(&run).expect("it can be saved");
        assert_eq!(Results::load(&run).expect("it can be read"), None);
        std::fs::write(path(&run, "test"), "{\"version\": 1").expect("it can be written");
        assert_eq!(Results::load(&run).expect("it can be read"), None);
    }
}
