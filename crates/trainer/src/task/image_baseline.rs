//! The baseline of image classification: a linear classifier of fixed features, evaluated on the
//! same held-out images as the network. It is only shown.

use super::{BaselineInputs, EvaluatedMicroBatch, TaskBaseline};
use crate::data::expect_images;
use crate::error::Result;
use crate::feature_classifier::{
    FeatureClassifier, FeatureSample, FitOptions, NAME, SIDE, features, fit, max_images,
};
use dataset::{
    Augment, ImageDataset, ImageInspection, ImageOptions, Loader, LoaderOptions, Mix, Split,
};
use std::sync::Arc;

/// Images of a split that are used at most.
const MAX_IMAGES: usize = 2000;
/// Pixels of a split that are decoded at most: a few seconds.
const MAX_PIXELS: u64 = 256 << 20;
/// Images per class that the baseline needs on average.
const MIN_IMAGES_PER_CLASS: usize = 2;
/// Images that are read between two polls of the stop.
const POLL_INTERVAL: usize = 32;

/// Trains a baseline on the training images and evaluates it on the held-out images, or on a random
/// selection of each if they are too many. `None` if there are no classes or too many of them, or
/// if the user has stopped the run.
pub(super) fn train(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
    let found = expect_images(inputs.found)?;
    let classes = inputs.plan.classes.len();
    let limit = image_limit(found, classes);
    if classes < 2 || limit < MIN_IMAGES_PER_CLASS * classes {
        return Ok(None);
    }
    let dev_samples = inputs.plan.dev_samples.map_or(limit, |all| all as usize);
    let Some(samples) = read(inputs, found, Split::Train, limit.min(dev_samples)) else {
        return Ok(None);
    };
    let trained_on = samples.len() as u64;
    let options = FitOptions {
        classes,
        seed: inputs.plan.seed,
        is_stopping: inputs.is_stopping,
    };
    let Some(classifier) = fit(samples, &options) else {
        return Ok(None);
    };
    let held_out = read(inputs, found, Split::HeldOut, limit);
    Ok(held_out.map(|held_out| TaskBaseline {
        name: NAME,
        samples: trained_on,
        sums: evaluate(&classifier, held_out),
        scores: None,
    }))
}

/// The most images of a split that are used.
fn image_limit(found: &ImageInspection, classes: usize) -> usize {
    let pixels = found
        .files
        .iter()
        .map(|file| u64::from(file.width) * u64::from(file.height));
    let mean = (pixels.sum::<u64>() / found.files.len().max(1) as u64).max(1);
    let decoded = (MAX_PIXELS / mean) as usize;
    MAX_IMAGES.min(decoded).min(max_images(classes))
}

/// The images of a split as features, without those that cannot be read; `None` if the user has
/// stopped the run.
fn read(
    inputs: &BaselineInputs,
    found: &ImageInspection,
    split: Split,
    limit: usize,
) -> Option<Vec<FeatureSample>> {
    let options = ImageOptions {
        size: SIDE,
        augment: Augment::None,
        mix: Mix::None,
        seed: inputs.plan.seed,
    };
    let images = ImageDataset::open(found, split, options, Some(limit), 0);
    let indices: Vec<u32> = (0..images.len() as u32).collect();
    let plan = inputs.plan;
    let options = LoaderOptions {
        workers: plan.workers.unwrap_or(plan.threads) as usize,
        depth_samples: 2 * POLL_INTERVAL,
    };
    let mut loader = Loader::start(Arc::new(images), options);
    loader.request(0, &indices);
    let mut samples = Vec::with_capacity(indices.len());
    while loader.outstanding() > 0 {
        if (inputs.is_stopping)() {
            return None;
        }
        for sample in loader.take(POLL_INTERVAL).into_iter().flatten() {
            samples.push(FeatureSample {
                label: sample.label,
                features: features(&sample.pixels),
            });
        }
    }
    Some(samples)
}

fn evaluate(classifier: &FeatureClassifier, samples: Vec<FeatureSample>) -> EvaluatedMicroBatch {
    let mut sums = EvaluatedMicroBatch {
        samples: samples.len() as u64,
        weight: samples.len() as f64,
        ..EvaluatedMicroBatch::default()
    };
    for (index, sample) in samples.into_iter().enumerate() {
        let scores = classifier.scores(sample.features);
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
        sums.loss += highest + total.ln() - scores[sample.label as usize];
        sums.count(index as u32, sample.label, &scores);
    }
    sums
}
