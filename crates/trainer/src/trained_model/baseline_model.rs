//! The saved baseline of a run: that of texts or that of images.

use crate::baseline_file;
use crate::error::{Result, TrainError};
use crate::kernel_ridge::{self, KernelRidge};
use crate::ngram_classifier::{self, NgramModel};
use crate::plan::Plan;
use dataset::Task;
use std::path::Path;

/// A baseline.
pub(super) enum BaselineModel {
    /// Classifies texts.
    Texts(NgramModel),
    /// Classifies images and predicts their regression targets.
    Images(Box<KernelRidge>),
}

impl BaselineModel {
    /// Whether runs of a task can have a baseline.
    pub fn exists_for(task: Task) -> bool {
        matches!(task, Task::TextClassification | Task::ImageClassification)
    }

    /// Loads the baseline of a run.
    ///
    /// # Errors
    /// The run has none, or its file is damaged.
    pub fn load(run: &Path, plan: &Plan) -> Result<Self> {
        let model = if plan.task() == Task::ImageClassification {
            BaselineModel::Images(Box::new(KernelRidge::load(run)?))
        } else {
            BaselineModel::Texts(NgramModel::load(run)?)
        };
        let (classes, targets) = match &model {
            BaselineModel::Texts(model) => (&model.classes, 0),
            BaselineModel::Images(model) => (&model.classes, model.targets.len()),
        };
        if *classes == plan.classes && targets == plan.columns.len() {
            return Ok(model);
        }
        Err(TrainError::TensorMismatch {
            path: baseline_file::path_in(run),
            problem: "the classes or regression targets are not those of the run".to_owned(),
        })
    }

    /// Name and content of the Python file that uses an exported baseline.
    pub fn python(&self) -> (&'static str, &'static str) {
        match self {
            BaselineModel::Texts(_) => (
                ngram_classifier::PYTHON_FILE,
                ngram_classifier::PYTHON_SOURCE,
            ),
            BaselineModel::Images(_) => (kernel_ridge::PYTHON_FILE, kernel_ridge::PYTHON_SOURCE),
        }
    }

    /// What opens an exported baseline.
    pub fn opened_by(&self) -> &'static str {
        match self {
            BaselineModel::Texts(_) => "python3 ngram_baseline.py TEXT",
            BaselineModel::Images(_) => "python3 image_baseline.py IMAGE",
        }
    }
}
