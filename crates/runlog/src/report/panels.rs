//! The three panels of the report on one time axis: memory, micro-batch, loss.

use super::changes::glyph;
use super::page::{Align, Drawn, Page, Point, Type, colour};
use super::scale::Scale;
use super::{EDGE, WIDTH};
use crate::window::Pull;
use crate::words::format_duration;
use crate::{LevelSpan, Run};
use plotters::prelude::{DrawingBackend, RGBColor};
use pressure::Level;

const LEFT: f64 = EDGE + 36.0;
const RIGHT: f64 = WIDTH - EDGE - 150.0;
const MEMORY: Band = Band {
    top: 222.0,
    bottom: 462.0,
};
const MICRO: Band = Band {
    top: 504.0,
    bottom: 604.0,
};
const LOSS: Band = Band {
    top: 646.0,
    bottom: 806.0,
};
/// Where the panels and their axis end.
pub(super) const BOTTOM: f64 = 832.0;
const GB: f64 = 1073741824.0;

const HEAD: Type = Type::strong(13.0, colour::TEXT);
const NOTE: Type = Type::plain(12.0, colour::TEXT_3);
const TICK: Type = Type::plain(11.0, colour::TEXT_3);
const NAME: Type = Type::plain(12.0, colour::TEXT_2);
const VALUE: Type = Type::strong(12.0, colour::TEXT);

/// A panel's place.
#[derive(Clone, Copy)]
struct Band {
    top: f64,
    bottom: f64,
}

impl Band {
    fn y(&self, value: f64, top: f64) -> f64 {
        self.bottom - (value / top).clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

/// What stands at the right of a panel: where, a sample of how it is drawn, name and value.
struct Named {
    y: f64,
    key: Key,
    name: &'static str,
    value: String,
}

#[derive(Clone, Copy)]
enum Key {
    Fill(RGBColor),
    Line(RGBColor),
    Dashes,
    Rhombus,
    Nothing,
}

struct Panels<'a, B: DrawingBackend> {
    page: &'a Page<B>,
    pull: Pull,
    end_ms: f64,
}

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> Drawn {
    let pull = run.window(None, None, (RIGHT - LEFT) as u32, 0);
    let end_ms = pull.header.to_ms as f64;
    let panels = Panels { page, pull, end_ms };
    for span in &panels.pull.header.spans {
        panels.tint(span)?;
    }
    panels.memory()?;
    panels.micro()?;
    panels.loss()?;
    panels.axis()
}

impl<B: DrawingBackend> Panels<'_, B> {
    fn x(&self, at_ms: f64) -> f64 {
        LEFT + (at_ms / self.end_ms).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Where a series stands, without what is not a number.
    fn points(&self, at: &str, value: &str, band: Band, top: f64) -> Vec<Point> {
        let pairs = self.pull.array(at).iter().zip(self.pull.array(value));
        let numbers = pairs.filter(|(_, value)| value.is_finite());
        numbers
            .map(|(at, value)| (self.x(*at), band.y(*value, top)))
            .collect()
    }

    fn tint(&self, span: &LevelSpan) -> Drawn {
        let (wash, strip, words) = match span.level {
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
        let kind = Type::strong(12.0, words);
        let title = LEFT + 110.0;
        if to - from < kind.width(word) + 18.0 || from < title {
            return Ok(());
        }
        self.level_glyph(span.level, (from + 6.0, MEMORY.top - 15.0), strip)?;
        self.page
            .text((from + 17.0, MEMORY.top - 11.0), word, kind, Align::Left)
    }

    /// A triangle for warning, an octagon for critical: never colour alone.
    fn level_glyph(&self, level: Level, (x, y): Point, ink: RGBColor) -> Drawn {
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

    fn title(&self, band: Band, title: &str, note: &str) -> Drawn {
        let y = band.top - 12.0;
        self.page.text((EDGE, y), title, HEAD, Align::Left)?;
        self.page
            .text((EDGE + HEAD.width(title) + 7.0, y), note, NOTE, Align::Left)
    }

    fn grid(&self, band: Band, scale: &Scale, top: f64, unit: f64) -> Drawn {
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

    fn memory(&self) -> Drawn {
        self.title(MEMORY, "Memory", "GB")?;
        let parts = [
            ("memory.system", "System", colour::SYSTEM),
            ("memory.others", "Other apps", colour::OTHERS),
            ("memory.state", "Ebb state", colour::STATE),
            ("memory.activations", "Ebb activations", colour::ACTIVATIONS),
        ];
        let at = self.pull.array("memory.at");
        let mut base = vec![0.0; at.len()];
        let mut tops = Vec::new();
        for (name, ..) in parts {
            let top = base
                .iter()
                .zip(self.pull.array(name))
                .map(|(base, value)| base + value)
                .collect();
            tops.push(std::mem::replace(&mut base, top));
        }
        tops.push(base);
        let budget = self.pull.array("memory.budget");
        let greatest = budget
            .iter()
            .chain(tops.iter().flatten())
            .copied()
            .fold(0.0, f64::max);
        let total = self
            .pull
            .header
            .started
            .as_ref()
            .map_or(0, |started| started.total_bytes) as f64;
        let scale = Scale::binary(greatest.max(total) / GB, 4.0);
        let top = scale.top * GB;
        let mut named = Vec::new();
        let last = |values: &[f64]| values.last().copied();
        for (i, (name, words, ink)) in parts.into_iter().enumerate() {
            let edge = |values: &[f64]| -> Vec<Point> {
                at.iter()
                    .zip(values)
                    .map(|(at, value)| (self.x(*at), MEMORY.y(*value, top)))
                    .collect()
            };
            let mut outline = edge(&tops[i + 1]);
            outline.extend(edge(&tops[i]).into_iter().rev());
            if outline.len() > 3 {
                self.page.fill(&outline, ink)?;
            }
            if let (Some(low), Some(high), Some(value)) = (
                last(&tops[i]),
                last(&tops[i + 1]),
                last(self.pull.array(name)),
            ) {
                let y = (MEMORY.y(low, top) + MEMORY.y(high, top)) / 2.0;
                named.push(Named {
                    y,
                    key: Key::Fill(ink),
                    name: words,
                    value: format!("{:.1}", value / GB),
                });
            }
        }
        // Over the stack, so that a full stack keeps its scale.
        self.grid(MEMORY, &scale, top, GB)?;
        self.page.dashes(
            &self.points("memory.at", "memory.budget", MEMORY, top),
            (6.0, 4.0),
            1.5,
            colour::BUDGET,
        )?;
        if let Some(line) = last(budget) {
            let y = MEMORY.y(line, top);
            named.push(Named {
                y,
                key: Key::Dashes,
                name: "Budget line",
                value: format!("{:.1}", line / GB),
            });
        }
        self.names(named, MEMORY)
    }

    fn micro(&self) -> Drawn {
        self.title(MICRO, "Micro-batch", "samples a piece")?;
        let sizes = self.pull.array("micro.value");
        let scale = Scale::binary(sizes.iter().copied().fold(1.0, f64::max), 2.0);
        // Room for the marks above the highest size.
        let top = scale.top * 1.12;
        let mut corners: Vec<Point> = Vec::new();
        for point in self.points("micro.at", "micro.value", MICRO, top) {
            if let Some(last) = corners.last().copied() {
                corners.push((point.0, last.1));
            }
            corners.push(point);
        }
        if let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) {
            let mut outline = corners.clone();
            outline.extend([(last.0, MICRO.bottom), (first.0, MICRO.bottom)]);
            if outline.len() > 3 {
                self.page.fill(&outline, colour::ACCENT_WASH)?;
            }
        }
        self.grid(MICRO, &scale, top, 1.0)?;
        self.page.line(&corners, 2.0, colour::ACCENT)?;
        self.marks(top)?;
        let figures = &self.pull.header.figures;
        let Some(size) = sizes.last() else {
            return Ok(());
        };
        let y = MICRO.y(*size, top);
        let pieces = figures
            .pieces
            .map_or(crate::MISSING.to_owned(), |pieces| pieces.to_string());
        let named = [
            Named {
                y,
                key: Key::Line(colour::ACCENT),
                name: "Micro-batch",
                value: format!("{size}"),
            },
            Named {
                y: y + 17.0,
                key: Key::Nothing,
                name: "Pieces a step",
                value: pieces,
            },
        ];
        self.names(named.into(), MICRO)
    }

    /// A dotted line through all panels for every change; of texts that would overlap the older one goes.
    fn marks(&self, top: f64) -> Drawn {
        let mut free = RIGHT;
        for mark in self.pull.header.marks.iter().rev() {
            let x = self.x(mark.at_ms as f64);
            for band in [MEMORY, MICRO, LOSS] {
                self.page.dashes(
                    &[(x, band.top), (x, band.bottom)],
                    (1.0, 3.0),
                    1.0,
                    colour::TEXT_3,
                )?;
            }
            let (from, to) = (
                MICRO.y(f64::from(mark.from), top),
                MICRO.y(f64::from(mark.to), top),
            );
            glyph(mark, self.page, (x, (from + to) / 2.0))?;
            let wide = VALUE.width(&mark.short);
            let left = if x + 10.0 + wide <= RIGHT {
                x + 10.0
            } else {
                x - 10.0 - wide
            };
            if left + wide <= free && left >= LEFT {
                self.page
                    .text((left, MICRO.bottom - 8.0), &mark.short, VALUE, Align::Left)?;
                free = left.min(x) - 12.0;
            }
        }
        Ok(())
    }

    fn loss(&self) -> Drawn {
        let note = match self
            .pull
            .header
            .started
            .as_ref()
            .map(|started| started.task.as_str())
        {
            Some("image-classification") => "cross-entropy",
            _ => "",
        };
        self.title(LOSS, "Loss", note)?;
        let greatest = |name: &str| {
            self.pull
                .array(name)
                .iter()
                .copied()
                .filter(|v| v.is_finite())
                .fold(0.0, f64::max)
        };
        // One wild loss must not flatten the curve: the raw line may leave the panel, the others may not.
        let wanted = greatest("loss.smoothed").max(greatest("evaluation.loss"));
        let scale = Scale::decimal(greatest("loss.raw").min(1.25 * wanted).max(wanted), 4.0);
        self.grid(LOSS, &scale, scale.top, 1.0)?;
        for (name, width, ink) in [
            ("loss.raw", 1.0, colour::RAW),
            ("loss.smoothed", 2.0, colour::SMOOTHED),
        ] {
            self.page
                .line(&self.points("loss.at", name, LOSS, scale.top), width, ink)?;
        }
        for place in self.points("evaluation.at", "evaluation.loss", LOSS, scale.top) {
            self.rhombus(place, colour::BG)?;
        }
        let named = [
            ("evaluation.loss", "Evaluation", Key::Rhombus),
            ("loss.smoothed", "Smoothed", Key::Line(colour::SMOOTHED)),
            ("loss.raw", "Raw", Key::Line(colour::RAW)),
        ];
        let named = named.into_iter().filter_map(|(array, name, key)| {
            let value = self.pull.array(array).last()?;
            Some(Named {
                y: LOSS.y(*value, scale.top),
                key,
                name,
                value: format!("{value:.2}"),
            })
        });
        self.names(named.collect(), LOSS)
    }

    fn rhombus(&self, (x, y): Point, inside: RGBColor) -> Drawn {
        let corners = [(x, y - 4.5), (x + 4.5, y), (x, y + 4.5), (x - 4.5, y)];
        self.page.shape(&corners, inside, colour::EVALUATION)
    }

    /// Names beside their values, pushed apart and kept inside the panel.
    fn names(&self, mut named: Vec<Named>, band: Band) -> Drawn {
        const APART: f64 = 17.0;
        named.sort_by(|a, b| a.y.total_cmp(&b.y));
        let mut free = band.top;
        for one in &mut named {
            one.y = one.y.max(free);
            free = one.y + APART;
        }
        let mut limit = band.bottom;
        for one in named.iter_mut().rev() {
            one.y = one.y.min(limit);
            limit = one.y - APART;
        }
        let x = RIGHT + 14.0;
        for one in &named {
            let y = one.y;
            match one.key {
                Key::Fill(ink) => self.page.rect((x, y - 5.0), (x + 10.0, y + 5.0), ink)?,
                Key::Line(ink) => self.page.line(&[(x - 2.0, y), (x + 12.0, y)], 2.0, ink)?,
                Key::Dashes => self.page.dashes(
                    &[(x - 2.0, y), (x + 12.0, y)],
                    (4.0, 2.5),
                    1.5,
                    colour::BUDGET,
                )?,
                Key::Rhombus => self.rhombus((x + 5.0, y), colour::BG)?,
                Key::Nothing => {}
            }
            self.page
                .text((x + 20.0, y + 4.0), one.name, NAME, Align::Left)?;
            self.page
                .text((WIDTH - EDGE, y + 4.0), &one.value, VALUE, Align::Right)?;
        }
        Ok(())
    }

    fn axis(&self) -> Drawn {
        self.page.line(
            &[(LEFT, LOSS.bottom), (RIGHT, LOSS.bottom)],
            1.0,
            colour::AXIS,
        )?;
        for tick in Scale::time(self.end_ms, 10.0).ticks() {
            let (x, words) = (self.x(tick), format_duration(tick / 1000.0));
            self.page.line(
                &[(x, LOSS.bottom), (x, LOSS.bottom + 4.0)],
                1.0,
                colour::AXIS,
            )?;
            let half = TICK.width(&words) / 2.0;
            self.page
                .text((x - half, LOSS.bottom + 18.0), &words, TICK, Align::Left)?;
        }
        Ok(())
    }
}
