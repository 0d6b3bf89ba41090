//! Evaluates and predicts images.

use super::saliency::Saliency;
use super::{Evaluation, EvaluationSums, MICRO_BATCH, TrainedModel, evaluated_part};
use crate::data::{EvalLoader, ImageEvalLoader, PrefetchOptions};
use crate::error::Result;
use crate::kernel_ridge::KernelRidge;
use crate::results::SampleResult;
use crate::task::{
    EvaluatedMicroBatch, ImageTask, Prediction, add_image_baseline, image_baseline_outputs,
};
use dataset::{
    Augment, ImageDataset, ImageFile, ImageInspection, ImageOptions, ImageSample, Mix, Split, Task,
};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use tape::device::with_autorelease_pool;

impl TrainedModel {
    /// Evaluates on images.
    pub(super) fn evaluate_images(&self, found: &ImageInspection) -> Result<Evaluation> {
        let (loader, part_label) = self.image_loader(found)?;
        let sums = self.sum_over(loader, |sample| self.add_baseline(sample))?;
        Ok(self.evaluation(sums, 0, part_label))
    }

    /// Evaluates a baseline on images, without the network.
    pub(super) fn evaluate_image_baseline(
        &self,
        model: &KernelRidge,
        found: &ImageInspection,
    ) -> Result<Evaluation> {
        let (mut loader, part_label) = self.image_loader(found)?;
        let (mut sum, mut skipped) = (EvaluatedMicroBatch::default(), Vec::new());
        loader.begin();
        self.progress.begin(loader.len());
        loop {
            let loaded = loader.fetch(MICRO_BATCH);
            if loaded.is_empty() {
                break;
            }
            self.progress.expect_uncancelled()?;
            self.progress.add(loaded.len());
            let (read, failed): (Vec<_>, Vec<_>) = loaded.into_iter().partition(|one| one.is_ok());
            let failed = failed.into_iter().filter_map(|one| one.err());
            skipped.extend(failed.map(|error| (error.file, error.reason)));
            let read: Vec<ImageSample> = read.into_iter().flatten().collect();
            let outputs = read
                .par_iter()
                .map(|sample| image_baseline_outputs(model, sample));
            for (outputs, sample) in outputs.collect::<Vec<_>>().iter().zip(&read) {
                add_image_baseline(&mut sum, model, sample, outputs);
            }
        }
        let file = |index| loader.file(index);
        let sums = EvaluationSums {
            samples: SampleResult::all(&sum.predictions, &self.plan.columns, file),
            sum,
            parts: None,
            skipped,
        };
        Ok(self.evaluation(sums, 0, part_label))
    }

    /// Loads the images to evaluate, with the labels and the targets of the run. Also returns the
    /// name of their split.
    fn image_loader(&self, found: &ImageInspection) -> Result<(ImageEvalLoader, &'static str)> {
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
        Ok((loader, part_label))
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

    /// The prediction of a baseline for each image, or why the file cannot be read.
    pub(super) fn predict_by_image_baseline(
        &self,
        model: &KernelRidge,
        files: &[PathBuf],
    ) -> Vec<std::result::Result<Prediction, String>> {
        let predict = |file: &PathBuf| {
            let sample = self.single_sample(file)?;
            let outputs = image_baseline_outputs(model, &sample);
            let outputs: Vec<f64> = outputs.into_iter().map(f64::from).collect();
            Ok(Prediction::from_outputs(&outputs, model.classes.len()))
        };
        files.iter().map(predict).collect()
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

    /// Adds the outputs of the baseline to an image, if it has a part in the predictions.
    fn add_baseline(&self, sample: &mut ImageSample) {
        if let Some(mixed) = &self.mixed_baseline {
            mixed.add_to(sample);
        }
    }

    fn predict_one(&self, file: &Path) -> Result<std::result::Result<Prediction, String>> {
        let mut sample = match self.single_sample(file) {
            Ok(sample) => sample,
            Err(reason) => return Ok(Err(reason)),
        };
        self.add_baseline(&mut sample);
        let share = self.baseline_share();
        let predict = || ImageTask::predict(&self.context(), &[sample], share);
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
        held_out_copies: 0,
        split: dataset::SplitKind::Given,
        split_folders: Vec::new(),
    }
}
