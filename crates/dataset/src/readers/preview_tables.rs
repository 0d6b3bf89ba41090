//! The tables among a folder's files, opened to preview their columns.

use super::choose_columns::TablePreview;
use super::file_formats::{Dialect, FileFormat, OpenFile, Use};
use super::rows::Row;
use crate::chat::{ChatColumn, find_chat_columns};
use crate::folder_listing::Entry;
use crate::types::SkippedFile;
use format::format_count;
use std::collections::BTreeMap;
use std::path::Path;

/// Cells that show whether a column holds messages.
const CHAT_CELLS: usize = 20;

/// A listed file and its format.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// The file.
    pub entry: &'a Entry,
    /// Its format, by its name.
    pub format: &'static FileFormat,
}

/// A table whose first rows were read.
pub(crate) struct PreviewedTable<'a> {
    /// The file.
    pub entry: &'a Entry,
    /// How it is read.
    pub dialect: Dialect,
    /// Its columns and first rows.
    pub preview: TablePreview,
    /// The columns that hold conversations, each with its index.
    pub chat: Vec<(ChatColumn, usize)>,
}

/// Previews every table, sorted by path. The same table in two formats is read once. Files that
/// cannot be used are added to `skipped`.
pub(crate) fn preview_tables<'a>(
    root: &Path,
    files: &[Candidate<'a>],
    skipped: &mut Vec<SkippedFile>,
) -> Vec<PreviewedTable<'a>> {
    let mut taken: BTreeMap<Vec<String>, &Entry> = BTreeMap::new();
    let mut tables = Vec::new();
    let mut candidates: Vec<&Candidate> = files
        .iter()
        .filter(|file| file.format.is_for(Use::Rows))
        .collect();
    candidates.sort_by_key(|file| file.format.rank());
    for Candidate { entry, format } in candidates {
        let mut stem = entry.all_names();
        if let Some(name) = stem.last_mut() {
            *name = name
                .rsplit_once('.')
                .map_or(name.clone(), |(stem, _)| stem.to_owned());
        }
        if let Some(same) = taken.get(&stem) {
            skipped.push(entry.skip(format!(
                "This file has the same name as {}, so Ebb assumes that both contain the same rows. If the rows differ, rename this file.",
                same.path.display()
            )));
            continue;
        }
        match preview(root, entry, format) {
            Ok(table) => {
                taken.insert(stem, entry);
                tables.push(table);
            }
            Err(reason) => skipped.push(entry.skip(reason)),
        }
    }
    tables.sort_by(|a, b| a.entry.names().cmp(b.entry.names()));
    tables
}

fn preview<'a>(
    root: &Path,
    entry: &'a Entry,
    format: &'static FileFormat,
) -> Result<PreviewedTable<'a>, String> {
    let file = OpenFile::open(&root.join(&entry.path), format)?;
    let preview = file.preview();
    if preview.rows == 0 {
        let check = if format.is_binary() {
            "Write the file again with the program that made it."
        } else {
            "Check the first lines of the file."
        };
        return Err(if preview.is_cut() {
            format!(
                "None of the first {} rows of the file can be read. {check}",
                format_count(preview.faults as u64)
            )
        } else {
            format!("The file has no readable row. {check}")
        });
    }
    let chat = find_chat_columns(file.columns(), &|column| first_cells(&file, column));
    Ok(PreviewedTable {
        entry,
        chat,
        dialect: file.dialect,
        preview,
    })
}

/// The first filled cells of a column.
fn first_cells(file: &OpenFile, column: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut rows = 0;
    file.visit(&[column], &mut |_, row| {
        if let Row::Cells([Some(cell)]) = row {
            found.push(cell.clone().into_owned());
        }
        rows += 1;
        found.len() < CHAT_CELLS && rows < 10 * CHAT_CELLS
    });
    found
}
