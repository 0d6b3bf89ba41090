//! The report's list of the latest changes of the micro-batch, with time and reason.

use super::canvas::{Align, DrawResult, EDGE, Page, Point, Type, WIDTH, colour};
use super::panel_frame;
use crate::Run;
use crate::amounts::{format_count, format_duration};
use crate::run_view::Mark;
use plotters::prelude::DrawingBackend;
use pressure::Change;

/// Largest number of changes in the list.
const MAX_ROWS: usize = 12;
/// Height of a row.
const ROW: f64 = 22.0;
/// Height of the title.
const HEAD: f64 = 40.0;

/// Height of the list.
pub(super) fn height(run: &Run) -> f64 {
    match run.marks.len().min(MAX_ROWS) {
        0 => 0.0,
        shown => HEAD + ROW * shown.div_ceil(2) as f64,
    }
}

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> DrawResult {
    let earlier = run.marks.len().saturating_sub(MAX_ROWS);
    let shown = &run.marks[earlier..];
    if shown.is_empty() {
        return Ok(());
    }
    let (head, small) = (
        Type::strong(13.0, colour::TEXT),
        Type::plain(12.0, colour::TEXT_3),
    );
    let top = panel_frame::BOTTOM + 28.0;
    page.text((EDGE, top), "Changes", head, Align::Left)?;
    if earlier > 0 {
        let note = format!(
            "the latest {MAX_ROWS}, after {} earlier ones",
            format_count(earlier as u64)
        );
        page.text(
            (EDGE + head.width("Changes") + 8.0, top),
            &note,
            small,
            Align::Left,
        )?;
    }
    let rows = shown.len().div_ceil(2);
    let column = (WIDTH - 2.0 * EDGE) / 2.0;
    for (i, mark) in shown.iter().enumerate() {
        let place = (
            EDGE + column * (i / rows) as f64,
            top + 24.0 + ROW * (i % rows) as f64,
        );
        row(mark, page, place, column - 24.0)?;
    }
    Ok(())
}

fn row<B: DrawingBackend>(mark: &Mark, page: &Page<B>, (x, y): Point, width: f64) -> DrawResult {
    let (strong, plain) = (
        Type::strong(12.0, colour::TEXT),
        Type::plain(12.0, colour::TEXT_2),
    );
    page.text(
        (x + 44.0, y),
        &format_duration(mark.at_ms as f64 / 1000.0),
        plain,
        Align::Right,
    )?;
    glyph(mark, page, (x + 60.0, y - 4.0))?;
    page.text((x + 76.0, y), &mark.short, strong, Align::Left)?;
    let left = 76.0 + strong.width(&mark.short) + 8.0;
    page.text(
        (x + left, y),
        &plain.fit(&mark.reason, width - left),
        plain,
        Align::Left,
    )
}

/// The text of a change on the panel of the micro-batch, where the two sizes say enough.
pub(super) fn panel_label(mark: &Mark) -> String {
    match mark.change {
        Change::Shrink | Change::Grow => format!("{} to {}", mark.from, mark.to),
        _ => mark.short.clone(),
    }
}

/// True if the change is one of the micro-batch, or pauses or continues the run.
pub(super) fn changes_micro_batch(change: Change) -> bool {
    !matches!(
        change,
        Change::Start // a continuation
            | Change::Prefetch
            | Change::CheckpointMore
            | Change::CheckpointLess
            | Change::Moments
    )
}

/// Draws the symbol of a change. A filled triangle down is a smaller micro-batch, a hollow triangle
/// up a larger one, two bars a pause, a square the end, a diamond any other change.
pub(super) fn glyph<B: DrawingBackend>(mark: &Mark, page: &Page<B>, (x, y): Point) -> DrawResult {
    match mark.change {
        Change::Shrink | Change::Cancel => page.shape(
            &[(x - 5.5, y - 4.5), (x + 5.5, y - 4.5), (x, y + 5.0)],
            colour::TEXT,
            colour::TEXT,
        ),
        Change::Pause | Change::Suspend => [x - 4.0, x + 1.0]
            .into_iter()
            .try_for_each(|left| page.rect((left, y - 5.0), (left + 3.0, y + 5.0), colour::TEXT)),
        Change::Stop => page.rect((x - 4.5, y - 4.5), (x + 4.5, y + 4.5), colour::TEXT),
        _ if !changes_micro_batch(mark.change) => page.shape(
            &[(x - 5.5, y), (x, y - 5.5), (x + 5.5, y), (x, y + 5.5)],
            colour::BG,
            colour::TEXT,
        ),
        _ => page.shape(
            &[(x - 5.5, y + 4.5), (x + 5.5, y + 4.5), (x, y - 5.0)],
            colour::BG,
            colour::TEXT,
        ),
    }
}
