//! The baseline of a run in use: evaluated, asked for predictions, or exported, like the model.

use super::baseline_model::BaselineModel;
use super::{Evaluation, EvaluationSums, TrainedModel, evaluated_part};
use crate::baseline_file;
use crate::error::Result;
use crate::ngram_classifier::NgramModel;
use crate::results::SampleResult;
use crate::sample_manifest;
use crate::task::{Prediction, evaluate_text_baseline};
use dataset::{DetectedDataset, Task, TextInspection};
use models::export::{Exported, export_files};
use runlog::RunFolder;
use std::path::{Path, PathBuf};

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
        match (found, self.baseline()?) {
            (DetectedDataset::Texts(found), BaselineModel::Texts(model)) => {
                self.evaluate_text_baseline(&model, found)
            }
            (DetectedDataset::Images(found), BaselineModel::Images(model)) => {
                self.evaluate_image_baseline(&model, found)
            }
            _ => Err(self.wrong_dataset(found)),
        }
    }

    fn evaluate_text_baseline(
        &self,
        model: &NgramModel,
        found: &TextInspection,
    ) -> Result<Evaluation> {
        if found.task != Task::TextClassification {
            return Err(self.wrong_task("evaluate texts without labels"));
        }
        let count = |part| found.count(part);
        let part = evaluated_part(count, found.refusal.as_ref(), found.task.sample_noun())?;
        let labels = self.labels(&found.name, &found.classes)?;
        let sum = evaluate_text_baseline(model, found, part, |label| labels[label as usize])?;
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
        let BaselineModel::Texts(model) = self.baseline()? else {
            return Err(self.wrong_task("classify texts"));
        };
        let predict = |text: &String| Prediction::from_scores(&model.scores(text));
        Ok(texts.iter().map(predict).collect())
    }

    /// The prediction for each image by the baseline, or why the file cannot be read.
    ///
    /// # Errors
    /// The run has no baseline, or it is for another task.
    pub fn predict_by_baseline(
        &self,
        files: &[PathBuf],
    ) -> Result<Vec<std::result::Result<Prediction, String>>> {
        let BaselineModel::Images(model) = self.baseline()? else {
            return Err(self.wrong_task("predict classes"));
        };
        Ok(self.predict_by_image_baseline(&model, files))
    }

    /// Exports the baseline as a folder with its weights and a Python file that uses them.
    ///
    /// # Errors
    /// The run has no baseline, or the folder is not empty or cannot be written.
    pub fn export_baseline(&self, folder: &Path) -> Result<Exported> {
        let model = self.baseline()?;
        let weights = baseline_file::path_in(&self.run);
        let bytes = baseline_file::read(&self.run)?;
        let name = weights.file_name().unwrap_or_default().to_string_lossy();
        let (python, source) = model.python();
        let files = [(&*name, &*bytes), (python, source.as_bytes())];
        Ok(export_files(folder, &files, model.opened_by())?)
    }

    fn baseline(&self) -> Result<BaselineModel> {
        if !BaselineModel::exists_for(self.task()) {
            return Err(self.wrong_task("use a baseline"));
        }
        BaselineModel::load(&self.run, &self.plan)
    }
}
