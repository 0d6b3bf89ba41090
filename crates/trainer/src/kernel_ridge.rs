//! The baseline of image networks: kernel ridge regression (Saunders et al. 1998) on fixed features
//! of an image, trained in seconds without a network. It predicts classes and regression targets.
//! Leave-one-out predictions decide how strong the regularization is, how certain the probabilities
//! are, and whether an image and its mirror image are the same to the model.

mod cholesky;
mod image_features;
mod model_file;
mod fixed_order_sums;

pub(crate) use image_features::image_features;

use cholesky::InverseFactor;
use dataset::TargetColumn;
use fixed_order_sums::{add_scaled, dot, log_softmax};
use image_features::FEATURES;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// What the model is called in the events and in the window.
pub(crate) const NAME: &str = "edge directions and colors";

/// The Python file of an exported baseline.
pub(crate) const PYTHON_FILE: &str = "image_baseline.py";
/// What it contains. It computes the same features and outputs as this module.
pub(crate) const PYTHON_SOURCE: &str = include_str!("kernel_ridge/image_baseline.py");

/// Falloff of the Gaussian kernel. The mean squared length of the standardized features is 1.
const GAMMA: f32 = 0.3;
/// Ridge parameters that are compared. The kernel of an image and itself is 1.
const RIDGES: [f32; 2] = [0.03, 0.1];
/// Factors of the class scores that are compared: larger ones give more certain probabilities.
const SHARPNESS: [f32; 8] = [2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 18.0, 27.0];
/// Rows that are computed together, so that they stay in the cache of the processor.
const TILE: usize = 8;

/// An image as features, and what is to be predicted.
pub(crate) struct FeatureSample {
    /// [features] of the image and of its mirror image.
    pub features: [Vec<f32>; 2],
    /// Index of its class.
    pub label: u32,
    /// Its regression targets in standard deviations from the mean; `None` if a value is missing.
    pub targets: Vec<Option<f32>>,
}

/// What a model is trained with.
pub(crate) struct FitOptions<'a> {
    /// Class names in label order; empty without classes.
    pub classes: &'a [String],
    pub targets: &'a [TargetColumn],
    /// Whether the user has stopped the run.
    pub is_stopping: &'a (dyn Fn() -> bool + Sync),
}

/// A regression target, as the file of a model holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    name: String,
    mean: f64,
    deviation: f64,
}

impl Target {
    fn from_column(column: &TargetColumn) -> Self {
        Target {
            name: column.name.clone(),
            mean: column.mean,
            deviation: column.deviation,
        }
    }
}

/// A trained model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KernelRidge {
    /// Class names in label order; empty without classes.
    pub classes: Vec<String>,
    pub targets: Vec<Target>,
    /// The mean of each feature over the training images; it is subtracted from the features.
    means: Vec<f32>,
    /// What the features are multiplied by, so that a typical image has length 1.
    scale: f32,
    /// Whether an image and its mirror image have the same outputs.
    is_symmetric: bool,
    /// The standardized features of the training images: [images, features].
    images: Vec<f32>,
    /// [outputs, images].
    coefficients: Vec<f32>,
    /// The mean of each output over the training images.
    bias: Vec<f32>,
}

impl KernelRidge {
    /// Number of outputs: class scores, then regression targets.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// The score of each class (the logarithm of its probability, plus a constant), then the
    /// regression targets in standard deviations from the mean.
    pub fn predict(&self, features: [Vec<f32>; 2]) -> Vec<f32> {
        let sides = if self.is_symmetric { 2 } else { 1 };
        let features = features.into_iter().take(sides).map(|mut side| {
            standardize(&mut side, &self.means, self.scale);
            (dot(&side, &side), side)
        });
        let features: Vec<(f32, Vec<f32>)> = features.collect();
        let similar = |image: &[f32]| {
            let square = dot(image, image);
            let each = features.iter();
            let each = each.map(|(own, side)| gaussian(*own, square, dot(image, side)));
            each.sum::<f32>() / sides as f32
        };
        let images = self.images.chunks_exact(FEATURES);
        let kernel: Vec<f32> = images.map(similar).collect();
        let rows = self.coefficients.chunks_exact(kernel.len().max(1));
        let outputs = rows.zip(&self.bias);
        outputs
            .map(|(row, bias)| dot(row, &kernel) + bias)
            .collect()
    }
}

/// Whether all images have the same features, so that nothing can be learned from them.
pub(crate) fn are_all_alike(samples: &[FeatureSample]) -> bool {
    samples.len() > 1
        && samples
            .windows(2)
            .all(|pair| pair[0].features[0] == pair[1].features[0])
}

/// Trains a model: the same samples give the same model. `None` without samples or outputs, or if
/// the user has stopped the run.
pub(crate) fn fit(samples: &[FeatureSample], options: &FitOptions) -> Option<KernelRidge> {
    let (means, scale) = statistics(samples)?;
    let standardized = |side: usize| {
        let mut all = Vec::with_capacity(samples.len() * FEATURES);
        for sample in samples {
            let start = all.len();
            all.extend_from_slice(&sample.features[side]);
            standardize(&mut all[start..], &means, scale);
        }
        all
    };
    let images = standardized(0);
    let wanted = Wanted::new(samples, options)?;
    let mut kernel = kernel_matrix(&images, &images, options.is_stopping)?;
    let mut best: Option<Solution> = None;
    for is_symmetric in [false, true] {
        if is_symmetric {
            let mirrored = kernel_matrix(&standardized(1), &images, options.is_stopping)?;
            let pairs = kernel.iter_mut().zip(mirrored);
            pairs.for_each(|(own, mirrored)| *own = 0.5 * (*own + mirrored));
        }
        for ridge in RIDGES {
            let factor = InverseFactor::from_kernel(&kernel, ridge, options.is_stopping);
            if (options.is_stopping)() {
                return None;
            }
            let solution = factor.map(|factor| wanted.solve(&factor, is_symmetric));
            let solution = solution.filter(|solution| {
                let least = best.as_ref().map_or(f32::INFINITY, |best| best.loss);
                solution.loss < least
            });
            best = solution.or(best);
        }
    }
    let solution = best?;
    let (mut coefficients, mut bias) = (solution.coefficients, wanted.means);
    let classes = options.classes.len();
    coefficients[..classes * samples.len()]
        .iter_mut()
        .chain(&mut bias[..classes])
        .for_each(|value| *value *= solution.sharpness);
    Some(KernelRidge {
        classes: options.classes.to_vec(),
        targets: options.targets.iter().map(Target::from_column).collect(),
        means,
        scale,
        is_symmetric: solution.is_symmetric,
        images,
        coefficients,
        bias,
    })
}

/// What a model shall predict for the training images.
struct Wanted<'a> {
    samples: &'a [FeatureSample],
    classes: usize,
    /// Deviations from the means: [outputs, images].
    values: Vec<f32>,
    /// The mean of each output.
    means: Vec<f32>,
}

/// The coefficients for one ridge parameter.
struct Solution {
    /// [outputs, images].
    coefficients: Vec<f32>,
    /// Factor of the class scores.
    sharpness: f32,
    /// Whether an image and its mirror image have the same outputs.
    is_symmetric: bool,
    /// Loss of the leave-one-out predictions.
    loss: f32,
}

impl<'a> Wanted<'a> {
    /// 1 for the class of an image and 0 for the others, then the regression targets. A missing
    /// target is the mean. `None` without outputs.
    fn new(samples: &'a [FeatureSample], options: &FitOptions) -> Option<Self> {
        let (classes, count) = (options.classes.len(), samples.len());
        let outputs = classes + options.targets.len();
        let mut values = vec![0.0; outputs * count];
        for (column, sample) in samples.iter().enumerate() {
            if classes > 0 {
                values[sample.label as usize * count + column] = 1.0;
            }
            for (k, target) in (0..options.targets.len()).zip(&sample.targets) {
                values[(classes + k) * count + column] = target.unwrap_or(0.0);
            }
        }
        let mut means = vec![0.0; outputs];
        for (row, mean) in values.chunks_exact_mut(count.max(1)).zip(&mut means) {
            *mean = row.iter().sum::<f32>() / count as f32;
            row.iter_mut().for_each(|value| *value -= *mean);
        }
        (outputs > 0).then_some(Wanted {
            samples,
            classes,
            values,
            means,
        })
    }

    fn solve(&self, factor: &InverseFactor, is_symmetric: bool) -> Solution {
        let count = self.samples.len();
        let coefficients = factor.solve(&self.values);
        let diagonal = factor.inverse_diagonal();
        // The prediction for an image by all other images.
        let predicted = |output: usize, image: usize| {
            let i = output * count + image;
            self.values[i] - coefficients[i] / diagonal[image] + self.means[output]
        };
        let (sharpness, loss) = if self.classes > 0 {
            self.best_sharpness(predicted)
        } else {
            let residuals = coefficients.iter().zip(diagonal.iter().cycle());
            let squares = residuals.map(|(coefficient, own)| (coefficient / own).powi(2));
            (1.0, squares.sum())
        };
        Solution {
            coefficients,
            sharpness,
            is_symmetric,
            loss,
        }
    }

    /// The factor of the class scores with the lowest cross-entropy, and this cross-entropy.
    fn best_sharpness(&self, predicted: impl Fn(usize, usize) -> f32) -> (f32, f32) {
        let row = |image| {
            (0..self.classes)
                .map(|class| predicted(class, image))
                .collect()
        };
        let rows: Vec<Vec<f32>> = (0..self.samples.len()).map(row).collect();
        let loss = |sharpness: f32| {
            let losses = rows.iter().zip(self.samples).map(|(row, sample)| {
                let scores: Vec<f32> = row.iter().map(|score| sharpness * score).collect();
                -log_softmax(&scores, sample.label as usize)
            });
            losses.sum::<f32>()
        };
        let tried = SHARPNESS.map(|sharpness| (sharpness, loss(sharpness)));
        let best = tried.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        best.unwrap_or((1.0, f32::NAN))
    }
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
        add_scaled(&mut means, &sample.features[0], 1.0 / count);
    }
    let square = |sample: &FeatureSample| -> f32 {
        let centered = sample.features[0].iter().zip(&means);
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

/// The Gaussian kernel of two images, from the squares of their lengths and their product.
fn gaussian(left: f32, right: f32, product: f32) -> f32 {
    (-GAMMA * (left + right - 2.0 * product).max(0.0)).exp()
}

/// The kernel of each image of `left` with the image at the same place in `right` and those before
/// it: [images, images], of which the values right of the diagonal are 0. `None` if the user has
/// stopped the run.
fn kernel_matrix(
    left: &[f32],
    right: &[f32],
    is_stopping: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<f32>> {
    let rows = |images| <[f32]>::chunks_exact(images, FEATURES).collect::<Vec<_>>();
    let (left, right) = (rows(left), rows(right));
    let squares = |rows: &[&[f32]]| rows.iter().map(|row| dot(row, row)).collect::<Vec<f32>>();
    let (left_squares, right_squares) = (squares(&left), squares(&right));
    let count = left.len();
    let mut kernel = vec![0.0; count * count];
    let tiles = kernel.par_chunks_mut(TILE * count.max(1)).enumerate();
    let done = tiles.try_for_each(|(tile, values)| {
        let first = TILE * tile;
        if is_stopping() {
            return None;
        }
        let last = first + values.len() / count;
        for (j, other) in right.iter().enumerate().take(last) {
            for i in first.max(j)..last {
                let product = dot(left[i], other);
                let value = gaussian(left_squares[i], right_squares[j], product);
                values[(i - first) * count + j] = value;
            }
        }
        Some(())
    });
    done.map(|()| kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SIDE: usize = 64;

    /// Planes of an image with a bright bar, which is vertical or horizontal, at `place`.
    fn bar(is_vertical: bool, place: usize) -> Vec<u8> {
        let pixel = |i: usize| {
            let (x, y) = (i % SIDE, i / SIDE);
            let along = if is_vertical { x } else { y };
            if (place..place + 6).contains(&along) {
                220
            } else {
                40 + ((x * 7 + y * 13) % 9) as u8
            }
        };
        let plane: Vec<u8> = (0..SIDE * SIDE).map(pixel).collect();
        [&*plane, &*plane, &*plane].concat()
    }

    /// Bars at even places, with the place in units of 10 as regression target.
    fn samples() -> Vec<FeatureSample> {
        let sample = |i: usize| FeatureSample {
            label: (i % 2) as u32,
            features: image_features(&bar(i.is_multiple_of(2), 2 * i)),
            targets: vec![(i != 4).then_some(0.2 * i as f32 - 2.7)],
        };
        (0..28).map(sample).collect()
    }

    fn trained(classes: &[&str], is_stopping: &(dyn Fn() -> bool + Sync)) -> Option<KernelRidge> {
        let classes: Vec<String> = classes.iter().map(|name| (*name).to_owned()).collect();
        let options = FitOptions {
            classes: &classes,
            targets: &[TargetColumn {
                name: "place".to_owned(),
                mean: 27.0,
                deviation: 10.0,
                present: 27,
                range: (0.0, 54.0),
            }],
            is_stopping,
        };
        fit(&samples(), &options)
    }

    #[test]
    fn copies_of_one_image_are_all_alike() {
        let copy = |label| FeatureSample {
            label,
            features: image_features(&bar(true, 9)),
            targets: Vec::new(),
        };
        assert!(are_all_alike(&[copy(0), copy(1), copy(0)]));
        assert!(!are_all_alike(&[copy(0)]));
        assert!(!are_all_alike(&samples()));
    }

    #[test]
    fn it_separates_images_by_the_direction_of_their_edges() {
        let model = trained(&["vertical", "horizontal"], &|| false).expect("it was not stopped");
        for place in [5, 21, 43] {
            for is_vertical in [true, false] {
                let outputs = model.predict(image_features(&bar(is_vertical, place)));
                assert_eq!(outputs.len(), 3);
                assert_eq!(outputs[0] > outputs[1], is_vertical, "{place}: {outputs:?}");
                let expected = 0.1 * place as f32 - 2.7;
                // Always predicting the mean is off by up to 2.2.
                assert!((outputs[2] - expected).abs() < 1.0, "{place}: {outputs:?}");
            }
        }
        assert_eq!(trained(&["vertical", "horizontal"], &|| false), Some(model));
    }

    #[test]
    fn mirror_images_are_the_same_unless_their_classes_differ() {
        // Bars on the left side and on the right side.
        let sample = |i: usize, label: u32| FeatureSample {
            label,
            features: image_features(&bar(true, 2 * i)),
            targets: Vec::new(),
        };
        let classes = ["a", "b"].map(str::to_owned);
        let options = FitOptions {
            classes: &classes,
            targets: &[],
            is_stopping: &|| false,
        };
        let sides: Vec<FeatureSample> = (0..28).map(|i| sample(i, u32::from(i < 14))).collect();
        let model = fit(&sides, &options).expect("it was not stopped");
        assert!(!model.is_symmetric);
        let distances = (0..28).map(|i: usize| sample(i, u32::from((7..22).contains(&i))));
        let distances: Vec<FeatureSample> = distances.collect();
        let model = fit(&distances, &options).expect("it was not stopped");
        assert!(model.is_symmetric);
        let [own, mirrored] = image_features(&bar(true, 5));
        let swapped = model.predict([mirrored.clone(), own.clone()]);
        for (one, other) in model.predict([own, mirrored]).iter().zip(swapped) {
            assert!((one - other).abs() < 1e-4, "{one} {other}");
        }
    }

    #[test]
    fn it_predicts_regression_targets_without_classes() {
        let model = trained(&[], &|| false).expect("it was not stopped");
        let output = |place| model.predict(image_features(&bar(true, place)))[0];
        assert!(output(8) < output(24) && output(24) < output(44));
        assert!((output(24) + 0.3).abs() < 0.7, "{}", output(24));
    }

    #[test]
    fn probabilities_are_those_of_images_that_were_not_seen() {
        // Labels without a relation to the images.
        let mut samples = samples();
        for (i, sample) in samples.iter_mut().enumerate() {
            sample.label = ((i * i + i / 3) % 2) as u32;
            sample.targets.clear();
        }
        let classes = ["a", "b"].map(str::to_owned);
        let options = FitOptions {
            classes: &classes,
            targets: &[],
            is_stopping: &|| false,
        };
        let model = fit(&samples, &options).expect("it was not stopped");
        let outputs = model.predict(image_features(&bar(true, 33)));
        let most = (0..2).map(|label| log_softmax(&outputs, label).exp());
        let most = most.fold(0.0, f32::max);
        assert!(most < 0.8, "{most}");
    }

    #[test]
    fn a_stop_ends_it_early_and_nothing_to_learn_gives_no_model() {
        for last in [0, 3, 8] {
            let polls = AtomicUsize::new(0);
            let is_stopping = || polls.fetch_add(1, Ordering::Relaxed) >= last;
            assert!(trained(&["a", "b"], &is_stopping).is_none(), "{last}");
        }
        let options = FitOptions {
            classes: &[],
            targets: &[],
            is_stopping: &|| false,
        };
        assert!(fit(&samples(), &options).is_none());
        assert!(fit(&[], &options).is_none());
    }
}
