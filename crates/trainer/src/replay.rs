//! The micro-batch schedule of a recorded run, so that another run can repeat it bit for bit.

use runlog::RunEvent;
use std::collections::HashMap;

/// Pieces by step (counted from 1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay(HashMap<u64, Vec<u32>>);

impl Replay {
    /// Reads the schedule out of a run's events. A later life of the run overwrites the steps it repeated.
    pub fn from_events(events: &[RunEvent]) -> Self {
        let steps = events.iter().filter_map(|event| match event {
            RunEvent::Step { step, pieces, .. } => Some((*step, pieces.clone())),
            _ => None,
        });
        Replay(steps.collect())
    }

    /// Size of piece `piece` (from 0) of step `step` (from 1).
    pub fn size(&self, step: u64, piece: usize) -> Option<u32> {
        self.0.get(&step)?.get(piece).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, pieces: &[u32]) -> RunEvent {
        RunEvent::Step {
            at_ms: 0,
            step,
            epoch: 0,
            loss: 1.0,
            learning_rate: 0.1,
            gradient_norm: 1.0,
            samples_per_second: 1.0,
            wait_ms: 0.0,
            pieces: pieces.to_vec(),
        }
    }

    #[test]
    fn a_resumed_life_overwrites_the_steps_it_repeated() {
        let replay = Replay::from_events(&[step(1, &[4, 4]), step(2, &[8]), step(2, &[1, 7])]);
        assert_eq!(replay.size(1, 1), Some(4));
        assert_eq!(replay.size(2, 0), Some(1));
        assert_eq!(replay.size(2, 2), None);
        assert_eq!(replay.size(3, 0), None);
    }
}
