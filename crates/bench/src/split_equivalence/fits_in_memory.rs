//! Refuses an effective batch whose unsplit gradient does not fit into memory. One sample is
//! computed first, and the counting allocator measures it. On a GPU, and in a binary without that
//! allocator, nothing is refused here.

use pressure::{ControllerState, Policy, budget_bytes};
use runlog::format_bytes;
use std::ops::Range;
use tape::Parameters;
use tape::counting_allocator::{live_bytes, take_peak_bytes};
use trainer::internals::MicroBatchResult;
use trainer::{Machine, Result, TrainError};

/// How far the budget looks ahead, in milliseconds. A micro-batch is short.
const HORIZON_MS: u64 = 1_000;

/// Checks that the unsplit gradient of `samples` fits into the budget. `gradients` gives the sums
/// of a range of samples.
///
/// # Errors
/// The gradient does not fit; the message gives the number of samples that does.
pub fn check_memory(
    machine: &Machine,
    parameters: &Parameters,
    samples: usize,
    mut gradients: impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
) -> Result<()> {
    let before = live_bytes();
    take_peak_bytes();
    drop(gradients(0..1)?);
    let sample_bytes = take_peak_bytes().saturating_sub(before);
    let sample = machine.open()?.sample()?;
    let budget = budget_bytes(
        &Policy::default(),
        &ControllerState::default(),
        &sample,
        HORIZON_MS,
    );
    let free = budget.saturating_sub(sample.own_bytes);
    let most = fitting_samples(sample_bytes, parameters.bytes(), free, samples);
    if most >= samples {
        return Ok(());
    }
    Err(TrainError::Setting {
        key: "effective_batch",
        value: samples.to_string(),
        allowed: format!(
            "the check also computes the whole batch as one micro-batch. {} of memory is free, and one sample takes {}, so at most {most} samples fit",
            format_bytes(free),
            format_bytes(sample_bytes)
        ),
    })
}

/// Samples of the largest micro-batch, up to `wanted`, that fits beside the three gradients of a
/// comparison. A micro-batch of one sample peaks at `sample_bytes`, of which the gradient takes
/// `gradient_bytes`.
fn fitting_samples(
    sample_bytes: u64,
    gradient_bytes: u64,
    free_bytes: u64,
    wanted: usize,
) -> usize {
    let each = sample_bytes.saturating_sub(gradient_bytes);
    let free = free_bytes.saturating_sub(3 * gradient_bytes);
    match free.checked_div(each) {
        None => wanted,
        Some(fitting) => wanted.min(fitting as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::fitting_samples;

    #[test]
    fn the_micro_batch_and_three_gradients_must_fit() {
        assert_eq!(fitting_samples(15, 5, 115, 16), 10);
        assert_eq!(fitting_samples(15, 5, 1_000, 16), 16);
        assert_eq!(fitting_samples(15, 5, 14, 16), 0);
        assert_eq!(fitting_samples(0, 5, 0, 16), 16);
    }
}
