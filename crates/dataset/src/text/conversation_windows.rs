//! Conversations as windows for a language model: one conversation each, or several whole ones
//! packed together. A token sees only tokens of its own conversation, so packing does not change
//! the loss. The windows depend only on the conversations, the length and the seed.

use super::pack_documents::Window;
use super::tokenize_conversations::LEARNED;
use super::tokenized_documents::Documents;
use crate::rng;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

/// A target that is not learned.
pub const NOT_LEARNED: u32 = u32::MAX;

/// The windows of a split. `D` borrows or shares the conversations.
#[derive(Debug, Clone)]
pub struct ConversationWindows<D> {
    documents: D,
    /// Most tokens of a window.
    length: usize,
    /// The conversations of all windows, one window after the other.
    members: Vec<u32>,
    /// The end of each window in `members`.
    ends: Vec<usize>,
    counts: ConversationCounts,
    are_pairs: bool,
}

/// How many conversations are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConversationCounts {
    /// Conversations in windows.
    pub used: u64,
    /// Those of them that are longer than a window, and are cut at its end.
    pub truncated: u64,
    /// Conversations with nothing to learn before the end of a window.
    pub too_long: u64,
    /// Conversations that have no tokens, because they cannot be learned.
    pub unusable: u64,
}

/// Which conversations share a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowOptions {
    /// Most tokens of a window.
    pub length: usize,
    /// Whether a window may hold several conversations.
    pub packs: bool,
    /// Chooses among packings that are equally good.
    pub seed: u64,
    /// Whether each two documents, one after the other, are the two conversations of a preference.
    /// They share a window, which holds nothing else, and each of them may have `length` tokens.
    pub are_pairs: bool,
}

impl<D: Deref<Target = Documents>> ConversationWindows<D> {
    /// Makes windows of tokenized conversations.
    pub fn new(documents: D, options: WindowOptions) -> Self {
        let mut windows = ConversationWindows {
            length: options.length.max(1),
            members: Vec::new(),
            ends: Vec::new(),
            counts: ConversationCounts::default(),
            are_pairs: options.are_pairs,
            documents,
        };
        let each = if options.are_pairs { 2 } else { 1 };
        let usable: Vec<u32> = (0..windows.documents.len() / each)
            .filter(|sample| windows.count(each * sample..each * (sample + 1)))
            .flat_map(|sample| each * sample..each * (sample + 1))
            .map(|document| document as u32)
            .collect();
        if options.are_pairs {
            windows.ends = (2..=usable.len()).step_by(2).collect();
            windows.members = usable;
        } else if options.packs {
            windows.pack(usable, options.seed);
        } else {
            windows.ends = (1..=usable.len()).collect();
            windows.members = usable;
        }
        windows
    }

    /// Counts a conversation or a preference, and tells whether it can be used: all of its
    /// documents must be usable.
    fn count(&mut self, documents: Range<usize>) -> bool {
        let length = |document: usize| self.documents.length(document);
        if documents.clone().any(|document| length(document) == 0) {
            self.counts.unusable += 1;
            return false;
        }
        let is_cut = |document: &usize| length(*document) > self.length + 1;
        let has_target = |document: usize| {
            let mut targets = 1..=self.length.min(length(document) - 1);
            targets.any(|at| self.documents.token(document, at) & LEARNED != 0)
        };
        let cut: Vec<usize> = documents.filter(is_cut).collect();
        let is_used = cut.iter().all(|document| has_target(*document));
        if is_used {
            self.counts.used += 1;
            self.counts.truncated += u64::from(!cut.is_empty());
        } else {
            self.counts.too_long += 1;
        }
        is_used
    }

    /// The tokens that a conversation takes in a window. The last one is only predicted.
    fn size(&self, document: u32) -> usize {
        let tokens = self.documents.length(document as usize);
        (tokens - 1).min(self.length)
    }

    /// Puts each conversation, the longest first, into the window that it fills best (best fit
    /// decreasing).
    fn pack(&mut self, mut usable: Vec<u32>, seed: u64) {
        let key = |document: &u32| rng::combine(seed, u64::from(*document));
        usable.sort_by_key(|document| (std::cmp::Reverse(self.size(*document)), key(document)));
        let mut windows: Vec<Vec<u32>> = Vec::new();
        // Windows that are not full, by the number of tokens that are left.
        let mut open: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for document in usable {
            let size = self.size(document);
            let fitting = open.range(size..).next().map(|(left, _)| *left);
            let (window, left) = match fitting {
                None => {
                    windows.push(Vec::new());
                    (windows.len() - 1, self.length)
                }
                Some(left) => {
                    let same = open.entry(left).or_default();
                    let window = same.pop().expect("a list of open windows is never empty");
                    if same.is_empty() {
                        open.remove(&left);
                    }
                    (window, left)
                }
            };
            windows[window].push(document);
            if left > size {
                open.entry(left - size).or_default().push(window);
            }
        }
        for window in windows {
            self.members.extend(window);
            self.ends.push(self.members.len());
        }
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no windows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Most tokens of a window.
    pub fn window_tokens(&self) -> usize {
        self.length
    }

    /// How many conversations are used.
    pub fn counts(&self) -> ConversationCounts {
        self.counts
    }

    /// Whether each window holds the two conversations of a preference.
    pub fn are_pairs(&self) -> bool {
        self.are_pairs
    }

    /// Number of tokens of a window; of a preference, those of its longer conversation.
    pub fn size_of(&self, index: usize) -> usize {
        let members = self.members[self.range(index)].iter();
        let sizes = members.map(|document| self.size(*document));
        if self.are_pairs {
            sizes.max().unwrap_or(0)
        } else {
            sizes.sum()
        }
    }

    /// Number of tokens of a window; of a preference, those of both conversations.
    pub fn tokens_of(&self, index: usize) -> usize {
        let members = self.members[self.range(index)].iter();
        members.map(|document| self.size(*document)).sum()
    }

    /// One window. Panics if `index` is not below `len`.
    pub fn window(&self, index: usize) -> Window {
        let mut window = Window {
            index: index as u32,
            ..Window::default()
        };
        for (number, document) in self.members[self.range(index)].iter().enumerate() {
            let document = *document as usize;
            for at in 0..self.size(document as u32) {
                let next = self.documents.token(document, at + 1);
                let is_learned = next & LEARNED != 0;
                let input = self.documents.token(document, at) & !LEARNED;
                window.inputs.push(input);
                window.targets.push(if is_learned {
                    next & !LEARNED
                } else {
                    NOT_LEARNED
                });
                window.documents.push(number as u32);
                window.positions.push(at as u32);
            }
        }
        window
    }

    fn range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conversations of these lengths, whose tokens are learned from a place on.
    fn documents(lengths: &[(usize, usize)]) -> Documents {
        let mut documents = Documents::empty(usize::MAX);
        for (n, (length, from)) in lengths.iter().enumerate() {
            let tokens: Vec<u32> = (0..*length)
                .map(|at| (n * 100 + at) as u32 | if at >= *from { LEARNED } else { 0 })
                .collect();
            documents.push(&tokens, 1);
        }
        documents
    }

    fn options(length: usize, packs: bool) -> WindowOptions {
        WindowOptions {
            length,
            packs,
            seed: 7,
            are_pairs: false,
        }
    }

    #[test]
    fn only_answers_are_targets_and_nothing_follows_the_last_token() {
        let documents = documents(&[(4, 2)]);
        let windows = ConversationWindows::new(&documents, options(8, true));
        let window = windows.window(0);
        assert_eq!(window.inputs, [0, 1, 2]);
        assert_eq!(window.targets, [NOT_LEARNED, 2, 3]);
        assert_eq!((windows.len(), windows.size_of(0)), (1, 3));
    }

    #[test]
    fn packed_windows_hold_every_conversation_once_and_whole() {
        let lengths: Vec<(usize, usize)> = (0..50).map(|n| (2 + n * 7 % 13, 1)).collect();
        let documents = documents(&lengths);
        let alone = ConversationWindows::new(&documents, options(16, false));
        let packed = ConversationWindows::new(&documents, options(16, true));
        assert_eq!((alone.len(), alone.counts()), (50, packed.counts()));
        let pairs = |windows: &ConversationWindows<&Documents>| -> Vec<(u32, u32)> {
            let windows = (0..windows.len()).map(|index| windows.window(index));
            let mut all: Vec<_> = windows
                .flat_map(|w| w.inputs.into_iter().zip(w.targets))
                .collect();
            all.sort_unstable();
            all
        };
        assert_eq!(pairs(&alone), pairs(&packed));
        let sizes: Vec<usize> = (0..packed.len())
            .map(|index| packed.size_of(index))
            .collect();
        assert!(sizes.iter().all(|size| *size <= 16), "{sizes:?}");
        let all: usize = sizes.iter().sum();
        assert!(packed.len() <= all.div_ceil(16) + 1, "{sizes:?}");
        for index in 0..packed.len() {
            let window = packed.window(index);
            let starts = window.positions.iter().filter(|at| **at == 0).count();
            let last = window.documents.last().map_or(0, |last| *last as usize + 1);
            assert_eq!(starts, last);
        }
    }

    #[test]
    fn the_two_conversations_of_a_preference_share_a_window() {
        // The second pair is cut, the third one lacks a conversation, and of the fourth one the
        // rejected answer begins after the window.
        let lengths = [
            (4, 2),
            (6, 2),
            (20, 3),
            (5, 3),
            (0, 0),
            (9, 1),
            (5, 2),
            (20, 12),
        ];
        let documents = documents(&lengths);
        let pairs = WindowOptions {
            are_pairs: true,
            ..options(8, true)
        };
        let windows = ConversationWindows::new(&documents, pairs);
        assert_eq!(
            (windows.len(), windows.size_of(0), windows.size_of(1)),
            (2, 5, 8)
        );
        assert_eq!((windows.tokens_of(0), windows.tokens_of(1)), (8, 12));
        let window = windows.window(0);
        assert_eq!(window.inputs, [0, 1, 2, 100, 101, 102, 103, 104]);
        assert_eq!(window.documents, [0, 0, 0, 1, 1, 1, 1, 1]);
        assert_eq!(window.positions, [0, 1, 2, 0, 1, 2, 3, 4]);
        let expected = ConversationCounts {
            used: 2,
            truncated: 1,
            too_long: 1,
            unusable: 1,
        };
        assert_eq!(windows.counts(), expected);
    }

    #[test]
    fn what_is_cut_or_left_out_is_counted() {
        let documents = documents(&[(0, 0), (20, 3), (20, 15), (9, 4)]);
        let windows = ConversationWindows::new(&documents, options(8, false));
        let expected = ConversationCounts {
            used: 2,
            truncated: 1,
            too_long: 1,
            unusable: 1,
        };
        assert_eq!(windows.counts(), expected);
        assert_eq!(windows.window(0).inputs.len(), 8);
    }
}
