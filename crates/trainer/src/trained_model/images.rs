//! Evaluates and predicts images.

use super::saliency::Saliency;
use super::{Evaluation, MICRO_BATCH, TrainedModel, evaluated_part};
use crate::data::{ImageEvalLoader, PrefetchOptions};
use crate::error::Result;
use crate::task::{ImageTask, Prediction};
use dataset::{
    Augment, ImageDataset, ImageFile, ImageInspection, ImageOptions, ImageSample, Mix, Split, Task,
};
use std::path::{Path, PathBuf};
use tape::device::with_autorelease_pool;

impl TrainedModel {
    /// Evaluates on images.
    pub(super) fn evaluate_images(&self, found: &ImageInspection) -> Result<Evaluation> {
        let count = |part| found.count(part);
        let part = evaluated_part(count, found.refusal.as_ref(), "image")?;
        let part_label = self.seen_files.part_label(part, found);
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

    /// Matches regression targets by the names of their columns, with the statistics of the
    /// training. A target that the dataset does not have is missing.
    fn match_columns(&self, found: &mut ImageInspection) {
        let place = |name: &String| found.targets.iter().position(|column| column.name == *name);
        let columns = self.columns().iter();
        let places: Vec<Option<usize>> = columns.map(|column| place(&column.name)).collect();
        for file in &mut found.files {
            let target = |place: &Option<usize>| file.targets.get((*place)?).copied().flatten();
            file.targets = places.iter().map(target).collect();
        }
        found.targets = self.columns().to_vec();
    }

    /// The prediction for each image, or why the file cannot be read.
    ///
    /// # Errors
    /// The model was trained for another task.
    pub fn predict(
        &self,
        files: &[PathBuf],
    ) -> Result<Vec<std::result::Result<Prediction, String>>> {
        if self.task() != Task::ImageClassification {
            return Err(self.wrong_task("predict classes"));
        }
        files.iter().map(|file| self.predict_one(file)).collect()
    }

    /// Where the model looked to classify an image, or why the file cannot be read.
    ///
    /// # Errors
    /// The model was trained for another task.
    pub fn saliency(&self, file: &Path) -> Result<std::result::Result<Saliency, String>> {
        if self.task() != Task::ImageClassification {
            return Err(self.wrong_task("look at images"));
        }
        let sample = match self.single_sample(file) {
            Ok(sample) => sample,
            Err(reason) => return Ok(Err(reason)),
        };
        let saliency = || ImageTask::saliency(&self.context(), &sample);
        let values = with_autorelease_pool(saliency)?;
        Ok(Ok(Saliency::new(self.plan.input_size as usize, &values)))
    }

    /// The image as the model sees it, or why the file cannot be read.
    fn single_sample(&self, file: &Path) -> std::result::Result<ImageSample, String> {
        let options = ImageOptions {
            size: self.plan.input_size,
            augment: Augment::None,
            mix: Mix::None,
            seed: self.plan.seed,
        };
        let dataset = ImageDataset::open(&single_file(file), Split::Test, options, None, 0);
        dataset.sample(0, 0).map_err(|error| error.reason)
    }

    fn predict_one(&self, file: &Path) -> Result<std::result::Result<Prediction, String>> {
        let sample = match self.single_sample(file) {
            Ok(sample) => sample,
            Err(reason) => return Ok(Err(reason)),
        };
        let predict = || ImageTask::predict(&self.context(), &[sample]);
        let mut predictions = with_autorelease_pool(predict)?;
        Ok(predictions
            .pop()
            .ok_or_else(|| "nothing was predicted".to_owned()))
    }
}

/// A dataset of one file.
fn single_file(file: &Path) -> ImageInspection {
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
        mirror_refusal: None,
        notes: Vec::new(),
        split: dataset::SplitKind::Given,
        split_folders: Vec::new(),
    }
}
