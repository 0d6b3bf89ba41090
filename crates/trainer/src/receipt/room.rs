//! Whether there is room for the unsplit gradient. A piece of one sample is worked first and measured by the heap's own
//! count; where that does not count (a binary without the counting allocator, a GPU) nothing is refused here.

use crate::error::{Result, TrainError};
use crate::machine::Machine;
use crate::task::TrainedPiece;
use pressure::{Policy, ControllerState, budget_bytes};
use runlog::format_bytes;
use std::ops::Range;
use tape::Parameters;
use tape::memory::{live_bytes, take_peak_bytes};

/// How far the budget looks ahead, in milliseconds: a piece is short.
const HORIZON_MS: u64 = 1_000;

/// Refuses an effective batch whose unsplit gradient would go over the budget.
pub fn ask(
    machine: &Machine,
    parameters: &Parameters,
    samples: usize,
    mut piece: impl FnMut(Range<usize>) -> Result<TrainedPiece>,
) -> Result<()> {
    let before = live_bytes();
    take_peak_bytes();
    drop(piece(0..1)?);
    let one = take_peak_bytes().saturating_sub(before);
    let sample = machine.open()?.sample()?;
    let budget = budget_bytes(&Policy::default(), &ControllerState::default(), &sample, HORIZON_MS);
    let free = budget.saturating_sub(sample.own_bytes);
    match fit(one, parameters.bytes(), free, samples) {
        most if most >= samples => Ok(()),
        most => Err(TrainError::Setting {
            key: "effective_batch",
            value: samples.to_string(),
            allowed: format!(
                "the unsplit gradient is computed in one piece, {} are free for it and one sample takes {}; at most {most} samples fit",
                format_bytes(free),
                format_bytes(one)
            ),
        }),
    }
}

/// Samples of the largest piece that fits beside the three gradients of a comparison. A piece of one sample peaks at `one` bytes.
fn fit(one: u64, gradient: u64, free: u64, wanted: usize) -> usize {
    let each = one.saturating_sub(gradient);
    let free = free.saturating_sub(3 * gradient);
    match each {
        0 => wanted,
        each => wanted.min((free / each) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn the_piece_and_three_gradients_must_fit() {
        assert_eq!(fit(15, 5, 115, 16), 10);
        assert_eq!(fit(15, 5, 1_000, 16), 16);
        assert_eq!(fit(15, 5, 14, 16), 0);
        assert_eq!(fit(0, 5, 0, 16), 16);
    }
}
