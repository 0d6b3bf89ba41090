//! The rows of a table that name an image, and the reasons why other rows are left out.

use super::image_index::{CellMatch, ImageIndex};
use crate::readers::Row;
use format::{counted, format_count};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most rows that are listed with the reason why they are left out.
const LISTED_ROWS: usize = 5;

/// A row that names an image.
pub(super) struct MatchedRow {
    /// Index of the image.
    pub image: usize,
    pub cells: Vec<Option<String>>,
}

/// The rows of a table, matched to images one after the other.
pub(super) struct MatchedRows<'a> {
    image_column: usize,
    folder: &'a [String],
    /// Rows that name an image.
    pub matched: Vec<MatchedRow>,
    /// Line and reason of the first few of the other rows.
    pub left_out: Vec<(u64, String)>,
    rows: u64,
    taken: BTreeSet<usize>,
    outside: u64,
}

impl<'a> MatchedRows<'a> {
    /// No rows yet of a table in `folder`, whose column `image_column` names images.
    pub(super) fn new(image_column: usize, folder: &'a [String]) -> Self {
        Self {
            image_column,
            folder,
            matched: Vec::new(),
            left_out: Vec::new(),
            rows: 0,
            taken: BTreeSet::new(),
            outside: 0,
        }
    }

    /// Matches the next row, which starts at `line`.
    pub(super) fn add(&mut self, line: u64, row: Row, index: &ImageIndex) {
        self.rows += 1;
        let cells = match row {
            Row::Cells(cells) => cells,
            Row::Fault(reason) => return self.leave_out(line, reason),
        };
        let Some(named) = cells
            .get(self.image_column)
            .and_then(|cell| cell.as_deref())
        else {
            let reason = "The row names no image. Add a file name, or remove the row.";
            return self.leave_out(line, reason.into());
        };
        let reason = match index.find(self.folder, named) {
            CellMatch::Image(image) if self.taken.insert(image) => {
                let own = |cell: &Option<Cow<str>>| cell.as_deref().map(str::to_owned);
                return self.matched.push(MatchedRow {
                    image,
                    cells: cells.iter().map(own).collect(),
                });
            }
            CellMatch::Image(_) => {
                format!(
                    "An earlier row also names {named}. Ebb uses the earlier row. Remove one of the two rows."
                )
            }
            CellMatch::Outside => {
                self.outside += 1;
                format!(
                    "{named} is outside the folder, and Ebb reads only files in the folder. Put the image into the folder."
                )
            }
            CellMatch::NotFound => format!(
                "{named} was not found among the folder's readable images. Add the image to the folder, or remove the row."
            ),
        };
        self.leave_out(line, reason.into());
    }

    fn leave_out(&mut self, line: u64, reason: Cow<str>) {
        if self.left_out.len() < LISTED_ROWS {
            self.left_out.push((line, reason.into_owned()));
        }
    }

    /// A sentence that counts the rows, such as "labels.csv: 15 rows, 10 used, 5 left out."
    pub(super) fn describe(&self, file: &str) -> String {
        let used = self.matched.len() as u64;
        let left = self.rows - used;
        let rows = counted(self.rows, "row", "rows");
        let mut note = format!("{file}: {rows}, {} used", format_count(used));
        if left > 0 {
            note.push_str(&format!(", {} left out", format_count(left)));
        }
        if self.outside > 0 {
            note.push_str(&format!(
                ", {} of these because they name files outside the folder",
                format_count(self.outside)
            ));
        }
        note.push('.');
        note
    }

    /// The cells of one column.
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = Option<&str>> {
        self.matched
            .iter()
            .map(move |row| row.cells[column].as_deref())
    }
}
