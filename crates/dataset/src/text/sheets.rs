//! Tables: opened to see their columns, put together where they have the same, and the columns of texts and labels in them.
//! Reads no row for keeps.

use super::columns::{Choice, Glance};
use super::inspection::{Column, Role, Task};
use super::kind::{Decision, Label, Used};
use super::parts;
use super::source::{Claim, Format, Source};
use super::{TextOptions, words};
use crate::error::DatasetError;
use crate::inspection::SkippedFile;
use crate::walk::Entry;
use std::collections::BTreeMap;
use std::path::Path;

/// A table that was looked at.
pub(crate) struct Sheet<'a> {
    pub entry: &'a Entry,
    pub claim: Claim,
    pub format: Format,
    pub glance: Glance,
}

/// Opens every table once; the same table in two formats is taken once.
pub(crate) fn open<'a>(
    root: &Path,
    files: &'a [(Entry, Claim)],
    skipped: &mut Vec<SkippedFile>,
) -> Vec<Sheet<'a>> {
    let mut taken: BTreeMap<Vec<String>, &Entry> = BTreeMap::new();
    let mut sheets = Vec::new();
    let mut tables: Vec<&(Entry, Claim)> = files.iter().filter(|(_, c)| c.is_table()).collect();
    tables.sort_by_key(|(_, claim)| *claim as u8);
    for (entry, claim) in tables {
        let mut stem = entry.names.clone();
        if let Some(name) = stem.last_mut() {
            *name = name
                .rsplit_once('.')
                .map_or(name.clone(), |(stem, _)| stem.to_owned());
        }
        if let Some(same) = taken.get(&stem) {
            skip(
                skipped,
                entry,
                format!(
                    "It has the same name as {} and is taken to hold the same rows. Rename it if it does not.",
                    shown(same)
                ),
            );
            continue;
        }
        match Source::table(&root.join(&entry.path), *claim) {
            Ok(source) => {
                let glance = source.sample_fast();
                if glance.rows == 0 {
                    skip(
                        skipped,
                        entry,
                        "It has no row that can be read. Look at its first lines.".to_owned(),
                    );
                    continue;
                }
                taken.insert(stem, entry);
                sheets.push(Sheet {
                    entry,
                    claim: *claim,
                    format: source.format,
                    glance,
                });
            }
            Err(reason) => skip(skipped, entry, reason),
        }
    }
    sheets.sort_by(|a, b| a.entry.names.cmp(&b.entry.names));
    sheets
}

/// A file's path, for showing.
pub(crate) fn shown(entry: &Entry) -> String {
    entry.path.display().to_string()
}

/// Names a file that is left out.
pub(crate) fn skip(skipped: &mut Vec<SkippedFile>, entry: &Entry, reason: String) {
    skipped.push(SkippedFile {
        path: entry.path.clone(),
        reason,
    });
}

/// A column that a user names must be in some table.
pub(crate) fn check_named(sheets: &[Sheet], options: &TextOptions) -> Result<(), DatasetError> {
    for wanted in [&options.text_column, &options.label_column]
        .into_iter()
        .flatten()
    {
        if !sheets
            .iter()
            .any(|sheet| sheet.glance.named(wanted).is_some())
        {
            let mut there: Vec<String> = Vec::new();
            for name in sheets.iter().flat_map(|sheet| &sheet.glance.names) {
                if !there.contains(name) {
                    there.push(name.clone());
                }
            }
            return Err(DatasetError::NoColumn {
                column: wanted.clone(),
                columns: words::listed(&there),
            });
        }
    }
    Ok(())
}

/// Text and label of a table, where it has both.
fn picked(glance: &Glance, options: &TextOptions) -> Option<(Choice, Choice)> {
    let named = |wanted: &Option<String>| wanted.as_deref().map(|name| glance.named(name));
    let label = match named(&options.label_column) {
        Some(label) => Some(label?),
        None => None,
    };
    let text = match named(&options.text_column) {
        Some(text) => text?,
        // A column that is surely the label cannot be the text.
        None => glance.text(label.as_ref().map(|l| l.place))?,
    };
    let label = match label {
        Some(label) => label,
        None => glance.label(text.place)?,
    };
    (label.place != text.place).then_some((text, label))
}

/// The tables that have texts and labels in columns of the same names.
pub(crate) fn tables(
    sheets: &[Sheet],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Option<Decision> {
    let picks: Vec<Option<(Choice, Choice)>> = sheets
        .iter()
        .map(|sheet| picked(&sheet.glance, options))
        .collect();
    let mut groups: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (sheet, pick) in sheets.iter().zip(&picks) {
        if let Some((text, label)) = pick {
            *groups
                .entry((text.name.clone(), label.name.clone()))
                .or_default() += sheet.entry.bytes;
        }
    }
    let (names, _) = groups
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
    let first = picks
        .iter()
        .flatten()
        .find(|(t, l)| (&t.name, &l.name) == (&names.0, &names.1))?;
    let columns = vec![column(Role::Text, &first.0), column(Role::Label, &first.1)];
    let width = |sheet: &Sheet| match sheet.format {
        Format::Delimited(kind) if !kind.header => Some(sheet.glance.names.len()),
        _ => None,
    };
    let model = sheets
        .iter()
        .zip(&picks)
        .find(|(_, p)| p.as_ref() == Some(first))
        .map(|(s, _)| s)?;
    let fits = |sheet: &Sheet| {
        let place = |name: &str| sheet.glance.names.iter().position(|n| n == name);
        (width(sheet) == width(model)).then_some(())?;
        Some((place(&names.0)?, place(&names.1)?))
    };
    let views: Vec<&[String]> = sheets
        .iter()
        .filter(|sheet| fits(sheet).is_some())
        .map(|sheet| sheet.entry.names.as_slice())
        .collect();
    let mut parts = parts::of(&views).into_iter();
    let mut used = Vec::new();
    let mut beside = Vec::new();
    for sheet in sheets {
        let Some((text, label)) = fits(sheet) else {
            let has = words::listed(&sheet.glance.names);
            skip(
                skipped,
                sheet.entry,
                format!(
                    "It has other columns ({has}) than {} ({}, {}). Move it into a folder of its own.",
                    shown(model.entry),
                    names.0,
                    names.1
                ),
            );
            continue;
        };
        let file = Used {
            entry: sheet.entry.clone(),
            format: sheet.format,
            part: parts.next().flatten(),
            texts: vec![text],
            label: Label::Column(label),
        };
        used.push(file);
    }
    if used.iter().any(|file| file.part.is_some()) {
        (used, beside) = used.into_iter().partition(|file| file.part.is_some());
    }
    for file in beside {
        skip(skipped, &file.entry, "It stands beside files named train and test and belongs to neither. Rename it, or remove it.".to_owned());
    }
    let why = format!(
        "{} has a column of texts and a column of labels.",
        shown(model.entry)
    );
    Some(Decision {
        task: Some(Task::TextClassification),
        why,
        columns,
        used,
        refusal: None,
    })
}

/// A column that was chosen, to be said.
pub(crate) fn column(role: Role, choice: &Choice) -> Column {
    Column {
        role,
        name: choice.name.clone(),
        why: choice.why.clone(),
    }
}

/// Tables in which no column looks like labels.
pub(crate) fn unlabelled(sheets: &[Sheet], task: Task) -> Decision {
    let refusal = match sheets.first() {
        Some(sheet) => format!(
            "No column of {} looks like labels; it has {}. Call two of them text and label, or name them in the terminal with --text-column and --label-column.",
            shown(sheet.entry),
            words::listed(&sheet.glance.names)
        ),
        None => "No labels were found. Put the texts of each class into a sub-folder named after it, or give a table with a column of labels.".to_owned(),
    };
    Decision {
        task: Some(task),
        why: "there is a table.".to_owned(),
        refusal: Some(refusal),
        ..Decision::default()
    }
}
