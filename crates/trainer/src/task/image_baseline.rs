//! The baseline of image networks: a model of fixed features, trained and evaluated on the same
//! images as the network. It sees the same pixels, without augmentation.

use super::evaluation::SampleOutputs;
use super::{BaselineInputs, EvaluatedMicroBatch, TaskBaseline};
use crate::baseline_file;
use crate::data::{BaselineScores, expect_images};
use crate::error::Result;
use crate::kernel_ridge::{
    FeatureSample, FitOptions, KernelRidge, NAME, are_all_alike, fit, image_features,
};
use dataset::{
    Augment, ImageDataset, ImageInspection, ImageOptions, ImageSample, Loader, LoaderOptions, Mix,
    Split,
};
use rayon::prelude::*;
use runlog::format_count;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Images of a split that are used at most.
const MAX_IMAGES: usize = 2000;
/// Pixels of a split that are decoded at most: a few seconds.
const MAX_PIXELS: u64 = 256 << 20;
/// Images per class that the baseline needs on average.
const MIN_IMAGES_PER_CLASS: usize = 2;
/// Images that are read between two polls of the stop.
const POLL_INTERVAL: usize = 32;

/// Trains a baseline on the training images, saves it in the run folder and evaluates it on the
/// held-out images; on a random selection of each if they are too many. `None` if there are too few
/// images, or if the user has stopped the run.
pub(super) fn train(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
    let found = expect_images(inputs.found)?;
    let (classes, limit) = (&inputs.plan.classes, image_limit(found));
    if classes.len() == 1 || limit < MIN_IMAGES_PER_CLASS * classes.len() {
        return Ok(None);
    }
    let dev_samples = inputs.plan.dev_samples.map_or(limit, |all| all as usize);
    let images = open(inputs, found, Split::Train, Some(limit.min(dev_samples)));
    let mut samples = Vec::with_capacity(images.len());
    let read = read(inputs, images, |chunk| {
        let features = chunk.into_par_iter().map(|sample| FeatureSample {
            features: image_features(&sample.pixels),
            label: sample.label,
            targets: sample.targets,
        });
        samples.par_extend(features);
    });
    if read.is_break() {
        return Ok(None);
    }
    let options = FitOptions {
        classes,
        targets: &inputs.plan.columns,
        is_stopping: inputs.is_stopping,
    };
    let Some(model) = fit(&samples, &options) else {
        return Ok(None);
    };
    model.save(&inputs.run.path)?;
    let Some((sums, scores)) = evaluate_held_out(inputs, found, &model) else {
        return Ok(None);
    };
    Ok(Some(TaskBaseline {
        name: NAME,
        samples: samples.len() as u64,
        sums,
        scores,
        warning: are_all_alike(&samples).then(|| {
            format!(
                "the {} training images that were compared all look the same, so there is nothing to learn; check whether they are copies of one image",
                format_count(samples.len() as u64)
            )
        }),
    }))
}

/// The outputs of the baseline that the run folder holds, for the held-out images. `None` if there
/// is none, or if it has no part in the predictions.
pub(super) fn scores_of_saved(inputs: &BaselineInputs) -> Result<Option<BaselineScores>> {
    if !inputs.is_combined() || !baseline_file::path_in(&inputs.run.path).exists() {
        return Ok(None);
    }
    let model = KernelRidge::load(&inputs.run.path)?;
    let is_other =
        model.classes != inputs.plan.classes || model.targets.len() != inputs.plan.columns.len();
    if is_other {
        return Ok(None);
    }
    let found = expect_images(inputs.found)?;
    let evaluated = evaluate_held_out(inputs, found, &model);
    Ok(evaluated.and_then(|(_, scores)| scores))
}

/// The outputs of a baseline for an image: class scores, then regression targets.
pub(crate) fn outputs(model: &KernelRidge, sample: &ImageSample) -> Vec<f32> {
    model.predict(image_features(&sample.pixels))
}

/// Adds an image with the outputs of a baseline for it.
pub(crate) fn add_evaluated(
    sums: &mut EvaluatedMicroBatch,
    model: &KernelRidge,
    sample: &ImageSample,
    outputs: &[f32],
) {
    let outputs: Vec<f64> = outputs.iter().map(|value| f64::from(*value)).collect();
    sums.add_sample(&SampleOutputs {
        index: sample.index,
        label: sample.label,
        classes: model.classes.len(),
        outputs: &outputs,
        targets: &sample.targets,
    });
}

/// Evaluates a baseline on the held-out images, or on a random selection if they are too many.
/// Returns the sums and, if the baseline has a part in the predictions of the run, its outputs for
/// all held-out images. `None` if the user has stopped the run.
fn evaluate_held_out(
    inputs: &BaselineInputs,
    found: &ImageInspection,
    model: &KernelRidge,
) -> Option<(EvaluatedMicroBatch, Option<BaselineScores>)> {
    let (all, limit) = (found.count(Split::HeldOut) as usize, image_limit(found));
    let is_combined =
        inputs.is_combined() && all <= limit && BaselineScores::fit_in_memory(all, model.outputs());
    let images = open(
        inputs,
        found,
        Split::HeldOut,
        (all > limit).then_some(limit),
    );
    let mut values = vec![f32::NAN; images.len() * model.outputs()];
    let mut sums = EvaluatedMicroBatch::default();
    let read = read(inputs, images, |chunk| {
        let rows: Vec<Vec<f32>> = chunk
            .par_iter()
            .map(|sample| outputs(model, sample))
            .collect();
        for (row, sample) in rows.iter().zip(&chunk) {
            let place = sample.index as usize * model.outputs();
            values[place..place + row.len()].copy_from_slice(row);
            add_evaluated(&mut sums, model, sample, row);
        }
    });
    let scores = is_combined.then(|| BaselineScores::new(model.outputs(), values));
    read.is_continue().then_some((sums, scores))
}

/// The most images of a split that are used.
fn image_limit(found: &ImageInspection) -> usize {
    let pixels = found
        .files
        .iter()
        .map(|file| u64::from(file.width) * u64::from(file.height));
    let mean = (pixels.sum::<u64>() / found.files.len().max(1) as u64).max(1);
    MAX_IMAGES.min((MAX_PIXELS / mean) as usize)
}

/// The images of a split as the network sees them in an evaluation.
fn open(
    inputs: &BaselineInputs,
    found: &ImageInspection,
    split: Split,
    limit: Option<usize>,
) -> ImageDataset {
    let options = ImageOptions {
        size: inputs.plan.input_size,
        augment: Augment::None,
        mix: Mix::None,
        seed: inputs.plan.seed,
    };
    ImageDataset::open(found, split, options, limit, 0)
}

/// Reads images and passes them on, a few at a time, without those that cannot be read. Breaks if
/// the user has stopped the run.
fn read(
    inputs: &BaselineInputs,
    images: ImageDataset,
    mut each: impl FnMut(Vec<ImageSample>),
) -> ControlFlow<()> {
    let indices: Vec<u32> = (0..images.len() as u32).collect();
    let plan = inputs.plan;
    let options = LoaderOptions {
        workers: plan.workers.unwrap_or(plan.threads) as usize,
        depth_samples: 2 * POLL_INTERVAL,
    };
    let mut loader = Loader::start(Arc::new(images), options);
    loader.request(0, &indices);
    while loader.outstanding() > 0 {
        if (inputs.is_stopping)() {
            return ControlFlow::Break(());
        }
        each(loader.take(POLL_INTERVAL).into_iter().flatten().collect());
    }
    ControlFlow::Continue(())
}
