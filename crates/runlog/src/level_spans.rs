//! The periods of warning and critical memory level of a run. The charts tint them.

use crate::run_view::LevelSpan;
use pressure::Level;

/// The periods, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct LevelSpans {
    spans: Vec<LevelSpan>,
    /// Whether the newest period still lasts.
    is_open: bool,
}

impl LevelSpans {
    /// Adds that the level is `level` at `at_ms`. A period lasts until the next level is known.
    pub fn add(&mut self, at_ms: u64, level: Level) {
        if let Some(span) = self.spans.last_mut().filter(|_| self.is_open) {
            span.to_ms = at_ms.max(span.from_ms);
            if span.level == level {
                return;
            }
        }
        self.is_open = level != Level::Normal;
        if self.is_open {
            self.spans.push(LevelSpan {
                from_ms: at_ms,
                to_ms: at_ms,
                level,
            });
        }
    }

    /// Discards what was after `at_ms`, the time of the checkpoint that the run was resumed from.
    /// No period lasts any longer.
    pub fn truncate_after(&mut self, at_ms: u64) {
        self.spans.retain(|span| span.from_ms <= at_ms);
        for span in &mut self.spans {
            span.to_ms = span.to_ms.min(at_ms);
        }
        self.is_open = false;
    }

    pub fn all(&self) -> &[LevelSpan] {
        &self.spans
    }

    /// The periods if `newest.level` holds from `newest.from_ms` until `newest.to_ms`.
    pub fn with_newest(&self, newest: LevelSpan) -> Vec<LevelSpan> {
        let mut spans = self.spans.clone();
        if newest.level == Level::Normal {
            return spans;
        }
        let is_open = self.is_open;
        match spans
            .last_mut()
            .filter(|last| is_open && last.level == newest.level)
        {
            Some(last) => last.to_ms = newest.to_ms,
            None => spans.push(newest),
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ms: u64, to_ms: u64, level: Level) -> LevelSpan {
        LevelSpan {
            from_ms,
            to_ms,
            level,
        }
    }

    fn spans(levels: &[(u64, Level)]) -> LevelSpans {
        let mut spans = LevelSpans::default();
        for (at_ms, level) in levels {
            spans.add(*at_ms, *level);
        }
        spans
    }

    #[test]
    fn a_period_lasts_until_the_next_level() {
        let spans = spans(&[
            (10, Level::Normal),
            (20, Level::Warning),
            (30, Level::Warning),
            (40, Level::Critical),
            (50, Level::Normal),
            (60, Level::Normal),
        ]);
        let expected = [span(20, 40, Level::Warning), span(40, 50, Level::Critical)];
        assert_eq!(spans.all(), expected);
    }

    #[test]
    fn a_resumption_ends_the_period_at_its_checkpoint() {
        let mut spans = spans(&[(20, Level::Warning), (40, Level::Critical)]);
        spans.truncate_after(30);
        assert_eq!(spans.all(), [span(20, 30, Level::Warning)]);
        spans.add(35, Level::Warning);
        let expected = [span(20, 30, Level::Warning), span(35, 35, Level::Warning)];
        assert_eq!(spans.all(), expected);
    }

    #[test]
    fn the_newest_level_extends_its_period_or_begins_one() {
        let warning = spans(&[(20, Level::Warning)]);
        let later = |level| warning.with_newest(span(25, 28, level));
        assert_eq!(later(Level::Normal), warning.all());
        assert_eq!(later(Level::Warning), [span(20, 28, Level::Warning)]);
        let critical = later(Level::Critical);
        assert_eq!(critical[1..], [span(25, 28, Level::Critical)]);
        let normal = spans(&[(20, Level::Warning), (22, Level::Normal)]);
        assert_eq!(normal.with_newest(span(25, 28, Level::Warning)).len(), 2);
    }
}
