//! A chunk of mimalloc's arenas: 512 slices, and which blocks may stand beside each other. Knows no bytes.

/// Slices of a chunk, which no block crosses that is smaller.
pub(super) const CHUNK: usize = 512;
/// Slices of a word.
const WORD: usize = 64;

/// What a chunk was begun with. Blocks of a kind stand among those that are named before it and its own, never among later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Small,
    /// A block that stands alone.
    Alone,
    Medium,
    Large,
    /// Larger than a chunk.
    Huge,
}

impl Kind {
    /// The kind of what takes so many slices.
    pub(super) fn of(slices: usize) -> Self {
        match slices {
            1 => Self::Small,
            8 => Self::Medium,
            WORD => Self::Large,
            ..=CHUNK => Self::Alone,
            _ => Self::Huge,
        }
    }

    /// Beginnings of the chunks where it may stand, in the order in which they are searched; nothing for a chunk that is empty.
    pub(super) fn stands_among(self) -> impl Iterator<Item = Option<Self>> {
        let begun = [Self::Small, Self::Alone, Self::Medium, Self::Large];
        let begun = begun.into_iter().filter(move |begun| *begun <= self);
        begun
            .map(Some)
            .chain([None])
            .filter(move |_| self != Self::Huge)
    }
}

/// Which slices are free, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    free: [u64; CHUNK / WORD],
    /// What it was begun with; nothing where it is empty.
    pub(super) kind: Option<Kind>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            free: [u64::MAX; CHUNK / WORD],
            kind: None,
        }
    }
}

impl Chunk {
    /// Nothing stands in it.
    pub(super) fn is_empty(&self) -> bool {
        self.kind.is_none()
    }

    /// The first of so many free slices in a row.
    pub(super) fn row(&self, kind: Kind, slices: usize) -> Option<usize> {
        if kind == Kind::Medium {
            // At a multiple of its length.
            return (0..CHUNK)
                .step_by(slices)
                .find(|at| self.free[at / WORD] >> (at % WORD) & 0xff == 0xff);
        }
        let (mut at, mut row) = (0, 0);
        while at < CHUNK {
            let (word, left) = (self.free[at / WORD] >> (at % WORD), WORD - at % WORD);
            let ones = (word.trailing_ones() as usize).min(left);
            row += ones;
            if row >= slices {
                return Some(at + ones - row);
            }
            let zeros = ((word >> ones.min(WORD - 1)).trailing_zeros() as usize).min(left - ones);
            if zeros > 0 {
                row = 0;
            }
            at += ones + zeros;
        }
        None
    }

    /// Takes slices or sets them free; a chunk that is empty again may be begun with anything.
    pub(super) fn mark(&mut self, first: usize, slices: usize, free: bool) {
        let end = first + slices;
        for word in first / WORD..end.div_ceil(WORD) {
            let (from, to) = (first.max(word * WORD), end.min((word + 1) * WORD));
            let mask = (u64::MAX >> (WORD - (to - from))) << (from % WORD);
            match free {
                true => self.free[word] |= mask,
                false => self.free[word] &= !mask,
            }
        }
        if free && self.free == [u64::MAX; CHUNK / WORD] {
            self.kind = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_across_words_and_pages_of_eight_at_multiples() {
        let mut chunk = Chunk::default();
        chunk.mark(0, 3, false);
        assert_eq!(chunk.row(Kind::Medium, 8), Some(8));
        assert_eq!(chunk.row(Kind::Alone, 9), Some(3));
        chunk.mark(0, 60, false);
        assert_eq!(chunk.row(Kind::Alone, 100), Some(60));
        assert_eq!(chunk.row(Kind::Medium, 8), Some(64));
        chunk.mark(100, 300, false);
        assert_eq!(chunk.row(Kind::Alone, 40), Some(60));
        assert_eq!(chunk.row(Kind::Alone, 41), Some(400));
        assert_eq!(chunk.row(Kind::Alone, 113), None);
        chunk.mark(0, 60, true);
        chunk.mark(100, 300, true);
        assert!(chunk.is_empty());
        assert_eq!(chunk.row(Kind::Alone, CHUNK), Some(0));
    }

    #[test]
    fn what_stands_alone_stands_among_small_pages_but_not_among_larger_ones() {
        let among = |kind: Kind| kind.stands_among().collect::<Vec<_>>();
        let (small, alone) = (Some(Kind::Small), Some(Kind::Alone));
        assert_eq!(among(Kind::of(1)), [small, None]);
        assert_eq!(among(Kind::of(9)), [small, alone, None]);
        assert_eq!(among(Kind::of(8)), [small, alone, Some(Kind::Medium), None]);
        assert_eq!(among(Kind::of(513)), []);
    }
}
