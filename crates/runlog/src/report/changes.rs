//! The report's list of changes of the micro-batch: when, what and why. The newest ones where there are many.

use super::head::fitted;
use super::page::{Align, Drawn, Page, Point, Type, colour};
use super::{EDGE, WIDTH, frame};
use crate::words::{format_count, format_duration};
use crate::{Mark, Run};
use plotters::prelude::DrawingBackend;
use pressure::Change;

/// Changes listed at most.
const MOST: usize = 12;
const ROW: f64 = 22.0;
const HEAD: f64 = 40.0;

/// Room that the list takes.
pub(super) fn height(run: &Run) -> f64 {
    match run.marks.len().min(MOST) {
        0 => 0.0,
        shown => HEAD + ROW * shown.div_ceil(2) as f64,
    }
}

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> Drawn {
    let earlier = run.marks.len().saturating_sub(MOST);
    let shown = &run.marks[earlier..];
    if shown.is_empty() {
        return Ok(());
    }
    let (head, small) = (
        Type::strong(13.0, colour::TEXT),
        Type::plain(12.0, colour::TEXT_3),
    );
    let top = frame::BOTTOM + 28.0;
    page.text((EDGE, top), "Changes", head, Align::Left)?;
    if earlier > 0 {
        let words = format!(
            "the newest {MOST}; {} before them",
            format_count(earlier as u64)
        );
        page.text(
            (EDGE + head.width("Changes") + 8.0, top),
            &words,
            small,
            Align::Left,
        )?;
    }
    let rows = shown.len().div_ceil(2);
    let wide = (WIDTH - 2.0 * EDGE) / 2.0;
    for (i, mark) in shown.iter().enumerate() {
        let place = (
            EDGE + wide * (i / rows) as f64,
            top + 24.0 + ROW * (i % rows) as f64,
        );
        row(mark, page, place, wide - 24.0)?;
    }
    Ok(())
}

fn row<B: DrawingBackend>(mark: &Mark, page: &Page<B>, (x, y): Point, wide: f64) -> Drawn {
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
        &fitted(&mark.reason, plain, wide - left),
        plain,
        Align::Left,
    )
}

/// The change is one of the micro-batch's size, or of working at all.
pub(super) fn is_of_size(change: Change) -> bool {
    !matches!(
        change,
        Change::Prefetch | Change::CheckpointMore | Change::CheckpointLess | Change::Moments
    )
}

/// Filled and down: a smaller piece; hollow and up: a larger one. Bars stand for waiting, a square for the end, a diamond for
/// what is no change of size.
pub(super) fn glyph<B: DrawingBackend>(mark: &Mark, page: &Page<B>, (x, y): Point) -> Drawn {
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
        _ if !is_of_size(mark.change) => page.shape(
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
