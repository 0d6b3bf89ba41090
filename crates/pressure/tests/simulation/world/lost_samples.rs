//! Where samples are lost against the oracle: the difference of the two speeds in every tick, by
//! what Ebb did then. Judges nothing.

use super::{Outcome, TICK};
use std::collections::BTreeMap;

/// What the trainer did in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Activity {
    /// Nothing, because the system killed it.
    #[default]
    Killed,
    Works,
    /// Touches memory that is new to it.
    Touches,
    /// Works on a micro-batch that is cancelled later.
    Cancelled,
    /// Updates the weights, releases memory, or waits after a refused allocation.
    Updates,
    WritesCheckpoint,
    Pauses,
    IsSuspended,
    Restores,
}

/// A tick of the trainer. Speeds are ordinary samples per second.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tick {
    pub activity: Activity,
    pub speed: f64,
    /// The speed with the whole size that was decided.
    pub of_size: f64,
    /// The part of the time that the system takes by swapping.
    pub slowed: f64,
    /// Index of the reason for the size in [`Outcome::reasons`].
    pub reason: usize,
}

impl Tick {
    fn done(&self) -> f64 {
        match self.activity {
            Activity::Works => TICK * self.speed * (1.0 - self.slowed),
            _ => 0.0,
        }
    }
}

/// Losses as fractions of the oracle's samples, by cause, the greatest first.
pub fn lost_samples(ebb: &Outcome, oracle: &Outcome) -> Vec<(String, f64)> {
    let total: f64 = oracle.ticks.iter().map(Tick::done).sum();
    let mut lost: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |cause: String, samples: f64| *lost.entry(cause).or_default() += samples / total;
    for (ours, best) in ebb.ticks.iter().zip(&oracle.ticks) {
        let reason = || {
            let reason = ebb.reasons[ours.reason].chars();
            reason.filter(|c| !c.is_numeric()).collect::<String>()
        };
        match ours.activity {
            Activity::Works if best.activity != Activity::Works => {
                add(format!("{:?}", best.activity), -ours.done());
            }
            Activity::Works => {
                let of_size = best.done() - TICK * ours.of_size;
                add(format!("size: {}", reason()), of_size);
                add("split".into(), TICK * (ours.of_size - ours.speed));
                add("swapping".into(), TICK * ours.speed * ours.slowed);
            }
            Activity::Touches => add(format!("touches: {}", reason()), best.done()),
            other => add(format!("{other:?}"), best.done()),
        }
    }
    add("repeated steps".into(), ebb.repeated);
    let mut lost: Vec<_> = lost.into_iter().collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    lost
}
