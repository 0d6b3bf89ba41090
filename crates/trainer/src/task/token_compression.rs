//! The task "token compression": learns to shorten a text by dropping tokens that a language model
//! can guess. A policy network decides which tokens of a window are kept, and a language model
//! fills in the dropped ones. One backward pass trains both networks, so no graph has to be kept
//! for a second one. The loss is summed over dropped tokens and divided by the number of all
//! tokens.
//! Noise is a function of seed, step, sequence and position, so no split of the batch changes it.

mod policy_gradient;
mod baseline_policies;
mod padded_batch;

use super::{
    EvaluatedMicroBatch, ForwardContext, MetricInputs, MetricSums, Metrics, MicroBatchResult,
    Sample, Task,
};
use crate::data::{
    DocumentData, MakeSample, PrefetchOptions, WindowEvalLoader, WindowLoader, WindowSource,
    token_frequencies,
};
use crate::error::Result;
use crate::plan::{Compression, Plan, SampleCounts, relaxes_choice, scores_choice};
use crate::preparation::Preparation;
use baseline_policies::Purpose;
use candle_core::Tensor;
use dataset::DetectedDataset;
use models::{Compressor, KeepScores, Network};
use padded_batch::PaddedBatch;
use policy_gradient::Outcome;
use runlog::{PolicyTraining, RunFolder};
use std::sync::Arc;
use tape::device::{convert, upload_as};
use tape::inplace::to_f64;
use tape::{Choice, KeepRule, Loss, NoiseKey, Positions, RegressionTargets, Tape, Value};

/// Temperature of the relaxed choice. Maddison et al. 2016 found 2/3 good for binary choices.
const RELAXATION_TEMPERATURE: f64 = 2.0 / 3.0;
/// Weight of the squared error of the learned baseline beside the other losses.
const BASELINE_WEIGHT: f64 = 0.25;

/// A window of tokens to compress.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    /// Its number in the epoch, or among the held-out windows.
    pub index: u32,
    /// The optimizer step that uses it. The noise and the temperature depend on it.
    pub step: u64,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// Relative frequency of each token of the vocabulary in the training texts.
    pub frequencies: Arc<[f32]>,
}

impl Sample for Sequence {
    type Task = CompressionTask;
}

/// The opened dataset of a token compression.
pub struct CompressionData {
    /// The tokenized documents.
    pub documents: DocumentData,
    /// Relative frequency of each token in the training texts.
    pub frequencies: Arc<[f32]>,
}

/// Learns which tokens of a text can be dropped.
pub enum CompressionTask {}

impl Task for CompressionTask {
    type Sample = Sequence;
    type Data = CompressionData;
    type TrainLoader = WindowLoader<Sequence>;
    type EvalLoader = WindowEvalLoader<Sequence>;

    fn prepare(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<CompressionData> {
        let documents = DocumentData::open(plan, found, run, preparation)?;
        Ok(CompressionData {
            frequencies: token_frequencies(documents.train.documents(), run)?,
            documents,
        })
    }

    fn sample_counts(plan: &Plan, data: &CompressionData) -> Option<SampleCounts> {
        Some(data.documents.sample_counts(plan))
    }

    fn held_out_bytes(data: &CompressionData) -> u64 {
        data.documents.held_out.documents().bytes()
    }

    fn train_loader(
        plan: &Plan,
        data: &CompressionData,
        _options: PrefetchOptions,
        _step: u64,
    ) -> WindowLoader<Sequence> {
        WindowLoader::new(plan, &data.documents, make_sample(&data.frequencies))
    }

    fn eval_loader(
        plan: &Plan,
        data: &CompressionData,
        _options: PrefetchOptions,
    ) -> WindowEvalLoader<Sequence> {
        CompressionTask::windows(&data.documents.held_out, plan.input_size, &data.frequencies)
            .with_token_limit(plan.evaluated_tokens())
    }

    fn gradients(context: &ForwardContext, sequences: &[Sequence]) -> Result<MicroBatchResult> {
        let indices = sequences.iter().map(|sequence| sequence.index);
        let pass = Pass::new(context, context.training_tape(indices), sequences)?;
        let choice = pass.choose(Purpose::Train)?;
        let input = if relaxes_choice(pass.rule.learning) {
            choice.kept.clone()
        } else {
            Value::constant(choice.kept.tensor().clone())
        };
        let loss = pass.loss(&input, &choice.decisions, context.checkpointed)?;
        let losses = to_f64(&loss.per_sample)?;
        let mut roots = vec![(loss.sum, 1.0)];
        let mut metrics = MetricSums::default();
        pass.add_metrics(&choice, &losses, &mut metrics);
        if let Some(judgement) = &choice.judgement {
            let policy = pass.policy_losses(&choice, judgement, &losses, &mut metrics)?;
            roots.extend(policy);
        }
        let weight = pass.batch.token_count() as f64;
        let gradients = context.backward_from(pass.tape, roots)?;
        Ok(MicroBatchResult {
            gradients,
            loss: losses.iter().sum(),
            weight,
            samples: sequences.len(),
            // A window has no file that could be named.
            not_finite: Vec::new(),
            metrics,
        })
    }

    /// A learned policy decides without noise.
    fn evaluate(context: &ForwardContext, sequences: &[Sequence]) -> Result<EvaluatedMicroBatch> {
        let pass = Pass::new(context, context.inference_tape(), sequences)?;
        let choice = pass.choose(Purpose::Evaluate)?;
        let loss = pass.loss(&choice.kept, &choice.decisions, 0)?;
        let losses = to_f64(&loss.per_sample)?;
        let mut metrics = MetricSums::default();
        pass.add_metrics(&choice, &losses, &mut metrics);
        Ok(EvaluatedMicroBatch {
            loss: losses.iter().sum(),
            weight: pass.batch.token_count() as f64,
            samples: sequences.len() as u64,
            metrics,
            ..EvaluatedMicroBatch::default()
        })
    }

    fn zero_sample(context: &ForwardContext, index: u32) -> Sequence {
        Sequence {
            index,
            step: 0,
            ids: vec![0; context.input_size],
            frequencies: [].into(),
        }
    }

    /// `kept_fraction`, `reconstruction_loss`, `loss_per_dropped` and `reward`. The score is the
    /// negative loss.
    fn metrics(sum: &EvaluatedMicroBatch, _inputs: &MetricInputs) -> Metrics {
        let mut metrics = Metrics::new(sum, &[], 0.0);
        metrics.score = -metrics.loss;
        metrics
    }

    fn describe_best(score: f64, _plan: &Plan) -> String {
        format!("best held-out loss {:.3} nats per token", -score)
    }
}

impl CompressionTask {
    /// Loads windows of `tokens` tokens.
    pub(crate) fn windows(
        source: &WindowSource,
        tokens: u32,
        frequencies: &Arc<[f32]>,
    ) -> WindowEvalLoader<Sequence> {
        WindowEvalLoader::new(source, tokens, make_sample(frequencies))
    }

    /// Decides which tokens of a sequence are kept, and fills in the dropped ones.
    pub(crate) fn reconstruct(
        context: &ForwardContext,
        sequence: Sequence,
    ) -> Result<Reconstruction> {
        let context = ForwardContext {
            input_size: sequence.ids.len(),
            ..context.clone()
        };
        let sequences = [sequence];
        let pass = Pass::new(&context, context.inference_tape(), &sequences)?;
        let choice = pass.choose(Purpose::Evaluate)?;
        let scores = pass
            .network
            .scores(&pass.tape, &pass.batch.ids, &choice.kept, None)?;
        let vocabulary = scores.dims().last().copied().unwrap_or(1);
        let scores = to_f64(scores.tensor())?;
        let rows = scores.chunks_exact(vocabulary).zip(&sequences[0].ids);
        let filled = rows.zip(&choice.decisions).map(
            |((scores, id), kept)| {
                if *kept { *id } else { argmax(scores) }
            },
        );
        Ok(Reconstruction {
            filled: filled.collect(),
            kept: choice.decisions,
        })
    }
}

/// A compressed sequence, and its reconstruction by the language model.
pub(crate) struct Reconstruction {
    /// Which tokens are kept.
    pub kept: Vec<bool>,
    /// The tokens, the dropped ones as the language model fills them in.
    pub filled: Vec<u32>,
}

fn make_sample(frequencies: &Arc<[f32]>) -> MakeSample<Sequence> {
    let frequencies = Arc::clone(frequencies);
    Box::new(move |window, place| Sequence {
        index: place.index,
        step: place.step,
        ids: window.inputs,
        frequencies: Arc::clone(&frequencies),
    })
}

/// The index of the largest score; of equal ones the first.
fn argmax(scores: &[f64]) -> u32 {
    let first = (0, f64::NEG_INFINITY);
    let places = scores.iter().copied().enumerate();
    let better = |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 { b } else { a };
    places.fold(first, better).0 as u32
}

/// Which tokens are kept, and how the policy came to it.
struct KeepChoice {
    /// 1 for kept tokens, [samples, tokens].
    kept: Value,
    /// The same as booleans, in row-major order.
    decisions: Vec<bool>,
    /// The output of a learned policy, its logits divided by the temperature.
    judgement: Option<KeepScores>,
}

/// One pass over a micro-batch.
struct Pass<'a, 'c> {
    context: &'a ForwardContext<'c>,
    tape: Tape<'c>,
    network: &'c Compressor,
    rule: &'c Compression,
    sequences: &'a [Sequence],
    batch: PaddedBatch,
}

impl<'a, 'c> Pass<'a, 'c> {
    fn new(
        context: &'a ForwardContext<'c>,
        tape: Tape<'c>,
        sequences: &'a [Sequence],
    ) -> Result<Self> {
        let (Network::Compressor(network), Some(rule)) = (context.network, context.compression)
        else {
            return Err(context.wrong_network(dataset::Task::TokenCompression));
        };
        Ok(Pass {
            context,
            tape,
            network,
            rule,
            sequences,
            batch: PaddedBatch::new(sequences, context.input_size, rule),
        })
    }

    fn step(&self) -> u64 {
        self.sequences.first().map_or(0, |sequence| sequence.step)
    }

    /// Decides which tokens are kept.
    fn choose(&self, purpose: Purpose) -> Result<KeepChoice> {
        let batch = &self.batch;
        let checkpointed = match purpose {
            Purpose::Train => self.context.checkpointed,
            Purpose::Evaluate => 0,
        };
        let lengths = batch.lengths();
        let judgement = self.network.keep_scores(
            &self.tape,
            &batch.ids,
            batch.samples,
            lengths,
            checkpointed,
        )?;
        match judgement {
            Some(judgement) => self.choose_by_policy(judgement, purpose),
            None => self.choose_by_baseline(purpose),
        }
    }

    fn choose_by_baseline(&self, purpose: Purpose) -> Result<KeepChoice> {
        let row = |sequence: &Sequence| {
            let mut kept =
                baseline_policies::kept(self.rule, sequence, purpose).unwrap_or_default();
            kept.resize(self.batch.tokens, false);
            kept
        };
        let decisions: Vec<bool> = self.sequences.iter().flat_map(row).collect();
        let values = decisions.iter().map(|kept| f32::from(u8::from(*kept)));
        let values: Vec<f32> = values.collect();
        let dims = [self.batch.samples, self.batch.tokens];
        let kept = Tensor::from_vec(values, &dims, self.context.device)?;
        Ok(KeepChoice {
            kept: Value::constant(convert(&kept, self.context.dtype)?),
            decisions,
            judgement: None,
        })
    }

    fn choose_by_policy(&self, judgement: KeepScores, purpose: Purpose) -> Result<KeepChoice> {
        let step = self.step();
        let samples: Vec<u64> = self.sequences.iter().map(|s| u64::from(s.index)).collect();
        let (noise, temperature) = match purpose {
            Purpose::Train => {
                let key = NoiseKey {
                    seed: self.rule.seed,
                    step,
                    site: "policy",
                    samples: &samples,
                    positions: Positions::Counted,
                };
                (Some(key), self.rule.temperature_at(step))
            }
            Purpose::Evaluate => (None, self.rule.temperature.1),
        };
        let logits = self.tape.scale(&judgement.logits, 1.0 / temperature)?;
        let rule = KeepRule {
            quotas: &self.batch.quotas,
            temperature: RELAXATION_TEMPERATURE,
            choice: Choice::Hard,
            noise,
        };
        let kept = self.tape.keep(&logits, &rule)?;
        let decisions = to_f64(kept.tensor())?;
        Ok(KeepChoice {
            kept,
            decisions: decisions.iter().map(|kept| *kept > 0.5).collect(),
            judgement: Some(KeepScores {
                logits,
                costs: judgement.costs,
            }),
        })
    }

    /// The reconstruction loss of every dropped token, one row per position.
    fn loss(&self, kept: &Value, decisions: &[bool], checkpointed: usize) -> Result<Loss> {
        let (ids, targets) = (&self.batch.ids, self.batch.targets(decisions));
        let lengths = self.batch.lengths();
        Ok(self
            .network
            .loss(&self.tape, ids, kept, &targets, lengths, checkpointed)?)
    }

    /// What the policy minimizes: its score function, the gradient through the choice itself, and
    /// the error of its baseline.
    fn policy_losses(
        &self,
        choice: &KeepChoice,
        judgement: &KeepScores,
        losses: &[f64],
        metrics: &mut MetricSums,
    ) -> Result<Vec<(Value, f64)>> {
        let slopes = self.policy_slopes(choice, judgement, losses, metrics)?;
        let mut roots = vec![(self.weighted_sum(slopes.score, &judgement.logits)?, 1.0)];
        if relaxes_choice(self.rule.learning) {
            roots.push((self.weighted_sum(slopes.direct, &choice.kept)?, 1.0));
        }
        // A loss that is not finite would spoil the baseline; the step is skipped anyway.
        let dropped = self.batch.dropped(&choice.decisions);
        let present = dropped.iter().zip(losses);
        let present: Vec<bool> = present.map(|(d, l)| *d && l.is_finite()).collect();
        let values: Vec<f32> = losses.iter().map(|loss| *loss as f32).collect();
        let targets = RegressionTargets {
            values: &values,
            present: Some(&present),
        };
        let error = self.tape.squared_error(&judgement.costs, targets)?.sum;
        roots.push((error, BASELINE_WEIGHT));
        Ok(roots)
    }

    /// The gradient of the policy's loss with respect to its logits and its choices.
    fn policy_slopes(
        &self,
        choice: &KeepChoice,
        judgement: &KeepScores,
        losses: &[f64],
        metrics: &mut MetricSums,
    ) -> Result<PolicySlopes> {
        let logits = to_f64(judgement.logits.tensor())?;
        let temperature = self.rule.temperature_at(self.step());
        // Learning both ways doubles the gradient of the losses, so the entropy counts twice too.
        let terms = match self.rule.learning {
            PolicyTraining::Joint => 2.0,
            PolicyTraining::Gumbel | PolicyTraining::PolicyGradient => 1.0,
        };
        let expected = to_f64(judgement.costs.tensor())?;
        let (mut score, mut direct) = (vec![0.0; logits.len()], vec![0.0; logits.len()]);
        for (sample, quota) in self.batch.quotas.iter().enumerate() {
            let first = sample * self.batch.tokens;
            let range = first..first + quota.tokens;
            let chances = tape::keep_probabilities(&logits[range.clone()], quota.kept);
            let outcome = Outcome {
                kept: &choice.decisions[range.clone()],
                losses: &losses[range.clone()],
                chances: &chances,
                expected: &expected[range.clone()],
                cost: match quota.kept {
                    Some(_) => policy_gradient::price(&chances, &expected[range.clone()]),
                    None => self.rule.keep_cost,
                },
            };
            metrics.add_to("policy_entropy", outcome.entropy(), quota.tokens as f64);
            let entropy_weight = temperature * terms;
            for (slot, slope) in score[range.clone()].iter_mut().zip(outcome.entropy_slope()) {
                *slot = entropy_weight * slope;
            }
            if scores_choice(self.rule.learning) {
                let slots = score[range.clone()].iter_mut();
                slots
                    .zip(outcome.score())
                    .for_each(|(slot, slope)| *slot += slope);
            }
            direct[range].copy_from_slice(&outcome.direct());
        }
        Ok(PolicySlopes { score, direct })
    }

    /// The sum of `value` weighted by `weights`, both [samples, tokens].
    fn weighted_sum(&self, weights: Vec<f64>, value: &Value) -> Result<Value> {
        let dims = [self.batch.samples, self.batch.tokens];
        let dtype = value.tensor().dtype();
        let weights = upload_as(weights, &dims, dtype, self.context.device)?;
        let product = self.tape.mul(value, &Value::constant(weights))?;
        Ok(self.tape.total(&product)?.sum)
    }

    fn add_metrics(&self, choice: &KeepChoice, losses: &[f64], metrics: &mut MetricSums) {
        let tokens = self.batch.token_count() as f64;
        let dropped = self.batch.dropped(&choice.decisions);
        let dropped = dropped.iter().filter(|dropped| **dropped).count() as f64;
        let loss: f64 = losses.iter().sum();
        metrics.add_to("kept_fraction", tokens - dropped, tokens);
        metrics.add_to("reconstruction_loss", loss, tokens);
        metrics.add_to("loss_per_dropped", loss, dropped);
        let reward = -loss - self.rule.keep_cost * (tokens - dropped);
        metrics.add_to("reward", reward, tokens);
    }
}

/// Gradients of the policy's loss, [samples, tokens] each.
struct PolicySlopes {
    /// With respect to the logits.
    score: Vec<f64>,
    /// With respect to the choices.
    direct: Vec<f64>,
}
