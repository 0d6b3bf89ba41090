//! Text classification: texts of a micro-batch are padded to its longest one.

use super::class_scores::mixed;
use super::{
    BaselineInputs, EvaluatedMicroBatch, ForwardContext, MetricInputs, MetricSums, Metrics,
    MicroBatchResult, Prediction, Sample, SampleOutputs, Task, TaskBaseline, Text, text_baseline,
};
use crate::data::{BaselineScores, PrefetchOptions, TextData, TextEvalLoader, TextLoader};
use crate::error::Result;
use crate::plan::Plan;
use crate::preparation::Preparation;
use dataset::DetectedDataset;
use models::{Network, TextEncoder};
use runlog::RunFolder;
use std::sync::Arc;
use tape::inplace::to_f64;
use tape::{ClassRule, ClassTargets, Tape, Value};

/// Sorts texts into classes.
pub enum TextTask {}

impl Sample for Text {
    type Task = TextTask;
}

impl Task for TextTask {
    type Sample = Text;
    type Data = TextData;
    type TrainLoader = TextLoader;
    type EvalLoader = TextEvalLoader;

    fn prepare(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<TextData> {
        TextData::open(plan, found, run, preparation)
    }

    fn truncation_warning(plan: &Plan, data: &TextData) -> Option<String> {
        data.truncation_warning(plan.input_size)
    }

    fn train_loader(
        plan: &Plan,
        data: &TextData,
        _options: PrefetchOptions,
        _step: u64,
    ) -> TextLoader {
        TextLoader::new(plan, &data.train)
    }

    fn eval_loader(plan: &Plan, data: &TextData, _options: PrefetchOptions) -> TextEvalLoader {
        TextEvalLoader::new(Arc::clone(&data.held_out))
            .with_sample_limit(plan.seed, plan.max_evaluated_samples())
    }

    fn train_baseline(inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
        text_baseline::train(inputs)
    }

    fn baseline_scores(inputs: &BaselineInputs) -> Result<Option<BaselineScores>> {
        text_baseline::scores_of_saved(inputs)
    }

    fn gradients(context: &ForwardContext, texts: &[Text]) -> Result<MicroBatchResult> {
        let indices = texts.iter().map(|text| text.index);
        let (tape, labels) = (context.training_tape(indices), labels(texts));
        let rule = ClassRule {
            smoothing: context.label_smoothing,
            class_weights: context.class_weights,
        };
        let targets = ClassTargets::Labels(&labels);
        let (loss, weight) = {
            let scores = scores(context, &tape, texts, context.checkpointed)?;
            let classes = scores.tensor().dim(1)?;
            let loss = tape.class_cross_entropy(&scores, targets, &rule)?;
            (loss, targets.weight(&rule, classes)?)
        };
        let (gradients, losses) = context.backward(tape, loss)?;
        let pairs = losses.iter().zip(texts);
        let not_finite = pairs.filter(|(loss, _)| !loss.is_finite());
        Ok(MicroBatchResult {
            gradients,
            loss: losses.iter().sum(),
            weight,
            samples: texts.len(),
            not_finite: not_finite.map(|(_, text)| text.index).collect(),
            metrics: MetricSums::default(),
        })
    }

    fn evaluate(context: &ForwardContext, texts: &[Text]) -> Result<EvaluatedMicroBatch> {
        let (tape, labels) = (context.inference_tape(), labels(texts));
        let scores = scores(context, &tape, texts, 0)?;
        let losses = tape.cross_entropy(&scores, &labels, 0.0)?.per_sample;
        let mut result = EvaluatedMicroBatch {
            samples: texts.len() as u64,
            weight: texts.len() as f64,
            loss: to_f64(&losses)?.iter().sum(),
            ..EvaluatedMicroBatch::default()
        };
        let classes = scores.tensor().dim(1)?;
        for (scores, text) in to_f64(scores.tensor())?.chunks_exact(classes).zip(texts) {
            let outputs = SampleOutputs::from_scores(text.index, text.label, scores);
            result.count(&outputs);
            result.add_to_mixtures(&outputs, &text.baseline);
        }
        Ok(result)
    }

    fn zero_sample(context: &ForwardContext, index: u32) -> Text {
        Text {
            index,
            label: 0,
            ids: vec![0; context.input_size],
            baseline: Vec::new(),
        }
    }

    /// `accuracy`, which is the score, and `macro_f1`.
    fn metrics(sum: &EvaluatedMicroBatch, _inputs: &MetricInputs) -> Metrics {
        let accuracy = sum.accuracy();
        let named = [
            ("accuracy", accuracy),
            ("macro_f1", sum.confusion.macro_f1()),
        ];
        Metrics::new(sum, &named, accuracy)
    }

    fn describe_best(score: f64, _plan: &Plan) -> String {
        format!("best held-out accuracy {:.1} %", 100.0 * score)
    }
}

impl TextTask {
    /// The class probabilities of each text. `baseline_share` is the weight of the baseline for
    /// texts that have its scores.
    pub(crate) fn predict(
        context: &ForwardContext,
        texts: &[Text],
        baseline_share: f64,
    ) -> Result<Vec<Prediction>> {
        let scores = scores(context, &context.inference_tape(), texts, 0)?;
        let classes = scores.tensor().dim(1)?;
        let rows = to_f64(scores.tensor())?;
        let rows = rows.chunks_exact(classes).zip(texts);
        let predictions = rows.map(|(scores, text)| {
            if text.baseline.is_empty() {
                return Prediction::from_scores(scores);
            }
            Prediction::from_scores(&mixed(scores, &text.baseline, baseline_share))
        });
        Ok(predictions.collect())
    }
}

/// Class scores, [texts, classes].
fn scores(
    context: &ForwardContext,
    tape: &Tape,
    texts: &[Text],
    checkpointed: usize,
) -> Result<Value> {
    let network = network(context)?;
    let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut ids = vec![0; texts.len() * longest];
    for (row, text) in ids.chunks_exact_mut(longest.max(1)).zip(texts) {
        row[..text.ids.len()].copy_from_slice(&text.ids);
    }
    Ok(network.forward(tape, &ids, &lengths, checkpointed)?)
}

fn network<'a>(context: &ForwardContext<'a>) -> Result<&'a TextEncoder> {
    match context.network {
        Network::TextEncoder(network) => Ok(network),
        _ => Err(context.wrong_network(dataset::Task::TextClassification)),
    }
}

fn labels(texts: &[Text]) -> Vec<u32> {
    texts.iter().map(|text| text.label).collect()
}
