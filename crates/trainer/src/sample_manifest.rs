//! The manifest of a run: the exact list of its samples, saved in the run folder. A resumed run
//! uses the same samples, whatever has been added to the dataset folder since.

use crate::error::{Result, TrainError, at};
use dataset::{
    Class, DetectedDataset, Ignored, ImageFile, ImageInspection, Split, SplitKind, TargetColumn,
    TextInspection, TextManifest,
};
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// File name in the run folder.
pub(crate) const FILE: &str = "data.json";
/// Most bytes of the file. Ten million texts, the most that Ebb reads, take less.
const MAX_BYTES: u64 = 640 << 20;
/// Most lists in the file: each sample is one, and some contain another one. A short list takes
/// more bytes in memory than in the file.
const MAX_LISTS: usize = 24_000_000;

/// The images of a run.
#[derive(Serialize)]
struct ImageManifest {
    folder: PathBuf,
    name: String,
    classes: Vec<String>,
    files: Vec<FileRow>,
    /// Columns of regression targets, with the statistics that standardize them; absent in runs of
    /// earlier versions.
    targets: Vec<TargetColumn>,
    /// The regression targets of each file, if there are any.
    numbers: Vec<Vec<Option<f64>>>,
}

/// An image: path, label, split (0 train, 1 held out, 2 test), width, height, bytes.
#[derive(Serialize, Deserialize)]
struct FileRow(PathBuf, u32, u8, u32, u32, u64);

/// The content of the file.
#[derive(Serialize)]
#[serde(untagged)]
enum Manifest {
    Images(ImageManifest),
    Texts { texts: TextManifest },
}

/// The content of the file as it is read: an untagged enum would first hold all of it in a form
/// that takes several times its bytes.
#[derive(Deserialize)]
struct ReadManifest {
    texts: Option<TextManifest>,
    folder: Option<PathBuf>,
    name: Option<String>,
    classes: Option<Vec<String>>,
    files: Option<Vec<FileRow>>,
    #[serde(default)]
    targets: Vec<TargetColumn>,
    #[serde(default)]
    numbers: Vec<Vec<Option<f64>>>,
}

impl ReadManifest {
    fn into_manifest(self) -> Option<Manifest> {
        if let Some(texts) = self.texts {
            return Some(Manifest::Texts { texts });
        }
        Some(Manifest::Images(ImageManifest {
            folder: self.folder?,
            name: self.name?,
            classes: self.classes?,
            files: self.files?,
            targets: self.targets,
            numbers: self.numbers,
        }))
    }
}

/// The samples of a run, one per line, without the place of their folder: to compare the copies of
/// a dataset on several machines.
pub(crate) fn lines(found: &DetectedDataset) -> Vec<String> {
    let manifest = match found {
        DetectedDataset::Images(found) => serde_json::to_value(ImageManifest::from(found)),
        DetectedDataset::Texts(found) => serde_json::to_value(TextManifest::from(found)),
    };
    let manifest = manifest.unwrap_or_default();
    let fields = manifest.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, _)| !["folder", "name"].contains(&name.as_str()));
    let lines = fields.flat_map(|(name, value)| match value.as_array() {
        Some(rows) => rows.iter().map(|row| format!("{name} {row}")).collect(),
        None => vec![format!("{name} {value}")],
    });
    lines.collect()
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
    disk::write_atomic(&path, &text).map_err(at(&path))
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
    let text = disk::read_limited(&path, MAX_BYTES).map_err(at(&path))?;
    let problem = |problem: &str| TrainError::CheckpointDamaged {
        path: path.clone(),
        problem: problem.to_owned(),
    };
    if text.iter().filter(|byte| **byte == b'[').count() > MAX_LISTS {
        return Err(problem("the file lists too many samples"));
    }
    let read: ReadManifest =
        serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
    drop(text);
    let manifest = read.into_manifest();
    let found = match manifest.ok_or_else(|| problem("the file lists no samples"))? {
        Manifest::Images(images) => DetectedDataset::Images(ImageInspection::from(images)),
        Manifest::Texts { texts } => DetectedDataset::Texts(TextInspection::from(texts)),
    };
    if let Some(outside) = file_paths(&found).iter().find(|file| !is_inside(file)) {
        let outside = outside.display();
        let problem = format!("the file names a path outside of the dataset folder: {outside}");
        return Err(TrainError::CheckpointDamaged { path, problem });
    }
    Ok(found)
}

/// The files of a dataset, relative to its folder.
fn file_paths(found: &DetectedDataset) -> Vec<&Path> {
    match found {
        DetectedDataset::Images(found) => found.files.iter().map(|f| f.path.as_path()).collect(),
        DetectedDataset::Texts(found) => found.files.iter().map(|f| f.path.as_path()).collect(),
    }
}

/// The files of a dataset that are not in its folder, or are images of another size.
pub(crate) fn missing_files(found: &DetectedDataset) -> Vec<String> {
    let is_missing = |folder: &Path, file: &Path, bytes: Option<u64>| {
        let there = std::fs::metadata(folder.join(file));
        !there.is_ok_and(|there| there.is_file() && bytes.is_none_or(|b| b == there.len()))
    };
    let name = |path: &Path| path.display().to_string();
    match found {
        DetectedDataset::Images(found) => {
            let files = found.files.iter();
            let files = files.filter(|f| is_missing(&found.folder, &f.path, Some(f.bytes)));
            files.map(|file| name(&file.path)).collect()
        }
        DetectedDataset::Texts(found) => {
            let files = found.files.iter();
            let files = files.filter(|file| is_missing(&found.folder, &file.path, None));
            files.map(|file| name(&file.path)).collect()
        }
    }
}

/// Whether a relative path stays inside its folder.
pub(crate) fn is_inside(path: &Path) -> bool {
    let mut parts = path.components();
    parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

impl From<ImageManifest> for ImageInspection {
    fn from(manifest: ImageManifest) -> Self {
        let mut files: Vec<ImageFile> = manifest.files.into_iter().map(ImageFile::from).collect();
        for (file, numbers) in files.iter_mut().zip(manifest.numbers) {
            file.targets = numbers;
        }
        let classes = manifest.classes.into_iter().map(|name| Class {
            name,
            train: 0,
            held_out: 0,
            test: 0,
        });
        let mut classes: Vec<Class> = classes.collect();
        for file in &files {
            // A damaged manifest may name a class that it does not list.
            let Some(class) = classes.get_mut(file.label as usize) else {
                continue;
            };
            match file.split {
                Split::Train => class.train += 1,
                Split::HeldOut => class.held_out += 1,
                Split::Test => class.test += 1,
            }
        }
        ImageInspection {
            folder: manifest.folder,
            name: manifest.name,
            classes,
            targets: manifest.targets,
            table: None,
            groups: None,
            bytes: files.iter().map(|f| f.bytes).sum(),
            files,
            skipped: Vec::new(),
            ignored: Ignored::default(),
            typical_size: None,
            refusal: None,
            mirror_refusal: None,
            notes: Vec::new(),
            held_out_copies: 0,
            split: SplitKind::Given,
            split_folders: Vec::new(),
        }
    }
}

/// What has changed in the run's folder of images since the run began; `None` without changes, and
/// for texts, whose loader refuses changed files.
pub(crate) fn describe_changes(run: &RunFolder, found: &DetectedDataset) -> Option<String> {
    let DetectedDataset::Images(images) = found else {
        return None;
    };
    let written = std::fs::metadata(run.path.join(FILE)).and_then(|file| file.modified());
    let changes = dataset::describe_image_changes(images, written.ok()?)?;
    Some(format!(
        "the folder {} has changed since the run began: {changes}; the run reads the new content of replaced images and ignores new images; to train on all images of the folder, start a new run",
        images.folder.display()
    ))
}

/// The dataset that a run was trained on, as its manifest names it.
pub struct RunDataset {
    run: RunFolder,
    pub(crate) found: DetectedDataset,
}

impl RunDataset {
    /// Reads the manifest of a run.
    ///
    /// # Errors
    /// The manifest is missing or damaged.
    pub fn read(run: &RunFolder) -> Result<Self> {
        Ok(RunDataset {
            run: run.clone(),
            found: read(run)?,
        })
    }

    /// Its folder, which may have been moved since.
    pub fn folder(&self) -> &Path {
        match &self.found {
            DetectedDataset::Images(found) => &found.folder,
            DetectedDataset::Texts(found) => &found.folder,
        }
    }

    /// Its folder, or its single file.
    pub fn path(&self) -> PathBuf {
        let name = match &self.found {
            DetectedDataset::Images(found) => &found.name,
            DetectedDataset::Texts(found) => &found.name,
        };
        let file = self.folder().join(name);
        if file.is_file() {
            file
        } else {
            self.folder().to_owned()
        }
    }

    /// Its folder, or its single file, if none of the run's files is there any more.
    pub fn missing(&self) -> Option<PathBuf> {
        let folder = self.folder();
        let files = file_paths(&self.found);
        if files.iter().any(|file| folder.join(file).exists()) {
            return None;
        }
        Some(match files.as_slice() {
            [file] if folder.is_dir() => folder.join(file),
            _ => folder.to_owned(),
        })
    }

    /// Makes the run use another folder that holds the same files, because its own was moved.
    ///
    /// # Errors
    /// One of the run's files is not in `folder`, or the manifest cannot be written.
    pub fn relocate(mut self, folder: &Path) -> Result<()> {
        let files = file_paths(&self.found);
        if let Some(missing) = files.iter().find(|file| !folder.join(file).is_file()) {
            let message = format!(
                "the file {} is not in the folder {}; choose the folder that this run was trained on",
                missing.display(),
                folder.display()
            );
            return Err(TrainError::NotTrainable { message });
        }
        let place = match &mut self.found {
            DetectedDataset::Images(found) => &mut found.folder,
            DetectedDataset::Texts(found) => &mut found.folder,
        };
        folder.clone_into(place);
        write(&self.run, &self.found)
    }
}

fn damaged(path: &Path, error: serde_json::Error) -> TrainError {
    TrainError::CheckpointDamaged {
        path: path.to_owned(),
        problem: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with_manifest(folder: &Path, home: &Path) -> RunFolder {
        let manifest = serde_json::json!({
            "folder": folder,
            "name": "birds",
            "classes": ["jay", "wren"],
            "files": [["jay/1.png", 0, 0, 8, 8, 5], ["wren/1.png", 1, 1, 8, 8, 5]],
        });
        let run = runlog::RunStore::open(home.join("runs"))
            .create("birds")
            .expect("it can be made");
        std::fs::write(run.path.join(FILE), manifest.to_string()).expect("it can be written");
        run
    }

    fn write_files(folder: &Path) {
        for class in ["jay", "wren"] {
            std::fs::create_dir_all(folder.join(class)).expect("it can be made");
            std::fs::write(folder.join(class).join("1.png"), "bytes").expect("it can be written");
        }
    }

    #[test]
    fn a_moved_dataset_is_missing_until_it_is_located() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (before, after) = (home.path().join("birds"), home.path().join("moved"));
        let run = run_with_manifest(&before, home.path());
        write_files(&before);
        let dataset = || RunDataset::read(&run).expect("it is readable");
        assert_eq!(dataset().missing(), None);
        std::fs::remove_file(before.join("jay/1.png")).expect("it is there");
        assert_eq!(
            dataset().missing(),
            None,
            "a single missing file is reported elsewhere"
        );
        std::fs::remove_dir_all(&before).expect("it is there");
        assert_eq!(dataset().missing(), Some(before));
        write_files(&after);
        dataset().relocate(&after).expect("it has the same files");
        assert_eq!(dataset().missing(), None);
        assert_eq!(dataset().path(), after);
    }
}
