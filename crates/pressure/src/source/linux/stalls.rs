//! Time in which somebody waited for memory (PSI `some`), of the machine and of the own group: the larger counts. Differences
//! of the running totals: the averages that the kernel offers move every 2 s only.

use super::files::Kept;
use std::collections::VecDeque;

/// A stall is measured over this time, microseconds.
const WINDOW_US: u64 = 1_000_000;

/// Whose waiting is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Whose {
    Machine,
    Group,
}

/// One running total, and what it was within the last second.
pub(super) struct Stalls {
    pub(super) whose: Whose,
    total: Kept,
    /// `(microseconds since opened, stalled microseconds)`.
    seen: VecDeque<(u64, u64)>,
}

impl Stalls {
    /// Those of the files that can be read; some kernels offer the file and refuse its content.
    pub(super) fn of(
        whose: Whose,
        files: impl IntoIterator<Item = Kept>,
    ) -> impl Iterator<Item = Stalls> {
        let readable = |total: &Kept| total.field("some", "total=").is_ok();
        let opened = files.into_iter().filter(readable);
        opened.map(move |total| Stalls {
            whose,
            total,
            seen: VecDeque::new(),
        })
    }

    /// Share of the last second in which somebody waited, or nothing where the total can no longer be read.
    pub(super) fn fraction(&mut self, now_us: u64) -> Option<f64> {
        let total = self.total.field("some", "total=").ok()?;
        self.seen.push_back((now_us, total));
        while self.seen.len() > 2 && now_us - self.seen[1].0 >= WINDOW_US {
            self.seen.pop_front();
        }
        let (then, before) = *self.seen.front()?;
        // Over less than a tenth of a second a single stall would look like a flood.
        let span = (now_us - then).max(WINDOW_US / 10);
        Some((total.saturating_sub(before) as f64 / span as f64).min(1.0))
    }
}

/// The largest of these shares, and whose could no longer be read and is left out from now on.
pub(super) fn largest(all: &mut Vec<Stalls>, now_us: u64) -> (Option<f64>, Option<Whose>) {
    let (mut largest, mut lost): (Option<f64>, _) = (None, None);
    all.retain_mut(|stalls| {
        let fraction = stalls.fraction(now_us);
        largest = [largest, fraction].into_iter().flatten().reduce(f64::max);
        lost = lost.or(fraction.is_none().then_some(stalls.whose));
        fraction.is_some()
    });
    (largest, lost)
}
