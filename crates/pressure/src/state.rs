//! What the controller remembers between two decisions. Plain data with small questions; the rules are in
//! `controller.rs`. It has no clock: every time is a sample's.

use crate::decision::{Action, PieceKind, Prefetch};
use crate::keeping::Keeping;
use crate::policy::Policy;
use crate::rungs::{Reserve, Rungs};
use crate::sample::{Level, MemorySample};
use crate::signal::{LevelTracker, Reading};
use crate::stopping::Ending;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Finest distance of the history, milliseconds: half of the monitor's fastest beat.
const HISTORY_STEP_MS: u64 = 25;

/// The controller's memory. Begin with `State::default()`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// `(at_ms, bytes that others and the system use)`, oldest first.
    pub(crate) others: VecDeque<(u64, u64)>,
    /// Margin for sudden growth of others, bytes, and when it was worked out.
    pub(crate) margin: Option<(u64, u64)>,
    /// Shown level and pressure.
    pub(crate) shown: LevelTracker,
    pub(crate) reading: Reading,
    /// Pressure of memory alone, which growth waits for.
    pub(crate) memory_reading: Reading,
    /// Sizes and speeds, apart for each kind of piece.
    pub(crate) tracks: Vec<(PieceKind, Track)>,
    /// Kind of the decision before.
    pub(crate) last_kind: Option<PieceKind>,
    pub(crate) waiting: Waiting,
    /// Footprint without a piece, as it was read while paused, bytes: caches are given back then.
    pub(crate) held_bytes: Option<u64>,
    /// Parking has dropped the state, which is not back yet.
    pub(crate) dropped: bool,
    /// What the decision before was.
    pub(crate) last_action: Action,
    pub(crate) last_prefetch: Prefetch,
    /// Samples of the newest piece, which can be fewer than the micro-batch.
    pub(crate) last_micro_batch: u32,
    /// A piece that ended badly and has not been answered yet.
    pub(crate) setback: Option<Setback>,
    /// Times of voluntary changes within the last minute.
    pub(crate) voluntary: VecDeque<u64>,
    pub(crate) last_up_ms: Option<u64>,
    pub(crate) last_down_ms: Option<u64>,
    /// Calm asked for before growing, milliseconds; 0 stands for the policy's.
    pub(crate) calm_needed_ms: u64,
    /// Samples are decoded less far ahead: since when, and how many bytes that gave back.
    pub(crate) shortened: Option<(u64, u64)>,
    /// Checkpointed blocks and the place of the moments.
    pub(crate) rungs: Rungs,
    /// Since when a run that waits to be stopped has had a reason.
    pub(crate) ending: Ending,
    /// The checkpoint that a park rests on.
    pub(crate) keeping: Keeping,
    /// Last answer to a critical sample.
    pub(crate) critical_answered_ms: Option<u64>,
    /// Last time that caches were given back.
    pub(crate) released_ms: Option<u64>,
    /// Last step of the rules without a model.
    pub(crate) blind_step_ms: Option<u64>,
    /// Pieces since caches were given back, without a reading.
    pub(crate) pieces_since_release: u32,
}

/// What the pilot waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Waiting {
    #[default]
    No,
    Paused,
    Parked,
}

/// How the last piece failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setback {
    pub(crate) kind: PieceKind,
    pub(crate) micro_batch: u32,
    pub(crate) refused: bool,
}

/// One kind of piece.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Track {
    /// The micro-batch; 0 before the first decision.
    pub(crate) size: u32,
    /// The micro-batch of an earlier life of the run, to begin with; 0 where there was none.
    pub(crate) earlier_size: u32,
    /// The most samples that were ever asked for at once: the effective batch, or the held-out samples.
    pub(crate) batch: u32,
    /// Still in the slow start: growth waits for nothing.
    pub(crate) starting: bool,
    /// Since when a larger size has fitted.
    pub(crate) calm_since_ms: Option<u64>,
    /// Speed by size.
    pub(crate) speeds: Vec<Speed>,
    /// A size that was refused, and when.
    pub(crate) refused: Option<(u32, u64)>,
    /// Cost of an ordinary sample, by the newest nearly whole batch.
    pub(crate) sample_cost: f64,
    /// Confirmed pieces, measured or not.
    pub(crate) pieces: u32,
    /// The highest peak of late, bytes, and when it was.
    pub(crate) needed: Option<(u64, u64)>,
}

/// How fast a size is, over unslowed pieces.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Speed {
    pub(crate) size: u32,
    pub(crate) ms_per_cost: f64,
    pub(crate) pieces: u32,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            size: 0,
            earlier_size: 0,
            batch: 0,
            sample_cost: 0.0,
            starting: true,
            calm_since_ms: None,
            speeds: Vec::new(),
            refused: None,
            pieces: 0,
            needed: None,
        }
    }
}

impl State {
    /// The same state, which knows what the run can give beside samples.
    #[must_use]
    pub fn with_reserve(mut self, reserve: Reserve) -> Self {
        self.rungs = Rungs::of(reserve);
        self
    }

    /// Free space of the disk that checkpoints go to, in bytes, where it is known. It counts beside the sample's own.
    pub fn tell_disk_free(&mut self, bytes: Option<u64>) {
        self.ending.disk_free_bytes = bytes;
    }

    /// The moments cannot go to a file after all: that rung is gone.
    pub fn give_no_moments(&mut self) {
        self.rungs.give_no_moments();
    }

    /// Blocks that a piece of this kind checkpoints now: those asked for, or more.
    pub fn checkpoint_blocks(&self, kind: PieceKind) -> u32 {
        self.rungs.blocks_of(kind)
    }

    /// The pressure level, with hysteresis.
    pub fn level(&self) -> Level {
        self.shown.level()
    }

    /// The newest pressure and its cause.
    pub fn reading(&self) -> Reading {
        self.reading
    }

    /// The micro-batch of this kind; 0 before its first decision.
    pub fn micro_batch(&self, kind: PieceKind) -> u32 {
        self.track(kind).map_or(0, |track| track.size)
    }

    /// How long a piece of the present size takes, milliseconds.
    pub(crate) fn piece_ms(&self, kind: PieceKind, cost: u64) -> Option<f64> {
        let track = self.track(kind)?;
        let speed = track
            .speeds
            .iter()
            .min_by_key(|speed| speed.size.abs_diff(track.size))?;
        Some(speed.ms_per_cost * cost as f64)
    }

    pub(crate) fn track(&self, kind: PieceKind) -> Option<&Track> {
        self.tracks
            .iter()
            .find(|(k, _)| *k == kind)
            .map(|(_, track)| track)
    }

    pub(crate) fn track_mut(&mut self, kind: PieceKind) -> &mut Track {
        let index = self
            .tracks
            .iter()
            .position(|(k, _)| *k == kind)
            .unwrap_or_else(|| {
                self.tracks.push((kind, Track::default()));
                self.tracks.len() - 1
            });
        &mut self.tracks[index].1
    }

    /// Adds a sample to the history of what others use. A sample that is no newer says nothing.
    pub(crate) fn remember(&mut self, policy: &Policy, sample: &MemorySample) {
        let others = sample
            .total_bytes
            .saturating_sub(sample.available_bytes)
            .saturating_sub(sample.own_bytes);
        let newest = self.others.back().map(|(at, _)| *at);
        if newest.is_some_and(|at| sample.at_ms < at + HISTORY_STEP_MS) {
            return;
        }
        self.others.push_back((sample.at_ms, others));
        while self
            .others
            .front()
            .is_some_and(|(at, _)| at + policy.history_ms < sample.at_ms)
        {
            self.others.pop_front();
        }
    }

    /// Takes in what is left of the footprint once a pause has given caches back; a reading from before that would count them.
    pub(crate) fn notice_held(&mut self, own_bytes: u64) {
        match self.last_action {
            Action::Park => self.dropped = true,
            Action::Run => self.dropped = false,
            Action::Pause if !self.dropped => self.held_bytes = Some(own_bytes),
            Action::Pause | Action::Stop => {}
        }
    }

    /// One more voluntary change is allowed at `at_ms`.
    pub(crate) fn may_change(&self, policy: &Policy, at_ms: u64) -> bool {
        let recent = self
            .voluntary
            .iter()
            .filter(|&&at| at_ms.saturating_sub(at) <= 60_000)
            .count();
        (recent as u32) < policy.changes_per_minute
    }

    /// Counts a voluntary change.
    pub(crate) fn count_change(&mut self, at_ms: u64) {
        self.voluntary
            .retain(|at| at_ms.saturating_sub(*at) <= 60_000);
        self.voluntary.push_back(at_ms);
    }
}
