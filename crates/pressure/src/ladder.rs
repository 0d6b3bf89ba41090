//! The recovery ladder: what can be done when memory is short, cheapest first, as data. `suggest_recovery` reads it; nothing
//! here does anything. Allocator limits and system limits are never lifted, so they are no rungs.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One way to need less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Give cached buffers back.
    ReleaseCaches,
    /// Decode fewer samples ahead, keep no decoded pictures.
    ShortenPrefetch,
    /// A smaller micro-batch; gradients are accumulated.
    ShrinkMicroBatch,
    /// Cancel the running piece and retry it smaller.
    CancelPiece,
    /// Wait until memory is free.
    Pause,
    /// Recompute activations in backward, block by block.
    CheckpointBlocks,
    /// Checkpoint, give everything back, resume by itself.
    Park,
    /// Stop with a checkpoint on disk.
    Stop,
    /// Smaller images or shorter sequences.
    LowerResolution,
    /// 16-bit activations.
    HalvePrecision,
    /// Moments of one byte a value.
    ShrinkOptimizerState,
}

/// A rung with its price.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    /// What to do.
    pub rung: Rung,
    /// What it does, as a sentence without a full stop.
    pub what: Cow<'static, str>,
    /// Where the freed memory comes from.
    pub frees: Freed,
    /// Extra time, as a fraction of the training time from then on.
    pub extra_time_fraction: f64,
    /// The result of the training stays the same. Where it does not, only the user may choose it.
    pub keeps_mathematics: bool,
}

/// Where freed memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freed {
    /// Buffers that nobody uses.
    Caches,
    /// Decoded samples that wait, pictures that are kept.
    Prefetched,
    /// This share of a piece's activations.
    ActivationsFraction(f64),
    /// This share of the optimizer's moments.
    MomentsFraction(f64),
    /// Everything that Ebb holds.
    Everything,
}

const fn rung(
    rung: Rung,
    what: &'static str,
    frees: Freed,
    extra_time_fraction: f64,
    keeps: Keeps,
) -> Recovery {
    Recovery {
        rung,
        what: Cow::Borrowed(what),
        frees,
        extra_time_fraction,
        keeps_mathematics: matches!(keeps, Keeps::Mathematics),
    }
}

/// What a rung leaves untouched.
enum Keeps {
    Mathematics,
    Consent,
}

/// The ladder, cheapest rung first; rungs that change the result stand last. Shares and times are estimates for a deep network
/// of equal blocks: checkpointing repeats one forward, a third of a step.
pub const LADDER: [Recovery; 11] = [
    rung(
        Rung::ReleaseCaches,
        "Give cached memory back",
        Freed::Caches,
        0.0,
        Keeps::Mathematics,
    ),
    rung(
        Rung::ShortenPrefetch,
        "Decode fewer samples ahead, keep no decoded pictures",
        Freed::Prefetched,
        0.02,
        Keeps::Mathematics,
    ),
    rung(
        Rung::ShrinkMicroBatch,
        "Halve the micro-batch",
        Freed::ActivationsFraction(0.5),
        0.05,
        Keeps::Mathematics,
    ),
    rung(
        Rung::CancelPiece,
        "Cancel one piece and retry it smaller",
        Freed::ActivationsFraction(1.0),
        0.05,
        Keeps::Mathematics,
    ),
    rung(
        Rung::Pause,
        "Wait until memory is free",
        Freed::ActivationsFraction(1.0),
        0.0,
        Keeps::Mathematics,
    ),
    rung(
        Rung::CheckpointBlocks,
        "Compute activations twice instead of keeping them",
        Freed::ActivationsFraction(0.65),
        0.33,
        Keeps::Mathematics,
    ),
    rung(
        Rung::Park,
        "Save a checkpoint, give all memory back and resume by itself",
        Freed::Everything,
        0.0,
        Keeps::Mathematics,
    ),
    rung(
        Rung::Stop,
        "Stop with a checkpoint on disk",
        Freed::Everything,
        0.0,
        Keeps::Mathematics,
    ),
    rung(
        Rung::LowerResolution,
        "Lower the image size by a third",
        Freed::ActivationsFraction(0.55),
        0.0,
        Keeps::Consent,
    ),
    rung(
        Rung::HalvePrecision,
        "Keep activations in 16 bits",
        Freed::ActivationsFraction(0.5),
        0.0,
        Keeps::Consent,
    ),
    rung(
        Rung::ShrinkOptimizerState,
        "Keep the optimizer's moments in 8 bits",
        Freed::MomentsFraction(0.74),
        0.05,
        Keeps::Consent,
    ),
];

/// Where a run is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stuck {
    /// How much must be freed, in bytes.
    pub missing_bytes: u64,
    /// Cached buffers, in bytes.
    pub cached_bytes: u64,
    /// Decoded samples that wait and pictures that are kept, in bytes.
    pub prefetched_bytes: u64,
    /// Activations of the present piece, in bytes.
    pub activations_bytes: u64,
    /// The optimizer's moments, in bytes; 0 where they are small already.
    pub moments_bytes: u64,
    /// The whole footprint, in bytes.
    pub own_bytes: u64,
    /// The present micro-batch.
    pub micro_batch: u32,
    /// Blocks that are checkpointed already.
    pub checkpointed_blocks: u32,
}

/// The rungs that would free enough by themselves, cheapest first, each with the bytes it frees. Where none would, the ladder's
/// last automatic rung, so that there is always a next move. What changes the result comes after everything else.
pub fn suggest_recovery(stuck: &Stuck) -> Vec<(Recovery, u64)> {
    let usable = LADDER.into_iter().filter(|recovery| match recovery.rung {
        Rung::ShrinkMicroBatch | Rung::CancelPiece => stuck.micro_batch > 1,
        Rung::CheckpointBlocks => stuck.checkpointed_blocks == 0,
        _ => true,
    });
    let priced = usable.map(|recovery| {
        let freed = recovery.frees.bytes(stuck);
        (recovery, freed)
    });
    priced
        .filter(|(recovery, freed)| {
            *freed >= stuck.missing_bytes.max(1) || recovery.rung == Rung::Stop
        })
        .collect()
}

impl Freed {
    fn bytes(self, stuck: &Stuck) -> u64 {
        match self {
            Self::Caches => stuck.cached_bytes,
            Self::Prefetched => stuck.prefetched_bytes,
            Self::ActivationsFraction(fraction) => {
                (fraction * stuck.activations_bytes as f64) as u64
            }
            Self::MomentsFraction(fraction) => (fraction * stuck.moments_bytes as f64) as u64,
            Self::Everything => stuck.own_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rungs(stuck: Stuck) -> Vec<Rung> {
        suggest_recovery(&stuck)
            .into_iter()
            .map(|(recovery, _)| recovery.rung)
            .collect()
    }

    const STUCK: Stuck = Stuck {
        missing_bytes: 400,
        cached_bytes: 100,
        prefetched_bytes: 10,
        activations_bytes: 1_000,
        moments_bytes: 800,
        own_bytes: 3_000,
        micro_batch: 8,
        checkpointed_blocks: 0,
    };

    #[test]
    fn what_changes_the_result_stands_last() {
        let first = LADDER
            .iter()
            .position(|recovery| !recovery.keeps_mathematics)
            .expect("some do");
        assert!(
            LADDER[first..]
                .iter()
                .all(|recovery| !recovery.keeps_mathematics)
        );
    }

    #[test]
    fn the_cheapest_rung_that_frees_enough_comes_first() {
        assert_eq!(rungs(STUCK)[0], Rung::ShrinkMicroBatch);
        assert_eq!(
            rungs(Stuck {
                missing_bytes: 50,
                ..STUCK
            })[0],
            Rung::ReleaseCaches
        );
        assert_eq!(
            rungs(Stuck {
                missing_bytes: 600,
                micro_batch: 1,
                ..STUCK
            })[0],
            Rung::Pause
        );
    }

    #[test]
    fn used_up_rungs_are_not_offered_again() {
        let used = rungs(Stuck {
            micro_batch: 1,
            checkpointed_blocks: 6,
            ..STUCK
        });
        for rung in [
            Rung::ShrinkMicroBatch,
            Rung::CancelPiece,
            Rung::CheckpointBlocks,
        ] {
            assert!(!used.contains(&rung), "{used:?}");
        }
    }

    #[test]
    fn small_moments_are_offered_where_they_would_do() {
        assert!(rungs(STUCK).contains(&Rung::ShrinkOptimizerState));
        let small = Stuck {
            moments_bytes: 400,
            ..STUCK
        };
        assert!(!rungs(small).contains(&Rung::ShrinkOptimizerState));
    }

    #[test]
    fn there_is_always_a_next_move() {
        assert_eq!(
            rungs(Stuck {
                missing_bytes: u64::MAX,
                ..STUCK
            }),
            [Rung::Stop]
        );
    }
}
