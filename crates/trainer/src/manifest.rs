//! The manifest of a run: the exact list of its samples, saved in the run folder. A resumed run
//! uses the same samples, whatever has been added to the dataset folder since.

use crate::error::{Result, TrainError, at};
use crate::write_atomic::write_atomic;
use dataset::{
    Class, DetectedDataset, Ignored, ImageFile, ImageInspection, Split, SplitKind, TargetColumn,
    TextInspection, TextManifest,
};
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// File name in the run folder.
const FILE: &str = "data.json";

/// The images of a run.
#[derive(Serialize, Deserialize)]
struct ImageManifest {
    folder: PathBuf,
    name: String,
    classes: Vec<String>,
    files: Vec<FileRow>,
    /// Columns of regression targets, with the statistics that standardize them; absent in runs of
    /// earlier versions.
    #[serde(default)]
    targets: Vec<TargetColumn>,
    /// The regression targets of each file, if there are any.
    #[serde(default)]
    numbers: Vec<Vec<Option<f64>>>,
}

/// An image: path, label, split (0 train, 1 held out, 2 test), width, height, bytes.
#[derive(Serialize, Deserialize)]
struct FileRow(PathBuf, u32, u8, u32, u32, u64);

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Manifest {
    Images(ImageManifest),
    Texts { texts: TextManifest },
}

/// Writes the manifest of a run.
///
/// # Errors
/// The run folder cannot be written.
pub fn write(run: &RunFolder, found: &DetectedDataset) -> Result<()> {
    let manifest = match found {
        DetectedDataset::Images(found) => Manifest::Images(ImageManifest::from(found)),
        DetectedDataset::Texts(found) => Manifest::Texts {
            texts: TextManifest::from(found),
        },
    };
    let path = run.path.join(FILE);
    let text = serde_json::to_vec(&manifest).map_err(|error| damaged(&path, error))?;
    write_atomic(&path, &text)
}

impl From<&ImageInspection> for ImageManifest {
    fn from(inspection: &ImageInspection) -> Self {
        let numbers = inspection.files.iter().map(|f| f.targets.clone());
        ImageManifest {
            folder: inspection.folder.clone(),
            name: inspection.name.clone(),
            classes: inspection
                .classes
                .iter()
                .map(|class| class.name.clone())
                .collect(),
            files: inspection.files.iter().map(FileRow::from).collect(),
            targets: inspection.targets.clone(),
            numbers: if inspection.targets.is_empty() {
                Vec::new()
            } else {
                numbers.collect()
            },
        }
    }
}

impl From<&ImageFile> for FileRow {
    fn from(file: &ImageFile) -> Self {
        let split = match file.split {
            Split::Train => 0,
            Split::HeldOut => 1,
            Split::Test => 2,
        };
        FileRow(
            file.path.clone(),
            file.label,
            split,
            file.width,
            file.height,
            file.bytes,
        )
    }
}

impl From<FileRow> for ImageFile {
    fn from(row: FileRow) -> Self {
        let FileRow(path, label, split, width, height, bytes) = row;
        ImageFile {
            path,
            label,
            split: match split {
                0 => Split::Train,
                1 => Split::HeldOut,
                _ => Split::Test,
            },
            width,
            height,
            bytes,
            targets: Vec::new(),
        }
    }
}

/// Reads the manifest back as the inspection that it was written from.
///
/// # Errors
/// The file is missing or damaged.
pub fn read(run: &RunFolder) -> Result<DetectedDataset> {
    let path = run.path.join(FILE);
    let text = std::fs::read(&path).map_err(at(&path))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
    Ok(match manifest {
        Manifest::Images(images) => DetectedDataset::Images(ImageInspection::from(images)),
        Manifest::Texts { texts } => DetectedDataset::Texts(TextInspection::from(texts)),
    })
}

impl From<ImageManifest> for ImageInspection {
    fn from(manifest: ImageManifest) -> Self {
        let mut files: Vec<ImageFile> = manifest.files.into_iter().map(ImageFile::from).collect();
        for (file, numbers) in files.iter_mut().zip(manifest.numbers) {
            file.targets = numbers;
        }
        let count = |label: usize, part: Split| {
            let of_class = files.iter().filter(|f| f.label as usize == label);
            of_class.filter(|f| f.split == part).count() as u32
        };
        let classes = manifest.classes.into_iter().enumerate();
        let classes = classes.map(|(label, name)| Class {
            name,
            train: count(label, Split::Train),
            held_out: count(label, Split::HeldOut),
            test: count(label, Split::Test),
        });
        ImageInspection {
            folder: manifest.folder,
            name: manifest.name,
            classes: classes.collect(),
            targets: manifest.targets,
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
}

/// The folder of a run's dataset, which may have been moved since.
///
/// # Errors
/// The manifest is missing or damaged.
pub fn dataset_folder(run: &RunFolder) -> Result<PathBuf> {
    Ok(match read(run)? {
        DetectedDataset::Images(found) => found.folder,
        DetectedDataset::Texts(found) => found.folder,
    })
}

/// Makes a run use another folder that holds the same files, because its own was moved.
///
/// # Errors
/// One of the run's files is not in `folder`, or the manifest cannot be written.
pub fn relocate_dataset(run: &RunFolder, folder: &Path) -> Result<()> {
    let mut found = read(run)?;
    let (place, files): (_, Vec<PathBuf>) = match &mut found {
        DetectedDataset::Images(found) => {
            let files = found.files.iter().map(|file| file.path.clone());
            (&mut found.folder, files.collect())
        }
        DetectedDataset::Texts(found) => {
            let files = found.files.iter().map(|file| file.path.clone());
            (&mut found.folder, files.collect())
        }
    };
    if let Some(missing) = files.iter().find(|file| !folder.join(file).is_file()) {
        let message = format!(
            "the file {} is not in the folder {}; choose the folder that this run was trained on",
            missing.display(),
            folder.display()
        );
        return Err(TrainError::NotTrainable { message });
    }
    folder.clone_into(place);
    write(run, &found)
}

fn damaged(path: &Path, error: serde_json::Error) -> TrainError {
    TrainError::CheckpointDamaged {
        path: path.to_owned(),
        problem: error.to_string(),
    }
}
