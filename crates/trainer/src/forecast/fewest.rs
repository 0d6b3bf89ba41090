//! How many blocks to checkpoint: as planned where that fits, else as few as fit. Each number that is tried is rehearsed, so
//! the fewest are guessed first, by a straight line between none and all.

use super::heap::Heap;
use super::rehearsal::Piece;
use super::{Fit, Forecast, Forms, Waiting};
use crate::error::Result;
use std::time::Duration;

/// Numbers of blocks tried between too few and all.
const TRIES: u32 = 3;

impl Forecast {
    /// The same with its forms, fewest checkpointed blocks first.
    pub(super) fn rehearsed(
        mut self,
        piece: &dyn Piece,
        planned: u32,
        forms: Forms,
        patience: Duration,
    ) -> Result<Self> {
        let (mut few, mut enough) = (planned.min(self.blocks), self.blocks);
        self.rehearse(piece, few, patience)?;
        let Forms::Fewest(fit) = forms else {
            return Ok(self);
        };
        if few == enough || self.excess_bytes(few, &fit) <= 0.0 {
            return Ok(self);
        }
        self.rehearse(piece, enough, patience)?;
        for _ in 0..TRIES {
            let (over, under) = (
                self.excess_bytes(few, &fit),
                self.excess_bytes(enough, &fit),
            );
            if enough - few < 2 || under > 0.0 {
                break;
            }
            let share = over / (over - under).max(1.0);
            let guess = few + (share * f64::from(enough - few)).ceil() as u32;
            let guess = guess.clamp(few + 1, enough - 1);
            self.rehearse(piece, guess, patience)?;
            match self.excess_bytes(guess, &fit) <= 0.0 {
                true => enough = guess,
                false => few = guess,
            }
        }
        self.forms.sort_by_key(|(blocks, _)| *blocks);
        Ok(self)
    }

    fn rehearse(&mut self, piece: &dyn Piece, checkpointed: u32, patience: Duration) -> Result<()> {
        let (threads, kernels) = (self.target.threads, self.target.kernels);
        let heap = match self.target.leaves_holes() {
            true => Heap::beside(self.stand.clone()),
            false => Heap::default(),
        };
        let heap = heap.rehearsed(piece, checkpointed, (threads, kernels), patience)?;
        self.forms.push((checkpointed, heap));
        Ok(())
    }

    /// Bytes that the piece takes beyond what it may; negative where it fits.
    fn excess_bytes(&self, checkpointed: u32, fit: &Fit) -> f64 {
        let peak = match fit.waiting {
            Waiting::Counts => self.peak_bytes(checkpointed, fit.micro_batch, fit.effective_batch),
            Waiting::GivesWay => {
                let heap = self.heap_bytes(checkpointed, fit.micro_batch, fit.effective_batch);
                let heap = heap.map(|bytes| bytes - self.standing.waiting_bytes);
                heap.and_then(|bytes| {
                    self.process_bytes(checkpointed, (fit.micro_batch, fit.pieces()), bytes)
                })
            }
        };
        peak.map_or(f64::INFINITY, |peak| peak as f64) - fit.budget_bytes as f64
    }
}
