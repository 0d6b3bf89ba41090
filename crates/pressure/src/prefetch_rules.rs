//! Rules: shorten the prefetch before the micro-batch shrinks, and lengthen it again after
//! everything else has recovered. A shorter prefetch does not change the split, so it comes first.

use crate::decision::Prefetch;
use crate::decision_context::{DecisionContext, RuleOutcome};
use crate::memory_sample::Component;
use crate::micro_batch_growth::Target;
use crate::micro_batch_sizes::Track;

/// The reason to lengthen the prefetch if the memory of the machine was never short.
const ROOM_FOR_PREFETCH: &str = "there is enough memory to decode samples in advance";

/// Whether the prefetch is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct State {
    shortened: Option<Shortened>,
}

/// Since when the prefetch is short, and how many bytes that freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shortened {
    at_ms: u64,
    bytes: u64,
    /// Whether the memory of the machine was short, rather than that of the device or the cap.
    by_others: bool,
}

impl State {
    pub(crate) fn prefetch(&self) -> Prefetch {
        match self.shortened {
            Some(_) => Prefetch::Short,
            None => Prefetch::Long,
        }
    }

    /// Bytes that are freed before the micro-batch that starts now.
    pub(crate) fn freed_bytes(&self, now_ms: u64) -> u64 {
        let just_now = self.shortened.filter(|shortened| shortened.at_ms == now_ms);
        just_now.map_or(0, |shortened| shortened.bytes)
    }

    /// Shortens the prefetch and returns whether that frees anything.
    pub(crate) fn shorten(&mut self, ctx: &DecisionContext) -> bool {
        let frees = self.shortened.is_none() && ctx.spare_bytes > 0;
        if frees {
            self.shortened = Some(Shortened {
                at_ms: ctx.sample.at_ms,
                bytes: ctx.spare_bytes,
                by_others: ctx.machine_is_short(),
            });
        }
        frees
    }
}

/// Shortens the prefetch instead of shrinking the micro-batch, once.
pub(crate) fn shorten(
    ctx: &DecisionContext,
    own: &mut State,
    track: &Track,
) -> Option<RuleOutcome> {
    own.shorten(ctx).then(|| {
        let (cause, reason) = ctx.explain_shortage(track.size);
        RuleOutcome::run(track.size, cause, reason).releasing_caches(true)
    })
}

/// Lengthens the prefetch: memory has been free for a while, the micro-batch has nothing to grow
/// to, and what was freed fits as well. `resized_ms` is the time of the last growth or shrink.
pub(crate) fn lengthen(
    ctx: &DecisionContext,
    own: &mut State,
    track: &Track,
    target: &Target,
    resized_ms: Option<u64>,
) -> Option<RuleOutcome> {
    let shortened = own.shortened?;
    let now_ms = ctx.sample.at_ms;
    let since = resized_ms.map_or(shortened.at_ms, |at| at.max(shortened.at_ms));
    let rested = now_ms >= since + ctx.policy.quiet_ms;
    let available = ctx.growth_bytes().saturating_sub(shortened.bytes);
    let fits = ctx.largest_within(track, available) >= track.size;
    if target.is_larger(track) || target.memory_limits(track) || !rested || !fits || !ctx.is_calm()
    {
        return None;
    }
    own.shortened = None;
    // The cap or the device may have been the reason for the short prefetch.
    let reason = match now_ms.saturating_sub(ctx.free_since_ms(since)) / 1_000 {
        _ if !shortened.by_others => ROOM_FOR_PREFETCH.to_owned(),
        0 => "memory is free again".to_owned(),
        seconds => format!("memory has been free for {seconds} s"),
    };
    Some(RuleOutcome::run(track.size, Component::Headroom, reason))
}
