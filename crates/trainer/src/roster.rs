//! The exact list of files, or of rows of texts, that a run trains on, kept in its folder: a resumed run goes on with the same samples, whatever was
//! added to the dropped folder meanwhile.

use crate::durable::publish;
use crate::error::{Result, TrainError, at};
use dataset::{
    CachedTexts, Class, DetectedDataset, Ignored, ImageFile, ImageInspection, Split, SplitKind,
    TargetColumn, TextInspection,
};
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// File name in the run folder.
const FILE: &str = "data.json";

#[derive(Serialize, Deserialize)]
struct Roster {
    folder: PathBuf,
    name: String,
    classes: Vec<String>,
    /// Path, label, part (0 train, 1 held out, 2 test), width, height, bytes.
    files: Vec<(PathBuf, u32, u8, u32, u32, u64)>,
    /// Numbers learnt, with the statistics that they are standardised by; none in runs of an earlier version.
    #[serde(default)]
    targets: Vec<TargetColumn>,
    /// The numbers of each file, where there are any.
    #[serde(default)]
    numbers: Vec<Vec<Option<f64>>>,
}

/// One of the two lists, as it stands in the file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Photographs(Roster),
    Texts { texts: CachedTexts },
}

/// Writes the list.
pub fn write(run: &RunFolder, found: &DetectedDataset) -> Result<()> {
    let kept = match found {
        DetectedDataset::Images(found) => Kept::Photographs(roster(found)),
        DetectedDataset::Texts(found) => Kept::Texts {
            texts: CachedTexts::from(found),
        },
    };
    let path = run.path.join(FILE);
    let text = serde_json::to_vec(&kept).map_err(|error| damaged(&path, error))?;
    publish(&path, &text)
}

fn roster(inspection: &ImageInspection) -> Roster {
    let part = |part| match part {
        Split::Train => 0,
        Split::HeldOut => 1,
        Split::Test => 2,
    };
    let files = inspection.files.iter().map(|f| {
        (
            f.path.clone(),
            f.label,
            part(f.split),
            f.width,
            f.height,
            f.bytes,
        )
    });
    Roster {
        folder: inspection.folder.clone(),
        name: inspection.name.clone(),
        classes: inspection
            .classes
            .iter()
            .map(|class| class.name.clone())
            .collect(),
        files: files.collect(),
        targets: inspection.targets.clone(),
        numbers: match inspection.targets.is_empty() {
            true => Vec::new(),
            false => inspection.files.iter().map(|f| f.targets.clone()).collect(),
        },
    }
}

/// Reads the list back as the inspection it came from.
pub fn read(run: &RunFolder) -> Result<DetectedDataset> {
    let path = run.path.join(FILE);
    let text = std::fs::read(&path).map_err(at(&path))?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
    Ok(match kept {
        Kept::Photographs(roster) => DetectedDataset::Images(photographs(roster)),
        Kept::Texts { texts } => DetectedDataset::Texts(TextInspection::from(texts)),
    })
}

fn photographs(roster: Roster) -> ImageInspection {
    let mut files: Vec<ImageFile> = roster.files.into_iter().map(file).collect();
    for (file, numbers) in files.iter_mut().zip(roster.numbers) {
        file.targets = numbers;
    }
    let count = |label: usize, part: Split| {
        files
            .iter()
            .filter(|f| f.label as usize == label && f.split == part)
            .count() as u32
    };
    let classes = roster
        .classes
        .into_iter()
        .enumerate()
        .map(|(label, name)| Class {
            name,
            train: count(label, Split::Train),
            held_out: count(label, Split::HeldOut),
            test: count(label, Split::Test),
        });
    ImageInspection {
        folder: roster.folder,
        name: roster.name,
        classes: classes.collect(),
        targets: roster.targets,
        table: None,
        groups: None,
        bytes: files.iter().map(|f| f.bytes).sum(),
        files,
        skipped: Vec::new(),
        ignored: Ignored::default(),
        typical_size: None,
        refusal: None,
        notes: Vec::new(),
        split: SplitKind::Given,
        split_folders: Vec::new(),
    }
}

fn file((path, label, part, width, height, bytes): (PathBuf, u32, u8, u32, u32, u64)) -> ImageFile {
    let part = match part {
        0 => Split::Train,
        1 => Split::HeldOut,
        _ => Split::Test,
    };
    ImageFile {
        path,
        label,
        split: part,
        width,
        height,
        bytes,
        targets: Vec::new(),
    }
}

fn damaged(path: &Path, error: serde_json::Error) -> TrainError {
    TrainError::CheckpointDamaged {
        path: path.to_owned(),
        what: error.to_string(),
    }
}
