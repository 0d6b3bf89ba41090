//! Looks at whatever was dropped, a folder or a single file, and says which task it is for. Photographs come first: a table
//! beside photographs describes them.

use crate::error::DatasetError;
use crate::inspect::{InspectOptions, inspect, last_name, real};
use crate::inspection::Inspection;
use crate::text::{Task, TextInspection, TextOptions, claims_text, inspect_texts};
use crate::walk::{Walk, alone, walk};
use crate::weights::{self, is_model};
use std::path::Path;

/// What was found, by task.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// Photographs, or a folder in which Ebb looked for some.
    Photographs(Inspection),
    /// Texts with labels, or documents.
    Texts(TextInspection),
}

impl From<Inspection> for Found {
    fn from(inspection: Inspection) -> Self {
        Found::Photographs(inspection)
    }
}

impl From<TextInspection> for Found {
    fn from(inspection: TextInspection) -> Self {
        Found::Texts(inspection)
    }
}

impl Found {
    /// What can be learnt from it.
    pub fn task(&self) -> Task {
        match self {
            Found::Photographs(_) => Task::ImageClassification,
            Found::Texts(found) => found.task,
        }
    }
}

/// Looks at a folder or a single file. `seen` is told the number of files looked at so far, on the calling thread.
///
/// # Errors
/// What stands at the path cannot be read or is neither a folder nor a file of texts; a named column is in no table.
pub fn look(
    path: &Path,
    options: &InspectOptions,
    texts: &TextOptions,
    seen: &dyn Fn(u64),
) -> Result<Found, DatasetError> {
    let texts = &TextOptions {
        task: texts.task.map(Task::looked_for),
        ..texts.clone()
    };
    let root = real(path)?;
    let of_texts = |folder: &Path, found: Walk| {
        inspect_texts(folder, &last_name(&root), found, options, texts, seen)
    };
    if !root.is_dir() {
        let no_folder = || DatasetError::NotAFolder {
            path: path.to_path_buf(),
        };
        let file = root.is_file() && texts.task != Some(Task::ImageClassification);
        let folder = root.parent().filter(|_| file).ok_or_else(no_folder)?;
        let one = alone(&root).map_err(|source| DatasetError::of_folder(path, source))?;
        let found = of_texts(folder, one)?.ok_or_else(no_folder)?;
        return Ok(Found::Texts(found));
    }
    let wants_texts = matches!(
        texts.task,
        Some(Task::TextClassification | Task::LanguageModel)
    ) || texts.text_column.is_some();
    let is_image_task = texts.task == Some(Task::ImageClassification);
    let options = &match wants_texts {
        true => options.clone(),
        false => of_photographs(options, texts),
    };
    let photographs = inspect(&root, options, seen)?;
    let listed = walk(&root)?;
    // A column of classes may be that of a table beside photographs.
    let wants_texts = wants_texts || texts.label_column.is_some() && photographs.table.is_none();
    if is_image_task || !wants_texts && are_the_matter(&photographs, &listed) {
        return Ok(Found::Photographs(photographs));
    }
    if !wants_texts && is_model(&root) {
        // Its vocabulary and its readme are no corpus.
        return Ok(Found::Photographs(Inspection {
            refusal: Some(weights::REFUSAL.to_owned()),
            ..photographs
        }));
    }
    match of_texts(&root, listed)? {
        // A readme among photographs that cannot be read is no corpus.
        Some(found) if wants_texts || !is_aside(&found, &photographs) => Ok(Found::Texts(found)),
        _ => Ok(Found::Photographs(photographs)),
    }
}

/// A column of labels that a user names is looked for beside photographs too.
fn of_photographs(options: &InspectOptions, texts: &TextOptions) -> InspectOptions {
    let mut options = options.clone();
    if options.table.label_column.is_none() {
        options.table.label_column.clone_from(&texts.label_column);
    }
    options
}

/// There are classes of photographs, and no crowd of texts in which a few were found.
fn are_the_matter(photographs: &Inspection, listed: &Walk) -> bool {
    let texts = listed
        .files
        .iter()
        .filter(|file| claims_text(&file.path))
        .count() as u64;
    let is_matter = !photographs.classes.is_empty() || !photographs.targets.is_empty();
    is_matter && photographs.photographs() * 2 >= texts
}

/// Fewer documents than files that claim to be photographs.
fn is_aside(found: &TextInspection, photographs: &Inspection) -> bool {
    found.task == Task::LanguageModel && found.samples.len() <= photographs.skipped.len()
}
