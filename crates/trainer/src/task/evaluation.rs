//! Sums over the micro-batches of an evaluation, and the metrics that are computed from these sums.

use super::class_scores::{Ranking, confidence, cross_entropy, mixed};
use super::{Heads, MetricSums, RegressionErrors, regression_metrics};
use dataset::TargetColumn;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shares of the baseline in the mixtures that an evaluation compares with the network alone.
const BASELINE_SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// The result of one micro-batch of an evaluation: sums, not means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvaluatedMicroBatch {
    /// Summed loss, without label smoothing and class weights.
    pub loss: f64,
    /// What the summed loss is divided by: samples, or tokens of documents.
    pub weight: f64,
    /// Samples whose highest score is the correct class.
    pub correct: u64,
    /// Samples whose correct class is among the five highest scores.
    pub in_top_5: u64,
    pub samples: u64,
    /// Correct and predicted classes.
    pub confusion: ConfusionMatrix,
    /// Sums of the task's further metrics.
    pub metrics: MetricSums,
    pub targets: Vec<RegressionErrors>,
    /// One entry per sample, in the order of the evaluation; empty for documents.
    pub predictions: Vec<SamplePrediction>,
    /// The same samples by mixtures of the network and the baseline, one for each share in
    /// `BASELINE_SHARES`; empty without a baseline.
    pub mixtures: Vec<EvaluatedMicroBatch>,
}

/// The evaluation of a mixture of a network and its baseline.
pub(crate) struct Mixture {
    /// The sums of the mixture.
    pub sum: EvaluatedMicroBatch,
    /// `None` without a baseline.
    pub parts: Option<MixtureParts>,
}

/// What a mixture consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MixtureParts {
    /// Weight of the baseline, from 0 (the network alone) to 1 (the baseline alone).
    pub baseline_share: f64,
    /// Accuracy of the network alone; `None` without classes.
    pub network_accuracy: Option<f64>,
}

/// What a model outputs for one sample, and the correct outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct SampleOutputs<'a> {
    /// Index of the sample in the evaluated split.
    pub index: u32,
    /// Its class; 0 without classes.
    pub label: u32,
    /// Number of classes.
    pub classes: usize,
    /// Class scores, then regression targets in standard deviations from the mean.
    pub outputs: &'a [f64],
    /// The correct regression targets; `None` if the sample does not have the target.
    pub targets: &'a [Option<f32>],
}

impl<'a> SampleOutputs<'a> {
    /// Class scores alone.
    pub fn from_scores(index: u32, label: u32, scores: &'a [f64]) -> Self {
        SampleOutputs {
            index,
            label,
            classes: scores.len(),
            outputs: scores,
            targets: &[],
        }
    }
}

/// What a network predicted for one sample of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplePrediction {
    /// Index of the sample in the evaluated split.
    pub index: u32,
    /// Absent without classes.
    pub class: Option<ClassPrediction>,
    /// For each regression target its value and the prediction, in standard deviations from the
    /// mean of the column; `None` if the sample does not have the target.
    pub targets: Vec<Option<(f64, f64)>>,
}

/// The class that a network predicted for one sample, and its correct class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassPrediction {
    /// Index of the correct class.
    pub class: u32,
    /// Index of the most probable class.
    pub predicted: u32,
    /// Probability of the predicted class; 0 if the scores are not finite.
    pub probability: f64,
    /// Probability of the correct class; 0 if the scores are not finite.
    pub class_probability: f64,
}

impl EvaluatedMicroBatch {
    /// Adds another micro-batch.
    pub fn add(&mut self, other: EvaluatedMicroBatch) {
        self.loss += other.loss;
        self.weight += other.weight;
        self.correct += other.correct;
        self.in_top_5 += other.in_top_5;
        self.samples += other.samples;
        self.confusion.add(&other.confusion);
        self.metrics.add(&other.metrics);
        regression_metrics::add(&mut self.targets, other.targets);
        self.predictions.extend(other.predictions);
        self.mixtures
            .resize_with(self.mixtures.len().max(other.mixtures.len()), Self::default);
        for (own, other) in self.mixtures.iter_mut().zip(other.mixtures) {
            own.add(other);
        }
    }

    /// Adds a sample with its losses.
    pub(super) fn add_sample(&mut self, sample: &SampleOutputs) {
        self.weight += 1.0;
        self.samples += 1;
        let (scores, predicted) = sample.outputs.split_at(sample.classes);
        if sample.classes > 0 {
            self.loss += cross_entropy(scores, sample.label);
            self.count(sample);
        } else {
            self.predictions.push(SamplePrediction {
                index: sample.index,
                class: None,
                targets: Vec::new(),
            });
        }
        self.targets
            .resize_with(sample.targets.len(), RegressionErrors::default);
        let last = self.predictions.last_mut();
        let places = last.map(|last| &mut last.targets);
        let pairs = sample.targets.iter().zip(predicted);
        let pairs: Vec<_> = pairs
            .map(|(target, predicted)| target.map(|target| (f64::from(target), *predicted)))
            .collect();
        for (errors, pair) in self.targets.iter_mut().zip(&pairs) {
            if let Some((target, predicted)) = pair {
                errors.add_sample(*target, *predicted);
            }
        }
        if let Some(places) = places {
            *places = pairs;
        }
    }

    /// Adds a sample to all mixtures, if there are outputs of the baseline.
    pub(super) fn add_to_mixtures(&mut self, network: &SampleOutputs, baseline: &[f32]) {
        if baseline.is_empty() {
            return;
        }
        self.mixtures
            .resize_with(BASELINE_SHARES.len(), Self::default);
        for (mixture, share) in self.mixtures.iter_mut().zip(BASELINE_SHARES) {
            let outputs = mixed_outputs(network.outputs, baseline, network.classes, share);
            mixture.add_sample(&SampleOutputs {
                outputs: &outputs,
                ..*network
            });
        }
    }

    /// The most accurate of the network alone and its mixtures with the baseline; of several, the
    /// one with the lowest loss. Without classes, the one with the smallest mean absolute error.
    pub(crate) fn into_best_mixture(self) -> Mixture {
        let mut best = (0.0, self.quality());
        for (mixture, share) in self.mixtures.iter().zip(BASELINE_SHARES) {
            let quality = mixture.quality();
            if quality > best.1 {
                best = (share, quality);
            }
        }
        self.into_mixture(best.0)
    }

    /// What mixtures are compared by; larger is better. The first number that differs counts.
    fn quality(&self) -> [f64; 2] {
        if self.confusion.is_empty() {
            let errors = self.targets.iter().map(RegressionErrors::mean_absolute);
            return [-errors.sum::<f64>(), 0.0];
        }
        [self.correct as f64, -self.loss]
    }

    /// The mixture with this share of the baseline; 0 is the network alone.
    pub(crate) fn into_mixture(mut self, share: f64) -> Mixture {
        if self.mixtures.is_empty() {
            return Mixture {
                sum: self,
                parts: None,
            };
        }
        let parts = Some(MixtureParts {
            baseline_share: share,
            network_accuracy: (!self.confusion.is_empty()).then(|| self.accuracy()),
        });
        let mixtures = std::mem::take(&mut self.mixtures).into_iter();
        let mut pairs = mixtures.zip(BASELINE_SHARES);
        let mixture = pairs.find(|(_, of_mixture)| *of_mixture == share);
        Mixture {
            sum: mixture.map_or(self, |(mixture, _)| mixture),
            parts,
        }
    }

    /// Counts the class scores of a sample.
    pub(super) fn count(&mut self, sample: &SampleOutputs) {
        let (scores, label) = (&sample.outputs[..sample.classes], sample.label);
        let ranking = Ranking::new(scores, label);
        self.correct += u64::from(ranking.better == 0);
        self.in_top_5 += u64::from(ranking.better < 5);
        self.confusion.count(label, ranking.best);
        self.predictions.push(SamplePrediction {
            index: sample.index,
            class: Some(ClassPrediction {
                class: label,
                predicted: ranking.best,
                probability: confidence(scores, ranking.best),
                class_probability: confidence(scores, label),
            }),
            targets: Vec::new(),
        });
    }

    /// The fraction of samples that are classified correctly.
    pub(super) fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }

    /// The fraction of samples whose correct class is among the five most probable ones.
    pub(super) fn top_5_accuracy(&self) -> f64 {
        self.in_top_5 as f64 / self.samples.max(1) as f64
    }
}

/// The weighted mean of the outputs of two models: of the log-probabilities of the classes, and of
/// the regression targets. `share` is the weight of the baseline, from 0 to 1.
pub(super) fn mixed_outputs(
    network: &[f64],
    baseline: &[f32],
    classes: usize,
    share: f64,
) -> Vec<f64> {
    let ((network, own), (baseline, others)) =
        (network.split_at(classes), baseline.split_at(classes));
    let mut outputs = mixed(network, baseline, share);
    let pairs = own.iter().zip(others);
    outputs.extend(pairs.map(|(own, other)| (1.0 - share) * own + share * f64::from(*other)));
    outputs
}

/// One cell of the confusion matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfusionEntry {
    /// Index of the correct class.
    pub class: u32,
    /// Index of the predicted class.
    pub predicted: u32,
    /// Number of samples.
    pub count: u64,
}

/// The number of samples for each pair of correct and predicted class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfusionMatrix(BTreeMap<(u32, u32), u64>);

impl ConfusionMatrix {
    /// Counts one sample of class `label` that was classified as `predicted`.
    pub fn count(&mut self, label: u32, predicted: u32) {
        *self.0.entry((label, predicted)).or_default() += 1;
    }

    /// Whether no sample was counted.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs that occurred, ordered by label.
    pub fn entries(&self) -> impl Iterator<Item = ConfusionEntry> + '_ {
        let entry = |(&(class, predicted), &count)| ConfusionEntry {
            class,
            predicted,
            count,
        };
        self.0.iter().map(entry)
    }

    fn add(&mut self, other: &ConfusionMatrix) {
        for (pair, count) in &other.0 {
            *self.0.entry(*pair).or_default() += count;
        }
    }

    /// The mean of F1 over the classes that occur as label or as prediction: `2 correct / (samples
    /// + predictions)`. 0 without samples.
    pub fn macro_f1(&self) -> f64 {
        // For each class: correct predictions, and samples plus predictions.
        let mut by_class: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (&(label, predicted), &count) in &self.0 {
            by_class.entry(label).or_default().1 += count;
            by_class.entry(predicted).or_default().1 += count;
            if label == predicted {
                by_class.entry(label).or_default().0 += count;
            }
        }
        let f1 = |&(correct, both): &(u64, u64)| 2.0 * correct as f64 / both.max(1) as f64;
        by_class.values().map(f1).sum::<f64>() / by_class.len().max(1) as f64
    }
}

/// What metrics depend on besides the sums.
#[derive(Debug, Clone, Copy)]
pub struct MetricInputs<'a> {
    /// Bytes of the evaluated documents.
    pub held_out_bytes: u64,
    /// The outputs of an image network.
    pub heads: Heads,
    /// The columns of its regression targets.
    pub columns: &'a [TargetColumn],
}

/// The metrics of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Samples evaluated.
    pub samples: u64,
    /// Mean loss, in nats.
    pub loss: f64,
    /// The metrics of the task: fractions, bits per byte, or errors in the unit of a column.
    pub by_name: BTreeMap<String, f64>,
    /// What checkpoints are compared by; larger is better.
    pub score: f64,
}

impl Metrics {
    /// The mean loss and further means of `sum`, with the task's own metrics and score.
    pub(super) fn new(sum: &EvaluatedMicroBatch, named: &[(&str, f64)], score: f64) -> Self {
        let named = named
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        Metrics {
            samples: sum.samples,
            loss: sum.loss / sum.weight.max(f64::MIN_POSITIVE),
            by_name: named.chain(sum.metrics.means()).collect(),
            score,
        }
    }

    /// Adds what the evaluated mixture consists of: `baseline_share`, and `network_accuracy` if
    /// there are classes.
    pub(crate) fn with_parts(mut self, parts: Option<MixtureParts>) -> Self {
        if let Some(parts) = parts {
            let share = ("baseline_share".to_owned(), parts.baseline_share);
            let accuracy = parts.network_accuracy;
            let accuracy = accuracy.map(|accuracy| ("network_accuracy".to_owned(), accuracy));
            self.by_name.extend([share].into_iter().chain(accuracy));
        }
        self
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{LanguageTask, Task};

    #[test]
    fn macro_f1_weighs_rare_classes_equally() {
        let mut confusion = ConfusionMatrix::default();
        assert_eq!(confusion.macro_f1(), 0.0);
        // 90 of 90 correct, of the rare class 5 of 10: precision .947 and recall 1, precision 1 and
        // recall .5.
        (0..90).for_each(|_| confusion.count(0, 0));
        (0..5).for_each(|_| confusion.count(1, 1));
        (0..5).for_each(|_| confusion.count(1, 0));
        let expected = (2.0 * 90.0 / (90.0 + 95.0) + 2.0 * 5.0 / (10.0 + 5.0)) / 2.0;
        assert!((confusion.macro_f1() - expected).abs() < 1e-12);
        let mut twice = confusion.clone();
        twice.add(&confusion);
        assert_eq!(twice.macro_f1(), confusion.macro_f1());
    }

    /// An evaluation of three samples of class 1, of which the network has `network` correct. The
    /// baseline has the scores `baseline` for each of them.
    fn evaluated(network: usize, baseline: [f32; 2]) -> EvaluatedMicroBatch {
        let mut sum = EvaluatedMicroBatch::default();
        for index in 0..3 {
            let scores = if (index as usize) < network {
                [0.0, 0.4]
            } else {
                [0.4, 0.0]
            };
            let mut one = EvaluatedMicroBatch::default();
            let outputs = SampleOutputs::from_scores(index, 1, &scores);
            one.add_sample(&outputs);
            one.add_to_mixtures(&outputs, &baseline);
            sum.add(one);
        }
        sum
    }

    #[test]
    fn the_best_mixture_is_at_least_as_accurate_as_both_parts() {
        // The baseline is wrong about every sample: the network alone.
        let alone = evaluated(2, [2.0, 0.0]).into_best_mixture();
        let parts = alone.parts.expect("there is a baseline");
        assert_eq!((parts.baseline_share, alone.sum.correct), (0.0, 2));
        // The baseline is right and sure: it corrects the network.
        let both = evaluated(2, [0.0, 4.0]).into_best_mixture();
        let parts = both.parts.expect("there is a baseline");
        assert_eq!((both.sum.correct, both.sum.samples), (3, 3));
        assert!(parts.baseline_share > 0.0);
        let network = parts.network_accuracy.expect("there are classes");
        assert!((network - 2.0 / 3.0).abs() < 1e-12);
        let same = evaluated(2, [0.0, 4.0]).into_mixture(parts.baseline_share);
        assert_eq!(same.sum, both.sum);
        let without = evaluated(2, [0.0, 4.0]).into_mixture(0.0);
        assert_eq!((without.sum.correct, without.sum.mixtures.len()), (2, 0));
    }

    #[test]
    fn an_evaluation_without_a_baseline_stays_as_it_is() {
        let mut sum = EvaluatedMicroBatch::default();
        let outputs = SampleOutputs::from_scores(0, 1, &[0.0, 1.0]);
        sum.add_sample(&outputs);
        sum.add_to_mixtures(&outputs, &[]);
        let found = sum.clone().into_best_mixture();
        assert_eq!((found.sum, found.parts), (sum, None));
    }

    #[test]
    fn regression_targets_are_mixed_by_their_errors() {
        let mut sum = EvaluatedMicroBatch::default();
        for index in 0..4 {
            let network = SampleOutputs {
                index,
                label: 0,
                classes: 0,
                outputs: &[0.0, 2.0],
                targets: &[Some(1.0), None],
            };
            let mut one = EvaluatedMicroBatch::default();
            one.add_sample(&network);
            one.add_to_mixtures(&network, &[2.0, 9.0]);
            sum.add(one);
        }
        let Mixture { sum, parts } = sum.into_best_mixture();
        let parts = parts.expect("there is a baseline");
        assert_eq!((parts.baseline_share, parts.network_accuracy), (0.5, None));
        assert_eq!((sum.samples, sum.targets.len()), (4, 2));
        assert_eq!(sum.targets[0].mean_absolute(), 0.0);
        assert!(sum.targets[1].absolute.is_empty());
        assert_eq!(sum.predictions[3].targets, [Some((1.0, 1.0)), None]);
    }

    #[test]
    fn bits_per_byte_divide_the_summed_loss_by_the_text_bytes() {
        let sum = EvaluatedMicroBatch {
            loss: 100.0 * std::f64::consts::LN_2,
            weight: 51.0,
            samples: 2,
            ..EvaluatedMicroBatch::default()
        };
        let inputs = MetricInputs {
            held_out_bytes: 50,
            heads: Heads::for_classes(0),
            columns: &[],
        };
        let metrics = LanguageTask::metrics(&sum, &inputs);
        assert!((metrics.by_name["bits_per_byte"] - 2.0).abs() < 1e-12);
        assert!((metrics.score + 2.0).abs() < 1e-12);
    }
}
