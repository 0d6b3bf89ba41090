//! The part of the controller's knowledge that survives a restart of the run: what micro-batches
//! need, and how fast each size is.
//!
//! Saved is what holds for the run on its machine: the memory model and, for each kind of
//! micro-batch, the size, the batch, the cost of a sample, the speeds, the count, and whether the
//! slow start was over. The batch is saved because the first question after a restart can be about
//! the short last batch of an epoch. Not saved is what held at a moment, because the clock starts
//! again and other apps have changed: the history of others and its margin, pressure and level,
//! waits, calm times, voluntary changes, failures, recovery steps, and refused sizes (those expire
//! after two minutes anyway).

use crate::controller_state::ControllerState;
use crate::decision::MicroBatchKind;
use crate::memory_model::MemoryModel;
use crate::micro_batch_sizes::{Speed, Track, Tracks};
use crate::speed_comparison::SpeedComparison;
use serde::{Deserialize, Serialize};

/// What a controller has learned of a run's micro-batches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PersistedState {
    model: MemoryModel,
    tracks: Vec<(MicroBatchKind, PersistedTrack)>,
}

/// The saved part of a [`Track`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PersistedTrack {
    size: u32,
    /// 0 in files of earlier versions.
    #[serde(default)]
    batch: u32,
    /// 0 in files of earlier versions.
    #[serde(default)]
    sample_cost: f64,
    starting: bool,
    #[serde(alias = "pieces")]
    micro_batches: u32,
    speeds: Vec<Speed>,
    /// Empty in files of earlier versions.
    #[serde(default)]
    compared: SpeedComparison,
}

impl From<&Track> for PersistedTrack {
    fn from(track: &Track) -> Self {
        Self {
            // A session that ends before its first decision saves the state of the session before.
            size: if track.size == 0 {
                track.earlier_size
            } else {
                track.size
            },
            batch: track.batch,
            sample_cost: track.sample_cost,
            starting: track.starting,
            micro_batches: track.micro_batches,
            speeds: track.speeds.clone(),
            compared: track.compared.clone(),
        }
    }
}

impl From<PersistedTrack> for Track {
    fn from(saved: PersistedTrack) -> Self {
        Self {
            earlier_size: saved.size,
            // No size was ever larger than its batch.
            batch: saved.batch.max(saved.size),
            sample_cost: saved.sample_cost,
            starting: saved.starting,
            micro_batches: saved.micro_batches,
            speeds: saved.speeds,
            compared: saved.compared,
            ..Self::default()
        }
    }
}

impl PersistedState {
    /// The part of a controller that is worth saving.
    pub fn new(state: &ControllerState, model: &MemoryModel) -> Self {
        // The next process starts with all moments in memory.
        let mut model = model.clone();
        model.state_grew(state.rules.recovery.mapped_bytes());
        let tracks = state.rules.tracks.iter();
        Self {
            model,
            tracks: tracks.map(|(kind, track)| (*kind, track.into())).collect(),
        }
    }

    /// The controller at the start of the next process. The first decision of each kind uses the
    /// earlier size, or as much of it as fits.
    pub fn restore(self) -> (ControllerState, MemoryModel) {
        let tracks = self.tracks.into_iter();
        let tracks: Tracks = tracks.map(|(kind, saved)| (kind, saved.into())).collect();
        let mut state = ControllerState::default();
        state.rules.tracks = tracks;
        (state, self.model)
    }

    /// The micro-batch of this kind; 0 if none was decided.
    pub fn micro_batch(&self, kind: MicroBatchKind) -> u32 {
        let found = self.tracks.iter().find(|(k, _)| *k == kind);
        found.map_or(0, |(_, track)| track.size)
    }
}

#[cfg(test)]
mod tests;
