//! Token compression: a policy keeps some tokens of each sequence, the language model fills the gaps, and both learn from what
//! filling them cost. The losses of both are joined before one walk back: no graph is kept for a second. The loss is summed over
//! dropped tokens and divided by all of them; noise is named by seed, step, sequence and place, so no split can change it.

mod choice;
mod credit;
mod padded;

pub use padded::Sequence;

use super::{EvaluatedPiece, Sums, TrainedPiece, Work};
use crate::error::Result;
use crate::models::{Compressor, Judgement};
use crate::plan::{Compression, Learning};
use candle_core::Tensor;
use choice::Purpose;
use credit::Happened;
use padded::Padded;
use tape::inplace::to_f64;
use tape::{Choice, KeepRule, Loss, NoiseKey, Positions, RegressionTargets, Tape, Value};

/// Softness of the relaxed choice (Maddison et al. 2016 found two thirds good for choices of two).
const SOFTNESS: f64 = 2.0 / 3.0;
/// How much the learnt baseline's squared error counts beside the losses.
const BASELINE: f64 = 0.25;

/// A choice that was made, and what the policy said.
struct Made {
    /// 1 for kept tokens, [samples, tokens].
    kept: Value,
    /// The same, by place.
    decisions: Vec<bool>,
    /// What a learned policy said, its log odds divided by the temperature.
    judgement: Option<Judgement>,
}

/// Token compression.
pub struct CompressionTask<'a> {
    work: &'a Work<'a>,
    network: &'a Compressor,
    rule: &'a Compression,
}

impl<'a> CompressionTask<'a> {
    /// A piece at work on this network.
    pub fn new(work: &'a Work<'a>, network: &'a Compressor, rule: &'a Compression) -> Self {
        CompressionTask {
            work,
            network,
            rule,
        }
    }

    /// Forward and backward over one piece.
    pub fn gradients(&self, sequences: &[&Sequence]) -> Result<TrainedPiece> {
        let tape = self.work.recording();
        let batch = Padded::of(sequences, self.work.image_size, self.rule);
        let made = self.choose(&tape, sequences, &batch, Purpose::Train)?;
        let seen = match self.rule.learning.relaxes() {
            true => made.kept.clone(),
            false => Value::constant(made.kept.tensor().clone()),
        };
        let loss = self.fill(
            &tape,
            &batch,
            &seen,
            &made.decisions,
            self.work.checkpointed,
        )?;
        let losses = to_f64(&loss.per_sample)?;
        let mut roots = vec![(loss.sum, 1.0)];
        let mut sums = Sums::default();
        let step = sequences.first().map_or(0, |sequence| sequence.step);
        self.count(&batch, &made, &losses, &mut sums);
        if let Some(judgement) = &made.judgement {
            roots.extend(self.policy_losses(
                &tape,
                (&batch, step),
                &made,
                judgement,
                &losses,
                &mut sums,
            )?);
        }
        let gradients = self.work.walk_back(tape, roots)?;
        Ok(TrainedPiece {
            gradients,
            loss: losses.iter().sum(),
            weight: batch.count() as f64,
            samples: sequences.len(),
            // A window is cut anywhere in the documents: it has no name to be told by.
            not_finite: Vec::new(),
            measures: sums,
        })
    }

    /// Forward over one piece of held-out sequences: what a learned policy keeps is what it says, without noise.
    pub fn evaluate(&self, sequences: &[&Sequence]) -> Result<EvaluatedPiece> {
        let tape = self.work.forward_only();
        let batch = Padded::of(sequences, self.work.image_size, self.rule);
        let made = self.choose(&tape, sequences, &batch, Purpose::Evaluate)?;
        let loss = self.fill(&tape, &batch, &made.kept, &made.decisions, 0)?;
        self.work.device.synchronize()?;
        let losses = to_f64(&loss.per_sample)?;
        let mut sums = Sums::default();
        self.count(&batch, &made, &losses, &mut sums);
        Ok(EvaluatedPiece {
            loss: losses.iter().sum(),
            weight: batch.count() as f64,
            samples: sequences.len() as u64,
            measures: sums,
            ..EvaluatedPiece::default()
        })
    }

    /// Which tokens of a sequence are kept, and what the language model makes of the gaps: the sequence as it reads it.
    pub fn mark(&self, sequence: &Sequence) -> Result<(Vec<bool>, Vec<u32>)> {
        let tape = self.work.forward_only();
        let batch = Padded::of(&[sequence], sequence.ids.len(), self.rule);
        let made = self.choose(&tape, &[sequence], &batch, Purpose::Evaluate)?;
        let scores = self.network.scores(&tape, &batch.ids, &made.kept, None)?;
        let vocabulary = scores.dims().last().copied().unwrap_or(1);
        let scores = to_f64(scores.tensor())?;
        let best = |scores: &[f64]| {
            let first = (0, f64::NEG_INFINITY);
            let places = scores.iter().copied().enumerate();
            let better = |a: (usize, f64), b: (usize, f64)| if b.1 > a.1 { b } else { a };
            places.fold(first, better).0 as u32
        };
        let rows = scores.chunks_exact(vocabulary).zip(&sequence.ids);
        let filled = rows.zip(&made.decisions);
        let filled = filled.map(|((scores, id), kept)| if *kept { *id } else { best(scores) });
        let filled = filled.collect();
        Ok((made.decisions, filled))
    }

    /// Chooses what is kept.
    fn choose(
        &self,
        tape: &Tape,
        sequences: &[&Sequence],
        batch: &Padded,
        purpose: Purpose,
    ) -> Result<Made> {
        let dims = [batch.samples, batch.tokens];
        let checkpointed = match purpose {
            Purpose::Train => self.work.checkpointed,
            Purpose::Evaluate => 0,
        };
        let lengths = batch.lengths();
        let said = self
            .network
            .judge(tape, &batch.ids, batch.samples, lengths, checkpointed)?;
        let Some(said) = said else {
            let of_one = |sequence: &&Sequence| {
                let mut kept = choice::kept(self.rule, sequence, purpose).unwrap_or_default();
                kept.resize(batch.tokens, false);
                kept
            };
            let decisions: Vec<bool> = sequences.iter().flat_map(of_one).collect();
            let numbers: Vec<f32> = decisions
                .iter()
                .map(|kept| f32::from(u8::from(*kept)))
                .collect();
            let kept = Tensor::from_vec(numbers, &dims, self.work.device)?;
            return Ok(Made {
                kept: Value::constant(kept.to_dtype(self.work.dtype)?),
                decisions,
                judgement: None,
            });
        };
        let step = sequences.first().map_or(0, |sequence| sequence.step);
        let numbers: Vec<u64> = sequences.iter().map(|s| u64::from(s.index)).collect();
        let (noise, temperature) = match purpose {
            Purpose::Train => {
                let key = NoiseKey {
                    seed: self.rule.seed,
                    step,
                    site: "policy",
                    samples: &numbers,
                    positions: Positions::Counted,
                };
                (Some(key), self.rule.temperature_at(step))
            }
            Purpose::Evaluate => (None, self.rule.temperature.1),
        };
        let logits = tape.scale(&said.logits, 1.0 / temperature)?;
        let rule = KeepRule {
            quotas: &batch.quotas,
            temperature: SOFTNESS,
            choice: Choice::Hard,
            noise,
        };
        let kept = tape.keep(&logits, &rule)?;
        let decisions = to_f64(kept.tensor())?
            .iter()
            .map(|kept| *kept > 0.5)
            .collect();
        Ok(Made {
            kept,
            decisions,
            judgement: Some(Judgement {
                logits,
                costs: said.costs,
            }),
        })
    }

    /// Loss of every dropped token, one row a place.
    fn fill(
        &self,
        tape: &Tape,
        batch: &Padded,
        kept: &Value,
        decisions: &[bool],
        checkpointed: usize,
    ) -> Result<Loss> {
        let targets = batch.targets(decisions);
        let lengths = batch.lengths();
        Ok(self
            .network
            .loss(tape, &batch.ids, kept, &targets, lengths, checkpointed)?)
    }

    /// What the policy is to lower: its score, the gradient through the choice itself, the error of its baseline.
    fn policy_losses(
        &self,
        tape: &Tape,
        (batch, step): (&Padded, u64),
        made: &Made,
        judgement: &Judgement,
        losses: &[f64],
        sums: &mut Sums,
    ) -> Result<Vec<(Value, f64)>> {
        let logits = to_f64(judgement.logits.tensor())?;
        let temperature = self.rule.temperature_at(step);
        // The entropy weighs as much against each of the two ways of learning.
        let terms = match self.rule.learning {
            Learning::Joint => 2.0,
            Learning::Gumbel | Learning::PolicyGradient => 1.0,
        };
        let expected = to_f64(judgement.costs.tensor())?;
        let (mut score, mut direct) = (vec![0.0; logits.len()], vec![0.0; logits.len()]);
        for (sample, quota) in batch.quotas.iter().enumerate() {
            let first = sample * batch.tokens;
            let range = first..first + quota.tokens;
            let chances = tape::keep_probabilities(&logits[range.clone()], quota.kept);
            let cost = match quota.kept {
                Some(_) => credit::price(&chances, &expected[range.clone()]),
                None => self.rule.kept_cost,
            };
            let happened = Happened {
                kept: &made.decisions[range.clone()],
                losses: &losses[range.clone()],
                chances: &chances,
                expected: &expected[range.clone()],
                cost,
            };
            sums.put("policy_entropy", happened.entropy(), quota.tokens as f64);
            let warmth = temperature * terms;
            for (slot, slope) in score[range.clone()].iter_mut().zip(happened.sharpness()) {
                *slot = warmth * slope;
            }
            if self.rule.learning.scores() {
                let slots = score[range.clone()].iter_mut();
                slots
                    .zip(happened.score())
                    .for_each(|(slot, slope)| *slot += slope);
            }
            direct[range].copy_from_slice(&happened.direct());
        }
        let dims = [batch.samples, batch.tokens];
        let weighed = |by: Vec<f64>, value: &Value| -> Result<Value> {
            let by = Tensor::from_vec(by, &dims, &candle_core::Device::Cpu)?;
            let by = by
                .to_dtype(value.tensor().dtype())?
                .to_device(self.work.device)?;
            Ok(tape.total(&tape.mul(value, &Value::constant(by))?)?.sum)
        };
        let mut roots = vec![(weighed(score, &judgement.logits)?, 1.0)];
        if self.rule.learning.relaxes() {
            roots.push((weighed(direct, &made.kept)?, 1.0));
        }
        // What is not finite teaches nothing: the step is left out anyway.
        let dropped = batch.dropped(&made.decisions);
        let present: Vec<bool> = dropped
            .iter()
            .zip(losses)
            .map(|(d, l)| *d && l.is_finite())
            .collect();
        let values: Vec<f32> = losses.iter().map(|loss| *loss as f32).collect();
        let targets = RegressionTargets {
            values: &values,
            present: Some(&present),
        };
        roots.push((tape.squared_error(&judgement.costs, targets)?.sum, BASELINE));
        Ok(roots)
    }

    /// Adds up what is told of a piece.
    fn count(&self, batch: &Padded, made: &Made, losses: &[f64], sums: &mut Sums) {
        let tokens = batch.count() as f64;
        let dropped = batch.dropped(&made.decisions);
        let dropped = dropped.iter().filter(|dropped| **dropped).count() as f64;
        let loss: f64 = losses.iter().sum();
        sums.put("kept_fraction", tokens - dropped, tokens);
        sums.put("reconstruction_loss", loss, tokens);
        sums.put("loss_per_dropped", loss, dropped);
        let reward = -loss - self.rule.kept_cost * (tokens - dropped);
        sums.put("reward", reward, tokens);
    }
}
