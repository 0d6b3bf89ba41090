//! Direct preference optimization (DPO, Rafailov et al. 2023, <https://arxiv.org/abs/2305.18290>)
//! of a language model with adapters. A sample is a window with two conversations: one with the
//! chosen answer `c` and one with the rejected answer `r`. Its loss, their equation 7, is
//!
//! `-ln sigmoid(beta ((ln p(c) - ln q(c)) - (ln p(r) - ln q(r))))`
//!
//! `p` is the model, and `q` the same network without its adapters, so there is no second copy of
//! the weights. `beta (ln p - ln q)` is the reward of an answer. The loss is summed over the pairs
//! and divided by their number in the whole effective batch.

use super::{EvaluatedMicroBatch, ForwardContext, MetricSums, MicroBatchResult};
use crate::data::padded_length;
use crate::error::Result;
use candle_core::{Device, Tensor};
use dataset::{NOT_LEARNED, Window};
use models::{Gpt, TokenBatch};
use tape::device::convert;
use tape::inplace::to_f64;
use tape::{IGNORED, Loss, RegressionTargets, Tape, Value};

/// Fraction of the pairs whose chosen answer has the higher reward. Equal rewards count as half.
pub(super) const ACCURACY: &str = "preference_accuracy";
/// How much higher the reward of the chosen answer is.
const MARGIN: &str = "reward_margin";
/// Mean log probability of a learned token, of both kinds of answers.
const CHOSEN: &str = "chosen_log_probability";
const REJECTED: &str = "rejected_log_probability";

/// The pairs of a micro-batch as sequences of equal length: the chosen conversation of the first
/// pair, then its rejected one, and so on.
struct PairBatch {
    ids: Vec<u32>,
    targets: Vec<u32>,
    starts: Vec<usize>,
    /// Number of learned tokens of each conversation.
    learned: Vec<usize>,
    /// Tokens of a sequence.
    length: usize,
}

impl PairBatch {
    /// Pads the conversations with tokens that do not count, which no counted token attends to.
    fn new(pairs: &[Window], most_tokens: usize) -> Self {
        let conversations: Vec<_> = pairs.iter().flat_map(conversations).collect();
        let longest = conversations.iter().map(|(inputs, _)| inputs.len()).max();
        let mut batch = PairBatch {
            ids: Vec::new(),
            targets: Vec::new(),
            starts: Vec::new(),
            learned: Vec::new(),
            length: padded_length(longest.unwrap_or(1), most_tokens),
        };
        for (inputs, targets) in conversations {
            let padding = batch.length - inputs.len();
            let is_learned = |target: &&u32| **target != NOT_LEARNED;
            batch
                .learned
                .push(targets.iter().filter(is_learned).count());
            batch.ids.extend(inputs);
            batch.ids.extend(std::iter::repeat_n(0, padding));
            let counted = targets.iter().map(|target| match *target {
                NOT_LEARNED => IGNORED,
                target => target,
            });
            batch.targets.extend(counted);
            batch.targets.extend(std::iter::repeat_n(IGNORED, padding));
            // Padding is a document of its own.
            batch.starts.extend(std::iter::repeat_n(0, inputs.len()));
            batch
                .starts
                .extend(std::iter::repeat_n(inputs.len(), padding));
        }
        batch
    }

    /// Number of pairs.
    fn pairs(&self) -> usize {
        self.learned.len() / 2
    }

    /// The loss of each token: its negative log probability, [conversations times tokens].
    fn token_losses(&self, network: &Gpt, tape: &Tape, checkpointed: usize) -> Result<Value> {
        let batch = TokenBatch {
            ids: &self.ids,
            targets: &self.targets,
            samples: self.learned.len(),
            starts: Some(&self.starts),
        };
        Ok(network.token_losses(tape, batch, checkpointed)?)
    }
}

/// The inputs and targets of the chosen and of the rejected conversation of a window.
fn conversations(pair: &Window) -> [(&[u32], &[u32]); 2] {
    let rejected = pair.documents.iter().position(|document| *document > 0);
    let middle = rejected.unwrap_or(pair.inputs.len());
    let (inputs, targets) = (pair.inputs.split_at(middle), pair.targets.split_at(middle));
    [(inputs.0, targets.0), (inputs.1, targets.1)]
}

/// Learns preferences with a network.
pub(super) struct PreferenceLearning<'c, 'a> {
    pub context: &'c ForwardContext<'a>,
    /// The network of the context.
    pub network: &'a Gpt,
    pub beta: f64,
}

impl PreferenceLearning<'_, '_> {
    /// Forward and backward pass of some pairs.
    pub fn gradients(&self, pairs: &[Window]) -> Result<MicroBatchResult> {
        let context = self.context;
        let batch = PairBatch::new(pairs, context.input_size);
        // Both conversations of a pair have their own dropout.
        let of_pair = |pair: &Window| [0, 1].map(|place| 2 * pair.index + place);
        let tape = context.training_tape(pairs.iter().flat_map(of_pair));
        let (loss, values) = self.loss(&tape, &batch, context.checkpointed)?;
        let (gradients, losses) = context.backward(tape, loss)?;
        Ok(MicroBatchResult {
            gradients,
            loss: losses.iter().sum(),
            weight: pairs.len() as f64,
            samples: pairs.len(),
            // A window has no file that could be named.
            not_finite: Vec::new(),
            metrics: values.metrics(&batch)?,
        })
    }

    /// Forward pass of some held-out pairs.
    pub fn evaluate(&self, pairs: &[Window]) -> Result<EvaluatedMicroBatch> {
        let batch = PairBatch::new(pairs, self.context.input_size);
        let (loss, values) = self.loss(&self.context.inference_tape(), &batch, 0)?;
        Ok(EvaluatedMicroBatch {
            loss: to_f64(&loss.per_sample)?.iter().sum(),
            weight: pairs.len() as f64,
            samples: pairs.len() as u64,
            metrics: values.metrics(&batch)?,
            ..EvaluatedMicroBatch::default()
        })
    }

    fn loss(
        &self,
        tape: &Tape,
        batch: &PairBatch,
        checkpointed: usize,
    ) -> Result<(Loss, PairValues)> {
        let frozen = self.context.inference_tape().without_adapters();
        let reference = batch.token_losses(self.network, &frozen, 0)?;
        let losses = batch.token_losses(self.network, tape, checkpointed)?;
        let (loss, margins) = pair_losses(tape, &losses, &reference, batch.pairs(), self.beta)?;
        let tokens = losses.tensor().clone();
        Ok((loss, PairValues { margins, tokens }))
    }
}

/// What the metrics of a micro-batch are computed from.
struct PairValues {
    /// How much higher the reward of the chosen answer is, [pairs, 1].
    margins: Tensor,
    /// The loss of each token, [conversations times tokens].
    tokens: Tensor,
}

impl PairValues {
    /// The metrics as sums. Waits for the device.
    fn metrics(&self, batch: &PairBatch) -> Result<MetricSums> {
        let mut sums = MetricSums::default();
        for margin in to_f64(&self.margins)? {
            let is_right = if margin == 0.0 {
                0.5
            } else {
                f64::from(u8::from(margin > 0.0))
            };
            sums.add_to(ACCURACY, is_right, 1.0);
            sums.add_to(MARGIN, margin, 1.0);
        }
        let losses = to_f64(&self.tokens)?;
        let conversations = losses.chunks(batch.length).zip(&batch.learned);
        for ((losses, learned), name) in conversations.zip([CHOSEN, REJECTED].into_iter().cycle()) {
            sums.add_to(name, -losses.iter().sum::<f64>(), *learned as f64);
        }
        Ok(sums)
    }
}

/// The loss of each of `pairs` pairs, and how much higher the reward of its chosen answer is,
/// [pairs, 1]. `losses` are the negative log probabilities of all tokens, [2 pairs times tokens]:
/// of the chosen answer of a pair, then of its rejected one. `reference` are those of the frozen
/// network. Tokens that do not count have 0 in both.
fn pair_losses(
    tape: &Tape,
    losses: &Value,
    reference: &Value,
    pairs: usize,
    beta: f64,
) -> Result<(Loss, Tensor)> {
    let each = losses.tensor().elem_count() / pairs.max(1);
    let apart = tape.add(losses, &tape.scale(reference, -1.0)?)?;
    let apart = tape.reshape(&apart, &[pairs, each])?;
    // A log probability is a negative loss.
    let sign = |place: usize| if place < each / 2 { -beta } else { beta };
    let like = losses.tensor();
    let signs = Tensor::from_vec((0..each).map(sign).collect(), (1, each), &Device::Cpu)?;
    let signs = convert(&signs, like.dtype())?.to_device(like.device())?;
    let margins = tape.linear(&apart, &Value::constant(signs), None)?;
    let ones = vec![1.0; pairs];
    let loss = tape.binary_cross_entropy(&margins, RegressionTargets::all(&ones))?;
    Ok((loss, margins.tensor().clone()))
}

/// A pair of conversations with `tokens` tokens each, all zeros.
pub(super) fn zero_pair(tokens: usize, index: u32) -> Window {
    let twice = |of: fn(usize, usize) -> u32| -> Vec<u32> {
        let places = (0..2).flat_map(|place| (0..tokens).map(move |at| (place, at)));
        places.map(|(place, at)| of(place, at)).collect()
    };
    Window {
        index,
        inputs: twice(|_, _| 0),
        targets: twice(|_, _| 0),
        documents: twice(|place, _| place as u32),
        positions: twice(|_, at| at as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;
    use tape::{Cancel, Kernels, Parameters};

    /// The loss of a pair and its derivatives by the losses of the tokens of both answers, from
    /// the sums of the token losses of the model and of the reference.
    fn written_out(model: [f64; 2], reference: [f64; 2], beta: f64) -> (f64, [f64; 2]) {
        let reward = |answer: usize| beta * (reference[answer] - model[answer]);
        let margin = reward(0) - reward(1);
        let slope = 1.0 / (1.0 + margin.exp());
        ((1.0 + (-margin).exp()).ln(), [beta * slope, -beta * slope])
    }

    #[test]
    fn the_loss_and_its_gradient_are_those_of_the_formula() {
        const TOKENS: usize = 3;
        // Two pairs of answers with three tokens each.
        let model = [0.4, 1.1, 0.0, 2.0, 0.3, 0.7, 3.0, 0.2, 0.1, 0.5, 0.0, 0.0];
        let reference = [0.9, 1.0, 0.0, 1.5, 0.1, 0.6, 0.5, 0.2, 0.4, 2.5, 0.0, 0.0];
        let tensor = |values: &[f64]| {
            Tensor::from_slice(values, values.len(), &Device::Cpu).expect("a vector")
        };
        let sums = |values: &[f64]| -> Vec<f64> {
            values
                .chunks(TOKENS)
                .map(|tokens| tokens.iter().sum())
                .collect()
        };
        let (of_model, of_reference) = (sums(&model), sums(&reference));
        for beta in [0.01, 0.1, 3.0] {
            let parameters = Parameters::default();
            let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
            let losses = tape.variable(tensor(&model));
            let frozen = Value::constant(tensor(&reference));
            let (loss, margins) =
                pair_losses(&tape, &losses, &frozen, 2, beta).expect("the shapes fit");
            let found = to_f64(&loss.per_sample).expect("values");
            let margins = to_f64(&margins).expect("values");
            let seed = Tensor::ones((), DType::F64, &Device::Cpu);
            let gradient = tape.input_gradient(loss.sum, seed.expect("a scalar"), losses);
            let gradient = gradient
                .expect("it is computed")
                .expect("the loss depends on it");
            let gradient = to_f64(&gradient).expect("values");
            for pair in 0..2 {
                let both = |sums: &[f64]| [sums[2 * pair], sums[2 * pair + 1]];
                let (expected, slopes) = written_out(both(&of_model), both(&of_reference), beta);
                assert!(
                    (found[pair] - expected).abs() < 1e-12,
                    "{found:?} {expected}"
                );
                assert!((found[pair] - (1.0 + (-margins[pair]).exp()).ln()).abs() < 1e-12);
                for (place, slope) in gradient[6 * pair..6 * (pair + 1)].iter().enumerate() {
                    let expected = slopes[place / TOKENS];
                    assert!((slope - expected).abs() < 1e-12, "{gradient:?} {slopes:?}");
                }
            }
        }
    }

    #[test]
    fn the_conversations_of_a_pair_are_padded_apart() {
        let pair = Window {
            index: 0,
            inputs: vec![1, 2, 3, 1, 4],
            targets: vec![NOT_LEARNED, 3, 9, NOT_LEARNED, 9],
            documents: vec![0, 0, 0, 1, 1],
            positions: vec![0, 1, 2, 0, 1],
        };
        let batch = PairBatch::new(&[pair], 4);
        assert_eq!((batch.length, batch.pairs()), (4, 1));
        assert_eq!(batch.ids, [1, 2, 3, 0, 1, 4, 0, 0]);
        let none = IGNORED;
        assert_eq!(batch.targets, [none, 3, 9, none, none, 9, none, none]);
        assert_eq!(batch.starts, [0, 0, 0, 3, 0, 0, 2, 2]);
        assert_eq!(batch.learned, [2, 1]);
    }

    #[test]
    fn metrics_count_pairs_and_average_over_tokens() {
        let batch = PairBatch {
            ids: Vec::new(),
            targets: Vec::new(),
            starts: Vec::new(),
            learned: vec![2, 1, 1, 1, 1, 1],
            length: 2,
        };
        let tensor = |values: Vec<f64>| {
            let count = values.len();
            Tensor::from_vec(values, count, &Device::Cpu).expect("a vector")
        };
        let values = PairValues {
            margins: tensor(vec![0.5, 0.0, -0.2]),
            tokens: tensor(vec![
                1.0, 3.0, 2.0, 0.0, 4.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            ]),
        };
        let means = values.metrics(&batch).expect("values").means();
        assert!((means[ACCURACY] - 0.5).abs() < 1e-12);
        assert!((means[MARGIN] - 0.1).abs() < 1e-12);
        assert!((means[CHOSEN] + 8.0 / 4.0).abs() < 1e-12);
        assert!((means[REJECTED] + 3.0 / 3.0).abs() < 1e-12);
    }
}
