//! Decide, before every piece, how many samples it may hold. Pure: time comes inside the sample, effects are the caller's.
//!
//! Down at once, by forecast; up only after calm, straight to the model's answer but not above the knee. Where even one
//! sample does not fit the pilot pauses; where the state itself does not fit it parks. Knows no tensor and no thread.

use crate::budget::{Budget, budget, others_ahead, refresh_margin};
use crate::decision::{Action, Ask, Change, Decision, Outcome, Piece};
use crate::fallback::{self, is_blind};
use crate::memory_model::MemoryModel;
use crate::policy::Policy;
use crate::sample::{Component, Level, MemorySample};
use crate::signal::{memory_pressure, pressure};
use crate::sizing::{Ceiling, TRIES, at_most, ceiling, cost, knee, largest_within};
use crate::state::{Setback, Speed, State, Waiting};
use crate::words::{gb, why_less};

/// Duration of a piece before one was measured, milliseconds.
const PIECE_MS: f64 = 500.0;
/// Pieces worked at a higher pressure than this are slowed by the system and say nothing of a size's speed.
const SLOWED_PRESSURE: f64 = 0.7;
/// Weight of the newest piece in a speed.
const SPEED_WEIGHT: f64 = 1.0 / 16.0;
/// Pieces without a measured peak after which the model is given up for this kind.
const UNMEASURED_PIECES: u32 = 4;
/// Caches are given back at a warning at most this often, milliseconds.
const RELEASE_APART_MS: u64 = 5_000;
/// The state is forecast this far before the pilot parks, milliseconds.
const PARK_AHEAD_MS: u64 = 1_000;

/// Takes a sample in without deciding anything. Feed every sample of the monitor: the forecast lives on them.
pub fn notice(policy: &Policy, mut state: State, sample: &MemorySample) -> State {
    state.reading = pressure(sample);
    state.memory_reading = memory_pressure(sample);
    state.shown.update(sample.at_ms, state.reading.value);
    if state
        .memory
        .update(sample.at_ms, state.memory_reading.value)
        != Level::Normal
    {
        state
            .tracks
            .iter_mut()
            .for_each(|(_, track)| track.calm_since_ms = None);
    }
    if !is_blind(sample) {
        state.remember(policy, sample);
        refresh_margin(policy, &mut state, sample.at_ms);
    }
    state
}

/// What to do next.
pub fn decide(policy: &Policy, state: State, ask: &Ask, model: &MemoryModel) -> (State, Decision) {
    let mut state = notice(policy, state, &ask.sample);
    let remaining = ask.remaining.len().max(1) as u32;
    let track = state.track_mut(ask.kind);
    track.batch = track.batch.max(remaining);
    if 2 * remaining >= track.batch && !ask.remaining.is_empty() {
        let total: u64 = ask.remaining.iter().map(|cost| cost.0).sum();
        track.sample_cost = total as f64 / f64::from(remaining);
    }
    let unmeasured = track.pieces >= UNMEASURED_PIECES && model.largest(ask.kind) == 0;
    let piece_cost = cost(track, track.size.max(1));
    let horizon_ms =
        state.piece_ms(ask.kind, piece_cost).unwrap_or(PIECE_MS) as u64 + policy.horizon_extra_ms;
    let turn = Turn {
        policy,
        ask,
        model,
        remaining,
        budget: budget(policy, &state, &ask.sample, horizon_ms),
    };
    let outcome = if let Some(size) = policy.fixed_micro_batch {
        turn.fixed(&mut state, size)
    } else if is_blind(&ask.sample) || unmeasured {
        turn.by_rules(&mut state)
    } else {
        turn.steer(&mut state)
    };
    let decision = turn.answer(&mut state, outcome);
    (state, decision)
}

/// Learns from a piece that ended. Report `Outcome::Cancelled` only where pressure cancelled it, not the user.
pub fn observe(
    policy: &Policy,
    mut state: State,
    mut model: MemoryModel,
    piece: &Piece,
) -> (State, MemoryModel) {
    model.learn(piece);
    let slowed = state.memory_reading.value >= SLOWED_PRESSURE;
    let track = state.track_mut(piece.kind);
    if piece.outcome == Outcome::Ok {
        track.pieces += 1;
        if !slowed && piece.cost > 0 && piece.ms > 0.0 {
            clock(
                &mut track.speeds,
                piece.micro_batch,
                piece.ms / piece.cost as f64,
            );
        }
        return (state, model);
    }
    let refused = piece.outcome == Outcome::Memory;
    if refused {
        track.refused = Some((piece.micro_batch, piece.at_ms));
        state.calm_needed_ms = longer_calm(policy, &state);
    }
    state.setback = Some(Setback {
        kind: piece.kind,
        micro_batch: piece.micro_batch,
        refused,
    });
    (state, model)
}

/// Why the running piece should be cancelled, if it should: the machine is over the critical line and Ebb over its budget.
pub fn should_cancel(policy: &Policy, state: &State, sample: &MemorySample) -> Option<String> {
    if is_blind(sample) || policy.fixed_micro_batch.is_some() {
        return None;
    }
    let used = sample.total_bytes.saturating_sub(sample.available_bytes);
    let over_line = used as f64 > policy.cancel_fraction * sample.total_bytes as f64;
    let critical = over_line || sample.kernel_level == Some(Level::Critical);
    let budget = budget(policy, state, sample, policy.horizon_extra_ms);
    (critical && sample.own_bytes > budget.bytes)
        .then(|| why_less(policy, state, sample, &budget).1)
}

/// One decision in the making.
struct Turn<'a> {
    policy: &'a Policy,
    ask: &'a Ask<'a>,
    model: &'a MemoryModel,
    remaining: u32,
    budget: Budget,
}

/// What one of the rules came to.
struct Verdict {
    action: Action,
    /// The size from now on; 0 while waiting.
    size: u32,
    /// Changed without need: counts against the changes of a minute.
    voluntary: bool,
    release: bool,
    cause: Component,
    reason: String,
}

impl Verdict {
    fn run(size: u32, cause: Component, reason: impl Into<String>) -> Self {
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
    fn fixed(&self, state: &mut State, size: u32) -> Verdict {
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
    fn by_rules(&self, state: &mut State) -> Verdict {
        let step = fallback::step(self.policy, state, self.ask);
        let release = step.release | self.critical_is_due(state);
        Verdict {
            release,
            voluntary: step.voluntary,
            ..Verdict::run(step.size, step.cause, step.reason)
        }
    }

    /// With a model: wait, shrink, or see whether there is room to grow.
    fn steer(&self, state: &mut State) -> Verdict {
        if let Some(wait) = self.wait(state) {
            return wait;
        }
        let came_back = std::mem::take(&mut state.waiting) != Waiting::No;
        let (cause, less) = why_less(self.policy, state, &self.ask.sample, &self.budget);
        let track = state.track_mut(self.ask.kind).clone();
        let fits = largest_within(self.model, self.ask.kind, &track, self.budget.bytes).max(1);
        if track.size == 0 {
            return self.start(&track);
        }
        let urgent = self.critical_is_due(state);
        let halve = urgent
            && matches!(
                state.memory_reading.cause,
                Component::Kernel | Component::System
            );
        let setback = state
            .setback
            .filter(|setback| setback.kind == self.ask.kind);
        let mut size = track.size.min(fits);
        if halve {
            size = size.min(at_most(track.batch, (track.size / 2).max(1)));
        }
        if let Some(setback) = setback {
            size = size.min(at_most(track.batch, (setback.micro_batch / 2).max(1)));
        }
        if came_back {
            let reason = format!("{} are free again", gb(self.ask.sample.available_bytes));
            return Verdict {
                release: urgent,
                ..Verdict::run(size, Component::Headroom, reason)
            };
        }
        if let Some(setback) = setback {
            let reason = if setback.refused {
                "an allocation was refused".into()
            } else {
                less
            };
            self.fell(state);
            return Verdict {
                release: true,
                ..Verdict::run(size, cause, reason)
            };
        }
        // A last, shorter piece that fits anyway is no reason to change the size: the next whole one will be.
        if size < track.size && size < self.remaining {
            self.fell(state);
            return Verdict {
                release: true,
                ..Verdict::run(size, cause, less)
            };
        }
        let grown = self.grow(state);
        Verdict {
            release: urgent | self.caches_are_due(state),
            ..grown
        }
    }

    /// The first piece of a kind: one sample, or what an already taught model allows.
    fn start(&self, track: &crate::state::Track) -> Verdict {
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
        let fits = largest_within(self.model, self.ask.kind, track, self.growth_bytes())
            .clamp(1, most.max(1));
        Verdict::run(
            fits,
            Component::Headroom,
            format!("{} are free", gb(self.ask.sample.available_bytes)),
        )
    }

    /// Pause and park.
    fn wait(&self, state: &mut State) -> Option<Verdict> {
        let sample = &self.ask.sample;
        let total = sample.total_bytes as f64;
        let others = sample
            .total_bytes
            .saturating_sub(sample.available_bytes)
            .saturating_sub(sample.own_bytes) as f64;
        let kept = self.model.state_bytes(self.ask.kind).unwrap_or(0);
        let used = sample.total_bytes.saturating_sub(sample.available_bytes) as f64;
        let ahead = others_ahead(self.policy, state, others, PARK_AHEAD_MS);
        let park = match state.waiting {
            Waiting::Parked => others + kept as f64 > self.policy.unpark_fraction * total,
            _ => {
                used > self.policy.cancel_fraction * total
                    && ahead + kept as f64 > self.policy.park_fraction * total
            }
        };
        // A parked process holds nothing, so what it would pause for is not there to be seen.
        if park && kept > 0 {
            let reason = format!(
                "other apps need the {} that the model itself takes",
                gb(kept)
            );
            return Some(self.waiting(state, Waiting::Parked, reason));
        }
        let one = cost(state.track_mut(self.ask.kind), 1);
        let needed = self
            .model
            .upper_bytes(self.ask.kind, one)
            .unwrap_or(sample.own_bytes);
        let cancelled_at_one = state
            .setback
            .is_some_and(|s| s.micro_batch <= 1 && !s.refused);
        let easier = (self.policy.continue_fraction * total) as u64;
        let limit = match state.waiting {
            Waiting::No if cancelled_at_one => self.budget.bytes.min(self.budget.pause_bytes),
            Waiting::No => self.budget.pause_bytes,
            _ => self.budget.pause_bytes.saturating_sub(easier),
        };
        if needed <= limit {
            return None;
        }
        let free =
            (sample.available_bytes + needed + easier).saturating_sub(self.budget.pause_bytes);
        let reason = format!(
            "other apps need the memory. Continues by itself at {} free",
            gb(free)
        );
        Some(self.waiting(state, Waiting::Paused, reason))
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

    /// Growth, the knee, or no change.
    fn grow(&self, state: &mut State) -> Verdict {
        let (policy, now) = (self.policy, self.ask.sample.at_ms);
        let track = state.track_mut(self.ask.kind).clone();
        let (most, why) = ceiling(policy, self.model, self.ask.kind, &track, now);
        let fits = largest_within(self.model, self.ask.kind, &track, self.growth_bytes());
        let up = fits.min(most);
        let hold = |reason: &str| Verdict::run(track.size, Component::Headroom, reason);
        if up <= track.size {
            self.settle(state, up);
            return match why {
                _ if track.size >= track.batch => hold("the whole batch is one piece"),
                Ceiling::Knee if most <= track.size && fits > most => {
                    self.lower_to_knee(state, &track)
                }
                Ceiling::Refused if fits > most => {
                    hold("a larger one was refused a short while ago")
                }
                _ => hold("a larger one would not fit"),
            };
        }
        // Only when a whole piece of the new size is left: a change is told with the size it has.
        if up > self.remaining || !state.may_change(policy, now) {
            return hold("memory is free");
        }
        if track.starting {
            let tried = track
                .speeds
                .iter()
                .find(|speed| speed.size == track.size)
                .map_or(0, |speed| speed.pieces);
            let enough = if track.size <= 2 { 1 } else { TRIES };
            if track.pieces == 0 || (tried < enough && state.memory_reading.value < SLOWED_PRESSURE)
            {
                return hold("measuring what it needs");
            }
            let reason = if self.model.is_ready(self.ask.kind) {
                "there is room for it"
            } else {
                "to measure what each sample needs"
            };
            return self.rise(state, up, reason.to_string());
        }
        let calm_needed_ms = state.calm_needed_ms.max(policy.grow_after_ms);
        let rested = state
            .last_up_ms
            .is_none_or(|at| now >= at + policy.grow_apart_ms);
        let normal = state.memory.level() == Level::Normal;
        let track = state.track_mut(self.ask.kind);
        if !normal {
            track.calm_since_ms = None;
            return hold("waiting for memory to stay free");
        }
        let calm_ms = now - *track.calm_since_ms.get_or_insert(now);
        if calm_ms < calm_needed_ms || !rested {
            return hold("waiting for memory to stay free");
        }
        self.rise(
            state,
            up,
            format!("memory has been free for {} s", calm_ms / 1_000),
        )
    }

    fn rise(&self, state: &mut State, size: u32, reason: String) -> Verdict {
        let now = self.ask.sample.at_ms;
        state.last_up_ms = Some(now);
        state.track_mut(self.ask.kind).calm_since_ms = Some(now);
        if state
            .last_down_ms
            .is_none_or(|at| now > at + self.policy.quiet_ms)
        {
            state.calm_needed_ms = 0;
        }
        Verdict {
            voluntary: true,
            ..Verdict::run(size, Component::Headroom, reason)
        }
    }

    /// There is nothing to grow to: the calm is over, and so is the slow start once the model can say so.
    fn settle(&self, state: &mut State, up: u32) {
        let ready = self.model.is_ready(self.ask.kind);
        let track = state.track_mut(self.ask.kind);
        track.calm_since_ms = None;
        let reached = track.size >= track.batch
            || (ready && up < self.model.largest(self.ask.kind).max(track.size + 1));
        track.starting &= !reached;
    }

    /// A size above the knee costs memory for nothing. A third of the tolerance, so that noise does not go back and forth.
    fn lower_to_knee(&self, state: &mut State, track: &crate::state::Track) -> Verdict {
        let now = self.ask.sample.at_ms;
        let clear =
            knee(track, self.policy.knee_fraction / 3.0).map(|knee| at_most(track.batch, knee));
        let rested = [state.last_up_ms, state.last_down_ms]
            .into_iter()
            .flatten()
            .all(|at| now >= at + self.policy.quiet_ms);
        let reason = "a larger micro-batch is no faster here";
        match clear {
            Some(knee)
                if knee < track.size
                    && knee < self.remaining
                    && rested
                    && state.may_change(self.policy, now) =>
            {
                state.last_up_ms = Some(now);
                Verdict {
                    voluntary: true,
                    release: true,
                    ..Verdict::run(knee, Component::Headroom, reason)
                }
            }
            _ => Verdict::run(track.size, Component::Headroom, reason),
        }
    }

    /// The micro-batch falls because it must: the slow start is over, and growth that is undone at once was wrong.
    fn fell(&self, state: &mut State) {
        let now = self.ask.sample.at_ms;
        if state
            .last_up_ms
            .is_some_and(|at| now <= at + self.policy.undone_ms)
            && state.last_down_ms <= state.last_up_ms
        {
            state.calm_needed_ms = longer_calm(self.policy, state);
        }
        state.last_down_ms = Some(now);
        let track = state.track_mut(self.ask.kind);
        track.calm_since_ms = None;
        track.starting = false;
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

    /// At a warning large caches are given back; the device must say what it holds.
    fn caches_are_due(&self, state: &State) -> bool {
        let sample = &self.ask.sample;
        let cached = sample
            .device_allocated_bytes
            .saturating_sub(sample.device_live_bytes);
        let rested = state
            .released_ms
            .is_none_or(|at| sample.at_ms >= at + RELEASE_APART_MS);
        state.memory.level() >= Level::Warning
            && rested
            && cached > self.policy.cache_bytes.max(sample.own_bytes / 10)
    }

    fn growth_bytes(&self) -> u64 {
        (self.policy.grow_fraction * self.budget.bytes as f64) as u64
    }

    /// Turns a verdict into the answer, and remembers it.
    fn answer(&self, state: &mut State, verdict: Verdict) -> Decision {
        let kind = self.ask.kind;
        let before = state.track_mut(kind).size;
        let new_kind = state.last_kind.replace(kind) != Some(kind);
        let was_waiting = std::mem::replace(&mut state.was_waiting, verdict.action != Action::Run);
        let setback = state
            .setback
            .take_if(|setback| setback.kind == kind && verdict.action == Action::Run);
        let change = match verdict.action {
            Action::Pause | Action::Park if was_waiting && state.last_action == verdict.action => {
                Change::Hold
            }
            Action::Pause => Change::Pause,
            Action::Park => Change::Park,
            Action::Run if was_waiting => Change::Continue,
            Action::Run if setback.is_some() => Change::Cancel,
            Action::Run if new_kind => Change::Start,
            Action::Run if verdict.size < before => Change::Shrink,
            Action::Run if verdict.size > before => Change::Grow,
            Action::Run => Change::Hold,
        };
        state.last_action = verdict.action;
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
        let micro_batch = self.piece(verdict.size);
        Decision {
            action: verdict.action,
            micro_batch,
            change,
            release_caches,
            predicted_peak_bytes: self.predicted(micro_batch).unwrap_or(0),
            budget_bytes: self.budget.bytes,
            cause: verdict.cause,
            reason: verdict.reason,
        }
    }

    /// The next piece: the size, the rest of the batch if that is shorter, and fewer where these samples are heavy.
    fn piece(&self, size: u32) -> u32 {
        let whole = size.min(self.remaining);
        if self.policy.fixed_micro_batch.is_some() || is_blind(&self.ask.sample) {
            return whole;
        }
        (1..=whole)
            .rev()
            .find(|&m| {
                m == 1
                    || self
                        .predicted(m)
                        .is_none_or(|peak| peak <= self.budget.bytes)
            })
            .unwrap_or(whole)
    }

    /// Predicted footprint with the next `micro_batch` samples.
    fn predicted(&self, micro_batch: u32) -> Option<u64> {
        let samples = self.ask.remaining.iter().take(micro_batch as usize);
        self.model
            .upper_bytes(self.ask.kind, samples.map(|cost| cost.0).sum())
            .filter(|_| micro_batch > 0)
    }
}

/// Twice the calm, up to the most.
fn longer_calm(policy: &Policy, state: &State) -> u64 {
    (2 * state.calm_needed_ms.max(policy.grow_after_ms)).min(policy.grow_after_most_ms)
}

/// Takes a piece's speed in. The first piece of a size touches new memory, so the second replaces it.
fn clock(speeds: &mut Vec<Speed>, size: u32, ms_per_cost: f64) {
    match speeds.iter_mut().find(|speed| speed.size == size) {
        None => speeds.push(Speed {
            size,
            ms_per_cost,
            pieces: 1,
        }),
        Some(speed) => {
            let weight = if speed.pieces == 1 {
                1.0
            } else {
                SPEED_WEIGHT.max(1.0 / f64::from(speed.pieces))
            };
            speed.ms_per_cost += weight * (ms_per_cost - speed.ms_per_cost);
            speed.pieces += 1;
        }
    }
}
