//! An image classifier without a network, trained in seconds: a linear softmax over fixed features
//! of an image, its edge directions and its colors. It is the bar that a trained network should
//! clear.

mod image_features;

pub(crate) use image_features::{FEATURES, SIDE, features};

use dataset::Order;

/// What the model is called in the events and in the window.
pub(crate) const NAME: &str = "edge directions and colors";

/// Passes over the images; fewer for many classes, but not fewer than the second.
const EPOCHS: [usize; 2] = [40, 10];
/// Multiplications and additions of all epochs: 5 to 10 seconds.
const MAX_OPERATIONS: usize = 12_000_000_000;
/// Learning rate of the first step; it falls to 0.
const LEARNING_RATE: f32 = 1.0;
/// A class whose gradient is smaller than this is left unchanged by a step.
const SMALLEST_GRADIENT: f32 = 1e-4;
/// Values that a sum adds side by side, so that the compiler uses vector instructions.
const LANES: usize = 8;

/// An image as features.
pub(crate) struct FeatureSample {
    /// Index of its class.
    pub label: u32,
    /// [features].
    pub features: Vec<f32>,
}

/// What a classifier is trained with.
pub(crate) struct FitOptions<'a> {
    /// Number of classes.
    pub classes: usize,
    /// Seed of the order of the images.
    pub seed: u64,
    /// Whether the user has stopped the run.
    pub is_stopping: &'a dyn Fn() -> bool,
}

/// A trained classifier.
pub(crate) struct FeatureClassifier {
    /// The mean of each feature over the training images; it is subtracted from the features.
    means: Vec<f32>,
    /// What the features are multiplied by, so that a typical image has length 1.
    scale: f32,
    /// [classes, features].
    weights: Vec<f32>,
    /// [classes].
    bias: Vec<f32>,
}

/// The most images that a classifier of this many classes is trained on.
pub(crate) fn max_images(classes: usize) -> usize {
    MAX_OPERATIONS / (EPOCHS[1] * operations_per_image(classes))
}

/// Multiplications and additions for one image in an epoch.
fn operations_per_image(classes: usize) -> usize {
    2 * classes.max(1) * FEATURES
}

/// Trains a classifier on one thread: the same images and the same seed give the same classifier.
/// `None` if there are no images, or if the user has stopped the run.
pub(crate) fn fit(
    mut samples: Vec<FeatureSample>,
    options: &FitOptions,
) -> Option<FeatureClassifier> {
    let (means, scale) = statistics(&samples)?;
    for sample in &mut samples {
        standardize(&mut sample.features, &means, scale);
    }
    let mut classifier = FeatureClassifier {
        means,
        scale,
        weights: vec![0.0; options.classes * FEATURES],
        bias: vec![0.0; options.classes],
    };
    let operations = samples.len() * operations_per_image(options.classes);
    let epochs = (MAX_OPERATIONS / operations.max(1)).clamp(EPOCHS[1], EPOCHS[0]);
    let order = Order {
        seed: options.seed,
        len: samples.len() as u32,
        effective_batch: 1,
    };
    let steps = (epochs * samples.len()) as f32;
    let mut step = 0;
    for epoch in 0..epochs as u64 {
        for index in order.epoch(epoch) {
            if (options.is_stopping)() {
                return None;
            }
            let rate = LEARNING_RATE * (1.0 - step as f32 / steps);
            classifier.update(&samples[index as usize], rate);
            step += 1;
        }
    }
    Some(classifier)
}

/// The mean of each feature, and the factor that gives the centered features of an image a mean
/// squared length of 1. `None` without samples.
fn statistics(samples: &[FeatureSample]) -> Option<(Vec<f32>, f32)> {
    if samples.is_empty() {
        return None;
    }
    let count = samples.len() as f32;
    let mut means = vec![0.0; FEATURES];
    for sample in samples {
        add_scaled(&mut means, &sample.features, 1.0 / count);
    }
    let square = |sample: &FeatureSample| -> f32 {
        let centered = sample.features.iter().zip(&means);
        centered.map(|(value, mean)| (value - mean).powi(2)).sum()
    };
    let mean_square = samples.iter().map(square).sum::<f32>() / count;
    Some((means, 1.0 / mean_square.sqrt().max(1e-6)))
}

fn standardize(features: &mut [f32], means: &[f32], scale: f32) {
    for (value, mean) in features.iter_mut().zip(means) {
        *value = (*value - mean) * scale;
    }
}

impl FeatureClassifier {
    /// The score of each class: the logarithm of its probability, plus a constant.
    pub fn scores(&self, mut features: Vec<f32>) -> Vec<f64> {
        standardize(&mut features, &self.means, self.scale);
        let scores = self.standardized_scores(&features);
        scores.into_iter().map(f64::from).collect()
    }

    fn standardized_scores(&self, features: &[f32]) -> Vec<f32> {
        let rows = self.weights.chunks_exact(FEATURES);
        let scores = rows.zip(&self.bias);
        scores
            .map(|(row, bias)| dot(row, features) + bias)
            .collect()
    }

    /// One step of gradient descent on the cross-entropy of one image.
    fn update(&mut self, sample: &FeatureSample, rate: f32) {
        let mut gradient = self.standardized_scores(&sample.features);
        softmax(&mut gradient);
        gradient[sample.label as usize] -= 1.0;
        let rows = self.weights.chunks_exact_mut(FEATURES);
        for ((row, bias), gradient) in rows.zip(&mut self.bias).zip(gradient) {
            if gradient.abs() >= SMALLEST_GRADIENT {
                add_scaled(row, &sample.features, -rate * gradient);
                *bias -= rate * gradient;
            }
        }
    }
}

fn softmax(scores: &mut [f32]) {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for score in scores.iter_mut() {
        *score = (*score - highest).exp();
    }
    let total: f32 = scores.iter().sum();
    for score in scores {
        *score /= total;
    }
}

/// Adds `factor` times `values` to `sum`.
fn add_scaled(sum: &mut [f32], values: &[f32], factor: f32) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// The sum of the products of two rows of equal length.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (left, right) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest = left.remainder().iter().zip(right.remainder());
    let rest: f32 = rest.map(|(left, right)| left * right).sum();
    for (left, right) in left.zip(right) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planes of an image with a bright bar, which is vertical or horizontal, at `place`.
    fn bar(is_vertical: bool, place: usize) -> Vec<u8> {
        let side = SIDE as usize;
        let pixel = |i: usize| {
            let (x, y) = (i % side, i / side);
            let along = if is_vertical { x } else { y };
            if (place..place + 6).contains(&along) {
                220
            } else {
                40 + ((x * 7 + y * 13) % 9) as u8
            }
        };
        let plane: Vec<u8> = (0..side * side).map(pixel).collect();
        [&*plane, &*plane, &*plane].concat()
    }

    /// The classifier of bars at even places.
    fn trained(seed: u64, is_stopping: &dyn Fn() -> bool) -> Option<FeatureClassifier> {
        let sample = |i: usize| FeatureSample {
            label: (i % 2) as u32,
            features: features(&bar(i.is_multiple_of(2), 2 * i)),
        };
        let options = FitOptions {
            classes: 2,
            seed,
            is_stopping,
        };
        fit((0..28).map(sample).collect(), &options)
    }

    #[test]
    fn it_separates_images_by_the_direction_of_their_edges() {
        let classifier = trained(7, &|| false).expect("it was not stopped");
        for place in [5, 21, 43] {
            for is_vertical in [true, false] {
                let scores = classifier.scores(features(&bar(is_vertical, place)));
                assert_eq!(scores[0] > scores[1], is_vertical, "{place}: {scores:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_classifier_and_a_stop_gives_none() {
        let weights = |seed| trained(seed, &|| false).map(|trained| trained.weights);
        assert_eq!(weights(7), weights(7));
        assert_ne!(weights(7), weights(8));
        assert!(trained(7, &|| true).is_none());
        let options = FitOptions {
            classes: 2,
            seed: 7,
            is_stopping: &|| false,
        };
        assert!(fit(Vec::new(), &options).is_none(), "there are no images");
    }

    #[test]
    fn a_sum_of_products_includes_the_last_values() {
        let values: Vec<f32> = (1..=11).map(|value| value as f32).collect();
        assert_eq!(dot(&values, &values), 506.0);
    }
}
