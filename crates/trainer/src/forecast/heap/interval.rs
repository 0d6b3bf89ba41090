//! A recording cut between its operations: the fullest moment of each interval. Knows no piece.

use std::collections::BTreeMap;
use tape::HeapEvent;

/// The fullest moment of one interval: blocks in use by size.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Moment {
    pub bytes: i64,
    pub blocks: BTreeMap<u64, i64>,
}

/// The fullest moment of each interval between two operations.
pub(super) fn intervals(events: &[HeapEvent]) -> Vec<Moment> {
    let mut done = Vec::new();
    let (mut live, mut blocks) = (0i64, BTreeMap::<u64, i64>::new());
    let fullest = fullest_moments(events);
    let mut next = fullest.into_iter().peekable();
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
            done.push(Moment {
                bytes: live,
                blocks: in_use.map(|(&bytes, &count)| (bytes, count)).collect(),
            });
        }
    }
    done
}

/// Index of the event after which each interval is at its fullest; the last interval is what follows the last operation.
fn fullest_moments(events: &[HeapEvent]) -> Vec<usize> {
    let (mut all, mut live) = (Vec::new(), 0i64);
    let mut best: Option<(i64, usize)> = None;
    for (at, event) in events.iter().enumerate() {
        match *event {
            HeapEvent::Allocated(block) => live += block.bytes as i64,
            HeapEvent::Freed(block) => live -= block.bytes as i64,
            HeapEvent::Operation => {
                all.extend(best.take().map(|(_, at)| at));
            }
        }
        if best.is_none_or(|(most, _)| live > most) {
            best = Some((live, at));
        }
    }
    all.extend(best.map(|(_, at)| at));
    all
}
