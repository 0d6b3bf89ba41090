//! The report's list of the machines that train a run together, and of what changed in their group.

use super::canvas::{Align, DrawResult, EDGE, Page, Type, WIDTH, colour};
use super::{changes, panel_frame};
use crate::Run;
use crate::amounts::{counted, format_duration};
use crate::group_view::{GroupChange, GroupView};
use plotters::prelude::DrawingBackend;

/// Largest number of machines and of changes in the list.
const MAX_RANKS: usize = 16;
const MAX_CHANGES: usize = 10;
/// Height of a row.
const ROW: f64 = 20.0;
/// Height of the title.
const HEAD: f64 = 44.0;

const TITLE: Type = Type::strong(13.0, colour::TEXT);
const TEXT: Type = Type::plain(12.0, colour::TEXT_2);

/// Height of the list; 0 for a run on one machine.
pub(super) fn height(run: &Run) -> f64 {
    let rows = run.group().map_or(0, |group| rows(&group).len());
    if rows == 0 {
        return 0.0;
    }
    HEAD + ROW * rows as f64
}

pub(super) fn draw<B: DrawingBackend>(run: &Run, page: &Page<B>) -> DrawResult {
    let Some(group) = run.group() else {
        return Ok(());
    };
    let top = panel_frame::BOTTOM + changes::height(run) + 28.0;
    page.text((EDGE, top), "Machines", TITLE, Align::Left)?;
    for (index, row) in rows(&group).iter().enumerate() {
        let y = top + 24.0 + ROW * index as f64;
        let text = TEXT.fit(row, WIDTH - 2.0 * EDGE);
        page.text((EDGE, y), &text, TEXT, Align::Left)?;
    }
    Ok(())
}

/// A sentence for each machine, then the newest changes of the group.
fn rows(group: &GroupView) -> Vec<String> {
    let ranks = group.ranks.iter().take(MAX_RANKS);
    let mut rows: Vec<String> = ranks.map(|rank| rank.describe()).collect();
    let more = group.ranks.len().saturating_sub(MAX_RANKS);
    if more > 0 {
        rows.push(format!(
            "and {} more",
            counted(more as u64, "process", "processes")
        ));
    }
    let earlier = group.changes.len().saturating_sub(MAX_CHANGES);
    let change = |change: &GroupChange| {
        let at = format_duration(change.at_ms as f64 / 1000.0);
        format!("{at}, step {}: {}", change.step, change.message)
    };
    rows.extend(group.changes[earlier..].iter().map(change));
    rows
}
