//! One effective batch, worked off in pieces of any size. Sums are added over pieces and divided once, so that no split
//! can change the mean. Gradients that came in a half type are added up in f32.

use crate::error::Result;
use crate::pending::Pending;
use crate::task::{Sums, TrainedPiece};
use candle_core::Tensor;
use dataset::ImageSample;
use tape::inplace::add_assign_all;
use tape::widened;

/// The samples still to do, and the sums so far.
pub struct EffectiveBatch<S = ImageSample> {
    /// Samples still to be worked off.
    pub pending: Pending<S>,
    gradients: Option<Vec<Tensor>>,
    loss: f64,
    weight: f64,
    pieces: Vec<u32>,
    blocks: Vec<u32>,
    not_finite: Vec<u32>,
    measures: Sums,
}

/// A whole effective batch.
pub struct Whole {
    /// Summed gradients by parameter, f32 or f64, times the loss factor of the task they came from.
    pub gradients: Vec<Tensor>,
    /// Mean loss.
    pub loss: f64,
    /// Weight that the sums are to be divided by.
    pub weight: f64,
    /// Pieces, in order.
    pub pieces: Vec<u32>,
    /// Blocks that each of them computed twice, as far as it was told.
    pub blocks: Vec<u32>,
    /// Samples whose own loss is not finite, by their place in the dataset.
    pub not_finite: Vec<u32>,
    /// What else was measured.
    pub measures: Sums,
}

impl Whole {
    /// Samples of all pieces.
    pub fn samples(&self) -> u32 {
        self.pieces.iter().sum()
    }

    /// The sample to look at when the loss is not finite: one of few. Where every sample's loss is gone, no sample is to blame.
    pub fn suspect(&self) -> Option<u32> {
        let some = self.not_finite.len() < self.samples() as usize;
        self.not_finite.first().copied().filter(|_| some)
    }
}

impl Default for EffectiveBatch {
    fn default() -> Self {
        EffectiveBatch::new(0)
    }
}

impl<S> EffectiveBatch<S> {
    /// A batch of `samples`.
    pub fn new(samples: usize) -> Self {
        EffectiveBatch {
            pending: Pending::new(samples),
            gradients: None,
            loss: 0.0,
            weight: 0.0,
            pieces: Vec::new(),
            blocks: Vec::new(),
            not_finite: Vec::new(),
            measures: Sums::default(),
        }
    }

    /// Pieces added so far.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The newest piece computed so many blocks twice.
    pub fn tell_blocks(&mut self, blocks: u32) {
        self.blocks.push(blocks);
    }

    /// Takes a piece that the device has confirmed. If the addition itself fails the batch must be begun again.
    pub fn add(&mut self, piece: TrainedPiece) -> Result<()> {
        match &mut self.gradients {
            None => {
                // One after the other: each half goes as its f32 comes.
                let widened = piece.gradients.into_iter().map(|g| widened(&g));
                self.gradients = Some(widened.collect::<std::result::Result<_, _>>()?);
            }
            Some(sums) => {
                add_assign_all(sums, &piece.gradients)?;
            }
        }
        self.loss += piece.loss;
        self.weight += piece.weight;
        self.pending.done(piece.samples);
        self.pieces.push(piece.samples as u32);
        self.not_finite.extend(piece.not_finite);
        self.measures.add(&piece.measures);
        Ok(())
    }

    /// The sums, once no sample remains; `None` when not one sample could be read.
    pub fn whole(self) -> Option<Whole> {
        let gradients = self.gradients?;
        Some(Whole {
            gradients,
            loss: self.loss / self.weight,
            weight: self.weight,
            pieces: self.pieces,
            blocks: self.blocks,
            not_finite: self.not_finite,
            measures: self.measures,
        })
    }
}
