//! What can be done when memory is short, as data, cheapest first. Nothing here acts:
//! `suggest_recovery` reads the table for the user, and the controller has its own rules. Allocator
//! and system limits are never lifted, so they are not listed.

use crate::policy::RECOMPUTE_TIME_FRACTION;
use format::format_bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// One way to need less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryStep {
    /// Release cached buffers.
    ReleaseCaches,
    /// Decode fewer samples in advance and cache no decoded images.
    ShortenPrefetch,
    /// Use a smaller micro-batch; gradients are accumulated.
    ShrinkMicroBatch,
    /// Cancel the running micro-batch and retry it smaller.
    #[serde(alias = "cancel_piece")]
    CancelMicroBatch,
    /// Wait until memory is free.
    Pause,
    /// Recompute activations in the backward pass, block by block.
    CheckpointBlocks,
    /// Move the optimizer's moments to a memory-mapped file.
    MapMoments,
    /// Checkpoint, free everything, and resume when memory is back.
    #[serde(alias = "park")]
    Suspend,
    /// Save a checkpoint and stop.
    Stop,
    /// Use smaller images or shorter sequences.
    LowerResolution,
    /// Use 16-bit activations.
    HalvePrecision,
    /// Store each moment in one byte.
    ShrinkOptimizerState,
    /// Train adapters instead of the pretrained weights.
    TrainAdapters,
    /// Store the frozen pretrained weights in 8 bits.
    QuantizeTo8Bits,
    /// Store the frozen pretrained weights in the 4 bits of NF4.
    QuantizeToNf4,
    /// Use fewer samples per step.
    ShrinkEffectiveBatch,
    /// Train only a part of the network.
    FreezeBlocks,
}

impl RecoveryStep {
    /// The command-line setting that takes this step in a run on images from random weights. `None`
    /// if Ebb takes it by itself, or if no setting does.
    fn setting(self) -> Option<&'static str> {
        match self {
            RecoveryStep::ShrinkMicroBatch => Some("a smaller --micro-batch, or auto"),
            RecoveryStep::CheckpointBlocks => Some("--checkpoint-blocks all"),
            RecoveryStep::LowerResolution => Some("a smaller --image-size"),
            RecoveryStep::HalvePrecision => Some("--precision bf16 on a GPU"),
            RecoveryStep::ShrinkOptimizerState => Some("--optimizer adamw8bit"),
            RecoveryStep::TrainAdapters => Some("--adapter 8"),
            RecoveryStep::QuantizeTo8Bits => Some("--quantize 8"),
            RecoveryStep::QuantizeToNf4 => Some("--quantize nf4"),
            RecoveryStep::ShrinkEffectiveBatch => Some("a smaller --effective-batch"),
            RecoveryStep::FreezeBlocks => Some("--train-only last:N"),
            _ => None,
        }
    }
}

/// A recovery step with its price.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecoveryOption {
    /// The step.
    pub step: RecoveryStep,
    /// What it does, as a sentence without a full stop.
    pub description: Cow<'static, str>,
    /// Where the freed memory comes from.
    pub frees: Freed,
    /// Additional time, as a fraction of the training time from then on.
    pub extra_time_fraction: f64,
    /// Whether the result of the training stays the same. If it does not, only the user may choose
    /// the step.
    pub keeps_result: bool,
}

/// Where freed memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freed {
    /// Unused buffers.
    Caches,
    /// Samples decoded ahead and cached images.
    Prefetched,
    /// This fraction of a micro-batch's activations.
    ActivationsFraction(f64),
    /// This fraction of the optimizer's moments.
    MomentsFraction(f64),
    ActivationsAndMomentsFraction(f64),
    /// What [`LighterTuning::adapters_bytes`] names.
    Adapters,
    /// What [`LighterTuning::eight_bits_bytes`] names.
    EightBits,
    /// What [`LighterTuning::nf4_bytes`] names.
    Nf4,
    /// Nothing by itself: micro-batches are as small as they must be for any effective batch.
    Nothing,
    /// Everything that Ebb has allocated.
    Everything,
}

/// A step that does not change the result of the training.
const fn same_result(
    step: RecoveryStep,
    description: &'static str,
    frees: Freed,
    extra_time_fraction: f64,
) -> RecoveryOption {
    RecoveryOption {
        step,
        description: Cow::Borrowed(description),
        frees,
        extra_time_fraction,
        keeps_result: true,
    }
}

/// A step that changes the result of the training.
const fn other_result(
    step: RecoveryStep,
    description: &'static str,
    frees: Freed,
    extra_time_fraction: f64,
) -> RecoveryOption {
    let mut option = same_result(step, description, frees, extra_time_fraction);
    option.keeps_result = false;
    option
}

/// Fraction of the activations of a text that go if it is shortened by a third.
const THIRD_OF_TOKENS: f64 = 0.33;
/// Additional time of a step with frozen weights in 4 bits, as a fraction of the time with bf16:
/// `docs/benchmarks.md` lists the measurement. In 8 bits, the weights are decoded in the same way.
const QUANTIZED_TIME_FRACTION: f64 = 0.7;
/// Time of a step that trains adapters, as a fraction of one that trains everything: the gradients
/// of the weights are a third of it.
const ADAPTERS_TIME: f64 = 2.0 / 3.0;

/// All recovery steps, cheapest first; those that change the result come last. Fractions and times
/// are estimates for a deep network of equal blocks.
// tidy: table
#[rustfmt::skip]
pub(crate) const RECOVERY_STEPS: [RecoveryOption; 17] = [
    same_result(RecoveryStep::ReleaseCaches, "Release cached memory", Freed::Caches, 0.0),
    same_result(RecoveryStep::ShortenPrefetch, "Decode fewer samples in advance and cache no decoded images", Freed::Prefetched, 0.02),
    same_result(RecoveryStep::ShrinkMicroBatch, "Halve the micro-batch", Freed::ActivationsFraction(0.5), 0.05),
    same_result(RecoveryStep::CancelMicroBatch, "Cancel one micro-batch and retry with a smaller one", Freed::ActivationsFraction(1.0), 0.05),
    same_result(RecoveryStep::Pause, "Wait until memory is free", Freed::ActivationsFraction(1.0), 0.0),
    same_result(RecoveryStep::CheckpointBlocks, "Recompute activations instead of saving them", Freed::ActivationsFraction(0.65), RECOMPUTE_TIME_FRACTION),
    same_result(RecoveryStep::MapMoments, "Move the optimizer's moments to a file that is read and written once per step", Freed::MomentsFraction(1.0), 0.1),
    same_result(RecoveryStep::Suspend, "Save a checkpoint, free all of Ebb's memory, and resume when enough memory is free", Freed::Everything, 0.0),
    same_result(RecoveryStep::Stop, "Save a checkpoint and stop", Freed::Everything, 0.0),
    other_result(RecoveryStep::LowerResolution, "Lower the image size by a third", Freed::ActivationsFraction(0.55), 0.0),
    other_result(RecoveryStep::HalvePrecision, "Use 16-bit activations", Freed::ActivationsFraction(0.5), 0.0),
    other_result(RecoveryStep::ShrinkOptimizerState, "Store the optimizer's moments in 8 bits", Freed::MomentsFraction(0.74), 0.05),
    other_result(RecoveryStep::TrainAdapters, "Train adapters of rank 8 instead of the pretrained weights", Freed::Adapters, 0.0),
    other_result(RecoveryStep::QuantizeTo8Bits, "Store the frozen weights in 8 bits", Freed::EightBits, QUANTIZED_TIME_FRACTION),
    other_result(RecoveryStep::QuantizeToNf4, "Store the frozen weights in 4 bits (NF4)", Freed::Nf4, QUANTIZED_TIME_FRACTION),
    other_result(RecoveryStep::ShrinkEffectiveBatch, "Halve the effective batch", Freed::Nothing, 0.0),
    other_result(RecoveryStep::FreezeBlocks, "Train only the second half of a pretrained network", Freed::ActivationsAndMomentsFraction(0.5), 0.0),
];

/// The memory that a run lacks, and the memory that it could free.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shortage {
    /// How much must be freed, in bytes.
    pub missing_bytes: u64,
    /// Cached buffers, in bytes.
    pub cached_bytes: u64,
    /// Samples decoded ahead and cached images, in bytes.
    pub prefetched_bytes: u64,
    /// Whether more of a pretrained network trains than adapters or the last layers, so that a part
    /// could be frozen.
    pub can_freeze: bool,
    /// What lighter ways to fine-tune would free.
    pub lighter_tuning: LighterTuning,
    /// Whether the samples are texts: shortening one by a third frees a third of its activations.
    pub reads_texts: bool,
    /// Activations of the present micro-batch, in bytes.
    pub activations_bytes: u64,
    /// The optimizer's moments, in bytes; 0 if they are in 8 bits or in a file already.
    pub moments_bytes: u64,
    /// The whole footprint, in bytes.
    pub own_bytes: u64,
    /// The present micro-batch.
    pub micro_batch: u32,
    /// Number of blocks that are checkpointed already.
    pub checkpointed_blocks: u32,
    /// Bytes of one activation element; 0 if unknown.
    pub element_bytes: u32,
}

/// What lighter ways to fine-tune a language model would free, in bytes. A way that is not
/// possible, or that the run has taken, frees 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LighterTuning {
    /// Training adapters instead of pretrained weights.
    pub adapters_bytes: u64,
    /// Storing frozen weights in 8 bits; with adapters, if no weight is frozen yet.
    pub eight_bits_bytes: u64,
    /// Storing frozen weights in the 4 bits of NF4; with adapters, if no weight is frozen yet.
    pub nf4_bytes: u64,
    /// Whether all weights train: before they can be quantized, the run must train adapters.
    pub trains_all: bool,
}

/// The settings that would each free enough, as the end of an error: "one of these settings is
/// enough: --checkpoint-blocks all frees 300 MB; a smaller --image-size frees 400 MB".
/// `None` if none would.
pub fn settings_that_help(shortage: &Shortage) -> Option<String> {
    let settings: Vec<String> = helpful_settings(shortage).collect();
    (!settings.is_empty())
        .then(|| format!("one of these settings is enough: {}", settings.join("; ")))
}

/// The cheapest setting that would free enough: "a smaller --image-size frees 400 MB".
/// `None` if none would.
pub fn cheapest_setting(shortage: &Shortage) -> Option<String> {
    helpful_settings(shortage).next()
}

fn helpful_settings(shortage: &Shortage) -> impl Iterator<Item = String> {
    let options = suggest_recovery(shortage).into_iter();
    options.filter_map(|(option, freed)| {
        let setting = shortage.setting(option.step)?;
        Some(format!("{setting} frees {}", format_bytes(freed)))
    })
}

impl Shortage {
    /// The command-line setting that takes this step: "--quantize nf4". `None` if Ebb takes it by
    /// itself, or if no setting does.
    pub fn setting(&self, step: RecoveryStep) -> Option<&'static str> {
        match step {
            RecoveryStep::LowerResolution if self.reads_texts => Some("fewer --tokens"),
            RecoveryStep::QuantizeTo8Bits if self.lighter_tuning.trains_all => {
                Some("--adapter 8 --quantize 8")
            }
            RecoveryStep::QuantizeToNf4 if self.lighter_tuning.trains_all => {
                Some("--adapter 8 --quantize nf4")
            }
            step => step.setting(),
        }
    }

    /// A step of the table as this run would take it.
    fn fitted(&self, option: RecoveryOption) -> RecoveryOption {
        let (description, frees) = match option.step {
            RecoveryStep::LowerResolution if self.reads_texts => (
                "Shorten the sequences by a third",
                Freed::ActivationsFraction(THIRD_OF_TOKENS),
            ),
            RecoveryStep::QuantizeTo8Bits if self.lighter_tuning.trains_all => (
                "Train adapters of rank 8 on weights in 8 bits",
                option.frees,
            ),
            RecoveryStep::QuantizeToNf4 if self.lighter_tuning.trains_all => (
                "Train adapters of rank 8 on weights in 4 bits (QLoRA)",
                option.frees,
            ),
            _ => return option,
        };
        RecoveryOption {
            description: Cow::Borrowed(description),
            frees,
            extra_time_fraction: match option.step {
                RecoveryStep::LowerResolution => option.extra_time_fraction,
                _ => ADAPTERS_TIME * (1.0 + option.extra_time_fraction) - 1.0,
            },
            ..option
        }
    }
}

/// The steps that change the result, which only the user may choose, with the bytes that each would
/// free, enough or not. Steps that were taken already are left out.
pub fn options_needing_consent(shortage: &Shortage) -> Vec<(RecoveryOption, u64)> {
    let was_taken = |option: &RecoveryOption| {
        option.step == RecoveryStep::ShrinkOptimizerState && shortage.moments_bytes == 0
    };
    available(shortage)
        .filter(|(option, _)| !option.keeps_result && !was_taken(option))
        .collect()
}

/// The steps that would free enough by themselves, cheapest first, with the bytes that each frees.
/// Stopping is always among them, so there is always a next step. Steps that change the result come
/// last.
pub fn suggest_recovery(shortage: &Shortage) -> Vec<(RecoveryOption, u64)> {
    let enough = |(option, freed): &(RecoveryOption, u64)| {
        *freed >= shortage.missing_bytes.max(1) || option.step == RecoveryStep::Stop
    };
    available(shortage).filter(enough).collect()
}

/// Every step that is left, with the bytes that it frees.
fn available(shortage: &Shortage) -> impl Iterator<Item = (RecoveryOption, u64)> {
    let usable = |option: &RecoveryOption| match option.step {
        RecoveryStep::ShrinkMicroBatch | RecoveryStep::CancelMicroBatch => shortage.micro_batch > 1,
        RecoveryStep::CheckpointBlocks => shortage.checkpointed_blocks == 0,
        RecoveryStep::HalvePrecision => shortage.element_bytes != 2,
        RecoveryStep::TrainAdapters => shortage.lighter_tuning.adapters_bytes > 0,
        RecoveryStep::QuantizeTo8Bits => shortage.lighter_tuning.eight_bits_bytes > 0,
        RecoveryStep::QuantizeToNf4 => shortage.lighter_tuning.nf4_bytes > 0,
        RecoveryStep::FreezeBlocks => shortage.can_freeze,
        _ => true,
    };
    let options = RECOVERY_STEPS
        .into_iter()
        .filter(move |option| usable(option));
    options.map(|option| {
        let option = shortage.fitted(option);
        let freed = option.frees.bytes(shortage);
        (option, freed)
    })
}

impl Freed {
    fn bytes(self, shortage: &Shortage) -> u64 {
        let share = |fraction: f64, bytes: u64| (fraction * bytes as f64) as u64;
        let (activations, moments) = (shortage.activations_bytes, shortage.moments_bytes);
        match self {
            Self::Caches => shortage.cached_bytes,
            Self::Prefetched => shortage.prefetched_bytes,
            Self::ActivationsFraction(fraction) => share(fraction, activations),
            Self::MomentsFraction(fraction) => share(fraction, moments),
            Self::ActivationsAndMomentsFraction(fraction) => share(fraction, activations + moments),
            Self::Adapters => shortage.lighter_tuning.adapters_bytes,
            Self::EightBits => shortage.lighter_tuning.eight_bits_bytes,
            Self::Nf4 => shortage.lighter_tuning.nf4_bytes,
            Self::Nothing => 0,
            Self::Everything => shortage.own_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
