//! The rung between giving caches back and a smaller micro-batch: samples are decoded less far ahead, and nothing decoded is
//! kept. It costs no split, so it comes first when memory falls and goes last when memory is back. Knows no loader.

use crate::sample::{Component, Level};
use crate::state::{State, Track};
use crate::turn::{Turn, Verdict};

impl Turn<'_> {
    /// What is spare goes before the micro-batch shrinks, once.
    pub(crate) fn shorten(
        &self,
        state: &mut State,
        track: &Track,
        (cause, why): (Component, &str),
    ) -> Option<Verdict> {
        self.give_spare_back(state).then(|| Verdict {
            release: true,
            ..Verdict::run(track.size, cause, why)
        })
    }

    /// Whether there was anything to give back.
    pub(crate) fn give_spare_back(&self, state: &mut State) -> bool {
        let possible = state.shortened.is_none() && self.ask.spare_bytes > 0;
        if possible {
            state.shortened = Some((self.ask.sample.at_ms, self.ask.spare_bytes));
        }
        possible
    }

    /// Memory has been free for a while, the micro-batch has nothing to grow to, and what was given back fits too.
    pub(crate) fn lengthen(&self, state: &mut State, track: &Track) -> Option<Verdict> {
        let (since, bytes) = state.shortened?;
        let now = self.ask.sample.at_ms;
        let rested = [Some(since), state.last_down_ms, state.last_up_ms]
            .into_iter()
            .flatten()
            .all(|at| now >= at + self.policy.quiet_ms);
        let room = self.growth_bytes().saturating_sub(bytes);
        let fits = self.fitting(track, room) >= track.size;
        if !rested || !fits || state.memory_reading.level() != Level::Normal {
            return None;
        }
        state.shortened = None;
        let seconds = (now - since) / 1_000;
        Some(Verdict::run(
            track.size,
            Component::Headroom,
            format!("memory has been free for {seconds} s"),
        ))
    }
}
