//! The recovery ladder: what can be done when memory is short, cheapest first, as data. `suggest_recovery` reads it; nothing
//! here does anything. Allocator limits and system limits are never lifted, so they are no rungs.

use crate::words::gb;
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
    /// Work the loss in chunks of rows, so that a language model's scores never exist whole.
    ChunkLoss,
    /// Recompute activations in backward, block by block.
    CheckpointBlocks,
    /// Keep the optimizer's moments in a memory-mapped file.
    MapMoments,
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
    /// Fewer samples a step.
    ShrinkEffectiveBatch,
    /// Train a part of the network only.
    FreezeBlocks,
}

impl Rung {
    /// What the user writes to take it, in the terminal's words; `None` where Ebb alone can, or nobody yet.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Rung::ShrinkMicroBatch => Some("a smaller --micro-batch, or auto"),
            Rung::CheckpointBlocks => Some("--checkpoint-blocks all"),
            Rung::LowerResolution => Some("a smaller --image-size or --tokens"),
            Rung::HalvePrecision => Some("--precision bf16 on a GPU"),
            Rung::ShrinkOptimizerState => Some("--optimizer adamw8bit"),
            Rung::ShrinkEffectiveBatch => Some("a smaller --effective-batch"),
            _ => None,
        }
    }
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
    /// This share of activations and moments.
    ActivationsAndMomentsFraction(f64),
    /// The scores of a loss that is not worked in chunks.
    LossScores,
    /// Nothing by itself: pieces are as small as they must be whatever they add up to.
    Nothing,
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
pub const LADDER: [Recovery; 15] = [
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
        Rung::ChunkLoss,
        "Work the loss in chunks of rows",
        Freed::LossScores,
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
        Rung::MapMoments,
        "Keep the optimizer's moments in a file, read and written once a step",
        Freed::MomentsFraction(1.0),
        0.1,
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
    rung(
        Rung::ShrinkEffectiveBatch,
        "Halve the effective batch",
        Freed::Nothing,
        0.0,
        Keeps::Consent,
    ),
    rung(
        Rung::FreezeBlocks,
        "Train the second half of the network only",
        Freed::ActivationsAndMomentsFraction(0.5),
        0.0,
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
    /// The optimizer's moments in full precision and in memory, in bytes; 0 where they are small already, or in a file.
    pub moments_bytes: u64,
    /// Scores of a loss that exist whole, in bytes. 0 for every loss here: with a language model's head it is worked in
    /// chunks of 2^20 scores always, a few MB, of which smaller chunks would free nothing worth having.
    pub loss_scores_bytes: u64,
    /// The whole footprint, in bytes.
    pub own_bytes: u64,
    /// The present micro-batch.
    pub micro_batch: u32,
    /// Blocks that are checkpointed already.
    pub checkpointed_blocks: u32,
    /// Bytes of one activation element; 0 where that is not known.
    pub element_bytes: u32,
}

/// The same rungs as the user can take them, as the end of an error: "what would help: --checkpoint-blocks all frees
/// 0.3 GB; a smaller --image-size or --tokens frees 0.4 GB". `None` where none would do.
pub fn what_would_help(stuck: &Stuck) -> Option<String> {
    let settings = suggest_recovery(stuck)
        .into_iter()
        .filter_map(|(recovery, freed)| {
            let setting = recovery.rung.setting()?;
            Some(format!("{setting} frees {}", gb(freed)))
        });
    let settings: Vec<String> = settings.collect();
    (!settings.is_empty()).then(|| format!("what would help: {}", settings.join("; ")))
}

/// The first of them in words: "a smaller --image-size or --tokens frees 0.4 GB". `None` where none would do.
pub fn first_help(stuck: &Stuck) -> Option<String> {
    let mut settings = suggest_recovery(stuck).into_iter();
    settings.find_map(|(recovery, freed)| {
        let setting = recovery.rung.setting()?;
        Some(format!("{setting} frees {}", gb(freed)))
    })
}

/// The rungs that change the result and so are the user's alone, in order, each with the bytes that it would free, enough or
/// not. What has been taken already is left out.
pub fn offered(stuck: &Stuck) -> Vec<(Recovery, u64)> {
    let consent = priced(stuck).filter(|(recovery, _)| !recovery.keeps_mathematics);
    let taken = |recovery: &Recovery| {
        recovery.rung == Rung::ShrinkOptimizerState && stuck.moments_bytes == 0
    };
    consent.filter(|(recovery, _)| !taken(recovery)).collect()
}

/// The rungs that would free enough by themselves, cheapest first, each with the bytes it frees. Where none would, the ladder's
/// last automatic rung, so that there is always a next move. What changes the result comes after everything else.
pub fn suggest_recovery(stuck: &Stuck) -> Vec<(Recovery, u64)> {
    let enough = |(recovery, freed): &(Recovery, u64)| {
        *freed >= stuck.missing_bytes.max(1) || recovery.rung == Rung::Stop
    };
    priced(stuck).filter(enough).collect()
}

/// Every rung that is left, with the bytes that it frees.
fn priced(stuck: &Stuck) -> impl Iterator<Item = (Recovery, u64)> {
    let usable = LADDER
        .into_iter()
        .filter(move |recovery| match recovery.rung {
            Rung::ShrinkMicroBatch | Rung::CancelPiece => stuck.micro_batch > 1,
            Rung::CheckpointBlocks => stuck.checkpointed_blocks == 0,
            Rung::HalvePrecision => stuck.element_bytes != 2,
            _ => true,
        });
    usable.map(move |recovery| {
        let freed = recovery.frees.bytes(stuck);
        (recovery, freed)
    })
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
            Self::ActivationsAndMomentsFraction(fraction) => {
                let both = stuck.activations_bytes + stuck.moments_bytes;
                (fraction * both as f64) as u64
            }
            Self::LossScores => stuck.loss_scores_bytes,
            Self::Nothing => 0,
            Self::Everything => stuck.own_bytes,
        }
    }
}

#[cfg(test)]
#[path = "ladder/tests.rs"]
mod tests;
