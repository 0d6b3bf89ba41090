//! The three panels of the report on one time axis: memory, micro-batch, loss.

use super::axis_ticks::Scale;
use super::canvas::{Align, Dashes, DrawResult, Page, Point, colour};
use super::changes::{changes_micro_batch, glyph, panel_label};
use super::panel_frame::{Key, LEFT, LOSS, LegendEntry, MEMORY, MICRO, Panels, RIGHT, VALUE};
use crate::amounts::MISSING;
use crate::chart_data::{LOSS_CURVES, LossCurve};
use crate::{Run, Started, TaskChoice};
use plotters::prelude::{Color, DrawingBackend};

const GB: f64 = 1073741824.0;
/// Top of a curve's own scale, as a multiple of its highest value.
const OWN_SCALE: f64 = 1.1;

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> DrawResult {
    let pull = run.window(None, None, (RIGHT - LEFT) as u32, 0);
    let end_ms = pull.header.to_ms as f64;
    let panels = Panels { page, pull, end_ms };
    for span in &panels.pull.header.spans {
        panels.tint(span)?;
    }
    panels.draw_memory()?;
    panels.draw_micro_batch()?;
    panels.draw_loss()?;
    panels.axis()
}

impl<B: DrawingBackend> Panels<'_, B> {
    fn draw_memory(&self) -> DrawResult {
        self.title(MEMORY, "Memory", "GB")?;
        let parts = [
            ("memory.system", "System", colour::SYSTEM),
            ("memory.others", "Other apps", colour::OTHERS),
            ("memory.state", "Ebb state", colour::STATE),
            ("memory.activations", "Ebb activations", colour::ACTIVATIONS),
            ("memory.cached", "Ebb cached", colour::CACHED),
        ];
        let edges = self.stack(parts.map(|(array, ..)| array));
        let budget = self.pull.array("memory.budget");
        let used = budget.iter().chain(edges.iter().flatten());
        let max = used.copied().fold(0.0, f64::max);
        let started = self.pull.header.started.as_ref();
        let total = started.map_or(0, |started| started.total_bytes) as f64;
        let scale = Scale::binary(max.max(total) / GB, 4.0);
        let top = scale.top * GB;
        self.grid(MEMORY, &scale, top, GB)?;
        let mut legend = Vec::new();
        for (i, (array, name, ink)) in parts.into_iter().enumerate() {
            let (low, high) = (&edges[i], &edges[i + 1]);
            let mut outline = self.memory_points(high, top);
            outline.extend(self.memory_points(low, top).into_iter().rev());
            if outline.len() > 3 {
                self.page.fill(&outline, ink)?;
            }
            let values = self.pull.array(array);
            if array == "memory.cached" && values.iter().all(|value| *value == 0.0) {
                continue; // only a GPU's allocator reports it
            }
            if let (Some(low), Some(high), Some(value)) = (low.last(), high.last(), values.last()) {
                legend.push(LegendEntry {
                    y: (MEMORY.y(*low, top) + MEMORY.y(*high, top)) / 2.0,
                    key: Key::Fill(ink),
                    name,
                    value: format!("{:.1}", value / GB),
                });
            }
        }
        let pattern = Dashes { on: 6.0, off: 4.0 };
        let line = self.points("memory.at", "memory.budget", MEMORY, top);
        self.page.dashes(&line, pattern, 1.5, colour::BUDGET)?;
        if let Some(line) = budget.last() {
            legend.push(LegendEntry {
                y: MEMORY.y(*line, top),
                key: Key::Dashes(colour::BUDGET),
                name: "Budget line",
                value: format!("{:.1}", line / GB),
            });
        }
        self.legend(legend, MEMORY)
    }

    /// The edges between stacked arrays: zeros, the first array, the sum of the first two, and so
    /// on.
    fn stack<const N: usize>(&self, arrays: [&str; N]) -> Vec<Vec<f64>> {
        let mut edge = vec![0.0; self.pull.array("memory.at").len()];
        let mut edges = Vec::with_capacity(N + 1);
        for array in arrays {
            let values = self.pull.array(array);
            let next = edge.iter().zip(values).map(|(base, value)| base + value);
            let next = next.collect();
            edges.push(std::mem::replace(&mut edge, next));
        }
        edges.push(edge);
        edges
    }

    fn memory_points(&self, values: &[f64], top: f64) -> Vec<Point> {
        let times = self.pull.array("memory.at").iter();
        times
            .zip(values)
            .map(|(at, value)| (self.x(*at), MEMORY.y(*value, top)))
            .collect()
    }

    fn draw_micro_batch(&self) -> DrawResult {
        self.title(MICRO, "Micro-batch", "samples")?;
        let sizes = self.pull.array("micro.value");
        let scale = Scale::binary(sizes.iter().copied().fold(2.0, f64::max), 2.0);
        // Leave space for the marks above the largest micro-batch.
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
                // Transparent, so that the level's tint stays visible.
                self.page.fill(&outline, colour::ACCENT.mix(0.13))?;
            }
        }
        self.grid(MICRO, &scale, top, 1.0)?;
        self.page.line(&corners, 2.0, colour::ACCENT)?;
        self.draw_marks(top)?;
        let figures = &self.pull.header.figures;
        let Some(size) = sizes.last() else {
            return Ok(());
        };
        let y = MICRO.y(*size, top);
        let count = figures
            .micro_batches
            .map_or(MISSING.to_owned(), |count| count.to_string());
        let legend = [
            LegendEntry {
                y,
                key: Key::Line(colour::ACCENT),
                name: "Micro-batch",
                value: format!("{size}"),
            },
            LegendEntry {
                y: y + 17.0,
                key: Key::Nothing,
                name: "Micro-batches per step",
                value: count,
            },
        ];
        self.legend(legend.into(), MICRO)
    }

    /// Draws a dotted line through all panels for each change. Of overlapping labels the older one
    /// is left out.
    fn draw_marks(&self, top: f64) -> DrawResult {
        let mut free = RIGHT;
        for mark in self.pull.header.marks.iter().rev() {
            let x = self.x(mark.at_ms as f64);
            for band in [MEMORY, MICRO, LOSS] {
                self.page.dashes(
                    &[(x, band.top), (x, band.bottom)],
                    Dashes { on: 1.0, off: 3.0 },
                    1.0,
                    colour::TEXT_3,
                )?;
            }
            let (from, to) = (
                MICRO.y(f64::from(mark.from), top),
                MICRO.y(f64::from(mark.to), top),
            );
            // Other changes are drawn at the height of the micro-batch, even if the run waits.
            let y = if changes_micro_batch(mark.change) {
                (from + to) / 2.0
            } else {
                from.min(to)
            };
            glyph(mark, self.page, (x, y))?;
            let label = panel_label(mark);
            let width = VALUE.width(&label);
            let left = if x + 10.0 + width <= RIGHT {
                x + 10.0
            } else {
                x - 10.0 - width
            };
            if left + width <= free && left >= LEFT {
                self.page
                    .text((left, MICRO.bottom - 8.0), &label, VALUE, Align::Left)?;
                free = left.min(x) - 12.0;
            }
        }
        Ok(())
    }

    fn draw_loss(&self) -> DrawResult {
        let started = self.pull.header.started.as_ref();
        let note = match started.and_then(Started::known_task) {
            Some(TaskChoice::ImageClassification) => "cross-entropy",
            _ => "",
        };
        self.title(LOSS, "Loss", note)?;
        let max = |name: &str| {
            let finite = self.pull.array(name).iter().filter(|v| v.is_finite());
            finite.copied().fold(0.0, f64::max)
        };
        let highest = |is_noisy: bool| {
            let on_axis = LOSS_CURVES.iter().filter(|curve| !curve.has_own_scale);
            let chosen = on_axis.filter(|curve| curve.is_noisy == is_noisy);
            chosen.map(|curve| max(curve.array)).fold(0.0, f64::max)
        };
        // An outlier must not flatten the curve: a noisy line may leave the panel, the others may
        // not.
        let visible = highest(false).max(max("evaluation.loss"));
        let scale = Scale::decimal(highest(true).min(1.25 * visible).max(visible), 4.0);
        self.grid(LOSS, &scale, scale.top, 1.0)?;
        let mut legend = Vec::new();
        for curve in &LOSS_CURVES {
            let top = if curve.has_own_scale {
                OWN_SCALE * max(curve.array)
            } else {
                scale.top
            };
            legend.extend(self.draw_loss_curve(curve, top)?);
        }
        for place in self.points("evaluation.at", "evaluation.loss", LOSS, scale.top) {
            self.rhombus(place, colour::BG)?;
        }
        legend.extend(self.pull.array("evaluation.loss").last().map(|value| {
            let value = *value;
            LegendEntry {
                y: LOSS.y(value, scale.top),
                key: Key::Rhombus,
                name: "Evaluation",
                value: format!("{value:.2}"),
            }
        }));
        // Of entries at the same height, the evaluation comes first and the raw loss last.
        legend.reverse();
        self.legend(legend, LOSS)
    }

    /// Draws one curve of the loss panel, whose highest visible value is `top`, and returns its
    /// entry in the legend.
    fn draw_loss_curve(&self, curve: &LossCurve, top: f64) -> Result<Option<LegendEntry>, String> {
        let points = self.points("loss.at", curve.array, LOSS, top);
        let key = if curve.has_own_scale {
            let pattern = Dashes { on: 6.0, off: 4.0 };
            self.page.dashes(&points, pattern, 1.0, colour::TEXT_3)?;
            Key::Dashes(colour::TEXT_3)
        } else if curve.is_noisy {
            self.page.line(&points, 1.0, colour::RAW)?;
            Key::Line(colour::RAW)
        } else {
            self.page.line(&points, 2.0, colour::SMOOTHED)?;
            Key::Line(colour::SMOOTHED)
        };
        let last = self.pull.array(curve.array).last();
        Ok(last.map(|value| LegendEntry {
            y: LOSS.y(*value, top),
            key,
            name: curve.name,
            value: if curve.has_own_scale {
                format!("{value:.1e}")
            } else {
                format!("{value:.2}")
            },
        }))
    }
}
