//! Time in which at least one process waited for memory (PSI `some`), on the whole machine and in
//! Ebb's cgroup. Ebb uses the longer of the two. It computes both from the running totals, since
//! the kernel updates its averages only every 2 s.

use super::kernel_file::KernelFile;
use std::collections::VecDeque;

/// Stalls are measured over this time, in microseconds.
const WINDOW_US: u64 = 1_000_000;

/// Whose stalls are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum StallOwner {
    Machine,
    Cgroup,
}

/// One running total and its history over the last second.
pub(super) struct Stalls {
    pub(super) owner: StallOwner,
    total: KernelFile,
    /// `(microseconds since opened, stalled microseconds)`.
    history: VecDeque<(u64, u64)>,
}

impl Stalls {
    /// Opens the files that can be read; some kernels have the file but refuse its content.
    pub(super) fn open(
        owner: StallOwner,
        files: impl IntoIterator<Item = KernelFile>,
    ) -> impl Iterator<Item = Stalls> {
        let readable = |total: &KernelFile| total.field("some", "total=").is_ok();
        let opened = files.into_iter().filter(readable);
        opened.map(move |total| Stalls {
            owner,
            total,
            history: VecDeque::new(),
        })
    }

    /// Fraction of the last second in which a process waited; `None` if the total can no longer be
    /// read.
    pub(super) fn fraction(&mut self, now_us: u64) -> Option<f64> {
        let total = self.total.field("some", "total=").ok()?;
        self.history.push_back((now_us, total));
        while self.history.len() > 2 && now_us - self.history[1].0 >= WINDOW_US {
            self.history.pop_front();
        }
        let (then, before) = *self.history.front()?;
        // Over less than a tenth of a second a single stall would look like a flood.
        let span = (now_us - then).max(WINDOW_US / 10);
        Some((total.saturating_sub(before) as f64 / span as f64).min(1.0))
    }
}

/// The largest of these fractions, and the owner of a total that could no longer be read and is
/// removed.
pub(super) fn largest(all: &mut Vec<Stalls>, now_us: u64) -> (Option<f64>, Option<StallOwner>) {
    let (mut largest, mut lost): (Option<f64>, _) = (None, None);
    all.retain_mut(|stalls| {
        let fraction = stalls.fraction(now_us);
        largest = [largest, fraction].into_iter().flatten().reduce(f64::max);
        lost = lost.or(fraction.is_none().then_some(stalls.owner));
        fraction.is_some()
    });
    (largest, lost)
}
