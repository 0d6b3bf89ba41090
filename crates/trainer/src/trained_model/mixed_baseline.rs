//! The baseline as a part of a run's model: predictions are the weighted mean of the
//! log-probabilities of the network and the baseline.

use crate::checkpoint::RunState;
use crate::error::{Result, TrainError, at};
use crate::ngram_classifier::{NgramModel, NgramScores, PYTHON_FILE, PYTHON_SOURCE};
use crate::plan::Plan;
use dataset::{Task, TextDataset};
use serde_json::json;
use std::path::Path;

/// The Python file of an export that computes the predictions of the mixture.
const MIXTURE_PYTHON: (&str, &str) = (
    "ebb_classifier.py",
    include_str!("mixed_baseline/ebb_classifier.py"),
);
/// What opens an export with a baseline.
pub(super) const OPENED_BY: &str = "python3 ebb_classifier.py TEXT";
/// The file of an export that holds the weight of the baseline and the most tokens of a text.
const MIXTURE_FILE: &str = "ebb_mixture.json";

/// A baseline with its weight in the predictions.
pub(super) struct MixedBaseline {
    model: NgramModel,
    /// Weight of the baseline, above 0 and at most 1.
    share: f64,
    /// Most tokens of a text that the network reads.
    tokens: u32,
}

impl MixedBaseline {
    /// The baseline of a run; `None` if it has no part in the predictions at this checkpoint.
    ///
    /// # Errors
    /// The file of the baseline is missing or damaged.
    pub fn load(run: &Path, plan: &Plan, state: &RunState) -> Result<Option<Self>> {
        let share = state.baseline_share.filter(|share| *share > 0.0);
        let Some(share) = share.filter(|_| plan.task() == Task::TextClassification) else {
            return Ok(None);
        };
        let model = NgramModel::load(run)?;
        if model.classes != plan.classes {
            return Err(TrainError::TensorMismatch {
                path: NgramModel::path_in(run),
                problem: "its classes are not those of the run".to_owned(),
            });
        }
        Ok(Some(MixedBaseline {
            model,
            share,
            tokens: plan.input_size,
        }))
    }

    /// Weight of the baseline in the predictions, above 0 and at most 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The class scores of one text.
    pub fn scores(&self, text: &str) -> Vec<f32> {
        let scores = self.model.scores(text);
        scores.into_iter().map(|score| score as f32).collect()
    }

    /// The class scores of all texts of a split.
    pub fn scores_of_texts(&self, texts: &TextDataset) -> NgramScores {
        NgramScores::from_texts(&self.model, texts)
    }

    /// The files of an export besides those of the network, by name.
    ///
    /// # Errors
    /// The file of the baseline cannot be read.
    pub fn exported_files(&self, run: &Path) -> Result<Vec<(String, Vec<u8>)>> {
        let weights = NgramModel::path_in(run);
        let bytes = std::fs::read(&weights).map_err(at(&weights))?;
        let name = weights.file_name().unwrap_or_default().to_string_lossy();
        let mixture = json!({"baseline_share": self.share, "tokens": self.tokens}).to_string();
        Ok(vec![
            (name.into_owned(), bytes),
            (PYTHON_FILE.to_owned(), PYTHON_SOURCE.into()),
            (MIXTURE_PYTHON.0.to_owned(), MIXTURE_PYTHON.1.into()),
            (MIXTURE_FILE.to_owned(), mixture.into_bytes()),
        ])
    }
}
