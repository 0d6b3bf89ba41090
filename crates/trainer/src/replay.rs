//! The schedule of a recorded run, micro-batches and blocks computed twice, so that another run can repeat it bit for bit.

use pressure::{Action, Change, Decision};
use runlog::RunEvent;
use std::collections::HashMap;

/// Pieces by step (counted from 1): samples, and blocks that keep their input only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay(HashMap<u64, Vec<(u32, u32)>>);

impl Replay {
    /// Reads the schedule out of a run's events. A later life of the run overwrites the steps it repeated.
    pub fn from_events(events: &[RunEvent]) -> Self {
        let steps = events.iter().filter_map(|event| match event {
            RunEvent::Step {
                step,
                micro_batches: pieces,
                checkpoint_blocks: blocks,
                ..
            } => {
                let blocks = blocks.iter().copied().chain(std::iter::repeat(0));
                Some((*step, pieces.iter().copied().zip(blocks).collect()))
            }
            _ => None,
        });
        Replay(steps.collect())
    }

    /// What the recorded run did in the place of `decision`; the decision itself where it did nothing. `position` is step and
    /// piece, `most` the blocks that there are.
    pub(crate) fn over(
        &self,
        decision: Decision,
        (step, piece): (u64, usize),
        remaining: u32,
        most: u32,
    ) -> Decision {
        let Some((size, blocks)) = self.piece(step, piece) else {
            return decision;
        };
        Decision {
            micro_batch: size.min(remaining),
            checkpoint_blocks: blocks.min(most),
            action: Action::Run,
            change: Change::Hold,
            reason: "the schedule of the recorded run".to_owned(),
            ..decision
        }
    }

    /// Size and blocks of piece `piece` (from 0) of step `step` (from 1).
    pub fn piece(&self, step: u64, piece: usize) -> Option<(u32, u32)> {
        self.0.get(&step)?.get(piece).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, pieces: &[u32], blocks: &[u32]) -> RunEvent {
        RunEvent::Step {
            at_ms: 0,
            step,
            epoch: 0,
            loss: 1.0,
            learning_rate: 0.1,
            gradient_norm: 1.0,
            samples_per_second: 1.0,
            wait_ms: 0.0,
            micro_batches: pieces.to_vec(),
            checkpoint_blocks: blocks.to_vec(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_resumed_life_overwrites_the_steps_it_repeated() {
        let replay = Replay::from_events(&[
            step(1, &[4, 4], &[]),
            step(2, &[8], &[]),
            step(2, &[1, 7], &[0, 3]),
        ]);
        assert_eq!(replay.piece(1, 1), Some((4, 0)));
        assert_eq!(replay.piece(2, 0), Some((1, 0)));
        assert_eq!(replay.piece(2, 1), Some((7, 3)));
        assert_eq!(replay.piece(2, 2), None);
        assert_eq!(replay.piece(3, 0), None);
    }
}
