//! The memory of each machine of a group over time: a small chart for each.

use crate::Run;
use crate::amounts::format_bytes;
use crate::decimate::Decimated;
use crate::drawn_report::axis_ticks::Scale;
use crate::drawn_report::canvas::{
    Align, Dashes, DrawResult, EDGE, Page, Point, Type, WIDTH, colour,
};
use crate::group_view::RankView;
use crate::machine_memory::MACHINE_COLUMNS;
use plotters::prelude::{DrawingBackend, RGBColor};

const GB: f64 = 1073741824.0;
/// Charts beside each other.
const COLUMNS: usize = 3;
/// Space between two charts.
const GAP: f64 = 28.0;
/// Width of the labels at the left of a chart.
const TICKS: f64 = 32.0;
/// Height of a chart with its title.
const HEIGHT: f64 = 122.0;
/// Top and bottom of the plot in a chart.
const PLOT: (f64, f64) = (20.0, 96.0);

const NAME: Type = Type::plain(12.0, colour::TEXT_2);
const TICK: Type = Type::plain(11.0, colour::TEXT_3);

/// A rank and its memory.
struct Chart<'a> {
    rank: &'a RankView,
    memory: Decimated<MACHINE_COLUMNS>,
    end_ms: f64,
}

/// The charts of the first `most` ranks whose memory is known.
fn charts(run: &Run, most: usize) -> Vec<Chart<'_>> {
    let end_ms = (run.now_ms as f64).max(1000.0);
    let mut charts = Vec::new();
    for rank in run.machines().iter().take(most) {
        let number = rank.member.rank;
        if let Some(memory) = run.memory_of_rank(number, 0.0, end_ms, width() as u32) {
            charts.push(Chart {
                rank,
                memory,
                end_ms,
            });
        }
    }
    charts
}

/// Width of the plot of a chart.
fn width() -> f64 {
    let columns = COLUMNS as f64;
    (WIDTH - 2.0 * EDGE - GAP * (columns - 1.0)) / columns - TICKS
}

/// Height of the charts of at most `most` ranks; 0 if the memory of no rank is known.
pub(super) fn height(run: &Run, most: usize) -> f64 {
    let ranks = run.machines().iter().take(most);
    let memory = &run.machines.memory;
    let known = ranks.filter(|rank| memory.of_rank(rank.member.rank).is_some());
    HEIGHT * known.count().div_ceil(COLUMNS) as f64
}

/// Draws the charts of at most `most` ranks from `top` on.
pub(super) fn draw<B: DrawingBackend>(
    run: &Run,
    page: &Page<B>,
    top: f64,
    most: usize,
) -> DrawResult {
    for (index, chart) in charts(run, most).iter().enumerate() {
        let column = (index % COLUMNS) as f64;
        let left = EDGE + column * (width() + TICKS + GAP) + TICKS;
        let top = top + HEIGHT * (index / COLUMNS) as f64;
        chart.draw(page, (left, top))?;
    }
    Ok(())
}

impl Chart<'_> {
    fn draw<B: DrawingBackend>(&self, page: &Page<B>, (left, top): Point) -> DrawResult {
        let [ebb, others, budget] = &self.memory.columns;
        let used: Vec<f64> = ebb.iter().zip(others).map(|(a, b)| a + b).collect();
        let highest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let max = highest(&used).max(highest(budget));
        let total = self.rank.member.total_bytes as f64;
        let scale = Scale::binary(max.max(total) / GB, 2.0);
        let title = format!(
            "Memory of {}, Ebb at most {}",
            self.rank.name(),
            format_bytes(highest(ebb) as u64)
        );
        let title = NAME.fit(&title, width() + TICKS);
        page.text((left - TICKS, top + 8.0), &title, NAME, Align::Left)?;
        for tick in scale.ticks() {
            let y = Self::y(top, tick / scale.top);
            page.line(&[(left, y), (left + width(), y)], 0.75, colour::GRID)?;
            let label = scale.label(tick);
            page.text((left - 6.0, y + 4.0), &label, TICK, Align::Right)?;
        }
        let points = |values: &[f64]| -> Vec<Point> {
            let times = self.memory.at_ms.iter();
            let point = |(at, value): (&f64, &f64)| {
                let x = left + (at / self.end_ms).clamp(0.0, 1.0) * width();
                (x, Self::y(top, value / GB / scale.top))
            };
            times.zip(values).map(point).collect()
        };
        let zeros = vec![0.0; ebb.len()];
        fill(page, &points(others), &points(&zeros), colour::OTHERS)?;
        fill(page, &points(&used), &points(others), colour::STATE)?;
        let pattern = Dashes { on: 6.0, off: 4.0 };
        page.dashes(&points(budget), pattern, 1.5, colour::BUDGET)
    }

    /// The y coordinate of a fraction of the scale.
    fn y(top: f64, fraction: f64) -> f64 {
        let (high, low) = (top + PLOT.0, top + PLOT.1);
        low - fraction.clamp(0.0, 1.0) * (low - high)
    }
}

/// Fills the area between two lines.
fn fill<B: DrawingBackend>(
    page: &Page<B>,
    upper: &[Point],
    lower: &[Point],
    ink: RGBColor,
) -> DrawResult {
    let mut outline = upper.to_vec();
    outline.extend(lower.iter().rev());
    if outline.len() > 3 {
        page.fill(&outline, ink)?;
    }
    Ok(())
}
