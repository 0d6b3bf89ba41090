//! What a run keeps of its pilot from one life to the next: what its pieces need, and how fast its sizes are. Knows no file
//! and no machine: whoever keeps it says where it holds.
//!
//! Kept is what is true of the run on its machine: the memory model, and for each kind of piece its size, its speeds, its
//! count and whether the slow start was over. Left behind is what was true of a moment, because the next life's clock
//! begins anew and other apps have come and gone: the history of others and the margin worked out of it, pressure and level,
//! waiting, calm times, voluntary changes, setbacks, rungs taken, and sizes that were refused (those return after two minutes
//! anyway).
//! The largest batch and the cost of a sample are told by the first ask.

use crate::decision::PieceKind;
use crate::memory_model::MemoryModel;
use crate::state::{Speed, State, Track};
use serde::{Deserialize, Serialize};

/// What a pilot has learnt of a run's pieces.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Learnt {
    model: MemoryModel,
    tracks: Vec<(PieceKind, Kept)>,
}

/// What is kept of one kind of piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    size: u32,
    starting: bool,
    pieces: u32,
    speeds: Vec<Speed>,
}

impl Learnt {
    /// What is worth keeping of a pilot.
    pub fn of(state: &State, model: &MemoryModel) -> Self {
        let kept = |track: &Track| Kept {
            // A life that ended before its first decision keeps what the life before it knew.
            size: match track.size {
                0 => track.earlier_size,
                size => size,
            },
            starting: track.starting,
            pieces: track.pieces,
            speeds: track.speeds.clone(),
        };
        // The next life begins with all of its moments in memory.
        let mut model = model.clone();
        model.state_grew(state.rungs.mapped_bytes());
        Self {
            model,
            tracks: (state.tracks.iter())
                .map(|(kind, track)| (*kind, kept(track)))
                .collect(),
        }
    }

    /// The controller's memory at the beginning of a new life. The first decision of each kind asks for the earlier size, or
    /// for as much of it as fits now.
    pub fn take_up(self) -> (State, MemoryModel) {
        let track = |kept: Kept| Track {
            earlier_size: kept.size,
            starting: kept.starting,
            pieces: kept.pieces,
            speeds: kept.speeds,
            ..Track::default()
        };
        let state = State {
            tracks: (self.tracks.into_iter())
                .map(|(kind, kept)| (kind, track(kept)))
                .collect(),
            ..State::default()
        };
        (state, self.model)
    }

    /// The size that a piece of this kind had; 0 where none was decided.
    pub fn micro_batch(&self, kind: PieceKind) -> u32 {
        let found = self.tracks.iter().find(|(k, _)| *k == kind);
        found.map_or(0, |(_, kept)| kept.size)
    }
}

#[cfg(test)]
#[path = "learnt/tests.rs"]
mod tests;
