//! What the data page shows of a folder: its classes and their samples, the files that cannot be
//! used, and the first rows of a table. Samples are named by their index in the inspection.

use crate::data_choices::DataChoices;
use crate::opened_dataset_folders::ReadFolder;
use crate::window_types::CommandError;
use dataset::{
    Class, DetectedDataset, SkippedFile, Split, TextInspection, table_rows, text_previews,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use ts_rs::TS;

/// Files with a problem that are listed.
const PROBLEMS_SHOWN: usize = 200;
/// Rows of a table that are shown.
const TABLE_ROWS: usize = 8;
/// Characters of a text that are shown.
const PREVIEW_CHARACTERS: usize = 280;
/// Side of a thumbnail in pixels.
const THUMBNAIL_SIDE: u32 = 192;
/// Most samples in one answer.
const MAX_SAMPLES: usize = 200;

/// Answer of `data`.
#[derive(Debug, Clone, Serialize, TS)]
pub struct DataView {
    /// The version of the inspection that it belongs to. Indices of samples are those of this
    /// version.
    pub version: u64,
    /// Whether the samples are images; otherwise they are texts.
    pub images: bool,
    /// What of it is used.
    pub choices: DataChoices,
    /// The classes, also those that are left out. Without classes, one entry without a name has all
    /// samples.
    pub classes: Vec<DataClassView>,
    /// Files that cannot be used.
    pub problems: Vec<ProblemView>,
    /// Number of all such files, also those that are not listed.
    pub problem_count: u64,
    /// The table that the samples come from, or else the first table of the folder.
    pub table: Option<TableView>,
}

/// A class, and how it is split.
#[derive(Debug, Clone, Serialize, TS)]
pub struct DataClassView {
    /// Its name; empty if there are no classes.
    pub name: String,
    /// Samples to train on.
    pub train: u32,
    /// Samples held out.
    pub held_out: u32,
    /// Samples reserved for a test.
    pub test: u32,
}

/// A file that cannot be used.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ProblemView {
    /// Relative to the folder.
    pub file: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// The first rows of a table.
#[derive(Debug, Clone, Serialize, TS)]
pub struct TableView {
    /// Relative to the folder.
    pub file: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The role of each column: "text", "label", "target", or empty.
    pub roles: Vec<String>,
    /// The beginning of each cell, row by row.
    pub rows: Vec<Vec<String>>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct DataSampleView {
    /// Its index.
    pub sample: u32,
    /// Its file, relative to the folder.
    pub file: String,
    /// Where it is in a file of many: "row 12"; empty if the file is one sample.
    pub place: String,
    /// Its beginning, if it is a text.
    pub text: Option<String>,
    /// "train", "held-out" or "test".
    pub split: String,
}

/// A file of a folder.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DataFile {
    /// The file of a sample, by the sample's index.
    Sample(u32),
    /// A file with a problem, by its place in the list.
    Problem(u32),
}

/// What is shown first.
pub fn data(read: &ReadFolder) -> DataView {
    let found = read.samples.as_deref();
    let skipped = found.map_or(&[][..], skipped);
    let problem = |file: &SkippedFile| ProblemView {
        file: file.path.display().to_string(),
        reason: file.reason.clone(),
    };
    DataView {
        version: read.version,
        choices: read.choices.clone(),
        images: matches!(found, Some(DetectedDataset::Images(_))),
        classes: found.map(classes).unwrap_or_default(),
        problems: skipped.iter().take(PROBLEMS_SHOWN).map(problem).collect(),
        problem_count: skipped.len() as u64,
        table: table(read),
    }
}

fn skipped(found: &DetectedDataset) -> &[SkippedFile] {
    match found {
        DetectedDataset::Images(found) => &found.skipped,
        DetectedDataset::Texts(found) => &found.skipped,
    }
}

fn classes(found: &DetectedDataset) -> Vec<DataClassView> {
    let (classes, count): (_, Box<dyn Fn(Split) -> u64>) = match found {
        DetectedDataset::Images(found) => (&found.classes, Box::new(|split| found.count(split))),
        DetectedDataset::Texts(found) => (&found.classes, Box::new(|split| found.count(split))),
    };
    let view = |class: &Class| DataClassView {
        name: class.name.clone(),
        train: class.train,
        held_out: class.held_out,
        test: class.test,
    };
    if !classes.is_empty() {
        return classes.iter().map(view).collect();
    }
    let all = DataClassView {
        name: String::new(),
        train: count(Split::Train) as u32,
        held_out: count(Split::HeldOut) as u32,
        test: count(Split::Test) as u32,
    };
    vec![all]
}

fn table(read: &ReadFolder) -> Option<TableView> {
    let found = read.samples.as_deref();
    let table = table_rows(&read.path, found, TABLE_ROWS)?;
    let label = read.choices.label_column.as_ref();
    let role = |column: &String| match found {
        Some(DetectedDataset::Images(found)) => {
            let is_target = found.targets.iter().any(|target| target.name == *column);
            match (is_target, label == Some(column)) {
                (true, _) => "target",
                (false, true) => "label",
                (false, false) => "",
            }
        }
        Some(DetectedDataset::Texts(found)) => {
            let column = found.columns.iter().find(|one| one.name == *column);
            column.map_or("", |column| column.role.name())
        }
        None => "",
    };
    Some(TableView {
        roles: table.columns.iter().map(|c| role(c).to_owned()).collect(),
        file: table.file.display().to_string(),
        columns: table.columns,
        rows: table.rows,
    })
}

/// Samples of one class, from the one at place `from` within the class.
///
/// # Errors
/// A file of texts has changed.
pub fn samples(
    found: &DetectedDataset,
    class: u32,
    from: u32,
    count: u32,
) -> Result<Vec<DataSampleView>, CommandError> {
    let label = |index: usize| match found {
        DetectedDataset::Images(found) => found.files[index].label,
        DetectedDataset::Texts(found) => found.samples[index].label,
    };
    let len = match found {
        DetectedDataset::Images(found) => found.files.len(),
        DetectedDataset::Texts(found) => found.samples.len(),
    };
    let of_class = (0..len).filter(|index| label(*index) == class);
    let chosen: Vec<u32> = of_class
        .skip(from as usize)
        .take((count as usize).min(MAX_SAMPLES))
        .map(|index| index as u32)
        .collect();
    described(found, &chosen)
}

/// The samples with these indices.
///
/// # Errors
/// A file of texts has changed.
pub fn described(
    found: &DetectedDataset,
    chosen: &[u32],
) -> Result<Vec<DataSampleView>, CommandError> {
    match found {
        DetectedDataset::Images(found) => {
            let view = |index: &u32| {
                let file = found.files.get(*index as usize)?;
                Some(DataSampleView {
                    sample: *index,
                    file: file.path.display().to_string(),
                    place: String::new(),
                    text: None,
                    split: split_name(file.split).to_owned(),
                })
            };
            Ok(chosen.iter().filter_map(view).collect())
        }
        DetectedDataset::Texts(found) => texts(found, chosen),
    }
}

fn texts(found: &TextInspection, chosen: &[u32]) -> Result<Vec<DataSampleView>, CommandError> {
    let previews = text_previews(found, chosen, PREVIEW_CHARACTERS)
        .map_err(|error| CommandError::new("failed", error.to_string()))?;
    let view = |(index, text): (&u32, String)| {
        let sample = found.samples.get(*index as usize)?;
        let file = found.files.get(sample.file as usize)?;
        let only = !found
            .samples
            .iter()
            .any(|other| other.file == sample.file && other.row != sample.row);
        Some(DataSampleView {
            sample: *index,
            file: file.path.display().to_string(),
            place: if only {
                String::new()
            } else {
                format!("row {}", runlog::format_count(u64::from(sample.row) + 1))
            },
            text: Some(text),
            split: split_name(sample.split).to_owned(),
        })
    };
    Ok(chosen.iter().zip(previews).filter_map(view).collect())
}

fn split_name(split: Split) -> &'static str {
    match split {
        Split::Train => "train",
        Split::HeldOut => "held-out",
        Split::Test => "test",
    }
}

/// The thumbnail of an image, as the bytes of a JPEG.
///
/// # Errors
/// There is no such image, or it cannot be decoded.
pub fn thumbnail(read: &ReadFolder, sample: u32) -> Result<Vec<u8>, CommandError> {
    let path = file(read, DataFile::Sample(sample))?;
    dataset::thumbnail(&path, THUMBNAIL_SIDE)
        .map_err(|reason| CommandError::new("failed", format!("{}: {reason}", path.display())))
}

/// The path of a file.
///
/// # Errors
/// There is no such file in the folder.
pub fn file(read: &ReadFolder, file: DataFile) -> Result<PathBuf, CommandError> {
    let unknown = || {
        let why = "The folder has changed. Look at the data again.";
        CommandError::new("unknown_id", why)
    };
    let found = read.samples.as_deref().ok_or_else(unknown)?;
    let (folder, path) = match (found, file) {
        (DetectedDataset::Images(found), DataFile::Sample(index)) => {
            let image = found.files.get(index as usize);
            (&found.folder, image.map(|image| &image.path))
        }
        (DetectedDataset::Texts(found), DataFile::Sample(index)) => {
            let sample = found.samples.get(index as usize);
            let file = sample.and_then(|sample| found.files.get(sample.file as usize));
            (&found.folder, file.map(|file| &file.path))
        }
        (_, DataFile::Problem(index)) => {
            let folder = match found {
                DetectedDataset::Images(found) => &found.folder,
                DetectedDataset::Texts(found) => &found.folder,
            };
            let file = skipped(found).get(index as usize);
            (folder, file.map(|file| &file.path))
        }
    };
    Ok(folder.join(path.ok_or_else(unknown)?))
}

#[cfg(test)]
mod tests;
