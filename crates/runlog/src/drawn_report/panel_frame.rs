//! Shared parts of the report's panels: their positions, time axis, grid, level tint and legend.

use super::axis_ticks::Scale;
use super::canvas::{Align, Dashes, DrawResult, EDGE, Page, Point, Type, WIDTH, colour};
use crate::amounts::format_duration;
use crate::chart_data::Pull;
use crate::run_view::LevelSpan;
use plotters::prelude::{DrawingBackend, RGBColor};
use pressure::Level;

pub(super) const LEFT: f64 = EDGE + 36.0;
pub(super) const RIGHT: f64 = WIDTH - EDGE - 162.0;
pub(super) const MEMORY: Band = Band {
    top: 222.0,
    bottom: 462.0,
};
pub(super) const MICRO: Band = Band {
    top: 504.0,
    bottom: 604.0,
};
pub(super) const LOSS: Band = Band {
    top: 646.0,
    bottom: 806.0,
};
/// Bottom of the panels and their axis.
pub(super) const BOTTOM: f64 = 832.0;

const HEAD: Type = Type::strong(13.0, colour::TEXT);
const NOTE: Type = Type::plain(12.0, colour::TEXT_3);
const TICK: Type = Type::plain(11.0, colour::TEXT_3);
const NAME: Type = Type::plain(12.0, colour::TEXT_2);
pub(super) const VALUE: Type = Type::strong(12.0, colour::TEXT);

/// The vertical position of a panel.
#[derive(Clone, Copy)]
pub(super) struct Band {
    pub top: f64,
    pub bottom: f64,
}

impl Band {
    /// The y coordinate of a value on a scale from 0 to `top`.
    pub(super) fn y(&self, value: f64, top: f64) -> f64 {
        self.bottom - (value / top).clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

/// An entry of the legend at the right of a panel.
pub(super) struct LegendEntry {
    pub y: f64,
    pub key: Key,
    pub name: &'static str,
    pub value: String,
}

/// How a legend entry shows the style of its series.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Fill(RGBColor),
    Line(RGBColor),
    Dashes(RGBColor),
    Rhombus,
    Nothing,
}

/// The panels of one run.
pub(super) struct Panels<'a, B: DrawingBackend> {
    pub page: &'a Page<B>,
    pub pull: Pull,
    pub end_ms: f64,
}

impl<B: DrawingBackend> Panels<'_, B> {
    /// The x coordinate of a time.
    pub(super) fn x(&self, at_ms: f64) -> f64 {
        LEFT + (at_ms / self.end_ms).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// The points of a series, without values that are not a number.
    pub(super) fn points(&self, at: &str, value: &str, band: Band, top: f64) -> Vec<Point> {
        let pairs = self.pull.array(at).iter().zip(self.pull.array(value));
        let numbers = pairs.filter(|(_, value)| value.is_finite());
        numbers
            .map(|(at, value)| (self.x(*at), band.y(*value, top)))
            .collect()
    }

    /// Tints the background of all panels for a period of warning or critical level.
    pub(super) fn tint(&self, span: &LevelSpan) -> DrawResult {
        let (wash, strip, text) = match span.level {
            Level::Critical => (
                colour::CRITICAL_WASH,
                colour::CRITICAL,
                colour::CRITICAL_TEXT,
            ),
            _ => (colour::WARNING_WASH, colour::WARNING, colour::WARNING_TEXT),
        };
        let (from, to) = (self.x(span.from_ms as f64), self.x(span.to_ms as f64));
        let to = to.max(from + 1.0);
        self.page
            .rect((from, MEMORY.top), (to, LOSS.bottom), wash)?;
        self.page
            .rect((from, MEMORY.top - 4.0), (to, MEMORY.top), strip)?;
        let word = match span.level {
            Level::Critical => "critical",
            _ => "warning",
        };
        let kind = Type::strong(12.0, text);
        let title = LEFT + 110.0;
        if to - from < kind.width(word) + 18.0 || from < title {
            return Ok(());
        }
        self.level_glyph(span.level, (from + 6.0, MEMORY.top - 15.0), strip)?;
        self.page
            .text((from + 17.0, MEMORY.top - 11.0), word, kind, Align::Left)
    }

    /// A triangle for warning, an octagon for critical: the level must not be shown by color
    /// alone.
    fn level_glyph(&self, level: Level, (x, y): Point, ink: RGBColor) -> DrawResult {
        let outline: &[Point] = match level {
            Level::Critical => &[
                (-2.5, -6.0),
                (2.5, -6.0),
                (6.0, -2.5),
                (6.0, 2.5),
                (2.5, 6.0),
                (-2.5, 6.0),
                (-6.0, 2.5),
                (-6.0, -2.5),
            ],
            _ => &[(0.0, -6.0), (6.5, 5.5), (-6.5, 5.5)],
        };
        let placed: Vec<Point> = outline.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        self.page.fill(&placed, ink)?;
        self.page
            .rect((x - 0.75, y - 2.5), (x + 0.75, y + 1.5), colour::BG)?;
        self.page
            .rect((x - 0.75, y + 2.5), (x + 0.75, y + 4.0), colour::BG)
    }

    pub(super) fn title(&self, band: Band, title: &str, note: &str) -> DrawResult {
        let y = band.top - 12.0;
        self.page.text((EDGE, y), title, HEAD, Align::Left)?;
        self.page
            .text((EDGE + HEAD.width(title) + 7.0, y), note, NOTE, Align::Left)
    }

    pub(super) fn grid(&self, band: Band, scale: &Scale, top: f64, unit: f64) -> DrawResult {
        for tick in scale.ticks() {
            let y = band.y(tick * unit, top);
            self.page
                .line(&[(LEFT, y), (RIGHT, y)], 0.75, colour::GRID)?;
            self.page.text(
                (LEFT - 8.0, y + 4.0),
                &scale.label(tick),
                TICK,
                Align::Right,
            )?;
        }
        Ok(())
    }

    pub(super) fn rhombus(&self, (x, y): Point, inside: RGBColor) -> DrawResult {
        let corners = [(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)];
        self.page.shape(&corners, inside, colour::EVALUATION)
    }

    /// Draws the legend. Entries are moved apart and kept inside the panel.
    pub(super) fn legend(&self, mut entries: Vec<LegendEntry>, band: Band) -> DrawResult {
        const DISTANCE: f64 = 17.0;
        entries.sort_by(|a, b| a.y.total_cmp(&b.y));
        let mut free = band.top;
        for entry in &mut entries {
            entry.y = entry.y.max(free);
            free = entry.y + DISTANCE;
        }
        let mut limit = band.bottom;
        for entry in entries.iter_mut().rev() {
            entry.y = entry.y.min(limit);
            limit = entry.y - DISTANCE;
        }
        let x = RIGHT + 14.0;
        for entry in &entries {
            let y = entry.y;
            match entry.key {
                Key::Fill(ink) => self.page.rect((x, y - 5.0), (x + 10.0, y + 5.0), ink)?,
                Key::Line(ink) => self.page.line(&[(x - 2.0, y), (x + 12.0, y)], 2.0, ink)?,
                Key::Dashes(ink) => self.page.dashes(
                    &[(x - 2.0, y), (x + 12.0, y)],
                    Dashes { on: 4.0, off: 2.5 },
                    1.5,
                    ink,
                )?,
                Key::Rhombus => self.rhombus((x + 5.0, y), colour::BG)?,
                Key::Nothing => {}
            }
            self.page
                .text((x + 20.0, y + 4.0), entry.name, NAME, Align::Left)?;
            self.page
                .text((WIDTH - EDGE, y + 4.0), &entry.value, VALUE, Align::Right)?;
        }
        Ok(())
    }

    /// Draws the time axis below the panels.
    pub(super) fn axis(&self) -> DrawResult {
        self.page.line(
            &[(LEFT, LOSS.bottom), (RIGHT, LOSS.bottom)],
            1.0,
            colour::AXIS,
        )?;
        for tick in Scale::time(self.end_ms, 10.0).ticks() {
            let (x, label) = (self.x(tick), format_duration(tick / 1000.0));
            self.page.line(
                &[(x, LOSS.bottom), (x, LOSS.bottom + 4.0)],
                1.0,
                colour::AXIS,
            )?;
            let half = TICK.width(&label) / 2.0;
            self.page
                .text((x - half, LOSS.bottom + 18.0), &label, TICK, Align::Left)?;
        }
        Ok(())
    }
}
