//! Waiting: pause where even one sample does not fit, park where the state itself does not. Knows no size above one.

use crate::budget::others_ahead;
use crate::decision::Action;
use crate::sample::Component;
use crate::state::{State, Waiting};
use crate::turn::{Turn, Verdict};
use crate::words::gb;

impl Turn<'_> {
    /// Whether to wait now, and for what.
    pub(crate) fn wait(&self, state: &mut State) -> Option<Verdict> {
        self.park(state).or_else(|| self.pause(state))
    }

    /// Footprint of the run without a piece, bytes. Pieces of one size do not tell it apart from what they take: there it is
    /// known once a pause has shown it, and a pause comes before any park. `None` knows nothing to give back.
    pub(crate) fn state_bytes(&self, state: &State) -> Option<u64> {
        let learnt = self.model.state_bytes(self.ask.kind);
        learnt.filter(|kept| *kept > 0).or(state.held_bytes)
    }

    fn park(&self, state: &mut State) -> Option<Verdict> {
        let sample = &self.ask.sample;
        let kept = self.state_bytes(state)?;
        let total = sample.total_bytes as f64;
        let used = sample.total_bytes.saturating_sub(sample.available_bytes);
        let others = used.saturating_sub(sample.own_bytes) as f64;
        let ahead = others_ahead(self.policy, state, others, self.policy.park_ahead_ms);
        let park = match state.waiting {
            Waiting::Parked => others + kept as f64 > self.policy.unpark_fraction * total,
            Waiting::No | Waiting::Paused => {
                used as f64 > self.policy.cancel_fraction * total
                    && ahead + kept as f64 > self.policy.park_fraction * total
            }
        };
        let reason = format!(
            "other apps need the {} that the model itself takes",
            gb(kept)
        );
        park.then(|| self.waiting(state, Waiting::Parked, reason))
    }

    fn pause(&self, state: &mut State) -> Option<Verdict> {
        let sample = &self.ask.sample;
        let needed = self
            .one_sample_bytes(state)
            .unwrap_or(sample.own_bytes.saturating_sub(self.ask.spare_bytes));
        let easier = (self.policy.continue_fraction * sample.total_bytes as f64) as u64;
        // A single sample that had to be cancelled once must fit properly before it is tried again.
        let failed = state
            .setback
            .is_some_and(|setback| setback.micro_batch <= 1 && !setback.refused);
        let to_continue = match failed {
            true => self.budget.machine_bytes,
            false => self.budget.pause_bytes.saturating_sub(easier),
        };
        let limit = match state.waiting {
            Waiting::No if !failed => self.budget.pause_bytes,
            _ => to_continue,
        };
        let free = (sample.available_bytes + needed).saturating_sub(to_continue);
        let reason = format!(
            "other apps need the memory. Continues by itself at about {} free",
            gb(free)
        );
        (needed > limit).then(|| self.waiting(state, Waiting::Paused, reason))
    }

    fn waiting(&self, state: &mut State, waiting: Waiting, reason: String) -> Verdict {
        let begins = state.waiting != waiting;
        state.waiting = waiting;
        self.fell(state);
        let track = state.track_mut(self.ask.kind);
        track.size = track.size.min(1);
        let action = if waiting == Waiting::Parked {
            Action::Park
        } else {
            Action::Pause
        };
        Verdict {
            action,
            release: begins,
            ..Verdict::run(0, Component::Headroom, reason)
        }
    }
}
