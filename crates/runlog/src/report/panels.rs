//! The three panels of the report on one time axis: memory, micro-batch, loss.

use super::changes::{glyph, is_of_size};
use super::frame::{Key, LEFT, LOSS, MEMORY, MICRO, Named, Panels, RIGHT, VALUE};
use super::page::{Align, Drawn, Page, Point, colour};
use super::scale::Scale;
use crate::Run;
use plotters::prelude::{Color, DrawingBackend};

const GB: f64 = 1073741824.0;

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
        self.grid(MEMORY, &scale, top, GB)?;
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
        let scale = Scale::binary(sizes.iter().copied().fold(2.0, f64::max), 2.0);
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
                // Lets the level's tint through.
                self.page.fill(&outline, colour::ACCENT.mix(0.13))?;
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
            // What is no change of size stands where the size was, also while nothing is worked.
            let y = match is_of_size(mark.change) {
                true => (from + to) / 2.0,
                false => from.min(to),
            };
            glyph(mark, self.page, (x, y))?;
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
}
