//! Language model: the next token of each window of documents. The loss is summed over tokens, and tokens are what it is
//! divided by; a window that is shorter than the model's is filled up with tokens that do not count.

use super::{EvaluatedPiece, Sums, TrainedPiece, Work};
use crate::error::Result;
use dataset::Window;
use models::Gpt;
use tape::inplace::to_f64;
use tape::{IGNORED, Loss, Tape};

/// The next token of documents.
pub struct LanguageTask<'a> {
    work: &'a Work<'a>,
    network: &'a Gpt,
}

impl<'a> LanguageTask<'a> {
    /// A piece at work on this network.
    pub fn new(work: &'a Work<'a>, network: &'a Gpt) -> Self {
        LanguageTask { work, network }
    }

    /// Forward and backward over one piece.
    pub fn gradients(&self, windows: &[&Window]) -> Result<TrainedPiece> {
        let tape = self.work.recording();
        let loss = self.loss(&tape, windows, self.work.checkpointed)?;
        let (gradients, losses) = self.work.backward(tape, loss)?;
        Ok(TrainedPiece {
            gradients,
            loss: losses.iter().sum(),
            weight: targets(windows),
            samples: windows.len(),
            // A window is cut anywhere in the documents: it has no name to be told by.
            not_finite: Vec::new(),
            measures: Sums::default(),
        })
    }

    /// Forward over one piece of held-out windows.
    pub fn evaluate(&self, windows: &[&Window]) -> Result<EvaluatedPiece> {
        let losses = self.loss(&self.work.forward_only(), windows, 0)?.per_sample;
        self.work.device.synchronize()?;
        Ok(EvaluatedPiece {
            loss: to_f64(&losses)?.iter().sum(),
            weight: targets(windows),
            samples: windows.len() as u64,
            ..EvaluatedPiece::default()
        })
    }

    /// One row a token; what fills a short window up stands behind all that counts, where no token before it looks.
    fn loss(&self, tape: &Tape, windows: &[&Window], checkpointed: usize) -> Result<Loss> {
        let length = self.work.image_size;
        let filled = |of: fn(&Window) -> &[u32], with: u32| -> Vec<u32> {
            let row = |window: &&Window| {
                let tokens = of(window).iter().copied();
                tokens
                    .chain(std::iter::repeat(with))
                    .take(length)
                    .collect::<Vec<u32>>()
            };
            windows.iter().flat_map(row).collect()
        };
        let ids = filled(|window| &window.inputs, 0);
        let targets = filled(|window| &window.targets, IGNORED);
        let samples = windows.len();
        Ok(self
            .network
            .loss(tape, &ids, &targets, samples, checkpointed)?)
    }
}

/// Tokens that are predicted.
fn targets(windows: &[&Window]) -> f64 {
    windows
        .iter()
        .map(|window| window.targets.len())
        .sum::<usize>() as f64
}
