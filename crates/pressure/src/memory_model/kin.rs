//! What one kind of piece tells about another: the state is the same, and pieces with more checkpointed blocks need no more.
//! And what a state tells that has just lost or gained a known part. Knows no rung.

use super::{Fit, MemoryModel};
use crate::decision::{Piece, PieceKind};

impl MemoryModel {
    /// The kind that answers for `kind`: itself once measured, else the measured one with the most checkpointed blocks below
    /// its own, whose peaks are an upper bound.
    pub fn measured(&self, kind: PieceKind) -> Option<PieceKind> {
        self.nearest(kind).map(|(kind, _)| kind)
    }

    pub(super) fn nearest(&self, kind: PieceKind) -> Option<(PieceKind, &Fit)> {
        let kin = self.fits.iter().filter(|(other, fit)| {
            let same = PieceKind {
                checkpoint_blocks: kind.checkpoint_blocks,
                ..*other
            } == kind;
            same && other.checkpoint_blocks <= kind.checkpoint_blocks && fit.largest > 0
        });
        let nearest = kin.max_by_key(|(other, _)| other.checkpoint_blocks)?;
        Some((nearest.0, &nearest.1))
    }

    /// A first piece of its kind. Where kin is known, so is the state, and this piece alone tells what a sample needs.
    pub(super) fn begin(&mut self, piece: &Piece) -> usize {
        let unit_cost = piece.cost as f64 / f64::from(piece.micro_batch);
        let mut fit = Fit::new(self.allocator, unit_cost);
        if let Some(state) = self.state_bytes(piece.kind) {
            fit.see(0.0, state as f64);
            fit.learn(0.0, state as f64);
            fit.pieces = 1;
        }
        self.fits.push((piece.kind, fit));
        self.fits.len() - 1
    }

    /// The state has lost a part of this size: every peak is lower by it.
    pub fn state_shrank(&mut self, bytes: u64) {
        self.move_state(-(bytes as f64));
    }

    /// The state has gained a part of this size: every peak is higher by it.
    pub fn state_grew(&mut self, bytes: u64) {
        self.move_state(bytes as f64);
    }

    fn move_state(&mut self, bytes: f64) {
        for (_, fit) in &mut self.fits {
            fit.line.state_bytes = (fit.line.state_bytes + bytes).max(0.0);
            for stair in &mut fit.stairs {
                stair.move_state(bytes);
            }
            for (_, peak) in &mut fit.seen {
                *peak = (*peak + bytes).max(0.0);
            }
        }
    }
}
