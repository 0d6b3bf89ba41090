//! The settings to start with, before anything is measured: the largest micro-batch that fits by
//! estimate, with the fewest checkpointed blocks. A first guess that the controller corrects.

use crate::budget::Budget;
use crate::forecast_other_apps::History;
use crate::memory_sample::MemorySample;
use crate::micro_batch_sizes::sizes;
use crate::policy::{Policy, SUGGESTED_CAP_FACTOR, SUGGESTED_CAP_STEP_BYTES};
use serde::Serialize;

/// The estimated need of a model: the footprint without a micro-batch, and the peaks with one.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ModelNeed {
    /// Footprint between micro-batches, in bytes: program, weights, moments, averages, samples
    /// decoded ahead.
    pub state_bytes: u64,
    /// Element type of the computation: `f32`.
    pub precision: String,
    /// Variants of the model, fewest checkpointed blocks first.
    pub variants: Vec<ModelVariant>,
}

/// A model with some of its blocks checkpointed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ModelVariant {
    /// Number of checkpointed blocks.
    pub checkpoint_blocks: u32,
    /// Time beyond that of the fastest variant, as a fraction of it.
    pub extra_time_fraction: f64,
    /// Footprint by micro-batch, in any order.
    pub peaks: Vec<Peak>,
}

/// The footprint of the process at one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Peak {
    /// Samples per micro-batch.
    pub micro_batch: u32,
    /// Highest footprint, in bytes.
    pub peak_bytes: u64,
}

/// The batch to be trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BatchConfig {
    /// Samples per step; never changed.
    pub effective_batch: u32,
    /// The micro-batch, if the user fixed it.
    pub fixed_micro_batch: Option<u32>,
}

/// The limits of the device and the user.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceLimits {
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// The GPU's recommended working set, in bytes; 0 without one.
    pub limit_bytes: u64,
    /// The user's cap on the footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// Fraction of RAM that all processes together may fill, as [`Policy::max_system_fraction`].
    pub max_system_fraction: f64,
}

/// The other processes on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Processes {
    /// Memory used by other apps and the system, in bytes.
    pub others_bytes: u64,
}

/// The settings to start with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuggestedConfig {
    /// Samples per micro-batch.
    pub micro_batch: u32,
    /// Micro-batches per step, whose gradients are added.
    pub accumulation: u32,
    /// Number of blocks to checkpoint (their activations are recomputed in the backward pass).
    pub checkpoint_blocks: u32,
    /// Element type of the computation; always the one asked for, because it affects the result.
    pub precision: String,
    /// Highest footprint expected, in bytes.
    pub predicted_peak_bytes: u64,
    /// Footprint that Ebb allows itself now, in bytes.
    pub budget_bytes: u64,
    /// The budget less the expected footprint, in bytes.
    pub headroom_bytes: u64,
    /// Time beyond that of the fastest variant, as a fraction of it.
    pub extra_time_fraction: f64,
}

/// Not even the smallest micro-batch fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DoesNotFit {
    /// The smallest micro-batch: one sample, or the size that the user fixed.
    pub micro_batch: u32,
    /// Its footprint as asked for, in bytes.
    pub predicted_peak_bytes: u64,
    /// Its smallest footprint with blocks checkpointed, in bytes, and how many those are.
    pub least: (u64, u32),
    /// Footprint that Ebb allows itself, in bytes.
    pub budget_bytes: u64,
    /// A cap that would be enough, in bytes: the smallest footprint plus the error of the estimate.
    pub enough_bytes: u64,
}

impl DeviceLimits {
    /// Footprint that Ebb would allow itself on this device next to these processes, in bytes.
    pub fn budget_bytes(&self, processes: &Processes) -> u64 {
        let policy = Policy {
            max_system_fraction: self.max_system_fraction,
            memory_cap_bytes: self.memory_cap_bytes,
            ..Policy::default()
        };
        let sample = MemorySample {
            total_bytes: self.total_bytes,
            available_bytes: self.total_bytes.saturating_sub(processes.others_bytes),
            device_limit_bytes: self.limit_bytes,
            ..MemorySample::default()
        };
        Budget::new(&policy, &History::default(), &sample, 0).bytes
    }
}

impl DeviceLimits {
    /// The most memory that Ebb may ever use on this device, if no other app needs it, in bytes; 0
    /// if nothing is known about the device.
    pub fn most_bytes(&self) -> u64 {
        let policy = Policy {
            max_system_fraction: self.max_system_fraction,
            ..Policy::default()
        };
        let machine_bytes = policy.limit_bytes(&MemorySample {
            total_bytes: self.total_bytes,
            ..MemorySample::default()
        });
        let limits = [machine_bytes, self.limit_bytes].into_iter();
        let limits = limits.chain(self.memory_cap_bytes);
        limits.filter(|bytes| *bytes > 0).min().unwrap_or(0)
    }
}

impl ModelVariant {
    /// The footprint at a micro-batch, if it was estimated.
    pub fn peak_bytes(&self, micro_batch: u32) -> Option<u64> {
        let peak = self
            .peaks
            .iter()
            .find(|peak| peak.micro_batch == micro_batch)?;
        Some(peak.peak_bytes)
    }
}

impl ModelNeed {
    /// The smallest footprint of any variant at the smallest micro-batch, in bytes, and its number
    /// of checkpointed blocks. Zeros if nothing was estimated.
    pub fn least_peak(&self, data: &BatchConfig) -> (u64, u32) {
        let smallest = data.smallest_micro_batch();
        let peaks = self.variants.iter().filter_map(|variant| {
            let peak_bytes = variant.peak_bytes(smallest)?;
            Some((peak_bytes, variant.checkpoint_blocks))
        });
        peaks.min().unwrap_or_default()
    }
}

impl BatchConfig {
    /// The size that the user fixed, or the smallest useful one.
    fn smallest_micro_batch(&self) -> u32 {
        let smallest = || sensible_sizes(self.effective_batch).last().copied();
        let fixed = self.fixed_micro_batch.map(|m| m.min(self.effective_batch));
        fixed.or_else(smallest).unwrap_or(1)
    }
}

/// Useful micro-batches for an effective batch, largest first: each needs fewer micro-batches per
/// step than the next.
pub fn sensible_sizes(effective_batch: u32) -> Vec<u32> {
    sizes(effective_batch).collect()
}

/// The settings to start with: the first variant whose smallest micro-batch fits, and its largest
/// micro-batch that does.
///
/// # Errors
/// Not even the smallest micro-batch fits. The error says what would be enough; steps that change
/// the result are listed by [`suggest_recovery`](crate::suggest_recovery).
pub fn suggest_config(
    model: &ModelNeed,
    data: &BatchConfig,
    device: &DeviceLimits,
    processes: &Processes,
) -> Result<SuggestedConfig, DoesNotFit> {
    let budget_bytes = device.budget_bytes(processes);
    let sizes = match data.fixed_micro_batch {
        Some(fixed) => vec![fixed.min(data.effective_batch)],
        None => sensible_sizes(data.effective_batch),
    };
    let fitting = model.variants.iter().find_map(|variant| {
        let peaks = sizes
            .iter()
            .filter_map(|&m| Some((m, variant.peak_bytes(m)?)));
        let mut fits = peaks.filter(|(_, peak)| *peak <= budget_bytes);
        fits.next()
            .map(|(micro_batch, peak)| (variant, micro_batch, peak))
    });
    if let Some((variant, micro_batch, predicted_peak_bytes)) = fitting {
        return Ok(SuggestedConfig {
            micro_batch,
            accumulation: data.effective_batch.div_ceil(micro_batch.max(1)),
            checkpoint_blocks: variant.checkpoint_blocks,
            precision: model.precision.clone(),
            predicted_peak_bytes,
            budget_bytes,
            headroom_bytes: budget_bytes - predicted_peak_bytes,
            extra_time_fraction: variant.extra_time_fraction,
        });
    }
    let smallest = data.smallest_micro_batch();
    let mut needs = model.variants.iter();
    let first = needs.find_map(|variant| variant.peak_bytes(smallest));
    let least = model.least_peak(data);
    Err(DoesNotFit {
        micro_batch: smallest,
        predicted_peak_bytes: first.unwrap_or_default(),
        least,
        budget_bytes,
        enough_bytes: suggested_cap(least.0),
    })
}

/// A cap that is enough if `bytes` are estimated.
fn suggested_cap(bytes: u64) -> u64 {
    ((bytes as f64 * SUGGESTED_CAP_FACTOR) as u64).next_multiple_of(SUGGESTED_CAP_STEP_BYTES)
}

#[cfg(test)]
mod tests;
