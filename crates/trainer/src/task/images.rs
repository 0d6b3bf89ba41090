//! Image tasks: class labels, regression targets, or both, from one network.

use super::class_scores::class_probabilities;
use super::evaluation::{SampleOutputs, mixed_outputs};
use super::regression_metrics::{self, RegressionErrors};
use super::{
    Balance, BaselineInputs, EvaluatedMicroBatch, ForwardContext, MetricInputs, MetricSums,
    Metrics, MicroBatchResult, Sample, SamplePrediction, Task, TaskBaseline, image_baseline,
};
use crate::data::{BaselineScores, ImageEvalLoader, ImageLoader, PrefetchOptions, expect_images};
use crate::error::Result;
use crate::plan::Plan;
use crate::preparation::Preparation;
use candle_core::{DType, Tensor};
use dataset::{DetectedDataset, ImageInspection, Split};
use models::Network;
use models::{BALANCE, HUBER_DELTA, PixelNormalization};
use rayon::prelude::*;
use runlog::{RunFolder, format_in_unit};
use std::borrow::Borrow;
use tape::device::{convert, upload_as};
use tape::inplace::to_f64;
use tape::{ClassRule, ClassTargets, Loss, RegressionTargets, Tape, Value};

pub use dataset::ImageSample;

/// With at most this many classes, the top-5 accuracy is always 100 %.
const TOP_5: usize = 5;

/// The prediction for one image or text.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Labels with their probabilities, the most probable first.
    pub classes: Vec<(u32, f64)>,
    /// Regression targets, in standard deviations from the mean of their columns.
    pub targets: Vec<f64>,
}

impl Prediction {
    /// The class probabilities of class scores.
    pub(crate) fn from_scores(scores: &[f64]) -> Self {
        Prediction {
            classes: class_probabilities(scores),
            targets: Vec::new(),
        }
    }

    /// The prediction of class scores and regression targets.
    pub(crate) fn from_outputs(outputs: &[f64], classes: usize) -> Self {
        let (scores, targets) = outputs.split_at(classes);
        Prediction {
            targets: targets.to_vec(),
            ..Prediction::from_scores(scores)
        }
    }
}

/// Classifies images and predicts regression targets.
pub enum ImageTask {}

impl Sample for ImageSample {
    type Task = ImageTask;
}

impl Task for ImageTask {
    type Sample = ImageSample;
    type Data = ImageInspection;
    type TrainLoader = ImageLoader;
    type EvalLoader = ImageEvalLoader;

    fn prepare(
        _plan: &Plan,
        found: &DetectedDataset,
        _run: &RunFolder,
        _preparation: Preparation,
    ) -> Result<ImageInspection> {
        Ok(expect_images(found)?.clone())
    }

    fn train_loader(
        plan: &Plan,
        inspection: &ImageInspection,
        options: PrefetchOptions,
        step: u64,
    ) -> ImageLoader {
        ImageLoader::start(plan, inspection, options, step)
    }

    fn eval_loader(
        plan: &Plan,
        inspection: &ImageInspection,
        options: PrefetchOptions,
    ) -> ImageEvalLoader {
        ImageEvalLoader::start(plan, inspection, Split::HeldOut, options)
            .with_sample_limit(plan.seed, plan.max_evaluated_samples())
    }

    fn train_baseline(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
        image_baseline::train(inputs)
    }

    fn baseline_scores(inputs: &BaselineInputs) -> Result<Option<BaselineScores>> {
        image_baseline::scores_of_saved(inputs)
    }

    fn gradients(context: &ForwardContext, samples: &[ImageSample]) -> Result<MicroBatchResult> {
        expect_image_network(context)?;
        let tape = context.training_tape(samples.iter().map(|sample| sample.index));
        let weights = context.heads.weights(context.parameters)?;
        let terms = loss_terms(context, &tape, samples)?;
        let mut roots = Vec::with_capacity(terms.len());
        let mut per_term = Vec::with_capacity(terms.len());
        for (term, (weight, _)) in terms.into_iter().zip(&weights) {
            roots.push((term.loss.sum, weight * term.factor * context.loss_factor));
            per_term.push((term.loss.per_sample, term.factor));
        }
        let gradients = tape.backward(roots)?;
        // The loss of each sample, and of each term over the micro-batch. They are summed on the
        // host in f64, sample by sample, so that the split cannot change them beyond each sample's
        // own rounding. Reading them waits for the device and confirms the gradients, too.
        let (mut losses, mut sums) = (vec![0.0; samples.len()], vec![0.0; weights.len()]);
        for (((per_sample, factor), (weight, offset)), sum) in
            per_term.into_iter().zip(&weights).zip(&mut sums)
        {
            for (loss, own) in losses.iter_mut().zip(to_f64(&per_sample)?) {
                *loss += weight * factor * own + offset;
                *sum += factor * own;
            }
        }
        let gradient = |(gradient, parameter): (Option<Tensor>, &tape::Parameter)| match gradient {
            Some(gradient) => Ok(gradient),
            None if parameter.name == BALANCE => {
                balance_gradient(context, &parameter.tensor, &weights, &sums, samples.len())
            }
            // The parameter took no part in this micro-batch.
            None => Ok(parameter.tensor.zeros_like()?),
        };
        let gradients = gradients.into_iter().zip(context.parameters.iter());
        let gradients = gradients.map(gradient).collect::<Result<Vec<_>>>()?;
        let not_finite = losses.iter().zip(samples).filter(|(l, _)| !l.is_finite());
        Ok(MicroBatchResult {
            gradients,
            loss: losses.iter().sum(),
            weight: samples.len() as f64,
            samples: samples.len(),
            not_finite: not_finite.map(|(_, sample)| sample.index).collect(),
            metrics: MetricSums::default(),
        })
    }

    fn evaluate(context: &ForwardContext, samples: &[ImageSample]) -> Result<EvaluatedMicroBatch> {
        let tape = context.inference_tape();
        let outputs = outputs(context, &tape, samples, 0)?;
        let mut result = EvaluatedMicroBatch {
            samples: samples.len() as u64,
            weight: samples.len() as f64,
            ..Default::default()
        };
        if let Some(scores) = context.heads.scores(&tape, &outputs)? {
            let labels = labels(samples);
            let losses = tape.cross_entropy(&scores, &labels, 0.0)?.per_sample;
            result.loss = to_f64(&losses)?.iter().sum();
            let scores = to_f64(scores.tensor())?;
            let rows = scores.chunks_exact(context.heads.classes);
            for (scores, sample) in rows.zip(samples) {
                let outputs = SampleOutputs::from_scores(sample.index, sample.label, scores);
                result.count(&outputs);
            }
        } else {
            let unclassified = |sample: &ImageSample| SamplePrediction {
                index: sample.index,
                class: None,
                targets: Vec::new(),
            };
            result.predictions = samples.iter().map(unclassified).collect();
        }
        for k in 0..context.heads.targets {
            let (values, present, _) = targets(samples, k);
            let rule = RegressionTargets {
                values: &values,
                present: Some(&present),
            };
            let output = context.heads.target(&tape, &outputs, k)?;
            let losses = tape.huber(&output, rule, HUBER_DELTA)?.per_sample;
            let predicted = to_f64(output.tensor())?;
            let targets = values.iter().map(|&value| f64::from(value)).zip(&present);
            for ((sample, predicted), (value, present)) in result
                .predictions
                .iter_mut()
                .zip(&predicted)
                .zip(targets.clone())
            {
                sample.targets.push(present.then_some((value, *predicted)));
            }
            let errors = predicted
                .iter()
                .zip(targets)
                .filter(|(_, (_, present))| **present);
            result.targets.push(RegressionErrors {
                loss: to_f64(&losses)?.iter().sum(),
                absolute: errors
                    .map(|(predicted, (value, _))| ((predicted - value).abs(), value.abs()))
                    .collect(),
            });
        }
        add_mixtures(&mut result, context, &outputs, samples)?;
        Ok(result)
    }

    fn zero_sample(context: &ForwardContext, index: u32) -> ImageSample {
        ImageSample {
            index,
            label: 0,
            pixels: vec![0; 3 * context.input_size * context.input_size],
            targets: vec![Some(0.0); context.heads.targets],
            factors: Vec::new(),
            partner: None,
            baseline: Vec::new(),
        }
    }

    /// `accuracy` and `macro_f1` of the classes, if there are any; `top_5`, if there are more than
    /// five classes; `mae.COLUMN` and
    /// `mae_of_mean.COLUMN` of each regression target, in the unit of its column. The score is the
    /// accuracy, or the negative mean absolute error in standard deviations if there are no
    /// classes; of several targets it is also the metric `mae_standardized`.
    fn metrics(sum: &EvaluatedMicroBatch, inputs: &MetricInputs) -> Metrics {
        let mut metrics = if inputs.heads.classes == 0 {
            Metrics::new(sum, &[], 0.0)
        } else {
            let accuracy = sum.accuracy();
            let mut named = vec![
                ("accuracy", accuracy),
                ("macro_f1", sum.confusion.macro_f1()),
            ];
            if inputs.heads.classes > TOP_5 {
                named.push(("top_5", sum.top_5_accuracy()));
            }
            Metrics::new(sum, &named, accuracy)
        };
        if !sum.targets.is_empty() {
            let mean = |of: fn(&RegressionErrors) -> f64| {
                sum.targets.iter().map(of).sum::<f64>() / sum.targets.len() as f64
            };
            // Learned weights would let a run improve its evaluation by weighing a hard target
            // less.
            let weight = match inputs.heads.balance {
                Balance::Fixed(weight) => weight,
                Balance::Uncertainty => 1.0,
            };
            metrics.loss += weight * mean(RegressionErrors::mean_loss);
            if inputs.heads.classes == 0 {
                metrics.score = -mean(RegressionErrors::mean_absolute);
                if sum.targets.len() > 1 {
                    let compared = ("mae_standardized".to_owned(), -metrics.score);
                    metrics.by_name.extend([compared]);
                }
            }
            let named = regression_metrics::named(&sum.targets, inputs.columns);
            metrics.by_name.extend(named);
        }
        metrics
    }

    fn describe_best(score: f64, plan: &Plan) -> String {
        match (&*plan.classes, &*plan.columns) {
            ([], [column]) => format!(
                "best held-out mean absolute error of {} {}",
                column.name,
                format_in_unit(-score * column.deviation)
            ),
            ([], _) => format!(
                "best held-out mean absolute error {:.2} standard deviations",
                -score
            ),
            _ => format!("best held-out accuracy {:.1} %", 100.0 * score),
        }
    }
}

impl ImageTask {
    /// The prediction for each image. `baseline_share` is the weight of the baseline for images
    /// that have its outputs.
    pub fn predict(
        context: &ForwardContext,
        samples: &[ImageSample],
        baseline_share: f64,
    ) -> Result<Vec<Prediction>> {
        let outputs = outputs(context, &context.inference_tape(), samples, 0)?;
        let rows = to_f64(outputs.tensor())?;
        let classes = context.heads.classes;
        let prediction = |(row, sample): (&[f64], &ImageSample)| {
            if sample.baseline.is_empty() {
                return Prediction::from_outputs(row, classes);
            }
            let mixed = mixed_outputs(row, &sample.baseline, classes, baseline_share);
            Prediction::from_outputs(&mixed, classes)
        };
        let rows = rows.chunks_exact(context.heads.outputs().max(1));
        Ok(rows.zip(samples).map(prediction).collect())
    }

    /// For each pixel of an image how much it changes the most probable class, or the first
    /// regression target without classes: the largest absolute gradient of the three channels
    /// (Simonyan et al. 2014). Rows from the top.
    pub(crate) fn saliency(context: &ForwardContext, sample: &ImageSample) -> Result<Vec<f64>> {
        expect_image_network(context)?;
        let tape = context.recording_tape();
        let images = tape.variable(pixels(context, std::slice::from_ref(sample))?);
        let outputs = context.network.forward(&tape, &images, 0)?;
        let scores = to_f64(outputs.tensor())?;
        let classes = &scores[..context.heads.classes.min(scores.len())];
        let best = (0..classes.len()).max_by(|a, b| classes[*a].total_cmp(&classes[*b]));
        let mut seed = vec![0f32; scores.len()];
        if let Some(seed) = seed.get_mut(best.unwrap_or(0)) {
            *seed = 1.0;
        }
        let seed = Tensor::from_vec(seed, outputs.dims(), context.device)?;
        let seed = convert(&seed, outputs.tensor().dtype())?;
        let gradient = tape.input_gradient(outputs, seed, images)?;
        let plane = context.input_size * context.input_size;
        let Some(gradient) = gradient else {
            return Ok(vec![0.0; plane]);
        };
        let values = to_f64(&gradient)?;
        let strongest = |pixel: usize| {
            let channels = values.iter().skip(pixel).step_by(plane);
            channels.fold(0.0, |most: f64, value| most.max(value.abs()))
        };
        Ok((0..plane).map(strongest).collect())
    }
}

/// Adds mixtures of the network's outputs and those of the baseline, if the samples have these.
fn add_mixtures(
    result: &mut EvaluatedMicroBatch,
    context: &ForwardContext,
    outputs: &Value,
    samples: &[ImageSample],
) -> Result<()> {
    if samples.iter().all(|sample| sample.baseline.is_empty()) {
        return Ok(());
    }
    let rows = to_f64(outputs.tensor())?;
    let rows = rows.chunks_exact(context.heads.outputs().max(1));
    for (row, sample) in rows.zip(samples) {
        let outputs = SampleOutputs {
            index: sample.index,
            label: sample.label,
            classes: context.heads.classes,
            outputs: row,
            targets: &sample.targets,
        };
        result.add_to_mixtures(&outputs, &sample.baseline);
    }
    Ok(())
}

/// One term of the training loss.
struct LossTerm {
    loss: Loss,
    /// What the sum is multiplied by; the same for the whole effective batch.
    factor: f64,
}

/// The class loss if there are classes, then the loss of each regression target.
fn loss_terms(
    context: &ForwardContext,
    tape: &Tape,
    samples: &[ImageSample],
) -> Result<Vec<LossTerm>> {
    let outputs = outputs(context, tape, samples, context.checkpointed)?;
    let mut terms = Vec::with_capacity(context.heads.terms());
    if let Some(scores) = context.heads.scores(tape, &outputs)? {
        let loss = class_loss(context, tape, &scores, samples)?;
        terms.push(LossTerm { loss, factor: 1.0 });
    }
    for k in 0..context.heads.targets {
        let (values, present, factor) = targets(samples, k);
        let targets = RegressionTargets {
            values: &values,
            present: Some(&present),
        };
        let output = context.heads.target(tape, &outputs, k)?;
        let loss = tape.huber(&output, targets, HUBER_DELTA)?;
        terms.push(LossTerm { loss, factor });
    }
    Ok(terms)
}

/// Cross-entropy. A mixed sample has shares of two classes. The mean class weight of the training
/// samples is 1, so that the sum is divided by the number of samples with and without weights.
fn class_loss(
    context: &ForwardContext,
    tape: &Tape,
    scores: &Value,
    samples: &[ImageSample],
) -> Result<Loss> {
    let rule = ClassRule {
        smoothing: context.label_smoothing,
        class_weights: context.class_weights,
    };
    if samples.iter().all(|sample| sample.partner.is_none()) {
        let labels = labels(samples);
        return Ok(tape.class_cross_entropy(scores, ClassTargets::Labels(&labels), &rule)?);
    }
    let shares = class_shares(samples, context.heads.classes);
    Ok(tape.class_cross_entropy(scores, ClassTargets::Probabilities(&shares), &rule)?)
}

/// The gradient of `exp(-s) sum + n s / 2` with respect to each log variance `s`.
fn balance_gradient(
    context: &ForwardContext,
    like: &Tensor,
    weights: &[(f64, f64)],
    sums: &[f64],
    samples: usize,
) -> Result<Tensor> {
    let of = |((weight, _), sum): (&(f64, f64), &f64)| {
        context.loss_factor * (samples as f64 / 2.0 - weight * sum)
    };
    let values: Vec<f64> = weights.iter().zip(sums).map(of).collect();
    let shape = [values.len()];
    Ok(upload_as(values, &shape, like.dtype(), context.device)?)
}

/// The network's outputs, [samples, classes + targets].
fn outputs(
    context: &ForwardContext,
    tape: &Tape,
    samples: &[ImageSample],
    checkpointed: usize,
) -> Result<Value> {
    expect_image_network(context)?;
    let images = Value::constant(pixels(context, samples)?);
    Ok(context.network.forward(tape, &images, checkpointed)?)
}

fn expect_image_network(context: &ForwardContext) -> Result<()> {
    match context.network {
        Network::Image(_) => Ok(()),
        _ => Err(context.wrong_network(dataset::Task::ImageClassification)),
    }
}

/// Normalized pixels, [samples, 3, size, size].
fn pixels(context: &ForwardContext, samples: &[ImageSample]) -> Result<Tensor> {
    let plane = context.input_size * context.input_size;
    let mut values = vec![0.0; samples.len() * 3 * plane];
    let rows = values.par_chunks_exact_mut(3 * plane).zip(samples);
    let how = &context.pixels;
    rows.for_each(|(row, sample)| normalize(row, sample, plane, how));
    let shape = [samples.len(), 3, context.input_size, context.input_size];
    let images = if context.device.is_cpu() {
        Tensor::from_vec(values, &shape, context.device)?
    } else {
        tape::device::upload(&values, &shape, context.device)?
    };
    Ok(if context.dtype == DType::F32 {
        images
    } else {
        convert(&images, context.dtype)?
    })
}

/// Converts the bytes of one sample to normalized values, channel by channel.
fn normalize(row: &mut [f32], sample: &ImageSample, plane: usize, by: &PixelNormalization) {
    let pixels = sample.pixels.chunks_exact(plane);
    for (channel, (values, pixels)) in row.chunks_exact_mut(plane).zip(pixels).enumerate() {
        let scale = 1.0 / (255.0 * by.std[channel]);
        let shift = by.mean[channel] / by.std[channel];
        for (value, &pixel) in values.iter_mut().zip(pixels) {
            *value = f32::from(pixel) * scale - shift;
        }
    }
}

fn labels(samples: &[ImageSample]) -> Vec<u32> {
    samples.iter().map(|sample| sample.label).collect()
}

/// The share of each class in each sample, [samples, classes].
fn class_shares(samples: &[ImageSample], classes: usize) -> Vec<f32> {
    let mut shares = vec![0.0; samples.len() * classes];
    for (row, sample) in shares.chunks_exact_mut(classes.max(1)).zip(samples) {
        let (partner, share) = sample.partner.unwrap_or((sample.label, 0.0));
        row[sample.label as usize] += 1.0 - share;
        row[partner as usize] += share;
    }
    shares
}

/// Regression target `k` of the samples, a mask of the ones that are present, and the factor of its
/// loss. The factor is the same for all samples of an effective batch.
fn targets<S: Borrow<ImageSample>>(samples: &[S], k: usize) -> (Vec<f32>, Vec<bool>, f64) {
    let at = |sample: &S| sample.borrow().targets.get(k).copied().flatten();
    let found: Vec<Option<f32>> = samples.iter().map(at).collect();
    let first = samples.first();
    let factor = first.and_then(|sample| sample.borrow().factors.get(k).copied());
    (
        found.iter().map(|value| value.unwrap_or(0.0)).collect(),
        found.iter().map(Option::is_some).collect(),
        factor.unwrap_or(1.0),
    )
}
