//! What an allocator of size classes touches beyond what is in use: a recording is replayed on the rules of mimalloc 3, the heap of
//! Ebb on Linux. Blocks up to half a MB share pages of their own class, larger ones stand alone in slices of 64 kB, and what is free
//! stays touched for half a second. Knows no tensor and no device.

#[path = "arena/chunk.rs"]
mod chunk;

use chunk::{CHUNK, Chunk, Kind};
use std::collections::BTreeMap;
use tape::{HeapBlock, HeapEvent};

/// Arenas give out slices of so many bytes.
const SLICE_BYTES: u64 = 64 << 10;
/// What mimalloc counts for its own notes to a block that stands alone, though it keeps them elsewhere: a block of whole slices
/// takes one slice more.
const NOTES_BYTES: u64 = 128;
/// Bytes that the system maps at once.
const MAPPED_BYTES: u64 = 4 << 10;
/// `(largest block of the page, slices of the page)`; what is larger stands alone.
const PAGES: [(u64, usize); 3] = [(10 << 10, 1), (84 << 10, 8), (512 << 10, 64)];
/// Steps that are replayed: from the second on the layout repeats.
const STEPS: usize = 2;
/// Pieces of a step that are replayed at most: those after the second find what it found.
const PIECES: u32 = 2;

/// Bytes that stay touched beside the fullest moment of a step, once steps of so many pieces of this kind have been worked beside blocks
/// that `stand`. What a recording does not give back is what its piece gave: that of a step's first piece becomes the sums, to which
/// others are added, and stands where it was made until the step ends.
pub(super) fn holes_bytes(stand: &[u64], events: &[HeapEvent], pieces: u32) -> u64 {
    let mut arena = Arena::default();
    for &bytes in stand {
        arena.take(bytes, 0);
    }
    for _ in 0..STEPS {
        let sums = arena.work(events);
        for _ in 1..pieces.min(PIECES) {
            let added = arena.work(events);
            added.into_iter().for_each(|block| arena.give(block));
        }
        sums.into_iter().for_each(|block| arena.give(block));
    }
    arena.touched_bytes.saturating_sub(arena.most_bytes)
}

/// A block in use.
struct Block {
    bytes: u64,
    place: Place,
}

enum Place {
    /// In slices of its own: the first, and how many.
    Alone(usize, usize),
    /// A part of a page.
    Shared {
        class: Class,
        page: usize,
        part: usize,
    },
}

/// Whose pages of which size.
type Class = (usize, u64);

/// Equal blocks in a few slices.
struct Page {
    first: usize,
    slices: usize,
    used: usize,
    /// Parts that were used before and are free, the newest last.
    free: Vec<usize>,
    /// Parts that were ever used.
    begun: usize,
}

#[derive(Default)]
struct Arena {
    chunks: Vec<Chunk>,
    /// How much of each slice was ever touched.
    touched: Vec<u64>,
    /// Pages by thread and class, which threads do not share; one that was given back leaves its place empty.
    pages: BTreeMap<Class, Vec<Option<Page>>>,
    in_use_bytes: u64,
    most_bytes: u64,
    touched_bytes: u64,
}

impl Arena {
    /// Works a recorded piece and leaves what it gave.
    fn work(&mut self, events: &[HeapEvent]) -> Vec<Block> {
        let mut held: BTreeMap<usize, Block> = BTreeMap::new();
        for event in events {
            match *event {
                HeapEvent::Allocated(HeapBlock {
                    bytes,
                    number,
                    thread,
                }) => {
                    held.insert(number, self.take(bytes, thread));
                }
                // What was there before the recording is not given back here.
                HeapEvent::Freed(HeapBlock { number, .. }) => {
                    if let Some(block) = held.remove(&number) {
                        self.give(block);
                    }
                }
                HeapEvent::Operation => {}
            }
        }
        held.into_values().collect()
    }

    fn take(&mut self, bytes: u64, thread: usize) -> Block {
        self.in_use_bytes += bytes;
        self.most_bytes = self.most_bytes.max(self.in_use_bytes);
        let page = PAGES.iter().find(|(largest, _)| bytes <= *largest);
        let place = match page {
            Some(&(_, slices)) => self.share((thread, class_bytes(bytes)), bytes, slices),
            None => {
                let slices = (bytes + NOTES_BYTES).div_ceil(SLICE_BYTES) as usize;
                let first = self.find(slices, thread);
                self.touch(first as u64 * SLICE_BYTES, bytes);
                Place::Alone(first, slices)
            }
        };
        Block { bytes, place }
    }

    fn give(&mut self, block: Block) {
        self.in_use_bytes -= block.bytes;
        match block.place {
            Place::Alone(first, slices) => self.free(first, slices),
            Place::Shared { class, page, part } => {
                let pages = self.pages.entry(class).or_default();
                let last = pages.iter().flatten().count() == 1;
                let Some(Some(of)) = pages.get_mut(page) else {
                    return;
                };
                of.used -= 1;
                of.free.push(part);
                // The last page of a class is kept.
                if of.used == 0 && !last {
                    let (first, slices) = (of.first, of.slices);
                    pages[page] = None;
                    self.free(first, slices);
                }
            }
        }
    }

    /// A part of the first page of the class that has one.
    fn share(&mut self, class: Class, bytes: u64, slices: usize) -> Place {
        let (thread, class_bytes) = class;
        let parts = (slices as u64 * SLICE_BYTES / class_bytes) as usize;
        let pages = self.pages.entry(class).or_default();
        let open = |page: &Option<Page>| page.as_ref().is_some_and(|page| page.used < parts);
        let index = match pages.iter().position(open) {
            Some(index) => index,
            None => {
                let first = self.find(slices, thread);
                let pages = self.pages.entry(class).or_default();
                pages.push(Some(Page {
                    first,
                    slices,
                    used: 0,
                    free: Vec::new(),
                    begun: 0,
                }));
                pages.len() - 1
            }
        };
        let pages = self.pages.entry(class).or_default();
        let (mut first, mut part) = (0, 0);
        if let Some(Some(page)) = pages.get_mut(index) {
            page.used += 1;
            first = page.first;
            part = page.free.pop().unwrap_or(page.begun);
            page.begun = page.begun.max(part + 1);
        }
        let from = first as u64 * SLICE_BYTES + part as u64 * class_bytes;
        self.touch(from, bytes);
        Place::Shared {
            class,
            page: index,
            part,
        }
    }

    /// The first free slices in a row, in the chunks where the kind may stand; else in untouched ones. Each thread begins its search
    /// at another chunk.
    fn find(&mut self, slices: usize, thread: usize) -> usize {
        let (kind, chunks) = (Kind::of(slices), self.chunks.len());
        for begun in kind.stands_among() {
            for at in 0..chunks {
                let index = (at + thread) % chunks;
                let chunk = &mut self.chunks[index];
                if chunk.kind == begun
                    && let Some(first) = chunk.row(kind, slices)
                {
                    chunk.kind.get_or_insert(kind);
                    chunk.mark(first, slices, false);
                    return index * CHUNK + first;
                }
            }
        }
        // Several chunks, or one more: whole ones in a row.
        let whole = slices.div_ceil(CHUNK);
        let empty = |chunk: usize| self.chunks.get(chunk).is_none_or(Chunk::is_empty);
        let mut from = 0;
        while !(from..from + whole).all(empty) {
            from += 1;
        }
        let most = (from + whole).max(self.chunks.len());
        self.chunks.resize(most, Chunk::default());
        self.touched.resize(most * CHUNK, 0);
        self.chunks[from..from + whole]
            .iter_mut()
            .for_each(|chunk| chunk.kind = Some(kind));
        self.mark(from * CHUNK, slices, false);
        from * CHUNK
    }

    fn mark(&mut self, first: usize, slices: usize, free: bool) {
        let end = first + slices;
        for chunk in first / CHUNK..end.div_ceil(CHUNK) {
            let (from, to) = (first.max(chunk * CHUNK), end.min((chunk + 1) * CHUNK));
            self.chunks[chunk].mark(from - chunk * CHUNK, to - from, free);
        }
    }

    fn free(&mut self, first: usize, slices: usize) {
        self.mark(first, slices, true);
    }

    fn touch(&mut self, from: u64, bytes: u64) {
        let end = (from + bytes).next_multiple_of(MAPPED_BYTES);
        for slice in from / SLICE_BYTES..end.div_ceil(SLICE_BYTES) {
            let here = (end - slice * SLICE_BYTES).min(SLICE_BYTES);
            let touched = &mut self.touched[slice as usize];
            self.touched_bytes += here.saturating_sub(*touched);
            *touched = here.max(*touched);
        }
    }
}

/// The size that blocks of so many bytes are rounded up to: eight steps an octave.
fn class_bytes(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() >> 3).max(16);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: u64 = 1 << 10;

    fn by(thread: usize, bytes: u64, number: usize) -> HeapBlock {
        HeapBlock {
            bytes,
            number,
            thread,
        }
    }

    /// A block that is the only one of its size.
    fn taken(bytes: u64) -> HeapEvent {
        HeapEvent::Allocated(by(0, bytes, bytes as usize))
    }

    fn given(bytes: u64) -> HeapEvent {
        HeapEvent::Freed(by(0, bytes, bytes as usize))
    }

    fn check(events: &[HeapEvent], holes_kb: u64) {
        assert_eq!(holes_bytes(&[], events, 1), holes_kb * KB);
    }

    #[test]
    fn what_takes_the_place_of_what_was_given_back_leaves_no_hole() {
        let block = 1024 * KB;
        check(&[taken(block), given(block), taken(block), given(block)], 0);
    }

    #[test]
    fn a_larger_block_does_not_fit_where_a_smaller_one_was() {
        let (small, large, last) = (1024 * KB, 2048 * KB, 640 * KB);
        // The last one holds the place behind the small one, so that the large one stands behind both.
        let events = [
            taken(small),
            taken(last),
            given(small),
            taken(large),
            given(large),
            given(last),
        ];
        check(&events, 1024);
    }

    #[test]
    fn a_block_of_whole_slices_takes_one_more() {
        let (half, less) = (16 << 20, 15 << 20);
        // Two halves do not fill a chunk: the second begins the next one, and the smaller block stands behind the first.
        check(
            &[
                HeapEvent::Allocated(by(0, half, 1)),
                HeapEvent::Allocated(by(0, half, 2)),
                HeapEvent::Freed(by(0, half, 2)),
                taken(less),
            ],
            15 << 10,
        );
    }

    #[test]
    fn nothing_stands_behind_a_block_that_is_larger_than_a_chunk() {
        let (huge, small) = (32 << 20, 1 << 20);
        check(&[taken(huge), taken(small), given(huge), taken(huge)], 0);
        // Nor does it stand where anything else does.
        check(
            &[taken(huge), given(huge), taken(small), taken(huge)],
            31 << 10,
        );
    }

    #[test]
    fn blocks_of_two_classes_share_no_page() {
        let (one, other) = (100 * KB, 200 * KB);
        check(&[taken(one), given(one), taken(other), given(other)], 100);
    }

    #[test]
    fn threads_share_no_page() {
        let (one, other) = (by(0, 100 * KB, 1), by(1, 100 * KB, 2));
        let events = |second| {
            [
                HeapEvent::Allocated(one),
                HeapEvent::Freed(one),
                HeapEvent::Allocated(second),
                HeapEvent::Freed(second),
            ]
        };
        check(&events(one), 0);
        check(&events(other), 100);
    }

    #[test]
    fn sums_stand_where_the_first_piece_made_them() {
        let (kept, gradient, last) = (19 << 20, 12 << 20, 25 << 20);
        let piece = [
            taken(kept),
            taken(gradient),
            given(kept),
            taken(last),
            given(last),
        ];
        // The last block finds no room in the first chunk, beside the gradient.
        assert_eq!(holes_bytes(&[], &piece, 1), kept);
        // The second gradient takes the second chunk, and the last block of its piece the third.
        assert_eq!(holes_bytes(&[], &piece, 2), kept + last - gradient);
    }

    #[test]
    fn what_stands_leaves_room_at_the_end_of_its_chunk() {
        let (stands, large, small) = (20 << 20, 13 << 20, 10 << 20);
        // The large block does not fit behind what stands, the small one does.
        let piece = [taken(large), given(large), taken(small), given(small)];
        assert_eq!(holes_bytes(&[], &piece, 1), 0);
        assert_eq!(holes_bytes(&[stands], &piece, 1), small);
    }
}
