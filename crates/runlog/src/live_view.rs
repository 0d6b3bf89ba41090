//! A run with what happened since its newest event.

use crate::event::RunEvent;
use crate::fold_events::Run;
use crate::live_state::Sample;
use crate::run_view::{Figures, LevelSpan, StepProgress};

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
        let Some(newest) = self.live_sample() else {
            return self.spans.all().to_vec();
        };
        self.spans.with_newest(LevelSpan {
            from_ms: newest.level_since_ms,
            to_ms: newest.at_ms,
            level: newest.level,
        })
    }
}
