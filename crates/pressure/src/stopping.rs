//! The last rung: a clean end with a reason, while a checkpoint is on disk or still fits there. Knows no folder.

use crate::decision::Action;
use crate::sample::{Component, MemorySample};
use crate::state::State;
use crate::turn::{Turn, Verdict};
use crate::words::gb;

/// Since when there has been a reason to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ending {
    parked_since_ms: Option<u64>,
    disk_short_since_ms: Option<u64>,
    /// Free disk where checkpoints go, bytes, as told.
    pub(crate) disk_free_bytes: Option<u64>,
    /// Free disk when the run began, bytes.
    disk_at_start_bytes: Option<u64>,
}

impl Ending {
    /// The least that swap and checkpoints have, where it is known.
    pub(crate) fn disk_free(&self, sample: &MemorySample) -> Option<u64> {
        let known = [self.disk_free_bytes, sample.disk_free_bytes];
        known.into_iter().flatten().min()
    }
}

impl Turn<'_> {
    /// Whether the run is to end now, and why.
    pub(crate) fn stop(&self, state: &mut State) -> Option<Verdict> {
        self.parked_too_long(state)
            .or_else(|| self.disk_is_short(state))
    }

    fn parked_too_long(&self, state: &mut State) -> Option<Verdict> {
        let now = self.ask.sample.at_ms;
        if state.last_action != Action::Park {
            state.ending.parked_since_ms = None;
            return None;
        }
        let since = *state.ending.parked_since_ms.get_or_insert(now);
        (now >= since.saturating_add(self.policy.parked_most_ms)).then(|| {
            let reason = format!(
                "other apps have needed the memory for {}, as long as a parked run may wait",
                duration(now - since)
            );
            ended(Component::Headroom, reason)
        })
    }

    fn disk_is_short(&self, state: &mut State) -> Option<Verdict> {
        let sample = &self.ask.sample;
        let (now, free) = (sample.at_ms, state.ending.disk_free(sample)?);
        let ending = &mut state.ending;
        let begun = *ending.disk_at_start_bytes.get_or_insert(free);
        if free >= self.policy.disk_least_bytes.min(begun / 2) {
            ending.disk_short_since_ms = None;
            return None;
        }
        let since = *ending.disk_short_since_ms.get_or_insert(now);
        (now >= since + self.policy.disk_after_ms).then(|| {
            let reason = format!("only {} are free on the disk for checkpoints", gb(free));
            ended(Component::Disk, reason)
        })
    }
}

fn ended(cause: Component, reason: String) -> Verdict {
    Verdict {
        action: Action::Stop,
        ..Verdict::run(0, cause, reason)
    }
}

/// "2 h", "30 min", "45 s".
fn duration(ms: u64) -> String {
    match ms / 1_000 {
        seconds if seconds >= 7_200 => format!("{} h", seconds / 3_600),
        seconds if seconds >= 120 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
