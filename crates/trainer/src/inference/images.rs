//! Evaluates and predicts images.

use super::{Evaluation, MICRO_BATCH, TrainedModel, evaluated_part};
use crate::data::{ImageEvalLoader, PrefetchOptions};
use crate::error::Result;
use crate::feed::{Ahead, HeldOutFeed};
use crate::task::{HeldOut, Prediction};
use dataset::{Augment, ImageDataset, ImageFile, ImageInspection, ImageOptions, Split, Task};
use std::path::{Path, PathBuf};

impl SavedRun {
    /// Evaluates on photographs.
    pub(super) fn of_photographs(&self, found: &ImageInspection) -> Result<Evaluated> {
        let part = part(
            |part| found.count(part),
            found.refusal.as_ref(),
            "photograph",
        )?;
        let measured = self.known.measured(part, found);
        let labels = self.labels(&found.name, &found.classes)?;
        let mut found = found.clone();
        for file in &mut found.files {
            file.label = labels.get(file.label as usize).copied().unwrap_or(0);
        }
        self.match_columns(&mut found);
        let options = PrefetchOptions {
            depth_samples: 4 * MICRO_BATCH,
            cache_bytes: 0,
            ..PrefetchOptions::new(&self.plan, self.plan.threads as usize, 0)
        };
        let loader = ImageEvalLoader::start(&self.plan, &found, part, options);
        Ok(self.evaluation(self.sum_over(loader)?, 0, part_label))
    }

    /// Numbers go by the names of their columns, and are standardised as they were in training; one that the folder does not tell
    /// is missing.
    fn measured_as_learnt(&self, found: &mut ImageInspection) {
        let place = |name: &String| found.targets.iter().position(|column| column.name == *name);
        let columns = self.columns().iter();
        let places: Vec<Option<usize>> = columns.map(|column| place(&column.name)).collect();
        for file in &mut found.files {
            let number = |place: &Option<usize>| file.targets.get((*place)?).copied().flatten();
            file.targets = places.iter().map(number).collect();
        }
        found.targets = self.columns().to_vec();
    }

    /// What the model says about each image, or why the file cannot be read.
    ///
    /// # Errors
    /// The model was trained for another task.
    pub fn predict(
        &self,
        files: &[PathBuf],
    ) -> Result<Vec<std::result::Result<Prediction, String>>> {
        if self.task() != Task::ImageClassification {
            return Err(self.wrong_task("images"));
        }
        files.iter().map(|file| self.predict_one(file)).collect()
    }

    fn predict_one(&self, file: &Path) -> Result<std::result::Result<Prediction, String>> {
        let dataset = ImageDataset::open(&alone(file), Split::Test, self.options(), None, 0);
        let sample = match dataset.sample(0, 0) {
            Ok(sample) => sample,
            Err(error) => return Ok(Err(error.reason)),
        };
        let mut predictions = ImageTask::predict(&self.context(), &[sample])?;
        Ok(predictions
            .pop()
            .ok_or_else(|| "nothing was predicted".to_owned()))
    }
}

/// One file as a folder of its own.
fn alone(file: &Path) -> ImageInspection {
    let image = |path: PathBuf| ImageFile {
        path,
        label: 0,
        split: Split::Test,
        width: 0,
        height: 0,
        bytes: 0,
        targets: Vec::new(),
    };
    let name = file.file_name().map(PathBuf::from).unwrap_or_default();
    let folder = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    ImageInspection {
        folder: folder.to_owned(),
        name: name.display().to_string(),
        classes: Vec::new(),
        targets: Vec::new(),
        table: None,
        groups: None,
        files: vec![image(name)],
        skipped: Vec::new(),
        ignored: Default::default(),
        typical_size: None,
        bytes: 0,
        refusal: None,
        notes: Vec::new(),
        split: dataset::SplitKind::Given,
        split_folders: Vec::new(),
    }
}
