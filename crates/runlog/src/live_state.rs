//! What a run shows between two events: the memory samples since the last one, the progress of the
//! step, and a clock that does not wait for the training. Nothing of it is in the run folder.

use crate::event::{MemoryPeak, RunEvent};
use crate::run_view::StepProgress;
use crate::time_series::Series;
use pressure::{Level, MemorySample, Thermal};

/// Values of each memory sample: see [`memory_values`].
pub(crate) const MEMORY_COLUMNS: usize = 9;
/// Samples within this time become one point, which has the highest footprint of them.
const POINT_MS: u64 = 500;
/// Most points without an event; then older ones are dropped.
const MAX_POINTS: usize = 4096;

/// What is known beyond the newest event.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveState {
    /// The newest sample.
    pub(crate) newest: Option<Sample>,
    /// Points after the newest memory event.
    points: Series<MEMORY_COLUMNS>,
    /// Start of the newest point and its highest footprint.
    pub(crate) open: Option<(u64, MemoryPeak)>,
    pub(crate) progress: Option<StepProgress>,
}

/// The newest sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub own_bytes: u64,
    pub pressure: f64,
    pub level: Level,
    /// Since when the level holds.
    pub level_since_ms: u64,
    pub at_ms: u64,
}

/// System, other apps, state, activations, cached, budget line, limit, swap; in bytes. Then the
/// thermal state from 0 to 3, NaN if it is unknown.
pub(crate) fn memory_values(event: &RunEvent) -> Option<[f64; MEMORY_COLUMNS]> {
    let RunEvent::Memory {
        sample,
        state_bytes,
        budget_bytes,
        peak,
        limit_bytes,
        ..
    } = event
    else {
        return None;
    };
    let peak = peak.unwrap_or_else(|| MemoryPeak::from_sample(sample));
    let state = (*state_bytes).min(peak.own_bytes);
    let cached = peak.cached_bytes.min(peak.own_bytes - state);
    // The budget is a footprint; its line is drawn on top of the memory that others use.
    let line = sample.system_bytes + sample.others_bytes() + budget_bytes;
    let bytes = [
        sample.system_bytes,
        peak.others_bytes,
        state,
        peak.own_bytes - state - cached,
        cached,
        line,
        *limit_bytes,
        sample.swap_used_bytes,
    ];
    let mut values = [f64::NAN; MEMORY_COLUMNS];
    for (value, bytes) in values.iter_mut().zip(bytes) {
        *value = bytes as f64;
    }
    if *limit_bytes == 0 {
        values[6] = f64::NAN;
    }
    values[8] = thermal(sample);
    Some(values)
}

fn thermal(sample: &MemorySample) -> f64 {
    match sample.thermal {
        None => f64::NAN,
        Some(Thermal::Nominal) => 0.0,
        Some(Thermal::Fair) => 1.0,
        Some(Thermal::Serious) => 2.0,
        Some(Thermal::Critical) => 3.0,
    }
}

impl LiveState {
    /// Adds a sample to the newest point, or begins a new one.
    pub(crate) fn add(&mut self, at_ms: u64, event: &RunEvent, sample: &MemorySample) {
        let now = MemoryPeak::from_sample(sample);
        let open = self.open.filter(|(since, _)| at_ms < since + POINT_MS);
        let peak = open.map_or(now, |(_, peak)| peak.max(now));
        if open.is_some() {
            self.points.truncate(self.points.len().saturating_sub(1));
        } else if self.points.len() >= MAX_POINTS {
            self.points = Series::default();
        }
        self.open = Some((open.map_or(at_ms, |(since, _)| since), peak));
        let mut event = event.clone();
        if let RunEvent::Memory { peak: drawn, .. } = &mut event {
            *drawn = Some(peak);
        }
        if let Some(values) = memory_values(&event) {
            self.points.push(at_ms as f64, values);
        }
    }

    /// Forgets the samples up to an event that has them.
    pub(crate) fn event_arrived(&mut self, at_ms: u64) {
        let newer = self
            .points
            .at_ms()
            .last()
            .is_some_and(|at| *at > at_ms as f64);
        if newer {
            self.points.drop_until(at_ms as f64);
        } else {
            (self.points, self.open) = (Series::default(), None);
        }
    }

    pub(crate) fn points(&self) -> &Series<MEMORY_COLUMNS> {
        &self.points
    }
}
