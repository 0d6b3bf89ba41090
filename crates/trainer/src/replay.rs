//! The schedule of a recorded run: micro-batches and checkpointed blocks, and in a group who
//! processed which samples. Another run that follows it repeats the recorded one bit for bit.

use pressure::{Action, Change, Decision};
use runlog::RunEvent;
use std::collections::HashMap;

/// The recorded steps, counted from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay(HashMap<u64, RecordedStep>);

/// A step of a recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordedStep {
    /// Samples and checkpointed blocks of each micro-batch.
    micro_batches: Vec<(u32, u32)>,
    /// Rank, first sample and number of samples of each micro-batch; empty for a run on one
    /// machine.
    ledger: Vec<(u32, u32, u32)>,
}

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
                ledger,
                ..
            } => {
                let blocks = blocks.iter().copied().chain(std::iter::repeat(0));
                let recorded = RecordedStep {
                    micro_batches: micro_batches.iter().copied().zip(blocks).collect(),
                    ledger: ledger.clone(),
                };
                Some((*step, recorded))
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

    /// Number of processes that trained the recorded run.
    pub fn ranks(&self) -> u32 {
        let ledgers = self.0.values().flat_map(|step| &step.ledger);
        ledgers
            .map(|(rank, ..)| rank.saturating_add(1))
            .max()
            .unwrap_or(1)
    }

    /// The ledgers of the steps after `done`, up to the first one that no group processed.
    pub(crate) fn ledgers(&self, done: u64) -> Vec<Vec<(u32, u32, u32)>> {
        let steps = (done + 1..).map_while(|step| self.0.get(&step));
        let ledgers = steps.map(|step| step.ledger.clone());
        ledgers.take_while(|ledger| !ledger.is_empty()).collect()
    }

    /// Samples and checkpointed blocks of the micro-batch at `position`.
    fn micro_batch(&self, position: Position) -> Option<(u32, u32)> {
        let micro_batches = &self.0.get(&position.step)?.micro_batches;
        micro_batches.get(position.micro_batch).copied()
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
            ledger: Vec::new(),
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

    #[test]
    fn ledgers_end_with_the_first_step_that_no_group_processed() {
        let in_group = |number, shares: &[(u32, u32, u32)]| {
            let mut event = step(number, &[2], &[]);
            if let RunEvent::Step { ledger, .. } = &mut event {
                *ledger = shares.to_vec();
            }
            event
        };
        let replay = Replay::from_events(&[
            in_group(1, &[(0, 0, 2)]),
            in_group(2, &[(1, 0, 1), (0, 1, 1)]),
            in_group(3, &[(2, 0, 2)]),
            step(4, &[2], &[]),
            in_group(5, &[(3, 0, 2)]),
        ]);
        assert_eq!(replay.ranks(), 4);
        let expected = [vec![(1, 0, 1), (0, 1, 1)], vec![(2, 0, 2)]];
        assert_eq!(replay.ledgers(1), expected);
        assert!(replay.ledgers(3).is_empty());
    }
}
