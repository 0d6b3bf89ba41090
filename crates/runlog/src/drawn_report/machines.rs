//! The report's list of the machines that train a run together, the memory of each of them over
//! time, and what changed in their group.

mod memory_charts;

use super::canvas::{Align, DrawResult, EDGE, Page, Type, WIDTH, colour};
use super::{changes, panel_frame};
use crate::Run;
use crate::amounts::{counted, format_duration};
use crate::group_view::{GroupChange, GroupView};
use plotters::prelude::DrawingBackend;

/// Largest number of machines and of changes in the list.
const MAX_RANKS: usize = 16;
const MAX_CHANGES: usize = 40;
/// Height of a row.
const ROW: f64 = 20.0;
/// Height of the title.
const HEAD: f64 = 44.0;

const TITLE: Type = Type::strong(13.0, colour::TEXT);
const TEXT: Type = Type::plain(12.0, colour::TEXT_2);

/// Height of the list and the charts; 0 for a run on one machine.
pub(super) fn height(run: &Run) -> f64 {
    let Some(group) = run.group() else {
        return 0.0;
    };
    let rows = rank_rows(&group).len() + change_rows(&group).len();
    HEAD + ROW * rows as f64 + memory_charts::height(run, MAX_RANKS)
}

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> DrawResult {
    let Some(group) = run.group() else {
        return Ok(());
    };
    let top = panel_frame::BOTTOM + changes::height(run) + 28.0;
    page.text((EDGE, top), "Machines", TITLE, Align::Left)?;
    let below_ranks = draw_rows(page, top + 24.0, &rank_rows(&group))?;
    memory_charts::draw(run, page, below_ranks, MAX_RANKS)?;
    let below_charts = below_ranks + memory_charts::height(run, MAX_RANKS);
    draw_rows(page, below_charts, &change_rows(&group))?;
    Ok(())
}

/// Draws the rows from `top` on, and returns where they end.
fn draw_rows<B: DrawingBackend>(page: &Page<B>, top: f64, rows: &[String]) -> Result<f64, String> {
    for (index, row) in rows.iter().enumerate() {
        let y = top + ROW * index as f64;
        let text = TEXT.fit(row, WIDTH - 2.0 * EDGE);
        page.text((EDGE, y), &text, TEXT, Align::Left)?;
    }
    Ok(top + ROW * rows.len() as f64)
}

/// A sentence for each machine.
fn rank_rows(group: &GroupView) -> Vec<String> {
    let ranks = group.ranks.iter().take(MAX_RANKS);
    let mut rows: Vec<String> = ranks.map(|rank| rank.describe()).collect();
    let more = group.ranks.len().saturating_sub(MAX_RANKS);
    if more > 0 {
        rows.push(format!(
            "and {} more",
            counted(more as u64, "process", "processes")
        ));
    }
    rows
}

/// The newest changes of the group.
fn change_rows(group: &GroupView) -> Vec<String> {
    let earlier = group.changes.len().saturating_sub(MAX_CHANGES);
    let change = |change: &GroupChange| {
        let at = format_duration(change.at_ms as f64 / 1000.0);
        format!("{at}, step {}: {}", change.step, change.message)
    };
    group.changes[earlier..].iter().map(change).collect()
}
