//! Text classification: from tokens, padded to the longest of the piece, to a loss and its gradients, to what a text is.

use super::photographs::{Ranked, prediction, ranked};
use super::{EvaluatedPiece, Prediction, Sums, Text, TrainedPiece, Work};
use crate::error::Result;
use models::TextEncoder;
use tape::inplace::to_f64;
use tape::{ClassRule, ClassTargets, Tape, Value};

/// Texts into classes.
pub struct TextTask<'a> {
    work: &'a Work<'a>,
    network: &'a TextEncoder,
}

impl<'a> TextTask<'a> {
    /// A piece at work on this network.
    pub fn new(work: &'a Work<'a>, network: &'a TextEncoder) -> Self {
        TextTask { work, network }
    }

    /// Forward and backward over one piece.
    pub fn gradients(&self, texts: &[&Text]) -> Result<TrainedPiece> {
        let (tape, labels) = (self.work.recording(), labels(texts));
        let rule = ClassRule {
            smoothing: self.work.label_smoothing,
            class_weights: self.work.class_weights,
        };
        let targets = ClassTargets::Labels(&labels);
        let (loss, weight) = {
            let scores = self.scores(&tape, texts, self.work.checkpointed)?;
            let classes = scores.tensor().dim(1)?;
            let loss = tape.class_cross_entropy(&scores, targets, &rule)?;
            (loss, targets.weight(&rule, classes)?)
        };
        let (gradients, losses) = self.work.backward(tape, loss)?;
        let not_finite = losses
            .iter()
            .zip(texts)
            .filter(|(loss, _)| !loss.is_finite());
        Ok(TrainedPiece {
            gradients,
            loss: losses.iter().sum(),
            weight,
            samples: texts.len(),
            not_finite: not_finite.map(|(_, text)| text.index).collect(),
            measures: Sums::default(),
        })
    }

    /// Forward over one piece of held-out texts.
    pub fn evaluate(&self, texts: &[&Text]) -> Result<EvaluatedPiece> {
        let (tape, labels) = (self.work.forward_only(), labels(texts));
        let scores = self.scores(&tape, texts, 0)?;
        let losses = tape.cross_entropy(&scores, &labels, 0.0)?.per_sample;
        self.work.device.synchronize()?;
        let mut piece = EvaluatedPiece {
            samples: texts.len() as u64,
            weight: texts.len() as f64,
            loss: to_f64(&losses)?.iter().sum(),
            ..EvaluatedPiece::default()
        };
        let classes = scores.tensor().dim(1)?;
        for (scores, &label) in to_f64(scores.tensor())?.chunks_exact(classes).zip(&labels) {
            let Ranked { better, best } = ranked(scores, label);
            piece.right += u64::from(better == 0);
            piece.in_top_5 += u64::from(better < 5);
            piece.confusion.count(label, best);
        }
        Ok(piece)
    }

    /// What each text is.
    pub fn predict(&self, texts: &[&Text]) -> Result<Vec<Prediction>> {
        let scores = self.scores(&self.work.forward_only(), texts, 0)?;
        let classes = scores.tensor().dim(1)?;
        let scores = to_f64(scores.tensor())?;
        Ok(scores.chunks_exact(classes).map(prediction).collect())
    }

    /// [texts, classes], each text padded to the longest.
    fn scores(&self, tape: &Tape, texts: &[&Text], checkpointed: usize) -> Result<Value> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut ids = vec![0; texts.len() * longest];
        for (row, text) in ids.chunks_exact_mut(longest.max(1)).zip(texts) {
            row[..text.ids.len()].copy_from_slice(&text.ids);
        }
        Ok(self.network.forward(tape, &ids, &lengths, checkpointed)?)
    }
}

fn labels(texts: &[&Text]) -> Vec<u32> {
    texts.iter().map(|text| text.label).collect()
}
