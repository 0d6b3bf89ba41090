//! What a run shows between two events: the memory samples since the last one, the progress of the
//! step, and a clock that does not wait for the training. Nothing of it is in the run folder.

use crate::event::{MemoryPeak, RunEvent};
use crate::reduce::Run;
use crate::series::Series;
use crate::view::{Figures, LevelSpan, StepProgress};
use pressure::{Level, MemorySample, Thermal};

/// Values of each memory sample: see [`memory_values`].
pub(crate) const MEMORY_COLUMNS: usize = 9;
/// Samples within this time become one point, which has the highest footprint of them.
const POINT_MS: u64 = 500;
/// Most points without an event; then older ones are dropped.
const MAX_POINTS: usize = 4096;

/// What is known beyond the newest event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    /// The newest sample.
    newest: Option<Sample>,
    /// Points after the newest memory event.
    points: Series<MEMORY_COLUMNS>,
    /// Start of the newest point and its highest footprint.
    open: Option<(u64, MemoryPeak)>,
    pub(crate) progress: Option<StepProgress>,
}

/// The newest sample.
#[derive(Debug, Clone, Copy)]
struct Sample {
    own_bytes: u64,
    pressure: f64,
    level: Level,
    /// Since when the level holds.
    level_since_ms: u64,
    at_ms: u64,
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

impl Live {
    /// Adds a sample to the newest point, or begins a new one.
    fn add(&mut self, at_ms: u64, event: &RunEvent, sample: &MemorySample) {
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

impl Run {
    /// Shows a memory sample that is no event of the run: a `RunEvent::Memory` whose `sample` was
    /// just read. Other events are ignored, and so are samples before the run's clock.
    pub fn show_sample(&mut self, event: &RunEvent) {
        let RunEvent::Memory {
            at_ms,
            sample,
            pressure,
            level,
            ..
        } = event
        else {
            return;
        };
        if self.status.has_ended()
            || self
                .memory
                .last()
                .is_some_and(|(at, _)| at >= *at_ms as f64)
        {
            return;
        }
        let before = self.live.newest.map_or(
            (self.figures.level, self.figures.level_since_ms),
            |newest| (newest.level, newest.level_since_ms),
        );
        let level_since_ms = if before.0 == *level { before.1 } else { *at_ms };
        self.live.newest = Some(Sample {
            own_bytes: sample.own_bytes,
            pressure: *pressure,
            level: *level,
            level_since_ms,
            at_ms: *at_ms,
        });
        self.live.add(*at_ms, event, sample);
        self.advance(*at_ms);
    }

    /// Shows how far the running step is.
    pub fn show_progress(&mut self, progress: StepProgress) {
        self.live.progress = Some(progress);
        self.version += 1;
    }

    /// Moves the clock of a run that has not ended.
    pub fn advance(&mut self, now_ms: u64) {
        if !self.status.has_ended() && now_ms > self.now_ms {
            self.now_ms = now_ms;
            self.version += 1;
        }
    }

    /// The newest sample, if no event is newer.
    fn live_sample(&self) -> Option<Sample> {
        let last = self.memory.last().map_or(0.0, |(at, _)| at);
        self.live.newest.filter(|newest| newest.at_ms as f64 > last)
    }

    /// The figures, with the newest sample.
    pub(crate) fn live_figures(&self) -> Figures {
        let mut figures = self.figures.clone();
        if let Some(newest) = self.live_sample() {
            let peak = self.live.open.map_or(0, |(_, peak)| peak.own_bytes);
            figures.own_bytes = Some(peak.max(newest.own_bytes));
            figures.pressure = Some(newest.pressure);
            (figures.level, figures.level_since_ms) = (newest.level, newest.level_since_ms);
        }
        figures
    }

    /// The periods of elevated level, with the newest sample.
    pub(crate) fn live_spans(&self) -> Vec<LevelSpan> {
        let mut spans = self.spans.clone();
        let Some(newest) = self.live_sample() else {
            return spans;
        };
        if newest.level == Level::Normal {
            return spans;
        }
        match spans
            .last_mut()
            .filter(|_| self.figures.level == newest.level)
        {
            Some(span) => span.to_ms = newest.at_ms,
            None => spans.push(LevelSpan {
                from_ms: newest.level_since_ms,
                to_ms: newest.at_ms,
                level: newest.level,
            }),
        }
        spans
    }
}
