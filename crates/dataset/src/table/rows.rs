//! The rows of a table beside photographs as they come: those that name a photograph, and why the others are left out. Knows
//! nothing of what the other columns are.

use super::pointing::{Photographs, Pointed};
use crate::sentences::grouped;
use crate::text::Row;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A row that names a photograph: all its cells.
pub(super) struct Matched {
    pub photograph: usize,
    pub cells: Vec<Option<String>>,
}

/// The rows of a table as they come.
#[derive(Default)]
pub(super) struct Rows {
    pub matched: Vec<Matched>,
    /// Line and reason.
    pub left_out: Vec<(u64, String)>,
    rows: u64,
    taken: BTreeSet<usize>,
    outside: u64,
}

impl Rows {
    /// Takes the next row, at a line, whose cell in column `image` names a photograph as seen from the folder `beside`.
    pub(super) fn take(
        &mut self,
        line: u64,
        row: Row,
        image: usize,
        beside: &[String],
        photographs: &Photographs,
    ) {
        self.rows += 1;
        let cells = match row {
            Row::Cells(cells) => cells,
            Row::Fault(reason) => return self.left_out.push((line, reason)),
        };
        let Some(named) = cells.get(image).and_then(|cell| cell.as_deref()) else {
            let reason = "It names no photograph.".to_owned();
            return self.left_out.push((line, reason));
        };
        match photographs.find(beside, named) {
            Pointed::At(photograph) if self.taken.insert(photograph) => {
                let own = |cell: &Option<Cow<str>>| {
                    cell.as_deref().map(str::to_owned)
                };
                self.matched.push(Matched {
                    photograph,
                    cells: cells.iter().map(own).collect(),
                });
            }
            Pointed::At(_) => self.left_out.push((
                line,
                format!("{named} stands in an earlier row, which is used. Remove one of them."),
            )),
            Pointed::Outside => {
                self.outside += 1;
                self.left_out.push((
                    line,
                    format!("{named} lies outside the folder, where nothing is read. Put the photograph into the folder."),
                ));
            }
            Pointed::Nowhere => self.left_out.push((
                line,
                format!("{named} is no photograph that can be read. Put it into the folder, or remove the row."),
            )),
        }
    }

    /// How many there were and what became of them.
    pub(super) fn notes(&self, file: &str) -> Vec<String> {
        let (used, left) = (self.matched.len() as u64, self.left_out.len() as u64);
        let mut note = format!(
            "{file}: {} rows, {} used",
            grouped(self.rows),
            grouped(used)
        );
        if left > 0 {
            note.push_str(&format!(", {} left out", grouped(left)));
        }
        if self.outside > 0 {
            note.push_str(&format!(
                ", {} of these because they lead outside the folder",
                grouped(self.outside)
            ));
        }
        note.push('.');
        vec![note]
    }

    /// One column of the rows that name a photograph.
    pub(super) fn column(&self, place: usize) -> impl Iterator<Item = Option<&str>> {
        self.matched
            .iter()
            .map(move |row| row.cells[place].as_deref())
    }
}
