//! A table beside photographs: rows that name photographs, with numbers to be learnt, and perhaps classes, groups and parts.
//! Opens tables of the folder alone; what a row names is looked up among the photographs that were listed.

mod pointing;

mod rows;

mod columns;
mod numbers;

pub(crate) mod placing;

pub use numbers::TargetColumn;

use crate::error::DatasetError;
use crate::inspection::{Part, SkippedFile};
use crate::sentences::{grouped, listed};
use crate::text::{Claim, Row, Sheet, Source, open_tables};
use crate::walk::Entry;
use columns::Columns;
use pointing::{Photographs, Pointed};
use rows::Rows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows of one table that are named when they are left out; more are counted.
const ROWS_NAMED: usize = 5;
/// How tables beside photographs are read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableOptions {
    /// The column of classes, by name or by number counted from 1.
    pub label_column: Option<String>,
    /// The column by which photographs belong together, or `none`: then no group is kept together.
    pub group_by: Option<String>,
    /// Columns of numbers to be learnt; absent, every column of numbers is.
    pub targets: Option<Vec<String>>,
}

/// What a table says of the photographs, in the order they were listed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The file, for showing.
    pub file: String,
    /// Names of the columns of numbers.
    pub targets: Vec<String>,
    /// What its rows say.
    pub rows: Vec<Option<Said>>,
    /// The column of classes.
    pub label: Option<String>,
    /// The column of groups.
    pub group: Option<String>,
    /// Sentences worth knowing.
    pub notes: Vec<String>,
}

/// What a row says of its photograph.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    pub numbers: Vec<Option<f64>>,
    pub label: Option<String>,
    pub group: Option<String>,
    pub part: Option<Part>,
}

/// Reads the table that names most photographs; nothing where none does.
///
/// # Errors
/// A column that the user names is not in it.
pub(crate) fn read(
    root: &Path,
    files: &[Entry],
    images: &[&Entry],
    options: &TableOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<Option<Table>, DatasetError> {
    let claims: Vec<(Entry, Claim)> = files
        .iter()
        .filter_map(|entry| Some((entry.clone(), Claim::of(&entry.path)?)))
        .filter(|(_, claim)| claim.is_table() && *claim != Claim::Parquet)
        .collect();
    if claims.is_empty() || images.is_empty() {
        return check_unused(options, None);
    }
    let photographs = Photographs::new(images.iter().copied());
    let mut left_out = Vec::new();
    let sheets = open_tables(root, &claims, &mut left_out);
    let mut best: Option<(usize, usize, &Sheet)> = None;
    for sheet in &sheets {
        let counts = matches_by_column(root, sheet, &photographs);
        let most = counts
            .iter()
            .enumerate()
            .max_by_key(|(i, n)| (**n, std::cmp::Reverse(*i)));
        if let Some((column, &count)) = most
            && count > best.map_or(0, |(count, ..)| count)
        {
            best = Some((count, column, sheet));
        }
    }
    let Some((_, column, sheet)) = best else {
        return check_unused(options, sheets.first());
    };
    skipped.extend(left_out);
    for other in sheets
        .iter()
        .filter(|other| other.entry.path != sheet.entry.path)
    {
        skipped.push(SkippedFile {
            path: other.entry.path.clone(),
            reason: format!(
                "It names fewer photographs than {}. Put all rows into one table.",
                sheet.entry.path.display()
            ),
        });
    }
    take(
        root,
        sheet,
        column,
        &photographs,
        images.len(),
        options,
        skipped,
    )
    .map(Some)
}

/// Columns that a user names must be somewhere.
fn check_unused(
    options: &TableOptions,
    sheet: Option<&Sheet>,
) -> Result<Option<Table>, DatasetError> {
    let group = options.group_by.as_ref().filter(|name| *name != "none");
    let named = options.targets.iter().flatten().chain(group).next();
    match named {
        None => Ok(None),
        Some(column) => Err(DatasetError::NoColumn {
            column: column.clone(),
            columns: match sheet {
                Some(sheet) => listed(&sheet.glance.names),
                None => "no columns, for no table names photographs".to_owned(),
            },
        }),
    }
}

/// How many photographs each column names. Whole numbers may count anything: they name photographs only where no other cell
/// does.
fn matches_by_column(root: &Path, sheet: &Sheet, photographs: &Photographs) -> Vec<usize> {
    let mut named = vec![(BTreeSet::new(), BTreeSet::new()); sheet.glance.names.len()];
    if let Ok(source) = Source::open(&root.join(&sheet.entry.path), sheet.format) {
        let beside = folder_of(sheet.entry);
        let all: Vec<usize> = (0..named.len()).collect();
        source.visit(&all, &mut |_, row| {
            let Row::Cells(cells) = row else { return true };
            for ((words, digits), cell) in named.iter_mut().zip(cells) {
                let Some(cell) = cell.as_deref() else {
                    continue;
                };
                if let Pointed::At(place) = photographs.find(beside, cell) {
                    match cell.trim().bytes().all(|byte| byte.is_ascii_digit()) {
                        true => digits.insert(place),
                        false => words.insert(place),
                    };
                }
            }
            true
        });
    }
    let by_words = named.iter().any(|(words, _)| !words.is_empty());
    let count = |(words, digits): &(BTreeSet<usize>, BTreeSet<usize>)| match by_words {
        true => words.len(),
        false => digits.len(),
    };
    named.iter().map(count).collect()
}

fn folder_of(entry: &Entry) -> &[String] {
    &entry.names[..entry.names.len().saturating_sub(1)]
}

/// Reads the rows of the chosen table and decides what its columns are.
fn take(
    root: &Path,
    sheet: &Sheet,
    image: usize,
    photographs: &Photographs,
    count: usize,
    options: &TableOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<Table, DatasetError> {
    let names = sheet.glance.names.iter();
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    let mut rows = Rows::default();
    let source = Source::open(&root.join(&sheet.entry.path), sheet.format);
    if let Ok(source) = source {
        let beside = folder_of(sheet.entry);
        let all: Vec<usize> = (0..names.len()).collect();
        source.visit(&all, &mut |line, row| {
            rows.take(line, row, image, beside, photographs);
            true
        });
    }
    let file = sheet.entry.path.display().to_string();
    for (line, reason) in rows.left_out.iter().take(ROWS_NAMED) {
        skipped.push(SkippedFile {
            path: sheet.entry.path.clone(),
            reason: format!("Line {line}: {reason}"),
        });
    }
    let columns = Columns::of(&names, image, &rows, options)?;
    let name = |place: usize| names[place].clone();
    let mut table = Table {
        notes: rows.notes(&file),
        file,
        targets: columns.targets.iter().copied().map(name).collect(),
        rows: vec![None; count],
        label: columns.label.map(name),
        group: columns.group.map(name),
    };
    let mut words = BTreeMap::new();
    for row in &rows.matched {
        table.rows[row.photograph] = Some(columns.said(row, &mut words));
    }
    for (place, count) in words {
        let cells = if count == 1 { "cell" } else { "cells" };
        table.notes.push(format!(
            "{} {cells} of {} hold no number and count as missing.",
            grouped(count),
            names[place]
        ));
    }
    Ok(table)
}
