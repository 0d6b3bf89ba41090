//! Rules: start small, grow fast while everything is new, later only after calm, and never beyond
//! the throughput plateau.

use crate::decision_context::{DecisionContext, RuleOutcome, VoluntaryChanges};
use crate::memory_sample::Component;
use crate::micro_batch_sizes::{GrowthLimit, Speed, Track, growth_limit, largest_up_to};
use crate::policy::{GAIN_MIN_MICRO_BATCHES, PROBE, SPEED_MIN_MICRO_BATCHES, WORTHWHILE_GROWTH};
use format::format_bytes;

/// The reason to stay at the throughput plateau.
const NO_FASTER: &str = "a larger micro-batch is no faster here";
/// The reason to return to the throughput plateau.
const AS_FAST: &str = "this size is as fast as a larger one and needs less memory";

/// The reason to wait for a measurement.
const MEASURING: &str = "measuring how much memory this micro-batch size needs";

/// The reason to grow beyond a size that was chosen for its speed.
const FASTER: &str = "a larger micro-batch has proved to be faster here";

/// The reasons to put growth off.
const FEW_LEFT: &str = "too few samples of the step are left for a larger micro-batch";
const CHANGED_OFTEN: &str = "the micro-batch has changed several times within a minute";
const SOON: &str = "a larger micro-batch will be tried soon";

/// The reason to grow if memory was not short before.
const ROOM_FOR_MORE: &str = "there is memory for a larger micro-batch";

/// What growth remembers of earlier changes of size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    grown_ms: Option<u64>,
    /// When a lack of memory last made the micro-batch smaller.
    shrunk_ms: Option<u64>,
    /// When a size was last lowered to the throughput plateau.
    lowered_ms: Option<u64>,
    /// Calm required before growing, in milliseconds; 0 means the policy's.
    calm_needed_ms: u64,
}

impl State {
    /// When the size last changed.
    pub(crate) fn resized_ms(&self) -> Option<u64> {
        self.grown_ms.max(self.shrunk_ms).max(self.lowered_ms)
    }

    /// Records that lack of memory made the micro-batch smaller. If this reverts a recent growth,
    /// the required calm period doubles.
    pub(crate) fn record_shrink(&mut self, ctx: &DecisionContext) {
        let (policy, now_ms) = (ctx.policy, ctx.sample.at_ms);
        let grown_lately = self
            .grown_ms
            .is_some_and(|at| now_ms <= at + policy.revert_window_ms);
        if grown_lately && self.shrunk_ms <= self.grown_ms {
            let doubled = 2 * self.calm_needed_ms.max(policy.grow_after_ms);
            self.calm_needed_ms = doubled.min(policy.max_grow_after_ms);
        }
        self.shrunk_ms = Some(now_ms);
    }

    fn grow(&mut self, now_ms: u64, size: u32, reason: String) -> RuleOutcome {
        self.grown_ms = Some(now_ms);
        RuleOutcome {
            voluntary: true,
            ..RuleOutcome::run(size, Component::Headroom, reason)
        }
    }
}

/// The size that growth aims at.
pub(crate) struct Target {
    /// The largest size that fits into memory.
    fits: u32,
    /// The largest size that anything else allows, and what limits it.
    most: u32,
    limit: GrowthLimit,
}

impl Target {
    pub(crate) fn new(ctx: &DecisionContext, track: &Track) -> Self {
        let (most, limit) = growth_limit(ctx.policy, ctx.model, ctx.kind, track, ctx.sample.at_ms);
        let fits = ctx.largest_within(track, ctx.growth_bytes());
        Self { fits, most, limit }
    }

    fn size(&self) -> u32 {
        self.fits.min(self.most)
    }

    pub(crate) fn is_larger(&self, track: &Track) -> bool {
        self.size() > track.size
    }

    /// Whether memory keeps the micro-batch below the whole batch.
    pub(crate) fn memory_limits(&self, track: &Track) -> bool {
        self.fits <= track.size && track.size < track.batch
    }
}

/// The first micro-batch of a kind: one sample, or as much as a trained model allows.
pub(crate) fn start(ctx: &DecisionContext, track: &Track) -> Option<RuleOutcome> {
    if track.size > 0 {
        return None;
    }
    if !ctx.model.is_ready(ctx.kind) {
        let reason = "the first micro-batch measures how much memory one sample needs";
        return Some(RuleOutcome::run(1, Component::Headroom, reason));
    }
    let (most, available) = if track.earlier_size == 0 {
        let now_ms = ctx.sample.at_ms;
        let (most, _) = growth_limit(ctx.policy, ctx.model, ctx.kind, track, now_ms);
        (most, ctx.growth_bytes())
    } else {
        // A size that ran before needs no extra margin.
        let most = largest_up_to(track.batch, track.earlier_size);
        (most, ctx.budget.bytes)
    };
    let size = ctx.largest_within(track, available).clamp(1, most.max(1));
    let as_before = if size == track.earlier_size {
        "same size as before, "
    } else {
        ""
    };
    let free = format_bytes(ctx.sample.available_bytes);
    let reason = format!("{as_before}{free} is free");
    Some(RuleOutcome::run(size, Component::Headroom, reason))
}

/// If there is nothing to grow to, the calm ends, and so does the slow start once the model is
/// ready.
pub(crate) fn settle(ctx: &DecisionContext, track: &mut Track, target: &Target) {
    if target.is_larger(track) {
        return;
    }
    let ready = ctx.model.is_ready(ctx.kind);
    track.calm_since_ms = None;
    track.starting &= !ready && track.size < track.batch;
}

/// Grows to the target: fast during the slow start, later only after calm.
pub(crate) fn grow(
    ctx: &DecisionContext,
    own: &mut State,
    track: &mut Track,
    target: &Target,
    changes: &VoluntaryChanges,
) -> Option<RuleOutcome> {
    if !target.is_larger(track) {
        return None;
    }
    // Grow only if a whole micro-batch of the new size is left, since a change is reported with its
    // size. A size that is far too small does not wait for the end of the batch.
    let size = target.size().min(largest_up_to(track.batch, ctx.remaining));
    // Nor may the rest be so short that its micro-batch would be slow.
    let rest = ctx.remaining.saturating_sub(size);
    let leaves_little = rest > 0 && 2 * rest < size && !track.starting;
    let worthwhile =
        size == target.size() && !leaves_little || size / WORTHWHILE_GROWTH >= track.size;
    if !worthwhile {
        return Some(hold(track, FEW_LEFT));
    }
    if !changes.are_allowed(ctx.policy, ctx.sample.at_ms) {
        return Some(hold(track, CHANGED_OFTEN));
    }
    Some(if track.starting {
        grow_at_start(ctx, own, track, size)
    } else {
        grow_after_calm(ctx, own, track, size)
    })
}

/// The slow start waits only for measurements.
fn grow_at_start(ctx: &DecisionContext, own: &mut State, track: &Track, size: u32) -> RuleOutcome {
    let tried = track.speeds.iter().find(|speed| speed.size == track.size);
    let tried = tried.map_or(0, |speed| speed.micro_batches);
    let enough = if track.size <= PROBE {
        1
    } else {
        SPEED_MIN_MICRO_BATCHES
    };
    let slowed = ctx.pressure.value >= ctx.policy.slowed_pressure;
    if track.micro_batches == 0 || (tried < enough && !slowed) {
        return hold(track, MEASURING);
    }
    let reason = if ctx.model.is_ready(ctx.kind) {
        reason_to_exceed(track, size)
    } else {
        "to measure how much memory each sample needs"
    };
    own.grow(ctx.sample.at_ms, size, reason.into())
}

/// After the slow start, memory must have been free for a while.
fn grow_after_calm(
    ctx: &DecisionContext,
    own: &mut State,
    track: &mut Track,
    size: u32,
) -> RuleOutcome {
    let (policy, now_ms) = (ctx.policy, ctx.sample.at_ms);
    // The longer calm after a reverted growth ends once it has been quiet for long.
    if own.shrunk_ms.is_none_or(|at| now_ms > at + policy.quiet_ms) {
        own.calm_needed_ms = 0;
    }
    let worth_ms = gain(track, size).map_or(u64::MAX, |gain| {
        (policy.change_cost_ms as f64 / gain.max(1e-3)) as u64
    });
    let needed_ms = own
        .calm_needed_ms
        .max(policy.grow_after_ms)
        .min(worth_ms.max(policy.min_grow_after_ms));
    let calm_ms = if ctx.is_calm() {
        now_ms.saturating_sub(*track.calm_since_ms.get_or_insert(now_ms))
    } else {
        0
    };
    let rested = own
        .grown_ms
        .is_none_or(|at| now_ms >= at + policy.grow_interval_ms);
    let was_short = track.size < track.short_of;
    if calm_ms < needed_ms || !rested {
        let reason = if was_short {
            "waiting for memory to stay free"
        } else {
            SOON
        };
        return hold(track, reason);
    }
    let is_below_settled = track.settled.is_none_or(|settled| size <= settled);
    let reason = if was_short && is_below_settled {
        format!("memory has been free for {} s", calm_ms / 1_000)
    } else {
        reason_to_exceed(track, size).to_owned()
    };
    track.settled = track.settled.filter(|_| is_below_settled);
    if size >= track.short_of {
        track.short_of = 0;
    }
    own.grow(now_ms, size, reason)
}

/// The reason to grow to `size` while memory is not the reason.
fn reason_to_exceed(track: &Track, size: u32) -> &'static str {
    match track.settled {
        Some(settled) if size > settled => FASTER,
        _ => ROOM_FOR_MORE,
    }
}

/// Lowers a size beyond the plateau, since it costs memory for nothing.
pub(crate) fn lower_to_plateau(
    ctx: &DecisionContext,
    own: &mut State,
    track: &mut Track,
    target: &Target,
    changes: &VoluntaryChanges,
) -> Option<RuleOutcome> {
    if target.limit != GrowthLimit::Plateau || target.most >= track.size {
        return None;
    }
    let (policy, now_ms, size) = (ctx.policy, ctx.sample.at_ms, target.most);
    let rested = own
        .resized_ms()
        .is_none_or(|at| now_ms >= at + policy.quiet_ms);
    if size >= ctx.remaining || !rested || !changes.are_allowed(policy, now_ms) {
        return Some(hold(track, NO_FASTER));
    }
    own.lowered_ms = Some(now_ms);
    track.settled = Some(size);
    Some(RuleOutcome {
        voluntary: true,
        release_caches: true,
        ..RuleOutcome::run(size, Component::Speed, AS_FAST)
    })
}

/// Keeps the size and names its limit.
pub(crate) fn stay(track: &Track, target: &Target) -> RuleOutcome {
    let limited_by_memory = target.fits <= target.most;
    let reason = match target.limit {
        _ if track.size >= track.batch => "the whole batch is one micro-batch",
        GrowthLimit::Plateau if !limited_by_memory => NO_FASTER,
        GrowthLimit::Refused if !limited_by_memory => {
            "a larger micro-batch recently needed too much memory or time on this device"
        }
        GrowthLimit::Extrapolation if !limited_by_memory => MEASURING,
        _ => "a larger micro-batch would not fit",
    };
    hold(track, reason)
}

/// The relative gain in speed from growing to `size`, if sizes near both were measured.
fn gain(track: &Track, size: u32) -> Option<f64> {
    let near = |size: u32| {
        let speeds = track.speeds.iter();
        let known = speeds.filter(|speed| speed.micro_batches >= GAIN_MIN_MICRO_BATCHES);
        known
            .min_by_key(|speed: &&Speed| speed.size.abs_diff(size))
            .filter(|speed| speed.size.abs_diff(size) <= size / 4)
    };
    let (now, then) = (near(track.size)?, near(size)?);
    Some(now.ms_per_cost / then.ms_per_cost - 1.0)
}

fn hold(track: &Track, reason: &str) -> RuleOutcome {
    RuleOutcome::run(track.size, Component::Headroom, reason)
}
