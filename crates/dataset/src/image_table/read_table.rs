//! Finds the table that names the most images, and reads its rows.

use super::column_roles::{ColumnRoles, ImageRow};
use super::image_index::{CellMatch, ImageIndex};
use super::matched_rows::MatchedRows;
use crate::error::DatasetError;
use crate::folder_listing::{Entry, Listing};
use crate::options::TableOptions;
use crate::readers::{Candidate, FileFormat, OpenFile, PreviewedTable, Row, Use, preview_tables};
use crate::types::SkippedFile;
use crate::user_messages::listed;
use format::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The data of a table about the images, in the order in which these were listed.
#[derive(Debug, Default)]
pub(crate) struct ImageTable {
    /// The file, for display.
    pub file: String,
    /// Names of the target columns.
    pub targets: Vec<String>,
    pub rows: Vec<Option<ImageRow>>,
    /// Name of the class column.
    pub label: Option<String>,
    /// Name of the group column.
    pub group: Option<String>,
    /// Sentences about its rows.
    pub notes: Vec<String>,
}

/// Reads the table that names the most images; `None` if no table names any. Other tables and
/// unusable rows are added to `skipped`.
///
/// # Errors
/// The table has no column that the user names.
pub(crate) fn read(
    listing: &Listing,
    images: &[&Entry],
    options: &TableOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<Option<ImageTable>, DatasetError> {
    let files: Vec<Candidate> = listing
        .files
        .iter()
        .filter_map(|entry| {
            let format = FileFormat::from_path(&entry.path)?;
            Some(Candidate { entry, format })
        })
        .filter(|file| file.format.is_for(Use::ImageTable))
        .collect();
    if files.is_empty() || images.is_empty() {
        return check_unused(options, None);
    }
    let index = ImageIndex::new(images.iter().copied());
    let mut unreadable = Vec::new();
    let tables = preview_tables(&listing.root, &files, &mut unreadable);
    let Some(best) = find_best(&listing.root, &tables, &index) else {
        return check_unused(options, tables.first());
    };
    skipped.extend(unreadable);
    for other in &tables {
        if other.entry.path != best.table.entry.path {
            skipped.push(other.entry.skip(format!(
                "Ebb uses {} instead of this table, because this table names fewer images. Put all rows into one table.",
                best.table.entry.path.display()
            )));
        }
    }
    let rows = best.read_rows(&listing.root, &index);
    to_image_table(&best, &rows, images.len(), options, skipped).map(Some)
}

/// A column that the user names must exist, even if no table names images.
fn check_unused(
    options: &TableOptions,
    table: Option<&PreviewedTable>,
) -> Result<Option<ImageTable>, DatasetError> {
    let named = options.targets.iter().flatten();
    match named.chain(options.group_column()).next() {
        None => Ok(None),
        Some(column) => Err(match table {
            Some(table) => DatasetError::UnknownColumn {
                column: column.clone(),
                columns: listed(&table.preview.names),
            },
            None => DatasetError::NoTable {
                column: column.clone(),
                reason: "no table in this folder has a column of image names",
            },
        }),
    }
}

/// A table, and its column that names images.
struct NamingTable<'a> {
    table: &'a PreviewedTable<'a>,
    image_column: usize,
}

/// The table and column that name the most images.
fn find_best<'a>(
    root: &Path,
    tables: &'a [PreviewedTable<'a>],
    index: &ImageIndex,
) -> Option<NamingTable<'a>> {
    let mut best: Option<(usize, NamingTable)> = None;
    for table in tables {
        let counts = matches_by_column(root, table, index);
        let most = counts
            .iter()
            .enumerate()
            .max_by_key(|(i, n)| (**n, std::cmp::Reverse(*i)));
        if let Some((image_column, &count)) = most
            && count > best.as_ref().map_or(0, |(count, _)| *count)
        {
            let naming = NamingTable {
                table,
                image_column,
            };
            best = Some((count, naming));
        }
    }
    best.map(|(_, naming)| naming)
}

/// Number of images that each column names. Integers may count anything, so they name images only
/// if no other cell of the table does.
fn matches_by_column(root: &Path, table: &PreviewedTable, index: &ImageIndex) -> Vec<usize> {
    let width = table.preview.names.len();
    let (mut by_text, mut by_integer) =
        (vec![BTreeSet::new(); width], vec![BTreeSet::new(); width]);
    if let Ok(file) = OpenFile::reopen(&root.join(&table.entry.path), table.dialect) {
        let folder = folder_of(table.entry);
        let all: Vec<usize> = (0..width).collect();
        file.visit(&all, &mut |_, row| {
            let Row::Cells(cells) = row else { return true };
            for (column, cell) in cells.iter().enumerate() {
                let Some(cell) = cell.as_deref() else {
                    continue;
                };
                if let CellMatch::Image(image) = index.find(folder, cell) {
                    if cell.trim().bytes().all(|byte| byte.is_ascii_digit()) {
                        by_integer[column].insert(image);
                    } else {
                        by_text[column].insert(image);
                    }
                }
            }
            true
        });
    }
    let named = if by_text.iter().any(|images| !images.is_empty()) {
        by_text
    } else {
        by_integer
    };
    named.iter().map(BTreeSet::len).collect()
}

/// The names of the folders that a file is in.
fn folder_of(entry: &Entry) -> &[String] {
    &entry.folders
}

impl NamingTable<'_> {
    /// Matches all rows of the table to images.
    fn read_rows(&self, root: &Path, index: &ImageIndex) -> MatchedRows<'_> {
        let mut rows = MatchedRows::new(self.image_column, folder_of(self.table.entry));
        let path = root.join(&self.table.entry.path);
        if let Ok(file) = OpenFile::reopen(&path, self.table.dialect) {
            let all: Vec<usize> = (0..self.table.preview.names.len()).collect();
            file.visit(&all, &mut |line, row| {
                rows.add(line, row, index);
                true
            });
        }
        rows
    }
}

/// Decides the roles of the columns, and reads the matched rows of `images` images by them.
fn to_image_table(
    naming: &NamingTable,
    rows: &MatchedRows,
    images: usize,
    options: &TableOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<ImageTable, DatasetError> {
    let entry = naming.table.entry;
    let names = naming.table.preview.names.iter();
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    for (line, reason) in &rows.left_out {
        skipped.push(entry.skip(format!("Line {line}: {reason}")));
    }
    let roles = ColumnRoles::new(&names, naming.image_column, rows, options)?;
    let file = entry.path.display().to_string();
    let name = |column: usize| names[column].clone();
    let mut table = ImageTable {
        notes: vec![rows.describe(&file)],
        file,
        targets: roles.targets.iter().copied().map(name).collect(),
        rows: vec![None; images],
        label: roles.label.map(name),
        group: roles.group.map(name),
    };
    let mut not_numeric = BTreeMap::new();
    for row in &rows.matched {
        table.rows[row.image] = Some(roles.read_row(row, &mut not_numeric));
    }
    for (column, count) in not_numeric {
        table.notes.push(format!(
            "Column {}: {} as missing.",
            names[column],
            counted(
                count,
                "cell is not a number and counts",
                "cells are not numbers and count"
            )
        ));
    }
    Ok(table)
}
