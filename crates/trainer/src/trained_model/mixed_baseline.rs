//! The baseline as a part of a run's model: predictions are the weighted mean of those of the
//! network and the baseline (for classes, of their log-probabilities).

use super::baseline_model::BaselineModel;
use crate::baseline_file;
use crate::checkpoint::RunState;
use crate::data::BaselineScores;
use crate::error::Result;
use crate::plan::Plan;
use crate::task::{ImageSample, image_baseline_outputs, scores_of_texts};
use dataset::{Split, TextInspection};
use serde_json::json;
use std::path::Path;

/// The Python files of exports that compute the predictions of the mixture.
const TEXT_PYTHON: (&str, &str) = (
    "ebb_classifier.py",
    include_str!("mixed_baseline/ebb_classifier.py"),
);
const IMAGE_PYTHON: (&str, &str) = (
    "ebb_predictor.py",
    include_str!("mixed_baseline/ebb_predictor.py"),
);
/// The file of an export that holds the weight of the baseline and the size of the inputs.
const MIXTURE_FILE: &str = "ebb_mixture.json";

/// A baseline with its weight in the predictions.
pub(super) struct MixedBaseline {
    model: BaselineModel,
    /// Weight of the baseline, above 0 and at most 1.
    share: f64,
    /// Most tokens of a text that the network reads, or side of its images in pixels.
    input_size: u32,
}

impl MixedBaseline {
    /// The baseline of a run; `None` if it has no part in the predictions at this checkpoint.
    ///
    /// # Errors
    /// The file of the baseline is missing or damaged.
    pub fn load(run: &Path, plan: &Plan, state: &RunState) -> Result<Option<Self>> {
        let share = state.baseline_share.filter(|share| *share > 0.0);
        let Some(share) = share.filter(|_| BaselineModel::exists_for(plan.task())) else {
            return Ok(None);
        };
        Ok(Some(MixedBaseline {
            model: BaselineModel::load(run, plan)?,
            share,
            input_size: plan.input_size,
        }))
    }

    /// Weight of the baseline in the predictions, above 0 and at most 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The class scores of one text.
    pub fn scores(&self, text: &str) -> Vec<f32> {
        match &self.model {
            BaselineModel::Texts(model) => {
                let scores = model.scores(text);
                scores.into_iter().map(|score| score as f32).collect()
            }
            BaselineModel::Images(_) => Vec::new(),
        }
    }

    /// The class scores of all texts of a split; `None` if the baseline is one of images.
    ///
    /// # Errors
    /// A file of texts is missing or has changed since the inspection.
    pub fn scores_of_texts(
        &self,
        found: &TextInspection,
        part: Split,
    ) -> Result<Option<BaselineScores>> {
        match &self.model {
            BaselineModel::Texts(model) => scores_of_texts(model, found, part).map(Some),
            BaselineModel::Images(_) => Ok(None),
        }
    }

    /// Adds the outputs of the baseline to an image.
    pub fn add_to(&self, image: &mut ImageSample) {
        if let BaselineModel::Images(model) = &self.model {
            image.baseline = image_baseline_outputs(model, image);
        }
    }

    /// What opens an export of the mixture.
    pub fn opened_by(&self) -> &'static str {
        match self.model {
            BaselineModel::Texts(_) => "python3 ebb_classifier.py TEXT",
            BaselineModel::Images(_) => "python3 ebb_predictor.py IMAGE",
        }
    }

    /// The files of an export besides those of the network, by name.
    ///
    /// # Errors
    /// The file of the baseline cannot be read.
    pub fn exported_files(&self, run: &Path) -> Result<Vec<(String, Vec<u8>)>> {
        let weights = baseline_file::path_in(run);
        let bytes = baseline_file::read(run)?;
        let name = weights.file_name().unwrap_or_default().to_string_lossy();
        let (size, python) = match self.model {
            BaselineModel::Texts(_) => ("tokens", TEXT_PYTHON),
            BaselineModel::Images(_) => ("image_size", IMAGE_PYTHON),
        };
        let mixture = json!({"baseline_share": self.share, size: self.input_size}).to_string();
        let [own, mixed] = [self.model.python(), python]
            .map(|(name, source)| (name.to_owned(), source.as_bytes().to_vec()));
        Ok(vec![
            (name.into_owned(), bytes),
            own,
            mixed,
            (MIXTURE_FILE.to_owned(), mixture.into_bytes()),
        ])
    }
}
