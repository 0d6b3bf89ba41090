//! Decides what files of texts are for: labelled rows, class folders, `label text` lines or documents. Opens tables to see
//! their columns; reads no row for keeps.

use super::TextOptions;
use super::inspection::{Column, Role, Task};
use super::parts;
use super::sheets::{self, Sheet, column, shown, skip};
use super::source::{Claim, Format, Source};
use crate::error::DatasetError;
use crate::inspection::{Part, SkippedFile};
use crate::layout::lay_out;
use crate::walk::Entry;
use std::path::Path;

/// Plain files in which `label text` lines are looked for; more are documents.
const MAX_LINE_FILES: usize = 16;
/// Class folders hold this many texts each on average at least.
const MIN_TEXTS_A_CLASS: usize = 2;
/// Of a hundred texts this many may stand outside class folders.
const MAX_STRAY_PERCENT: usize = 10;

/// What the files are for, and how each is read.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Nothing where the files tell no task.
    pub task: Option<Task>,
    /// Why that one.
    pub why: String,
    /// Columns read.
    pub columns: Vec<Column>,
    /// Files read.
    pub used: Vec<Used>,
    /// Why nothing can be trained.
    pub refusal: Option<String>,
}

/// A file and how its samples are had.
#[derive(Debug)]
pub(crate) struct Used {
    pub entry: Entry,
    pub format: Format,
    /// Told by its name or folder.
    pub part: Option<Part>,
    /// Columns that make up the text.
    pub texts: Vec<usize>,
    pub label: Label,
}

/// Where a sample's label comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// A column.
    Column(usize),
    /// The folder that the file stands in.
    Class(String),
    /// A document has none.
    None,
}

/// Looks at files and decides. Files that cannot be used are named in `skipped`.
pub(crate) fn decide(
    root: &Path,
    files: &[(Entry, Claim)],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Result<Decision, DatasetError> {
    let sheets = sheets::open(root, files, skipped);
    sheets::check_named(&sheets, options)?;
    let plain: Vec<&Entry> = of_claim(files, |claim| claim == Claim::Plain);
    if options.task != Some(Task::LanguageModel) {
        if let Some(found) = sheets::tables(&sheets, options, skipped) {
            return Ok(found);
        }
        if let Some(found) = class_folders(&plain, options, skipped) {
            return Ok(found);
        }
        if let Some(found) = label_lines(root, &plain) {
            return Ok(found);
        }
    }
    if options.task == Some(Task::TextClassification) {
        return Ok(sheets::unlabelled(&sheets, Task::TextClassification));
    }
    let forced = options.task == Some(Task::LanguageModel) || options.text_column.is_some();
    let found = documents(files, &sheets, options, forced);
    if found.used.is_empty() && !sheets.is_empty() {
        return Ok(sheets::unlabelled(&sheets, Task::TextClassification));
    }
    Ok(found)
}

fn of_claim(files: &[(Entry, Claim)], wanted: fn(Claim) -> bool) -> Vec<&Entry> {
    let of_it = files.iter().filter(|(_, claim)| wanted(*claim));
    of_it.map(|(entry, _)| entry).collect()
}

fn class_folders(
    plain: &[&Entry],
    options: &TextOptions,
    skipped: &mut Vec<SkippedFile>,
) -> Option<Decision> {
    let views: Vec<&[String]> = plain.iter().map(|entry| entry.names.as_slice()).collect();
    let layout = lay_out(&views);
    let placed: Vec<_> = layout.places.iter().flatten().collect();
    let mut classes: Vec<&str> = placed.iter().map(|place| place.class.as_str()).collect();
    classes.sort_unstable();
    classes.dedup();
    let strays = plain.len() - placed.len();
    let clear = classes.len() >= 2
        && placed.len() >= MIN_TEXTS_A_CLASS * classes.len()
        && strays * 100 <= MAX_STRAY_PERCENT * plain.len();
    let asked = options.task == Some(Task::TextClassification) && !classes.is_empty();
    if !clear && !asked {
        return None;
    }
    let why = format!("there are {} sub-folders of .txt files.", classes.len());
    let mut used = Vec::new();
    for (entry, place) in plain.iter().zip(layout.places) {
        match place {
            Ok(place) => used.push(Used {
                entry: (*entry).clone(),
                format: Format::Whole,
                part: place.part,
                texts: vec![0],
                label: Label::Class(place.class),
            }),
            Err(reason) => skip(skipped, entry, reason),
        }
    }
    Some(Decision {
        task: Some(Task::TextClassification),
        why,
        used,
        ..Decision::default()
    })
}

fn label_lines(root: &Path, plain: &[&Entry]) -> Option<Decision> {
    if plain.is_empty() || plain.len() > MAX_LINE_FILES {
        return None;
    }
    let views: Vec<&[String]> = plain.iter().map(|entry| entry.names.as_slice()).collect();
    let mut used = Vec::new();
    for (entry, part) in plain.iter().zip(parts::of(&views)) {
        // A file that cannot be read is named where files are read for keeps.
        let source = Source::lines(&root.join(&entry.path)).ok().flatten()?;
        used.push(Used {
            entry: (*entry).clone(),
            format: source.format,
            part,
            texts: vec![1],
            label: Label::Column(0),
        });
    }
    let first = shown(&used.first()?.entry);
    Some(Decision {
        task: Some(Task::TextClassification),
        why: format!("every line of {first} begins with one of few labels."),
        used,
        ..Decision::default()
    })
}

fn documents(
    files: &[(Entry, Claim)],
    sheets: &[Sheet],
    options: &TextOptions,
    forced: bool,
) -> Decision {
    let mut used = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    for (entry, claim) in files {
        if !claim.is_table() {
            used.push(Used {
                entry: entry.clone(),
                format: Format::Whole,
                part: None,
                texts: vec![0],
                label: Label::None,
            });
            continue;
        }
        let sheet = sheets.iter().find(|sheet| sheet.entry.path == entry.path);
        let Some(sheet) = sheet.filter(|sheet| forced || sheet.claim.may_hold_documents()) else {
            continue;
        };
        let choices = match &options.text_column {
            Some(name) => sheet.glance.named(name).into_iter().collect(),
            None => sheet.glance.document(),
        };
        if choices.is_empty() {
            continue;
        }
        for choice in &choices {
            let found = column(Role::Text, choice);
            if !columns.iter().any(|known| known.name == found.name) {
                columns.push(found);
            }
        }
        used.push(Used {
            entry: entry.clone(),
            format: sheet.format,
            part: None,
            texts: choices.iter().map(|choice| choice.place).collect(),
            label: Label::None,
        });
    }
    let views: Vec<&[String]> = used
        .iter()
        .map(|file| file.entry.names.as_slice())
        .collect();
    let parts = parts::of(&views);
    let apart = parts.iter().any(Option::is_some);
    for (file, part) in used.iter_mut().zip(parts) {
        // A document beside the parts is one to train on.
        file.part = part.or(apart.then_some(Part::Train));
    }
    let why = match used.iter().any(|file| file.format != Format::Whole) {
        true => "the files hold texts and no labels.",
        false => "the files are texts, not rows, and no sub-folders of .txt files are classes.",
    };
    Decision {
        task: (!used.is_empty()).then_some(Task::LanguageModel),
        why: why.to_owned(),
        columns,
        used,
        refusal: None,
    }
}
