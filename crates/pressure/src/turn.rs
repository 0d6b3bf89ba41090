//! One decision in the making: which rule speaks, and what the answer is. Knows the machine only by its sample.

use crate::budget::Budget;
use crate::decision::{Action, Ask, Change, Decision, Prefetch};
use crate::fallback::{self, is_blind};
use crate::memory_model::MemoryModel;
use crate::policy::Policy;
use crate::rungs::Moved;
use crate::sample::{Component, Level};
use crate::sizing::{at_most, ceiling, cost, largest_within};
use crate::state::{Setback, State, Track, Waiting};
use crate::words::{gb, why_less};

/// Caches are given back at a warning at most this often, milliseconds.
const RELEASE_APART_MS: u64 = 5_000;

/// One decision in the making.
pub(crate) struct Turn<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) ask: &'a Ask<'a>,
    pub(crate) model: &'a MemoryModel,
    pub(crate) remaining: u32,
    pub(crate) budget: Budget,
    /// A rung beside the micro-batch that this decision takes or undoes.
    pub(crate) moved: Option<Moved>,
}

/// What one of the rules came to.
pub(crate) struct Verdict {
    pub(crate) action: Action,
    /// The size from now on; 0 while waiting.
    pub(crate) size: u32,
    /// Changed without need: counts against the changes of a minute.
    pub(crate) voluntary: bool,
    pub(crate) release: bool,
    pub(crate) cause: Component,
    pub(crate) reason: String,
}

impl Verdict {
    pub(crate) fn run(size: u32, cause: Component, reason: impl Into<String>) -> Self {
        Self {
            action: Action::Run,
            size,
            voluntary: false,
            release: false,
            cause,
            reason: reason.into(),
        }
    }
}

impl Turn<'_> {
    /// The user's own micro-batch.
    pub(crate) fn fixed(&self, state: &mut State, size: u32) -> Verdict {
        let release = self.critical_is_due(state);
        Verdict {
            release,
            ..Verdict::run(
                size.max(1),
                state.memory_reading.cause,
                "the micro-batch is fixed",
            )
        }
    }

    /// Without a model or a reading.
    pub(crate) fn by_rules(&self, state: &mut State) -> Verdict {
        let step = fallback::step(self.policy, state, self.ask);
        let release = step.release | self.critical_is_due(state);
        Verdict {
            release,
            voluntary: step.voluntary,
            ..Verdict::run(step.size, step.cause, step.reason)
        }
    }

    /// With a model: wait, shrink, or see whether there is room to grow.
    pub(crate) fn steer(&self, state: &mut State) -> Verdict {
        if let Some(wait) = self.wait(state) {
            return wait;
        }
        let came_back = std::mem::take(&mut state.waiting) != Waiting::No;
        let track = state.track_mut(self.ask.kind).clone();
        if track.size == 0 {
            return self.start(&track);
        }
        let urgent = self.critical_is_due(state);
        let (cause, less) = why_less(self.policy, state, &self.ask.sample, &self.budget);
        let setback = state
            .setback
            .filter(|setback| setback.kind == self.ask.kind);
        let size = self.allowed(state, &track, urgent, setback);
        if came_back {
            let reason = format!("{} are free again", gb(self.ask.sample.available_bytes));
            return Verdict {
                release: urgent,
                ..Verdict::run(size, Component::Headroom, reason)
            };
        }
        // A last, shorter piece that fits anyway is no reason to change the size: the next whole one will be.
        if setback.is_some() || (size < track.size && size < self.remaining) {
            if setback.is_none()
                && !urgent
                && let Some(first) = self.shorten(state, &track, (cause, &less))
            {
                return first;
            }
            self.fell(state);
            let refused = setback.is_some_and(|setback| setback.refused);
            let reason = if refused {
                "an allocation was refused".into()
            } else {
                less
            };
            return Verdict {
                release: true,
                ..Verdict::run(size, cause, reason)
            };
        }
        let verdict = self.grow(state);
        Verdict {
            release: verdict.release | urgent | self.caches_are_due(state),
            ..verdict
        }
    }

    /// The present size, or less where it must be less.
    fn allowed(&self, state: &State, track: &Track, urgent: bool, setback: Option<Setback>) -> u32 {
        let fits = largest_within(self.model, self.ask.kind, track, self.budget.bytes).max(1);
        let half = |size: u32| at_most(track.batch, (size / 2).max(1));
        let slow = matches!(
            state.memory_reading.cause,
            Component::Kernel | Component::System
        );
        let urgent = if urgent && slow {
            half(track.size)
        } else {
            u32::MAX
        };
        let setback = setback.map_or(u32::MAX, |setback| half(setback.micro_batch));
        track.size.min(fits).min(urgent).min(setback)
    }

    /// The first piece of a kind: one sample, or what an already taught model allows.
    fn start(&self, track: &Track) -> Verdict {
        if !self.model.is_ready(self.ask.kind) {
            return Verdict::run(
                1,
                Component::Headroom,
                "one sample first, to measure what it needs",
            );
        }
        let (most, _) = ceiling(
            self.policy,
            self.model,
            self.ask.kind,
            track,
            self.ask.sample.at_ms,
        );
        let (most, room) = match track.earlier_size {
            0 => (most, self.growth_bytes()),
            // What was worked before needs no room to grow into.
            earlier => (at_most(track.batch, earlier), self.budget.bytes),
        };
        let fits = largest_within(self.model, self.ask.kind, track, room).clamp(1, most.max(1));
        let before = if fits == track.earlier_size {
            "as before, "
        } else {
            ""
        };
        Verdict::run(
            fits,
            Component::Headroom,
            format!("{before}{} are free", gb(self.ask.sample.available_bytes)),
        )
    }

    /// The largest size of this kind within `bytes`.
    pub(crate) fn fitting(&self, track: &Track, bytes: u64) -> u32 {
        largest_within(self.model, self.ask.kind, track, bytes)
    }

    /// The micro-batch falls because it must: the slow start is over, and growth that is undone at once was wrong.
    pub(crate) fn fell(&self, state: &mut State) {
        let now = self.ask.sample.at_ms;
        if state
            .last_up_ms
            .is_some_and(|at| now <= at + self.policy.undone_ms)
            && state.last_down_ms <= state.last_up_ms
        {
            state.calm_needed_ms = longer_calm(self.policy, state);
        }
        state.last_down_ms = Some(now);
        self.give_spare_back(state);
        let track = state.track_mut(self.ask.kind);
        track.calm_since_ms = None;
        track.starting = false;
        track.needed = None;
    }

    /// A critical sample is answered at once, and again after a while if it stays.
    fn critical_is_due(&self, state: &mut State) -> bool {
        let now = self.ask.sample.at_ms;
        let rested = state
            .critical_answered_ms
            .is_none_or(|at| now >= at + self.policy.critical_again_ms);
        let due = state.memory_reading.level() == Level::Critical && rested;
        if due {
            state.critical_answered_ms = Some(now);
        }
        due
    }

    /// Caches that stand above the budget are given back, and large ones at a warning or when the device holds more than
    /// its soft share; it must say what it holds. What pieces of late have needed is needed again: that is no cache.
    fn caches_are_due(&self, state: &State) -> bool {
        let sample = &self.ask.sample;
        let cached = sample
            .device_allocated_bytes
            .saturating_sub(sample.device_live_bytes);
        let needed = state.track(self.ask.kind).and_then(|track| track.needed);
        let idle = match needed {
            Some((peak, _)) => cached.min(sample.own_bytes.saturating_sub(peak)),
            None => cached,
        };
        let rested = |ms: u64| state.released_ms.is_none_or(|at| sample.at_ms >= at + ms);
        let slack = (self.policy.margin_least * sample.total_bytes as f64) as u64;
        let over = sample.own_bytes > self.budget.bytes + self.ask.spare_bytes + slack;
        let soft = self.policy.device_soft_fraction * sample.device_limit_bytes as f64;
        let crowded = sample.device_limit_bytes > 0 && sample.device_allocated_bytes as f64 > soft;
        let wanted = crowded || state.memory_reading.level() >= Level::Warning;
        let large = idle > self.policy.cache_bytes.max(sample.own_bytes / 10);
        over && rested(self.policy.critical_again_ms) || wanted && large && rested(RELEASE_APART_MS)
    }

    pub(crate) fn growth_bytes(&self) -> u64 {
        (self.policy.grow_fraction * self.budget.bytes as f64) as u64
    }

    /// Turns a verdict into the answer, and remembers it.
    pub(crate) fn answer(&self, state: &mut State, verdict: Verdict) -> Decision {
        let kind = self.ask.kind;
        let before = state.track_mut(kind).size;
        let new_kind = state.last_kind.replace(kind) != Some(kind);
        let before_action = std::mem::replace(&mut state.last_action, verdict.action);
        let prefetch = match state.shortened {
            Some(_) => Prefetch::Short,
            None => Prefetch::Long,
        };
        let moved = std::mem::replace(&mut state.last_prefetch, prefetch) != prefetch;
        let setback = state
            .setback
            .take_if(|setback| setback.kind == kind && verdict.action == Action::Run);
        let change = match verdict.action {
            Action::Pause if before_action == verdict.action && self.moved.is_none() => {
                Change::Hold
            }
            Action::Park if before_action == verdict.action => Change::Hold,
            Action::Park => Change::Park,
            Action::Stop => Change::Stop,
            Action::Run | Action::Pause if let Some(moved) = &self.moved => moved.change,
            Action::Pause => Change::Pause,
            Action::Run if before_action != Action::Run => Change::Continue,
            Action::Run if setback.is_some() => Change::Cancel,
            Action::Run if moved && verdict.size == before => Change::Prefetch,
            Action::Run if new_kind => Change::Start,
            Action::Run if verdict.size < before => Change::Shrink,
            Action::Run if verdict.size > before => Change::Grow,
            Action::Run => Change::Hold,
        };
        // What is given back before this piece is the piece's to take.
        let freed = match state.shortened {
            Some((at_ms, bytes)) if at_ms == self.ask.sample.at_ms => bytes,
            _ => 0,
        };
        if verdict.action == Action::Run {
            state.track_mut(kind).size = verdict.size;
        }
        if verdict.voluntary {
            state.count_change(self.ask.sample.at_ms);
        }
        let release_caches = verdict.release || new_kind && before > 0;
        if release_caches {
            state.released_ms = Some(self.ask.sample.at_ms);
        }
        let freed = freed + self.moved.as_ref().map_or(0, |moved| moved.freed_bytes);
        let told = self.moved.as_ref().filter(|moved| moved.change == change);
        let reason = told.map_or(verdict.reason, |moved| moved.reason.clone());
        let ordinary = cost(state.track_mut(kind), verdict.size);
        let most = self.piece(verdict.size, freed, ordinary);
        // What is left goes in equal pieces, which costs no piece more; a change is told with the size it has.
        let micro_batch = match change {
            Change::Hold if most > 0 && self.policy.fixed_micro_batch.is_none() => {
                self.remaining.div_ceil(self.remaining.div_ceil(most))
            }
            _ => most,
        };
        state.last_micro_batch = micro_batch;
        Decision {
            action: verdict.action,
            micro_batch,
            change,
            release_caches,
            checkpoint_first: false,
            prefetch,
            checkpoint_blocks: state.rungs.blocks_of(kind),
            moments: state.rungs.moments,
            predicted_peak_bytes: self.predicted(micro_batch).map_or(0, |peak| {
                (peak + self.ask.spare_bytes).saturating_sub(freed)
            }),
            budget_bytes: self.budget.bytes + self.ask.spare_bytes,
            cause: verdict.cause,
            reason,
        }
    }

    /// The next piece: the size, the rest of the batch if that is shorter, and fewer where these samples are heavy.
    fn piece(&self, size: u32, freed_bytes: u64, ordinary_cost: u64) -> u32 {
        let whole = size.min(self.remaining);
        if self.policy.fixed_micro_batch.is_some() || is_blind(&self.ask.sample) {
            return whole;
        }
        let room = self.budget.bytes + freed_bytes;
        let heaviest = (self.policy.heavy_factor * ordinary_cost as f64) as u64;
        let fits = |m: &u32| {
            let light = self.cost(*m) <= heaviest;
            *m == 1 || light && self.predicted(*m).is_none_or(|peak| peak <= room)
        };
        (1..=whole).rev().find(fits).unwrap_or(whole)
    }

    /// Cost of the next `micro_batch` samples.
    fn cost(&self, micro_batch: u32) -> u64 {
        let samples = self.ask.remaining.iter().take(micro_batch as usize);
        samples.map(|cost| cost.0).sum()
    }

    /// Predicted footprint with the next `micro_batch` samples.
    fn predicted(&self, micro_batch: u32) -> Option<u64> {
        self.model
            .upper_bytes(self.ask.kind, self.cost(micro_batch))
            .filter(|_| micro_batch > 0)
    }
}

/// Twice the calm, up to the most.
fn longer_calm(policy: &Policy, state: &State) -> u64 {
    (2 * state.calm_needed_ms.max(policy.grow_after_ms)).min(policy.grow_after_most_ms)
}
