//! The sequences of a micro-batch, padded to one length.

use super::Sequence;
use crate::plan::Compression;
use std::sync::Arc;
use tape::{IGNORED, Quota};

/// Sequences padded to one length.
pub(super) struct PaddedBatch {
    /// Number of sequences.
    pub samples: usize,
    /// Length of each sequence, with padding.
    pub tokens: usize,
    /// Token ids, [samples, tokens].
    pub ids: Vec<u32>,
    /// Length of each sequence without padding, and how many of its tokens are kept.
    pub quotas: Vec<Quota>,
}

impl PaddedBatch {
    /// Pads each sequence to `tokens`.
    pub fn new(sequences: &[Sequence], tokens: usize, rule: &Compression) -> Self {
        let padded = |sequence: &Sequence| {
            let ids = sequence.ids.iter().copied();
            let ids = ids.chain(std::iter::repeat(0)).take(tokens);
            ids.collect::<Vec<u32>>()
        };
        let quota = |sequence: &Sequence| {
            let tokens = sequence.ids.len().min(tokens);
            Quota {
                tokens,
                kept: rule.kept(tokens),
            }
        };
        PaddedBatch {
            samples: sequences.len(),
            tokens,
            ids: sequences.iter().flat_map(padded).collect(),
            quotas: sequences.iter().map(quota).collect(),
        }
    }

    /// Number of tokens without padding.
    pub fn token_count(&self) -> usize {
        self.quotas.iter().map(|quota| quota.tokens).sum()
    }

    /// Length of each sequence, if any has padding.
    pub fn lengths(&self) -> Option<Arc<[usize]>> {
        let padded = self.quotas.iter().any(|quota| quota.tokens < self.tokens);
        padded.then(|| self.quotas.iter().map(|quota| quota.tokens).collect())
    }

    /// Positions with a token that is not kept, in row-major order.
    pub fn dropped(&self, kept: &[bool]) -> Vec<bool> {
        let is = |(place, kept): (usize, &bool)| {
            let quota = &self.quotas[place / self.tokens];
            !kept && place % self.tokens < quota.tokens
        };
        kept.iter().enumerate().map(is).collect()
    }

    /// The dropped token at each position; ignored elsewhere.
    pub fn targets(&self, kept: &[bool]) -> Vec<u32> {
        let places = self.ids.iter().zip(self.dropped(kept));
        places
            .map(|(id, dropped)| if dropped { *id } else { IGNORED })
            .collect()
    }
}
