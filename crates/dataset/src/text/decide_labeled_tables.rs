//! Tables with a text column and a label column. Tables whose columns have the same names are read
//! together.

use super::file_splits::splits_by_name;
use super::refusals_and_notes::listed;
use super::task_decision::{ChosenFile, Decision, LabelSource};
use super::text_inspection::{Column, Role};
use crate::error::DatasetError;
use crate::options::TextOptions;
use crate::readers::{ChosenColumn, PreviewedTable, TablePreview};
use crate::task::Task;
use crate::types::SkippedFile;
use std::collections::BTreeMap;

/// A column that the user names must be in some table.
pub(crate) fn check_named_columns(
    tables: &[PreviewedTable],
    options: &TextOptions,
) -> Result<(), DatasetError> {
    let named = [&options.text_column, &options.label_column];
    for wanted in named.into_iter().flatten() {
        if tables
            .iter()
            .any(|table| table.preview.find(wanted).is_some())
        {
            continue;
        }
        let mut columns: Vec<String> = Vec::new();
        for name in tables.iter().flat_map(|table| &table.preview.names) {
            if !columns.contains(name) {
                columns.push(name.clone());
            }
        }
        if columns.is_empty() {
            return Err(DatasetError::NoTable {
                column: wanted.clone(),
                reason: "there is no table that Ebb can read",
            });
        }
        return Err(DatasetError::UnknownColumn {
            column: wanted.clone(),
            columns: listed(&columns),
        });
    }
    Ok(())
}

/// The text and label columns of a table.
#[derive(Clone, PartialEq)]
struct ChosenColumns {
    text: ChosenColumn,
    label: ChosenColumn,
}

/// Chooses the text and label columns of a table, if it has both.
fn choose_columns(preview: &TablePreview, options: &TextOptions) -> Option<ChosenColumns> {
    let label = match &options.label_column {
        Some(name) => Some(preview.find(name)?),
        None => None,
    };
    let text = match &options.text_column {
        Some(name) => preview.find(name)?,
        // The label column cannot be the text column too.
        None => preview.choose_text(label.as_ref().map(|l| l.index))?,
    };
    let label = match label {
        Some(label) => label,
        None => preview.choose_label(text.index)?,
    };
    (label.index != text.index).then_some(ChosenColumns { text, label })
}

/// Decides for the tables whose text and label columns have the same names, the largest in bytes.
/// `None` if no table has both columns. Other tables are added to `skipped`.
pub(crate) fn decide(
    tables: &[PreviewedTable],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Option<Decision> {
    let choices: Vec<Option<ChosenColumns>> = tables
        .iter()
        .map(|table| choose_columns(&table.preview, options))
        .collect();
    let (model, columns) = choose_model(tables, &choices)?;
    let (text, label) = (&columns.text.name, &columns.label.name);
    let width = |t: &PreviewedTable| t.dialect.unnamed_columns(&t.preview.names);
    // The indices of both columns in a table that is like the model.
    let fit = |table: &PreviewedTable| {
        let index = |name: &str| table.preview.names.iter().position(|n| n == name);
        (width(table) == width(model)).then_some(())?;
        Some((index(text)?, index(label)?))
    };
    let names: Vec<Vec<String>> = tables
        .iter()
        .filter(|table| fit(table).is_some())
        .map(|table| table.entry.all_names())
        .collect();
    let mut splits = splits_by_name(&names).into_iter();
    let mut files = Vec::new();
    for table in tables {
        let Some((text_column, label_column)) = fit(table) else {
            skipped.push(table.entry.skip(format!(
                "The columns of this file ({}) differ from those of {} ({text}, {label}). Move the file into a folder of its own.",
                listed(&table.preview.names),
                model.entry.path.display()
            )));
            continue;
        };
        files.push(ChosenFile {
            entry: table.entry.clone(),
            dialect: table.dialect,
            split: splits.next().flatten(),
            text_columns: vec![text_column],
            chat: Vec::new(),
            label: LabelSource::Column(label_column),
        });
    }
    Some(Decision {
        task: Some(Task::TextClassification),
        reason: format!(
            "{} has a column of texts and a column of labels.",
            model.entry.path.display()
        ),
        columns: vec![
            chosen_column(Role::Text, &columns.text),
            chosen_column(Role::Label, &columns.label),
        ],
        files: keep_splits(files, skipped),
        refusal: None,
    })
}

/// The first table with the pair of column names that covers the most bytes, and its columns.
fn choose_model<'a>(
    tables: &'a [PreviewedTable<'a>],
    choices: &'a [Option<ChosenColumns>],
) -> Option<(&'a PreviewedTable<'a>, &'a ChosenColumns)> {
    let pairs = || {
        let pairs = tables.iter().zip(choices);
        pairs.filter_map(|(table, columns)| Some((table, columns.as_ref()?)))
    };
    let mut bytes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (table, columns) in pairs() {
        let names = (columns.text.name.as_str(), columns.label.name.as_str());
        *bytes.entry(names).or_default() += table.entry.bytes;
    }
    let (names, _) = bytes
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
    pairs().find(|(_, columns)| (columns.text.name.as_str(), columns.label.name.as_str()) == names)
}

/// If some files are splits of their own, the others are left out.
fn keep_splits(files: Vec<ChosenFile>, skipped: &mut Vec<SkippedFile>) -> Vec<ChosenFile> {
    if files.iter().all(|file| file.split.is_none()) {
        return files;
    }
    let (files, others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.split.is_some());
    for file in others {
        skipped.push(file.entry.skip(
            "Other files are named after splits, such as train and test, but this file is not. Rename this file, or remove it."
                .to_owned(),
        ));
    }
    files
}

/// A chosen column, for display.
pub(crate) fn chosen_column(role: Role, choice: &ChosenColumn) -> Column {
    Column {
        role,
        name: choice.name.clone(),
        reason: choice.reason.clone(),
    }
}

/// The refusal of a folder in which no column looks like labels.
pub(crate) fn without_labels(tables: &[PreviewedTable]) -> Decision {
    let refusal = match tables.first() {
        Some(table) => {
            let (path, columns) = (table.entry.path.display(), listed(&table.preview.names));
            let problem = match table.preview.label_without_repeats() {
                Some(column) => format!(
                    "The column {column} of {path} has a different value in nearly every row, so it does not look like labels."
                ),
                None => format!("No column of {path} looks like labels; the columns are {columns}."),
            };
            format!(
                "{problem} Rename two columns to text and label, or choose the columns (--text-column and --label-column in the terminal)."
            )
        }
        None => "No labels were found. Put the texts of each class into a sub-folder named after the class, or add a table with a label column.".to_owned(),
    };
    Decision {
        task: Some(Task::TextClassification),
        reason: "labels are in tables or class folders.".to_owned(),
        refusal: Some(refusal),
        ..Decision::default()
    }
}
