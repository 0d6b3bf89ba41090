//! The schedule of a recorded run: micro-batches and checkpointed blocks. Another run that follows
//! it repeats the recorded one bit for bit.

use pressure::{Action, Change, Decision};
use runlog::RunEvent;
use std::collections::HashMap;

/// Micro-batches by step (counted from 1): samples and checkpointed blocks of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay(HashMap<u64, Vec<(u32, u32)>>);

/// Which micro-batch of a run is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Step, counted from 1.
    pub step: u64,
    /// Micro-batches of this step done before, that is its index from 0.
    pub micro_batch: usize,
}

impl Replay {
    /// Reads the schedule from a run's events. If the run was resumed and repeated a step, the last
    /// repetition counts.
    pub fn from_events(events: &[RunEvent]) -> Self {
        let steps = events.iter().filter_map(|event| match event {
            RunEvent::Step {
                step,
                micro_batches,
                checkpoint_blocks: blocks,
                ..
            } => {
                let blocks = blocks.iter().copied().chain(std::iter::repeat(0));
                Some((*step, micro_batches.iter().copied().zip(blocks).collect()))
            }
            _ => None,
        });
        Replay(steps.collect())
    }

    /// Replaces the micro-batch and the checkpointed blocks of `decision` with the recorded ones.
    /// Returns `decision` unchanged if nothing was recorded at `position`. A micro-batch has at
    /// most `remaining` samples and at most `blocks` checkpointed blocks.
    pub(crate) fn apply(
        &self,
        decision: Decision,
        position: Position,
        remaining: u32,
        blocks: u32,
    ) -> Decision {
        let Some((size, checkpointed)) = self.micro_batch(position) else {
            return decision;
        };
        Decision {
            micro_batch: size.min(remaining),
            checkpoint_blocks: checkpointed.min(blocks),
            action: Action::Run,
            change: Change::Hold,
            reason: "the schedule of the recorded run".to_owned(),
            ..decision
        }
    }

    /// Samples and checkpointed blocks of the micro-batch at `position`.
    fn micro_batch(&self, position: Position) -> Option<(u32, u32)> {
        self.0
            .get(&position.step)?
            .get(position.micro_batch)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, micro_batches: &[u32], blocks: &[u32]) -> RunEvent {
        RunEvent::Step {
            at_ms: 0,
            step,
            epoch: 0,
            loss: 1.0,
            learning_rate: 0.1,
            gradient_norm: 1.0,
            samples_per_second: 1.0,
            wait_ms: 0.0,
            command_buffer_ms: None,
            micro_batches: micro_batches.to_vec(),
            checkpoint_blocks: blocks.to_vec(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_repeated_step_replaces_its_first_recording() {
        let replay = Replay::from_events(&[
            step(1, &[4, 4], &[]),
            step(2, &[8], &[]),
            step(2, &[1, 7], &[0, 3]),
        ]);
        let at = |step, micro_batch| replay.micro_batch(Position { step, micro_batch });
        assert_eq!(at(1, 1), Some((4, 0)));
        assert_eq!(at(2, 0), Some((1, 0)));
        assert_eq!(at(2, 1), Some((7, 3)));
        assert_eq!(at(2, 2), None);
        assert_eq!(at(3, 0), None);
    }
}
