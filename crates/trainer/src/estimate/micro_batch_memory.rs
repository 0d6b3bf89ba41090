//! The heap that a micro-batch takes, as a function of its samples. It is measured for a few sizes,
//! one interval between two operations at a time, since a large micro-batch may peak in another
//! operation than a small one.

mod interval_peaks;

use interval_peaks::{Peak, interval_peaks};
use pressure::Allocator;
use std::collections::BTreeMap;
use tape::HeapEvent;

/// The dry run of one size.
#[derive(Debug, Clone, PartialEq)]
struct Recording {
    samples: u32,
    intervals: Vec<Peak>,
}

/// The heap of micro-batches of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct HeapProfile {
    /// By samples, smallest first.
    recordings: Vec<Recording>,
}

impl HeapProfile {
    /// Adds the recording of a micro-batch that is larger than those before.
    pub fn add(&mut self, samples: u32, events: &[HeapEvent]) {
        self.recordings.push(Recording {
            samples,
            intervals: interval_peaks(events),
        });
    }

    /// Peak of a micro-batch of `samples`, in bytes beyond those before it; 0 if nothing was
    /// recorded.
    ///
    /// A sample of another length counts as a part of a sample, or as several.
    pub fn peak_bytes(&self, samples: impl Into<f64>, allocator: Allocator) -> u64 {
        let samples = samples.into();
        let Some((low, high)) = self.around(samples) else {
            return 0;
        };
        let peak = match allocator {
            Allocator::Exact => exact(low, high, samples),
            Allocator::PowerOfTwo => pooled(low, high, samples, u64::next_power_of_two),
        };
        peak.max(0.0) as u64
    }

    /// The part of the peak of a micro-batch of `samples` that grows with its samples, in bytes; 0
    /// if fewer than two sizes were recorded. The rest are mainly gradients of the parameters.
    pub fn growing_bytes(&self, samples: impl Into<f64>) -> u64 {
        let samples = samples.into();
        let Some((low, high)) = self.around(samples) else {
            return 0;
        };
        let grown = f64::from(high.samples) - f64::from(low.samples);
        let slope = |low: &Peak, high: &Peak| (high.bytes - low.bytes) as f64 / grown.max(1.0);
        let slope = if low.intervals.len() == high.intervals.len() {
            let pairs = low.intervals.iter().zip(&high.intervals);
            pairs
                .map(|(low, high)| slope(low, high))
                .fold(0.0, f64::max)
        } else {
            slope(&highest(low), &highest(high)).max(0.0)
        };
        (slope * samples) as u64
    }

    /// Bytes beyond the peak that an allocator would hold which reuses a freed block only for
    /// another one of the same size; 0 if nothing was recorded.
    pub fn unreused_bytes(&self, samples: impl Into<f64>) -> u64 {
        let samples = samples.into();
        let Some((low, high)) = self.around(samples) else {
            return 0;
        };
        let held = pooled(low, high, samples, |bytes| bytes);
        (held - exact(low, high, samples)).max(0.0) as u64
    }

    /// The two recordings around a size, or the last two.
    fn around(&self, samples: f64) -> Option<(&Recording, &Recording)> {
        let mut sizes = self.recordings.iter();
        let above = sizes.position(|recording| f64::from(recording.samples) >= samples);
        let last = self.recordings.len().saturating_sub(1);
        let high = above.unwrap_or(last).max(1);
        match self.recordings.as_slice() {
            [] => None,
            [only] => Some((only, only)),
            recordings => Some((&recordings[high - 1], &recordings[high])),
        }
    }
}

/// Position of `samples` between `low` (0) and `high` (1); larger than 1 beyond both.
fn position(low: &Recording, high: &Recording, samples: f64) -> f64 {
    let (from, to) = (f64::from(low.samples), f64::from(high.samples));
    if to > from {
        (samples - from) / (to - from)
    } else {
        0.0
    }
}

/// The peak memory of `samples` samples. The peak of each interval is a linear function of the
/// samples, and the highest one is returned. If the recordings have different intervals, their
/// highest peaks are interpolated.
fn exact(low: &Recording, high: &Recording, samples: f64) -> f64 {
    let position = position(low, high, samples);
    let line =
        |low: &Peak, high: &Peak| low.bytes as f64 + position * (high.bytes - low.bytes) as f64;
    if low.intervals.len() == high.intervals.len() {
        let pairs = low.intervals.iter().zip(&high.intervals);
        pairs.map(|(low, high)| line(low, high)).fold(0.0, f64::max)
    } else {
        line(&highest(low), &highest(high))
    }
}

fn highest(recording: &Recording) -> Peak {
    let highest = recording.intervals.iter().max_by_key(|peak| peak.bytes);
    highest.cloned().unwrap_or_default()
}

/// Bytes of a pool of blocks that gives nothing back while a micro-batch runs: for
/// each size class, the most blocks in use at once.
fn pooled(low: &Recording, high: &Recording, samples: f64, size_class: impl Fn(u64) -> u64) -> f64 {
    let mut pool: BTreeMap<u64, i64> = BTreeMap::new();
    let mut add = |low_peak: &Peak, high_peak: &Peak| {
        let mut classes: BTreeMap<u64, i64> = BTreeMap::new();
        let low = Blocks {
            counts: &low_peak.blocks,
            samples: low.samples,
        };
        let high = Blocks {
            counts: &high_peak.blocks,
            samples: high.samples,
        };
        for (bytes, count) in scaled(low, high, samples) {
            *classes.entry(size_class(bytes)).or_default() += count;
        }
        for (class, count) in classes {
            let most = pool.entry(class).or_default();
            *most = count.max(*most);
        }
    };
    if low.intervals.len() == high.intervals.len() {
        for (low, high) in low.intervals.iter().zip(&high.intervals) {
            add(low, high);
        }
    } else {
        add(&highest(low), &highest(high));
    }
    let bytes = pool
        .into_iter()
        .map(|(class, count)| class as f64 * count as f64);
    bytes.sum()
}

/// Number of blocks by size, in a micro-batch of `samples`.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    counts: &'a BTreeMap<u64, i64>,
    samples: u32,
}

/// The blocks of a micro-batch of `samples`, as sizes and counts. A block either has a fixed size
/// or one in proportion to the samples: of the blocks of one size in `low`, as many grow as are
/// missing among the blocks of that size in `high`.
fn scaled(low: Blocks, high: Blocks, samples: f64) -> Vec<(u64, i64)> {
    let scale =
        |bytes: u64, samples: f64| (bytes as f64 * samples / f64::from(low.samples)).round() as u64;
    if high.samples == low.samples {
        return low
            .counts
            .iter()
            .map(|(&bytes, &count)| (scale(bytes, samples), count.max(0)))
            .collect();
    }
    let mut left = high.counts.clone();
    let mut blocks = Vec::with_capacity(low.counts.len() + 1);
    for (&bytes, &count) in low.counts {
        let fixed = left
            .get(&bytes)
            .copied()
            .unwrap_or(0)
            .clamp(0, count.max(0));
        let grown = count.max(0) - fixed;
        if let Some(count) = left.get_mut(&bytes) {
            *count -= fixed;
        }
        // These are among the larger sizes of `high` and must not count as fixed blocks there.
        if let Some(count) = left.get_mut(&scale(bytes, f64::from(high.samples))) {
            *count -= grown;
        }
        blocks.push((bytes, fixed));
        blocks.push((scale(bytes, samples), grown));
    }
    // What is left is only in `high` and has a fixed size.
    blocks.extend(left.into_iter().filter(|(_, count)| *count > 0));
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use HeapEvent::Operation;
    use tape::HeapBlock;

    /// A block whose size no other block has.
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

    /// A micro-batch that saves 20 kB per sample, and frees them before it allocates gradients of
    /// 60 kB.
    fn recorded(samples: u64) -> Vec<HeapEvent> {
        let saved = 20 * KB * samples;
        vec![
            Operation,
            taken(saved),
            Operation,
            taken(5 * KB),
            given(5 * KB),
            Operation,
            given(saved),
            taken(60 * KB),
        ]
    }

    fn profile(sizes: &[u32]) -> HeapProfile {
        let mut heap = HeapProfile::default();
        for &samples in sizes {
            heap.add(samples, &recorded(u64::from(samples)));
        }
        heap
    }

    #[test]
    fn a_large_micro_batch_may_peak_in_another_operation() {
        let heap = profile(&[1, 2]);
        let check = |samples: u32, kb: u64| {
            assert_eq!(
                heap.peak_bytes(samples, Allocator::Exact),
                kb * KB,
                "{samples}"
            );
        };
        check(1, 60); // the gradients
        check(2, 60);
        check(3, 65); // the saved bytes and 5 kB
        check(16, 325);
    }

    #[test]
    fn a_sample_of_half_the_length_is_half_a_sample() {
        let heap = profile(&[1, 2]);
        for (samples, kb) in [(0.5, 60), (1.5, 60), (2.5, 60), (3.5, 75)] {
            let peak = heap.peak_bytes(samples, Allocator::Exact);
            assert_eq!(peak, kb * KB, "{samples}");
        }
        let halves = heap.peak_bytes(3.5, Allocator::PowerOfTwo);
        assert_eq!(halves, (128 + 8 + 64) * KB, "70 kB are rounded up");
    }

    #[test]
    fn gradients_do_not_grow_with_the_samples() {
        let heap = profile(&[1, 2]);
        for (samples, kb) in [(1, 20), (3, 60), (16, 320)] {
            assert_eq!(heap.growing_bytes(samples), kb * KB, "{samples}");
        }
        assert_eq!(HeapProfile::default().growing_bytes(4), 0);
    }

    #[test]
    fn intervals_are_linear_between_and_beyond_the_measured_sizes() {
        let mut heap = HeapProfile::default();
        for samples in [1u64, 4, 8] {
            // Grows up to four samples.
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
    fn a_power_of_two_pool_rounds_every_block_and_keeps_it() {
        let heap = profile(&[1, 2]);
        // Size classes of 20 kB per sample, of the gradients' 60 kB, and of the temporary 5 kB.
        // Freed blocks stay in the pool.
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
    fn blocks_of_other_sizes_are_not_reused() {
        let heap = profile(&[1, 2]);
        // 20 kB per sample, gradients of 60 kB and a temporary 5 kB. The peak has some of them.
        for (samples, kb) in [(4, 80 + 5 + 60 - 85), (16, 320 + 5 + 60 - 325)] {
            assert_eq!(heap.unreused_bytes(samples), kb * KB, "{samples}");
        }
    }

    #[test]
    fn a_profile_without_recordings_takes_nothing() {
        assert_eq!(HeapProfile::default().peak_bytes(4, Allocator::Exact), 0);
    }
}
