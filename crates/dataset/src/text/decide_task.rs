//! Decides what text files are for: conversations, labeled rows, class folders, lines with a label,
//! or documents. Opens tables to preview their columns.

use super::decide_conversations;
use super::decide_labeled_tables::{self, chosen_column};
use super::file_splits::splits_by_name;
use super::task_decision::{ChosenFile, Decision, LabelSource};
use super::text_inspection::{Column, Role};
use crate::error::DatasetError;
use crate::folder_layout::lay_out;
use crate::folder_listing::Entry;
use crate::options::TextOptions;
use crate::readers::{Candidate, OpenFile, PreviewedTable, Use, preview_tables};
use crate::task::Task;
use crate::types::{SkippedFile, Split};
use std::path::Path;

/// Most plain files that are searched for lines with a label; more files are documents.
const MAX_LINE_FILES: usize = 16;
/// Fewest texts per class folder, on average.
const MIN_TEXTS_PER_CLASS: usize = 2;
/// Most percent of the texts that may be outside of class folders.
const MAX_STRAY_PERCENT: usize = 10;

/// Decides the task. Files that cannot be used are added to `skipped`.
///
/// # Errors
/// No table has a column that the user names.
pub(crate) fn decide(
    root: &Path,
    files: &[Candidate],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<Decision, DatasetError> {
    let tables = preview_tables(root, files, skipped);
    decide_labeled_tables::check_named_columns(&tables, options)?;
    if let Some(found) = decide_conversations::decide(&tables, options, skipped) {
        return Ok(found);
    }
    if options.task != Some(Task::LanguageModel) {
        if let Some(found) = decide_labeled_tables::decide(&tables, options, skipped) {
            return Ok(found);
        }
        let plain: Vec<&Entry> = files
            .iter()
            .filter(|file| file.format.is_for(Use::LabeledTexts))
            .map(|file| file.entry)
            .collect();
        if let Some(found) = class_folders(&plain, files, options, skipped) {
            return Ok(found);
        }
        if let Some(found) = label_lines(root, &plain) {
            return Ok(found);
        }
    }
    if options.task == Some(Task::TextClassification) {
        return Ok(decide_labeled_tables::without_labels(&tables));
    }
    let found = documents(files, &tables, options);
    if found.files.is_empty() && !tables.is_empty() {
        return Ok(decide_labeled_tables::without_labels(&tables));
    }
    Ok(found)
}

/// Plain files in class folders.
fn class_folders(
    plain: &[&Entry],
    files: &[Candidate],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Option<Decision> {
    let folders: Vec<&[String]> = plain.iter().map(|entry| &*entry.folders).collect();
    let layout = lay_out(&folders);
    let placed: Vec<_> = layout.placements.iter().flatten().collect();
    let mut classes: Vec<&str> = placed.iter().map(|p| &*p.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let strays = plain.len() - placed.len();
    let is_clear = classes.len() >= 2
        && placed.len() >= MIN_TEXTS_PER_CLASS * classes.len()
        && strays * 100 <= MAX_STRAY_PERCENT * plain.len();
    let is_asked_for = options.task == Some(Task::TextClassification) && !classes.is_empty();
    if !is_clear && !is_asked_for {
        return None;
    }
    let reason = format!("there are {} sub-folders of .txt files.", classes.len());
    let mut chosen = Vec::new();
    let plain_files = files.iter().filter(|f| f.format.is_for(Use::LabeledTexts));
    for (file, placement) in plain_files.zip(layout.placements) {
        match placement {
            Ok(placement) => chosen.push(ChosenFile {
                entry: file.entry.clone(),
                dialect: file.format.plain_dialect(),
                split: placement.split,
                text_columns: vec![0],
                chat: Vec::new(),
                label: LabelSource::Class(placement.class.to_string()),
            }),
            Err(reason) => skipped.push(file.entry.skip(reason.to_string())),
        }
    }
    Some(Decision {
        task: Some(Task::TextClassification),
        reason,
        files: chosen,
        ..Decision::default()
    })
}

/// Plain files whose lines all start with a label.
fn label_lines(root: &Path, plain: &[&Entry]) -> Option<Decision> {
    if plain.is_empty() || plain.len() > MAX_LINE_FILES {
        return None;
    }
    let names: Vec<Vec<String>> = plain.iter().map(|entry| entry.all_names()).collect();
    let mut files = Vec::new();
    for (entry, split) in plain.iter().zip(splits_by_name(&names)) {
        // A file that cannot be read is reported when all rows are scanned.
        let file = OpenFile::open_label_lines(&root.join(&entry.path))
            .ok()
            .flatten()?;
        files.push(ChosenFile {
            entry: (*entry).clone(),
            dialect: file.dialect,
            split,
            text_columns: vec![1],
            chat: Vec::new(),
            label: LabelSource::Column(0),
        });
    }
    let first = files.first()?.entry.path.display();
    Some(Decision {
        task: Some(Task::TextClassification),
        reason: format!("every line of {first} starts with a label from a small set."),
        files,
        ..Decision::default()
    })
}

/// Documents: whole files, and rows of files that may contain documents.
fn documents(files: &[Candidate], tables: &[PreviewedTable], options: &TextOptions) -> Decision {
    let is_asked_for = options.task == Some(Task::LanguageModel) || options.text_column.is_some();
    let mut chosen = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    for Candidate { entry, format } in files {
        let mut file = ChosenFile {
            entry: (*entry).clone(),
            dialect: format.document_dialect(entry.bytes),
            split: None,
            text_columns: vec![0],
            chat: Vec::new(),
            label: LabelSource::Unlabeled,
        };
        if format.is_for(Use::Rows) {
            let table = tables.iter().find(|table| table.entry.path == entry.path);
            let Some(table) = table.filter(|_| is_asked_for || format.is_for(Use::Documents))
            else {
                continue;
            };
            let choices = match &options.text_column {
                Some(name) => table.preview.find(name).into_iter().collect(),
                None => table.preview.choose_document(),
            };
            if choices.is_empty() {
                continue;
            }
            for choice in &choices {
                let found = chosen_column(Role::Text, choice);
                if !columns.iter().any(|known| known.name == found.name) {
                    columns.push(found);
                }
            }
            file.dialect = table.dialect;
            file.text_columns = choices.iter().map(|choice| choice.index).collect();
        }
        chosen.push(file);
    }
    assign_document_splits(&mut chosen);
    let reason = if chosen.is_empty() {
        "no file of texts can be read."
    } else if chosen.iter().any(|file| !file.dialect.is_whole_text()) {
        "the files contain texts without labels."
    } else {
        "the files are plain texts, not tables, and there are no class folders of .txt files."
    };
    Decision {
        task: (!chosen.is_empty()).then_some(Task::LanguageModel),
        reason: reason.to_owned(),
        columns,
        files: chosen,
        refusal: None,
    }
}

/// Assigns documents to splits by their names. If some have a split, the others are for training.
fn assign_document_splits(files: &mut [ChosenFile]) {
    let names: Vec<Vec<String>> = files.iter().map(|f| f.entry.all_names()).collect();
    let splits = splits_by_name(&names);
    let some_have_one = splits.iter().any(Option::is_some);
    for (file, split) in files.iter_mut().zip(splits) {
        file.split = split.or(some_have_one.then_some(Split::Train));
    }
}
