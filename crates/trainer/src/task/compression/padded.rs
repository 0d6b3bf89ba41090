//! Sequences of a piece, laid one after the other and filled up to one length.

use crate::plan::Compression;
use std::sync::Arc;
use tape::{IGNORED, Quota};

/// A sequence to be compressed.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    /// Its number in the epoch, or among the held-out ones.
    pub index: u32,
    /// The optimizer step it is seen in: names its noise, and where the temperature has fallen to.
    pub step: u64,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Share of each token of the vocabulary in the texts trained on.
    pub shares: Arc<[f32]>,
}

/// Sequences side by side.
pub(super) struct Padded {
    /// Sequences.
    pub samples: usize,
    /// Places of each, those of padding among them.
    pub tokens: usize,
    /// Tokens, by place.
    pub ids: Vec<u32>,
    /// Tokens of each sequence, and how many of them are kept.
    pub quotas: Vec<Quota>,
}

impl Padded {
    /// Fills `sequences` up to `tokens` each.
    pub fn of(sequences: &[&Sequence], tokens: usize, rule: &Compression) -> Self {
        let filled = |sequence: &&Sequence| {
            let ids = sequence.ids.iter().copied();
            let ids = ids.chain(std::iter::repeat(0)).take(tokens);
            ids.collect::<Vec<u32>>()
        };
        let quota = |sequence: &&Sequence| {
            let tokens = sequence.ids.len().min(tokens);
            Quota {
                tokens,
                kept: rule.kept(tokens),
            }
        };
        Padded {
            samples: sequences.len(),
            tokens,
            ids: sequences.iter().flat_map(filled).collect(),
            quotas: sequences.iter().map(quota).collect(),
        }
    }

    /// Tokens without padding.
    pub fn count(&self) -> usize {
        self.quotas.iter().map(|quota| quota.tokens).sum()
    }

    /// Tokens of each sequence, where one has padding.
    pub fn lengths(&self) -> Option<Arc<[usize]>> {
        let padded = self.quotas.iter().any(|quota| quota.tokens < self.tokens);
        padded.then(|| self.quotas.iter().map(|quota| quota.tokens).collect())
    }

    /// Places that hold a token which is not kept.
    pub fn dropped(&self, kept: &[bool]) -> Vec<bool> {
        let is = |(place, kept): (usize, &bool)| {
            let quota = &self.quotas[place / self.tokens];
            !kept && place % self.tokens < quota.tokens
        };
        kept.iter().enumerate().map(is).collect()
    }

    /// What is to be filled in at each place: the tokens that were dropped.
    pub fn targets(&self, kept: &[bool]) -> Vec<u32> {
        let places = self.ids.iter().zip(self.dropped(kept));
        places
            .map(|(id, dropped)| if dropped { *id } else { IGNORED })
            .collect()
    }
}
