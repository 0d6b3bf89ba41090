//! Packs documents into windows of equal length, depending only on (seed, epoch) and the documents.
//! No token is predicted across a boundary, and a window tells which of its tokens belong together.
//!
//! A document t1 .. tn has n + 1 predictions: boundary -> t1, t1 -> t2, .. tn -> boundary. The
//! predictions of all documents, in the order of the epoch, form a ring. An epoch starts at a
//! random offset, so that a single document is cut at different positions in each epoch.

use super::tokenized_documents::Documents;
use crate::rng::{self, Rng};
use std::ops::Deref;

/// The windows of one epoch. `D` borrows or shares the documents.
#[derive(Debug, Clone)]
pub struct Packing<D> {
    documents: D,
    /// Tokens per window. The last window of an epoch may be shorter.
    length: usize,
    /// The token before the first and after the last token of a document.
    boundary: u32,
    /// Documents in the order of this epoch.
    order: Vec<u32>,
    /// Cumulative number of predictions, in that order.
    ends: Vec<u64>,
    /// Position on the ring at which the epoch starts.
    offset: u64,
}

/// A window of tokens. All lists have the same length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Window {
    /// Number of the window in its epoch, counted from 0.
    pub index: u32,
    /// Input tokens.
    pub inputs: Vec<u32>,
    /// The token that follows each input token.
    pub targets: Vec<u32>,
    /// The document of each token, counted from 0 in the window. A token may only attend to tokens
    /// of its own document.
    pub documents: Vec<u32>,
    /// Position of each token in its document, counted from 0 within the window.
    pub positions: Vec<u32>,
}

impl<D: Deref<Target = Documents>> Packing<D> {
    /// The windows of a training epoch: shuffled documents, from a random offset.
    pub fn shuffled(documents: D, length: usize, boundary: u32, seed: u64, epoch: u64) -> Self {
        let mut order: Vec<u32> = (0..documents.len() as u32).collect();
        let mut rng = Rng::from_key(&[rng::hash_text("packing"), seed, epoch]);
        rng.shuffle(&mut order);
        let mut packing = Self::new(documents, length, boundary, order);
        packing.offset = rng.below(packing.predictions().max(1));
        packing
    }

    /// The windows for evaluation: documents in order, from the first token.
    pub fn in_order(documents: D, length: usize, boundary: u32) -> Self {
        let order = (0..documents.len() as u32).collect();
        Self::new(documents, length, boundary, order)
    }

    fn new(documents: D, length: usize, boundary: u32, order: Vec<u32>) -> Self {
        let mut total = 0;
        let ends = order
            .iter()
            .map(|document| {
                total += documents.length(*document as usize) as u64 + 1;
                total
            })
            .collect();
        Self {
            documents,
            length: length.max(1),
            boundary,
            order,
            ends,
            offset: 0,
        }
    }

    /// Number of predictions per epoch, including boundaries.
    pub fn predictions(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Tokens of a window.
    pub fn window_tokens(&self) -> usize {
        self.length
    }

    /// Number of windows per epoch.
    pub fn len(&self) -> usize {
        self.predictions().div_ceil(self.length as u64) as usize
    }

    /// Whether there are no windows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One window. Panics if `index` is not below `len`.
    pub fn window(&self, index: usize) -> Window {
        let total = self.predictions();
        let first = index as u64 * self.length as u64;
        let count = (self.length as u64).min(total - first) as usize;
        let mut window = Window {
            index: index as u32,
            ..Window::default()
        };
        let mut ring = (self.offset + first) % total;
        let mut nth = self.ends.partition_point(|end| *end <= ring);
        let (mut number, mut position) = (0, 0);
        for _ in 0..count {
            let document = self.order[nth] as usize;
            let length = self.documents.length(document);
            let within = (ring - nth.checked_sub(1).map_or(0, |before| self.ends[before])) as usize;
            let before = within
                .checked_sub(1)
                .map(|at| self.documents.token(document, at));
            let after = (within < length).then(|| self.documents.token(document, within));
            window.inputs.push(before.unwrap_or(self.boundary));
            window.targets.push(after.unwrap_or(self.boundary));
            window.documents.push(number);
            window.positions.push(position);
            position += 1;
            ring += 1;
            if ring == self.ends[nth] {
                (number, position) = (number + 1, 0);
                nth = (nth + 1) % self.order.len();
                ring %= total;
            }
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = 256;

    fn documents(lengths: &[usize]) -> Documents {
        let mut documents = Documents::empty(257);
        for (n, length) in lengths.iter().enumerate() {
            let tokens: Vec<u32> = (0..*length)
                .map(|i| (n * 50 + i % 50) as u32 % 256)
                .collect();
            documents.push(&tokens, *length as u64);
        }
        documents
    }

    /// Every pair of an input and its target, sorted.
    fn pairs(windows: &[Window]) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = windows
            .iter()
            .flat_map(|w| w.inputs.iter().copied().zip(w.targets.iter().copied()))
            .collect();
        all.sort_unstable();
        all
    }

    fn windows(packing: &Packing<&Documents>) -> Vec<Window> {
        (0..packing.len()).map(|i| packing.window(i)).collect()
    }

    #[test]
    fn a_document_ends_with_its_boundary() {
        let documents = documents(&[3, 2]);
        let packing = Packing::in_order(&documents, 5, END);
        let first = packing.window(0);
        assert_eq!(first.inputs, [END, 0, 1, 2, END]);
        assert_eq!(first.targets, [0, 1, 2, END, 50]);
        assert_eq!(first.documents, [0, 0, 0, 0, 1]);
        assert_eq!(first.positions, [0, 1, 2, 3, 0]);
        let last = packing.window(1);
        assert_eq!((last.inputs, last.targets), (vec![50, 51], vec![51, END]));
        assert_eq!((packing.len(), packing.predictions()), (2, 7));
    }

    #[test]
    fn every_epoch_predicts_every_token_once() {
        for lengths in [&[3, 2][..], &[100], &[1, 1, 1, 40, 7], &[0, 5]] {
            for length in [1, 4, 16, 64, 1000] {
                let documents = documents(lengths);
                let expected = pairs(&windows(&Packing::in_order(&documents, length, END)));
                let total: usize = lengths.iter().map(|n| n + 1).sum();
                assert_eq!(expected.len(), total);
                for epoch in 0..5 {
                    let packing = Packing::shuffled(&documents, length, END, 3, epoch);
                    let found = windows(&packing);
                    assert_eq!(found.len(), total.div_ceil(length));
                    assert!(
                        found[..found.len() - 1]
                            .iter()
                            .all(|w| w.inputs.len() == length)
                    );
                    assert_eq!(pairs(&found), expected, "{lengths:?} by {length}");
                }
            }
        }
    }

    #[test]
    fn no_token_follows_a_token_of_another_document() {
        let documents = documents(&[9, 4, 17]);
        for epoch in 0..8 {
            for window in windows(&Packing::shuffled(&documents, 7, END, 1, epoch)) {
                for i in 1..window.inputs.len() {
                    let same = window.documents[i] == window.documents[i - 1];
                    assert_eq!(
                        same,
                        window.inputs[i] == window.targets[i - 1] && window.inputs[i] != END
                    );
                    assert_eq!(same, window.positions[i] > 0);
                }
            }
        }
    }

    #[test]
    fn an_epoch_can_be_repeated() {
        let documents = documents(&[30, 20, 10]);
        let of = |seed, epoch| windows(&Packing::shuffled(&documents, 8, END, seed, epoch));
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2), of(1, 3));
        assert_ne!(of(1, 2), of(2, 2));
        let alone = self::documents(&[100]);
        let of = |epoch| windows(&Packing::shuffled(&alone, 8, END, 1, epoch));
        assert_ne!(
            of(0),
            of(1),
            "a single document is cut at different positions in each epoch"
        );
    }
}
