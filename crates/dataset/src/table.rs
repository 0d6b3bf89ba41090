//! A table beside photographs: rows that name photographs, with numbers to be learnt, and perhaps classes, groups and parts.
//! Opens tables of the folder alone; what a row names is looked up among the photographs that were listed.

mod numbers;
pub(crate) mod placing;
mod pointing;

pub use numbers::TargetColumn;

use crate::error::DatasetError;
use crate::inspection::{Part, SkippedFile};
use crate::layout::part_of;
use crate::sentences::{grouped, listed};
use crate::text::{Claim, Row, Sheet, Source, is_named_label, open_tables};
use crate::walk::Entry;
use numbers::{Cell, cell, is_numbers, names_a_row};
use pointing::{Photographs, Pointed};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows of one table that are named when they are left out; more are counted.
const ROWS_NAMED: usize = 5;
/// Names of columns that say what a row serves for.
const PART_NAMES: [&str; 5] = ["split", "part", "set", "subset", "partition"];

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

/// A row that names a photograph: all its cells.
struct Matched {
    photograph: usize,
    cells: Vec<Option<String>>,
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
    let names: Vec<String> = sheet
        .glance
        .names
        .iter()
        .map(|name| name.trim().to_owned())
        .collect();
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
    let wanted = |name: &String| {
        let place = names
            .iter()
            .position(|n| n.eq_ignore_ascii_case(name.trim()));
        let number = || {
            name.trim()
                .parse()
                .ok()
                .filter(|n| (1..=names.len()).contains(n))
        };
        let place = place.or_else(|| number().map(|n: usize| n - 1));
        place.ok_or_else(|| DatasetError::NoColumn {
            column: name.clone(),
            columns: listed(&names),
        })
    };
    let group = options.group_by.as_ref().filter(|name| *name != "none");
    let group = group.map(wanted).transpose()?;
    let named_label = options.label_column.as_ref().map(wanted).transpose()?;
    let targets = options.targets.as_ref();
    let targets = targets
        .map(|names| names.iter().map(wanted).collect::<Result<Vec<usize>, _>>())
        .transpose()?;
    let cells = |place: usize| {
        rows.matched
            .iter()
            .map(move |row| row.cells[place].as_deref())
    };
    let free = |place: &usize| *place != image && Some(*place) != group;
    let part = (0..names.len()).filter(free).find(|place| {
        let named = PART_NAMES.contains(&names[*place].to_lowercase().as_str());
        named && cells(*place).all(|cell| cell.is_some_and(|cell| part_of(cell.trim()).is_some()))
    });
    let label = named_label.or_else(|| {
        let mut others = (0..names.len()).filter(|p| free(p) && Some(*p) != part);
        others.find(|place| is_named_label(&names[*place]) && repeats(cells(*place)))
    });
    let targets = targets.unwrap_or_else(|| {
        let others = (0..names.len()).filter(|p| free(p) && Some(*p) != part && Some(*p) != label);
        others
            .filter(|place| !names_a_row(&names[*place]) && is_numbers(cells(*place)))
            .collect()
    });
    let mut table = Table {
        notes: rows.notes(&file),
        file,
        targets: targets.iter().map(|place| names[*place].clone()).collect(),
        rows: vec![None; count],
        label: label.map(|place| names[place].clone()),
        group: group.map(|place| names[place].clone()),
    };
    let mut words: BTreeMap<usize, u64> = BTreeMap::new();
    for row in &rows.matched {
        let text = |place: Option<usize>| {
            let text = row.cells[place?].as_deref()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let number = |place: &usize| match cell(row.cells[*place].as_deref()) {
            Cell::Number(number) => Some(number),
            Cell::Missing => None,
            Cell::Words => {
                *words.entry(*place).or_default() += 1;
                None
            }
        };
        let numbers = targets.iter().map(number).collect();
        table.rows[row.photograph] = Some(Said {
            numbers,
            label: text(label),
            group: text(group),
            part: text(part).and_then(|text| part_of(&text)),
        });
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

/// Labels repeat, and there are two at least.
fn repeats<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> bool {
    let (mut kinds, mut filled) = (BTreeSet::new(), 0);
    for cell in cells
        .flatten()
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
    {
        kinds.insert(cell);
        filled += 1;
    }
    kinds.len() >= 2 && kinds.len() * 2 <= filled
}

/// The rows of a table as they come.
#[derive(Default)]
struct Rows {
    matched: Vec<Matched>,
    /// Line and reason.
    left_out: Vec<(u64, String)>,
    rows: u64,
    taken: BTreeSet<usize>,
    outside: u64,
}

impl Rows {
    fn take(
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
                let own = |cell: &Option<std::borrow::Cow<str>>| {
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

    fn notes(&self, file: &str) -> Vec<String> {
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
}
