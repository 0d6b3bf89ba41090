//! When the checkpoint is due that a park will rest on. Once memory is short, writing is slow and comes too late. It is written
//! when the system calls memory critical, when others leave little beside the state, when they are forecast to need even that before a write
//! would be done, and when waiting begins; not again within half a minute, which is all that a park may cost. Knows no file.

use crate::budget::others_ahead;
use crate::decision::Action;
use crate::sample::Level;
use crate::state::State;
use crate::turn::Turn;

/// Bytes a millisecond at which a checkpoint is taken to be written before one was: a slow built-in disk.
const DISK_BYTES_PER_MS: f64 = 1e6;
/// The forecast reaches so many times as far as writing takes, beyond a park's own.
const AHEAD: f64 = 1.5;
/// Share of RAM that others and the state take together, from which little is left: where the level of warning begins.
const LITTLE_LEFT: f64 = 0.85;

/// What was asked for, and what is known of writing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Keeping {
    /// There was a reason at the decision before.
    warned: bool,
    /// When a checkpoint was last asked for, or written for whatever reason.
    at_ms: Option<u64>,
    /// How long the last one took, milliseconds.
    took_ms: Option<f64>,
}

impl State {
    /// A checkpoint was written in `took_ms` milliseconds, for whatever reason; `at_ms` is the sample's clock.
    pub fn tell_checkpoint(&mut self, at_ms: u64, took_ms: f64) {
        self.keeping.at_ms = Some(at_ms);
        self.keeping.took_ms = Some(took_ms);
    }
}

impl Turn<'_> {
    /// Whether the last whole step is to be checkpointed before `action`. Asked once a decision.
    pub(crate) fn keep(&self, state: &mut State, action: Action) -> bool {
        let now = self.ask.sample.at_ms;
        let waits = action != Action::Run;
        // A warning that a smaller piece answers needs no checkpoint.
        let critical = self.ask.sample.kernel_level == Some(Level::Critical);
        let warns = waits || critical || self.little_is_left(state);
        let before = std::mem::replace(&mut state.keeping.warned, warns);
        let warned = warns && !before;
        let apart = self.policy.checkpoint_apart_ms;
        let rested = state.keeping.at_ms.is_none_or(|at| now >= at + apart);
        let due = rested && (warned || !waits && self.state_is_in_danger(state));
        if due {
            state.keeping.at_ms = Some(now);
        }
        due
    }

    /// Footprint of others, and of the run without a piece, in bytes.
    fn without_a_piece(&self, state: &State) -> Option<(f64, f64)> {
        let sample = &self.ask.sample;
        let kept = self.state_bytes(state)?;
        let used = sample.total_bytes.saturating_sub(sample.available_bytes);
        Some((used.saturating_sub(sample.own_bytes) as f64, kept as f64))
    }

    fn little_is_left(&self, state: &State) -> bool {
        let most = LITTLE_LEFT * self.ask.sample.total_bytes as f64;
        let both = self
            .without_a_piece(state)
            .map(|(others, kept)| others + kept);
        both.is_some_and(|bytes| bytes > most)
    }

    /// Before a checkpoint could be written, others may need what the model itself takes.
    fn state_is_in_danger(&self, state: &State) -> bool {
        let Some((others, kept)) = self.without_a_piece(state) else {
            return false;
        };
        let takes_ms = state.keeping.took_ms.unwrap_or(kept / DISK_BYTES_PER_MS);
        let horizon_ms = self.policy.park_ahead_ms as f64 + AHEAD * takes_ms;
        let ahead = others_ahead(self.policy, state, others, horizon_ms as u64);
        ahead + kept > self.policy.park_fraction * self.ask.sample.total_bytes as f64
    }
}
