//! The baseline of a run in use: evaluated, asked for predictions, or exported, like the model.

use super::{Evaluation, EvaluationSums, TrainedModel, evaluated_part};
use crate::error::{Result, TrainError};
use crate::ngram_classifier::{NgramModel, PYTHON_FILE, PYTHON_SOURCE};
use crate::results::SampleResult;
use crate::sample_manifest;
use crate::task::{Prediction, evaluate_baseline};
use dataset::{DetectedDataset, Task, TextDataset};
use models::export::{Exported, export_files};
use runlog::RunFolder;
use std::path::Path;

impl TrainedModel {
    /// Evaluates the baseline on the run's own test split, or on its held-out split if it has none.
    ///
    /// # Errors
    /// The run has no baseline, the manifest is damaged, or text files have changed.
    pub fn evaluate_baseline_own(&self, run: &RunFolder) -> Result<Evaluation> {
        self.evaluate_baseline(&sample_manifest::read(run)?)
    }

    /// Evaluates the baseline on the samples that [`TrainedModel::evaluate`] evaluates the model
    /// on.
    ///
    /// # Errors
    /// The run has no baseline, or the dataset is for another task, is empty, or has classes that
    /// the run does not know.
    pub fn evaluate_baseline(&self, found: &DetectedDataset) -> Result<Evaluation> {
        let model = self.baseline()?;
        let DetectedDataset::Texts(found) = found else {
            return Err(self.wrong_task("classify images"));
        };
        if found.task != Task::TextClassification {
            return Err(self.wrong_task("evaluate texts without labels"));
        }
        let count = |part| found.count(part);
        let part = evaluated_part(count, found.refusal.as_ref(), found.task.sample_noun())?;
        let labels = self.labels(&found.name, &found.classes)?;
        let texts = TextDataset::open(found, part)?;
        let sum = evaluate_baseline(&model, &texts, |label| labels[label as usize]);
        let samples = found.samples.iter().filter(|sample| sample.split == part);
        let files: Vec<&Path> = samples
            .map(|sample| found.files[sample.file as usize].path.as_path())
            .collect();
        let sums = EvaluationSums {
            samples: SampleResult::all(&sum.predictions, &[], |index| {
                files.get(index as usize).copied()
            }),
            sum,
            parts: None,
            skipped: Vec::new(),
        };
        Ok(self.evaluation(sums, 0, self.seen_files.part_label(part, found)))
    }

    /// The class probabilities of each text, by the baseline.
    ///
    /// # Errors
    /// The run has no baseline.
    pub fn predict_texts_by_baseline(&self, texts: &[String]) -> Result<Vec<Prediction>> {
        let model = self.baseline()?;
        let predict = |text: &String| Prediction::from_scores(&model.scores(text));
        Ok(texts.iter().map(predict).collect())
    }

    /// Exports the baseline as a folder with its weights and a Python file that uses them.
    ///
    /// # Errors
    /// The run has no baseline, or the folder is not empty or cannot be written.
    pub fn export_baseline(&self, folder: &Path) -> Result<Exported> {
        self.baseline()?;
        let weights = NgramModel::path_in(&self.run);
        let bytes = std::fs::read(&weights).map_err(crate::error::at(&weights))?;
        let name = weights.file_name().unwrap_or_default().to_string_lossy();
        let files = [(&*name, &*bytes), (PYTHON_FILE, PYTHON_SOURCE.as_bytes())];
        Ok(export_files(
            folder,
            &files,
            "python3 ngram_baseline.py TEXT",
        )?)
    }

    fn baseline(&self) -> Result<NgramModel> {
        if self.task() != Task::TextClassification {
            return Err(self.wrong_task("use a baseline"));
        }
        let model = NgramModel::load(&self.run)?;
        if model.classes != self.plan.classes {
            return Err(TrainError::TensorMismatch {
                path: NgramModel::path_in(&self.run),
                problem: "its classes are not those of the run".to_owned(),
            });
        }
        Ok(model)
    }
}
