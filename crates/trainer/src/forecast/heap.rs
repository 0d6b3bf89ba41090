//! What a piece takes from the heap, as a function of its samples: made from recordings of rehearsals of a few sizes, one
//! interval between two operations at a time, since a large piece may peak elsewhere than a small one. Knows no tensor.

#[path = "heap/interval.rs"]
mod interval;

use super::arena::holes_bytes;
use interval::{Moment, intervals};
use pressure::Allocator;
use std::collections::BTreeMap;
use tape::{HeapBlock, HeapEvent};

/// Blocks from here on stand alone in the allocator. There are as many of them however many samples a piece has; of smaller ones a
/// kernel may take one for each sample.
const LARGE_BYTES: u64 = 512 << 10;

/// A rehearsed size.
#[derive(Debug, Clone, PartialEq)]
struct Take {
    samples: u32,
    intervals: Vec<Moment>,
    events: Vec<HeapEvent>,
    /// What such pieces leave between blocks, bytes: where a step is one piece, and where it is several.
    holes_bytes: [u64; 2],
}

/// The heap that pieces of one kind take.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Heap {
    /// By samples, smallest first.
    takes: Vec<Take>,
    /// Blocks that stand before any piece, bytes; none where the allocator's layout is not asked for.
    stand: Option<Vec<u64>>,
}

impl Heap {
    /// Nothing recorded yet, of an allocator that lays pieces out beside blocks that `stand`.
    pub fn beside(stand: Vec<u64>) -> Self {
        Heap {
            takes: Vec::new(),
            stand: Some(stand),
        }
    }

    /// Adds the recording of a piece of `samples`, more than those before.
    pub fn add(&mut self, samples: u32, events: &[HeapEvent]) {
        self.takes.push(Take {
            samples,
            intervals: intervals(events),
            events: events.to_vec(),
            holes_bytes: [1, 2].map(|pieces| self.replayed(events, pieces)),
        });
    }

    /// Bytes that a piece of `samples` takes at its fullest, beyond what was there before it began; 0 where nothing was recorded.
    pub fn peak_bytes(&self, samples: u32, allocator: Allocator) -> u64 {
        let Some((low, high)) = self.around(samples) else {
            return 0;
        };
        let peak = match allocator {
            Allocator::Exact => exact(low, high, samples),
            Allocator::PowerOfTwo => pooled(low, high, samples),
        };
        peak.max(0.0) as u64
    }

    /// Bytes that stay free but touched between the blocks of steps of `pieces` of `samples`. What larger pieces than were recorded would
    /// do is drawn from the last two recordings; where those differ in more than sizes, they leave as much as the largest.
    pub fn holes_bytes(&self, samples: u32, pieces: u32) -> u64 {
        let (Some(_), Some((low, high))) = (&self.stand, self.around(samples)) else {
            return 0;
        };
        let of = |take: &Take| take.holes_bytes[usize::from(pieces > 1)];
        let large = |samples| Some(self.replayed(&drawn(low, high, samples)?, pieces));
        if samples > high.samples
            && let (Some(here), Some(there)) = (large(high.samples), large(samples))
        {
            return (of(high) + there).saturating_sub(here);
        }
        let (from, to) = (of(low) as f64, of(high) as f64);
        let way = way(low, high, samples).min(1.0);
        (from + way * (to - from)).max(0.0) as u64
    }

    /// What steps of this recording leave between blocks, bytes.
    fn replayed(&self, events: &[HeapEvent], pieces: u32) -> u64 {
        let stand = self.stand.as_deref();
        stand.map_or(0, |stand| holes_bytes(stand, events, pieces))
    }

    /// The takes to go by: those around the size, else the last two.
    fn around(&self, samples: u32) -> Option<(&Take, &Take)> {
        let above = self.takes.iter().position(|take| take.samples >= samples);
        let high = above.unwrap_or(self.takes.len().saturating_sub(1)).max(1);
        match self.takes.as_slice() {
            [] => None,
            [only] => Some((only, only)),
            takes => Some((&takes[high - 1], &takes[high])),
        }
    }
}

/// How far `samples` lies from `low` to `high`; beyond 1 where it is larger than both.
fn way(low: &Take, high: &Take, samples: u32) -> f64 {
    let (from, to) = (f64::from(low.samples), f64::from(high.samples));
    match to > from {
        true => (f64::from(samples) - from) / (to - from),
        false => 0.0,
    }
}

/// Every interval is a straight line in samples; the piece's peak is the highest of them. Where the operations differ, the
/// peaks themselves are the line.
fn exact(low: &Take, high: &Take, samples: u32) -> f64 {
    let way = way(low, high, samples);
    let line =
        |(low, high): (&Moment, &Moment)| low.bytes as f64 + way * (high.bytes - low.bytes) as f64;
    match low.intervals.len() == high.intervals.len() {
        true => {
            let lines = low.intervals.iter().zip(&high.intervals).map(line);
            lines.fold(0.0, f64::max)
        }
        false => line((&fullest(low), &fullest(high))),
    }
}

/// What a piece of `samples` would take and give back of large blocks, in order: each size is a straight line in samples. Nothing
/// where the two recordings differ in more than sizes.
fn drawn(low: &Take, high: &Take, samples: u32) -> Option<Vec<HeapEvent>> {
    let way = way(low, high, samples);
    let grows = u64::from(high.samples / low.samples.max(1));
    let line = |low: HeapBlock, high: HeapBlock| HeapBlock {
        bytes: (low.bytes as f64 + way * (high.bytes - low.bytes) as f64) as u64,
        ..high
    };
    // What grows is as much larger in the one as its samples are more.
    let mut lows = large(&low.events, LARGE_BYTES).peekable();
    let mut highs = large(&high.events, grows * LARGE_BYTES);
    let mut drawn = Vec::new();
    let fits = |low: &HeapEvent, high: &HeapEvent| match (bytes(low), bytes(high)) {
        (Some(low), Some(high)) => (low..=grows * low).contains(&high),
        (low, high) => low == high,
    };
    for high in &mut highs {
        // Of one size whatever the piece, and too small for the other recording.
        let passed = |low: &&HeapEvent| bytes(low).is_some_and(|low| low < grows * LARGE_BYTES);
        while !lows.peek().is_some_and(|low| fits(low, high)) {
            lows.next_if(passed)?;
        }
        drawn.push(match (*lows.next()?, *high) {
            (HeapEvent::Allocated(low), HeapEvent::Allocated(high)) => {
                HeapEvent::Allocated(line(low, high))
            }
            (HeapEvent::Freed(low), HeapEvent::Freed(high)) => HeapEvent::Freed(line(low, high)),
            (HeapEvent::Operation, HeapEvent::Operation) => HeapEvent::Operation,
            _ => return None,
        });
    }
    Some(drawn)
}

/// Operations, and blocks of at least so many bytes.
fn large(events: &[HeapEvent], least_bytes: u64) -> impl Iterator<Item = &HeapEvent> {
    let large = move |event: &&HeapEvent| bytes(event).is_none_or(|bytes| bytes >= least_bytes);
    events.iter().filter(large)
}

fn bytes(event: &HeapEvent) -> Option<u64> {
    match event {
        HeapEvent::Allocated(block) | HeapEvent::Freed(block) => Some(block.bytes),
        HeapEvent::Operation => None,
    }
}

fn fullest(take: &Take) -> Moment {
    let fullest = take.intervals.iter().max_by_key(|moment| moment.bytes);
    fullest.cloned().unwrap_or_default()
}

/// A pool of power-of-two blocks that gives nothing back while a piece runs: by class, the most blocks in use at once.
fn pooled(low: &Take, high: &Take, samples: u32) -> f64 {
    let mut pool: BTreeMap<u64, i64> = BTreeMap::new();
    for (low, high) in pairs(low, high) {
        let mut classes: BTreeMap<u64, i64> = BTreeMap::new();
        for (bytes, count) in scaled(&low.0, low.1, &high.0, high.1, samples) {
            *classes.entry(bytes.next_power_of_two()).or_default() += count;
        }
        for (class, count) in classes {
            let most = pool.entry(class).or_default();
            *most = count.max(*most);
        }
    }
    let bytes = pool
        .into_iter()
        .map(|(class, count)| class as f64 * count as f64);
    bytes.sum()
}

type Sized = (BTreeMap<u64, i64>, u32);

fn pairs(low: &Take, high: &Take) -> Vec<(Sized, Sized)> {
    let sized = |moment: &Moment, take: &Take| (moment.blocks.clone(), take.samples);
    match low.intervals.len() == high.intervals.len() {
        true => (low.intervals.iter().zip(&high.intervals))
            .map(|(l, h)| (sized(l, low), sized(h, high)))
            .collect(),
        false => vec![(sized(&fullest(low), low), sized(&fullest(high), high))],
    }
}

/// The blocks of a piece of `samples`. A block either has one size whatever the piece, or one in proportion to it: of the
/// blocks of a size in the small take, as many grow as are missing among the blocks of that size in the large one.
fn scaled(
    low: &BTreeMap<u64, i64>,
    low_samples: u32,
    high: &BTreeMap<u64, i64>,
    high_samples: u32,
    samples: u32,
) -> Vec<(u64, i64)> {
    let to = |bytes: u64, samples: u32| {
        (bytes as f64 * f64::from(samples) / f64::from(low_samples)).round() as u64
    };
    if high_samples == low_samples {
        return low
            .iter()
            .map(|(&bytes, &count)| (to(bytes, samples), count.max(0)))
            .collect();
    }
    let mut left = high.clone();
    let mut blocks = Vec::with_capacity(low.len() + 1);
    for (&bytes, &count) in low {
        let here = left
            .get(&bytes)
            .copied()
            .unwrap_or(0)
            .clamp(0, count.max(0));
        let grown = count.max(0) - here;
        if let Some(count) = left.get_mut(&bytes) {
            *count -= here;
        }
        // Those that grew stand among the large take's larger sizes: not to be taken for blocks of one size there.
        if let Some(count) = left.get_mut(&to(bytes, high_samples)) {
            *count -= grown;
        }
        blocks.push((bytes, here));
        blocks.push((to(bytes, samples), grown));
    }
    // Blocks of the large take alone have a size of their own.
    blocks.extend(left.into_iter().filter(|(_, count)| *count > 0));
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use HeapEvent::Operation;

    /// The only block of its size.
    fn block(bytes: u64) -> HeapBlock {
        HeapBlock {
            bytes,
            number: bytes as usize,
            thread: 0,
        }
    }

    fn taken(bytes: u64) -> HeapEvent {
        HeapEvent::Allocated(block(bytes))
    }

    fn given(bytes: u64) -> HeapEvent {
        HeapEvent::Freed(block(bytes))
    }

    const KB: u64 = 1 << 10;

    /// A piece that keeps `kept` a sample, then makes gradients of 60 kB while it gives that back.
    fn recorded(samples: u64) -> Vec<HeapEvent> {
        let kept = 20 * KB * samples;
        vec![
            Operation,
            taken(kept),
            Operation,
            taken(5 * KB),
            given(5 * KB),
            Operation,
            given(kept),
            taken(60 * KB),
        ]
    }

    fn heap(sizes: &[u32]) -> Heap {
        let mut heap = Heap::default();
        for &samples in sizes {
            heap.add(samples, &recorded(u64::from(samples)));
        }
        heap
    }

    #[test]
    fn a_large_piece_may_peak_where_a_small_one_does_not() {
        let heap = heap(&[1, 2]);
        let check = |samples: u32, kb: u64| {
            assert_eq!(
                heap.peak_bytes(samples, Allocator::Exact),
                kb * KB,
                "{samples}"
            );
        };
        check(1, 60); // the gradients
        check(2, 60);
        check(3, 65); // what is kept, and 5 kB beside it
        check(16, 325);
    }

    #[test]
    fn between_and_beyond_the_rehearsed_sizes_intervals_are_straight_lines() {
        let mut heap = Heap::default();
        for samples in [1u64, 4, 8] {
            // Grows to four samples only.
            heap.add(
                samples as u32,
                &[Operation, taken(10 * KB * samples.min(4))],
            );
        }
        for (samples, kb) in [(1, 10), (2, 20), (4, 40), (6, 40), (8, 40), (64, 40)] {
            assert_eq!(
                heap.peak_bytes(samples, Allocator::Exact),
                kb * KB,
                "{samples}"
            );
        }
    }

    #[test]
    fn a_pool_of_powers_of_two_rounds_what_grows_and_keeps_what_does_not() {
        let heap = heap(&[1, 2]);
        // By class: 20 kB a sample, the gradients' 64, and the passing 8; blocks stay in the pool when given back.
        for (samples, kb) in [
            (1, 32 + 8 + 64),
            (3, 64 + 8),
            (4, 128 + 8 + 64),
            (5, 128 + 8 + 64),
            (7, 256 + 8 + 64),
        ] {
            assert_eq!(
                heap.peak_bytes(samples, Allocator::PowerOfTwo),
                kb * KB,
                "{samples}"
            );
        }
    }

    #[test]
    fn what_larger_pieces_leave_is_drawn_from_two_recordings() {
        // Up to 40 MB, which is more than a chunk.
        let piece = |samples: u64| {
            let (whole, half) = (1024 * KB * samples, 512 * KB * samples);
            let second = |bytes| HeapBlock {
                number: 1 + bytes as usize,
                ..block(bytes)
            };
            [
                taken(whole),
                taken(half),
                given(whole),
                HeapEvent::Allocated(second(half)),
                HeapEvent::Allocated(second(whole)),
            ]
        };
        let mut heap = Heap::beside(Vec::new());
        for samples in [1u32, 2] {
            heap.add(samples, &piece(u64::from(samples)));
        }
        for samples in [4, 16, 40] {
            let itself = holes_bytes(&[], &piece(u64::from(samples)), 1);
            assert_eq!(heap.holes_bytes(samples, 1), itself, "{samples}");
        }
        assert!(heap.holes_bytes(40, 1) > 2 * heap.holes_bytes(2, 1));
        // One event more: as much as the largest.
        heap.add(4, &[taken(4096 * KB), Operation, taken(4096 * KB)]);
        assert_eq!(heap.holes_bytes(40, 1), heap.holes_bytes(4, 1));
    }

    #[test]
    fn nothing_recorded_is_nothing_known() {
        assert_eq!(Heap::default().peak_bytes(4, Allocator::Exact), 0);
    }
}
