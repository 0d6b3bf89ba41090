//! The peak of the heap in each interval between two operations of a recording.

use std::collections::BTreeMap;
use tape::HeapEvent;

/// The blocks in use at the peak of one interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Peak {
    /// Bytes beyond those before the recording.
    pub bytes: i64,
    /// Number of blocks by size.
    pub blocks: BTreeMap<u64, i64>,
}

/// The peak of each interval between two operations.
pub(super) fn interval_peaks(events: &[HeapEvent]) -> Vec<Peak> {
    let mut peaks = Vec::new();
    let (mut live, mut blocks) = (0i64, BTreeMap::<u64, i64>::new());
    let mut next = peak_indices(events).into_iter().peekable();
    for (at, event) in events.iter().enumerate() {
        let (bytes, sign) = match *event {
            HeapEvent::Allocated(block) => (block.bytes, 1),
            HeapEvent::Freed(block) => (block.bytes, -1),
            HeapEvent::Operation => (0, 0),
        };
        live += sign * bytes as i64;
        if sign != 0 {
            *blocks.entry(bytes).or_default() += sign;
        }
        while next.next_if_eq(&at).is_some() {
            let in_use = blocks.iter().filter(|(_, count)| **count > 0);
            peaks.push(Peak {
                bytes: live,
                blocks: in_use.map(|(&bytes, &count)| (bytes, count)).collect(),
            });
        }
    }
    peaks
}

/// Index of the event after which each interval is at its peak. The last interval follows the last
/// operation.
fn peak_indices(events: &[HeapEvent]) -> Vec<usize> {
    let (mut all, mut live) = (Vec::new(), 0i64);
    let mut highest: Option<(i64, usize)> = None;
    for (at, event) in events.iter().enumerate() {
        match *event {
            HeapEvent::Allocated(block) => live += block.bytes as i64,
            HeapEvent::Freed(block) => live -= block.bytes as i64,
            HeapEvent::Operation => {
                all.extend(highest.take().map(|(_, at)| at));
            }
        }
        if highest.is_none_or(|(most, _)| live > most) {
            highest = Some((live, at));
        }
    }
    all.extend(highest.map(|(_, at)| at));
    all
}
