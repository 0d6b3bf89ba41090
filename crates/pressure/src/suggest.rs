//! What to begin with, before anything is measured: the largest pieces that the forecast lets fit, with the fewest blocks
//! computed twice. A first guess; the controller measures and overrules it. Knows how a forecast is used, not how it is made.

use crate::budget::budget_bytes;
use crate::policy::Policy;
use crate::sample::MemorySample;
use crate::sizing::sizes;
use crate::state::State;
use serde::Serialize;

/// Numbers are promised with this much on top: a forecast may be so far off.
const PROMISE: f64 = 1.12;
/// Promised numbers are whole multiples of this, bytes.
const PROMISE_STEP: u64 = 32 << 20;

/// What a model needs, as forecast: the footprint without a piece, and what pieces reach.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ModelNeed {
    /// Footprint while no piece is at work, in bytes: program, weights, moments, averages, samples decoded ahead.
    pub state_bytes: u64,
    /// Element type that pieces are computed in: `f32`.
    pub precision: String,
    /// Ways to work a piece, fewest checkpointed blocks first.
    pub forms: Vec<Form>,
}

/// A way to work pieces.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Form {
    /// Blocks that keep their input only.
    pub checkpoint_blocks: u32,
    /// Time it takes beyond the quickest form, as a fraction of that.
    pub extra_time_fraction: f64,
    /// Footprint by micro-batch, any order.
    pub peaks: Vec<Peak>,
}

/// The footprint of the process while pieces of one size are worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Peak {
    /// Samples a piece.
    pub micro_batch: u32,
    /// Highest footprint, in bytes.
    pub peak_bytes: u64,
}

/// What is trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataNeed {
    /// Samples a step; never changed.
    pub effective_batch: u32,
    /// The size of every piece, where the user fixed it.
    pub fixed_micro_batch: Option<u32>,
}

/// What trains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DeviceRoom {
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// The GPU's recommended working set, in bytes; 0 without one.
    pub limit_bytes: u64,
    /// The user's cap on the footprint, in bytes.
    pub memory_cap_bytes: Option<u64>,
    /// Where the budget line stands, as a share of all memory.
    pub max_system_fraction: f64,
}

/// Who else is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Processes {
    /// What other apps and the system use, in bytes.
    pub others_bytes: u64,
}

/// What to begin with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SuggestedConfig {
    /// Samples a piece.
    pub micro_batch: u32,
    /// Pieces a step: gradients of so many are added up.
    pub accumulation: u32,
    /// Blocks that keep their input only and run again in backward.
    pub checkpoint_blocks: u32,
    /// Element type that pieces are computed in; never another than asked for, because that changes the result.
    pub precision: String,
    /// Highest footprint expected, in bytes.
    pub predicted_peak_bytes: u64,
    /// What Ebb allows itself now, in bytes.
    pub budget_bytes: u64,
    /// What is left of that, in bytes.
    pub headroom_bytes: u64,
    /// Time it takes beyond the quickest form, as a fraction of that.
    pub extra_time_fraction: f64,
}

/// Not even the smallest piece fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DoesNotFit {
    /// The smallest piece: one sample, or the size that the user fixed.
    pub micro_batch: u32,
    /// Footprint that it reaches as asked for, in bytes.
    pub predicted_peak_bytes: u64,
    /// The least that it reaches with blocks checkpointed, in bytes, and how many those are.
    pub least: (u64, u32),
    /// What Ebb may use, in bytes.
    pub budget_bytes: u64,
    /// A cap that would do, in bytes: the least with room for the forecast's error.
    pub enough_bytes: u64,
}

impl DeviceRoom {
    /// Footprint that Ebb would allow itself on this device beside those processes, in bytes.
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
        budget_bytes(&policy, &State::default(), &sample, 0)
    }
}

impl Form {
    /// The footprint at a micro-batch, where it was forecast.
    pub fn peak_bytes(&self, micro_batch: u32) -> Option<u64> {
        let peak = self
            .peaks
            .iter()
            .find(|peak| peak.micro_batch == micro_batch)?;
        Some(peak.peak_bytes)
    }
}

/// Sizes that make sense for an effective batch, largest first: each saves a piece against the next.
pub fn sensible_sizes(effective_batch: u32) -> Vec<u32> {
    sizes(effective_batch).collect()
}

/// The config to begin with: the first form whose smallest piece fits, and of it the largest piece that does.
///
/// # Errors
/// Not even the smallest piece fits; with what would do. Rungs that change the result are the user's to choose
/// ([`suggest_recovery`](crate::suggest_recovery)).
pub fn suggest_config(
    model: &ModelNeed,
    data: &DataNeed,
    device: &DeviceRoom,
    processes: &Processes,
) -> Result<SuggestedConfig, DoesNotFit> {
    let budget_bytes = device.budget_bytes(processes);
    let sizes = match data.fixed_micro_batch {
        Some(fixed) => vec![fixed.min(data.effective_batch)],
        None => sensible_sizes(data.effective_batch),
    };
    let fitting = model.forms.iter().find_map(|form| {
        let peaks = sizes.iter().filter_map(|&m| Some((m, form.peak_bytes(m)?)));
        let mut fits = peaks.filter(|(_, peak)| *peak <= budget_bytes);
        fits.next()
            .map(|(micro_batch, peak)| (form, micro_batch, peak))
    });
    if let Some((form, micro_batch, predicted_peak_bytes)) = fitting {
        return Ok(SuggestedConfig {
            micro_batch,
            accumulation: data.effective_batch.div_ceil(micro_batch.max(1)),
            checkpoint_blocks: form.checkpoint_blocks,
            precision: model.precision.clone(),
            predicted_peak_bytes,
            budget_bytes,
            headroom_bytes: budget_bytes - predicted_peak_bytes,
            extra_time_fraction: form.extra_time_fraction,
        });
    }
    let smallest = sizes.last().copied().unwrap_or(1);
    let needs = model.forms.iter().filter_map(|form| {
        let peak = form.peak_bytes(smallest)?;
        Some((peak, form.checkpoint_blocks))
    });
    let first = needs.clone().next().unwrap_or_default();
    let least = needs.min().unwrap_or_default();
    Err(DoesNotFit {
        micro_batch: smallest,
        predicted_peak_bytes: first.0,
        least,
        budget_bytes,
        enough_bytes: promised(least.0),
    })
}

/// A number that would do where `bytes` are forecast.
fn promised(bytes: u64) -> u64 {
    ((bytes as f64 * PROMISE) as u64).next_multiple_of(PROMISE_STEP)
}

#[cfg(test)]
#[path = "suggest/tests.rs"]
mod tests;
