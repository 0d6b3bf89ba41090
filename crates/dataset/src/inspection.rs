//! What a folder was found to be: values only, no reading. Paths are relative to the folder; names are shown in
//! composed Unicode (NFC), whatever the file system keeps.

use crate::sentences::grouped;
use crate::table::TargetColumn;
use std::path::PathBuf;

/// What a folder is, and why it cannot be trained where it cannot.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// The folder, absolute and without links.
    pub folder: PathBuf,
    /// Its last name, for showing.
    pub name: String,
    /// Classes in label order: sorted by name.
    pub classes: Vec<Class>,
    /// Numbers that are learnt, from a table beside the photographs; mostly none.
    pub targets: Vec<TargetColumn>,
    /// The table that tells classes or numbers, relative to the folder.
    pub table: Option<PathBuf>,
    /// What keeps photographs together, and in how many groups.
    pub groups: Option<(String, u64)>,
    /// Photographs that can be used, sorted by composed relative path.
    pub files: Vec<ImageFile>,
    /// Files and folders left out, by name.
    pub skipped: Vec<SkippedFile>,
    /// Files passed over without a word.
    pub ignored: Ignored,
    /// Median width and height of the photographs as stored, in pixels.
    pub typical_size: Option<(u32, u32)>,
    /// Bytes on disk of the photographs.
    pub bytes: u64,
    /// Why it cannot be trained, and the next move.
    pub refusal: Option<String>,
    /// Sentences worth knowing: imbalance, a class missing in a part, formats that are not read.
    pub notes: Vec<String>,
    /// Where the held-out photographs come from.
    pub split: SplitKind,
    /// The folder's own train/val/test folders, as named there; empty where there are none.
    pub split_folders: Vec<String>,
}

/// One class; its label is its place in `Inspection::classes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Folder path below the split folder, `butterfly`, `Fruit/Apple/Pink-Lady`; or the label of texts.
    pub name: String,
    /// Samples trained on.
    pub train: u32,
    /// Samples held out.
    pub held_out: u32,
    /// Samples kept apart for a last test.
    pub test: u32,
}

impl Class {
    /// Samples of every part.
    pub fn samples(&self) -> u32 {
        self.train + self.held_out + self.test
    }
}

/// One photograph that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageFile {
    /// Relative to the folder, as the file system spells it.
    pub path: PathBuf,
    /// Place of its class.
    pub label: u32,
    /// What it serves for.
    pub part: Part,
    /// Pixels as stored, before any EXIF orientation.
    pub width: u32,
    /// Pixels as stored, before any EXIF orientation.
    pub height: u32,
    /// Bytes on disk.
    pub bytes: u64,
    /// Its number in each of `Inspection::targets`, where it has one.
    pub numbers: Vec<Option<f64>>,
}

/// What a sample serves for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Trained on.
    Train,
    /// Evaluated on while training.
    HeldOut,
    /// Kept apart; nothing is decided on it.
    Test,
}

/// A file or folder left out, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Relative to the folder.
    pub path: PathBuf,
    /// What is wrong, and the next move.
    pub reason: String,
}

/// Files passed over without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignored {
    /// Left by systems: hidden files, `._` sidecars, `__MACOSX`, thumbnail caches. A hidden folder counts as one.
    pub system: u64,
    /// Everything that neither is nor claims to be an image: notes, tables.
    pub other: u64,
}

/// Where the held-out photographs come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SplitKind {
    /// The folder brings its own.
    Given,
    /// Chosen by Ebb, class by class.
    Seeded {
        /// Held out of each class, `0.0..=0.9`.
        fraction: f64,
        /// Chooses which.
        seed: u64,
    },
}

impl Inspection {
    /// Photographs that can be used.
    pub fn photographs(&self) -> u64 {
        self.files.len() as u64
    }

    /// Photographs of one part.
    pub fn count(&self, part: Part) -> u64 {
        self.files.iter().filter(|f| f.part == part).count() as u64
    }

    /// Whether photographs stay together by the times in their names, which nobody asked for.
    pub fn is_grouped_unasked(&self) -> bool {
        let by = self.groups.as_ref().map(|(by, _)| by.as_str());
        by == Some(crate::table::placing::TIMES)
    }

    /// "20 % of each class, 243 photographs, chosen by seed 7" or "folders train, val, test".
    pub fn describe_split(&self) -> String {
        let SplitKind::Seeded { fraction, seed } = self.split else {
            return match self.split_folders.is_empty() {
                true => "as the table says".to_owned(),
                false => format!("folders {}", self.split_folders.join(", ")),
            };
        };
        let percent = (fraction * 1000.0).round() / 10.0;
        let held_out = grouped(self.count(Part::HeldOut));
        let of_what = match (&self.groups, self.classes.is_empty()) {
            (Some((by, _)), _) => format!("about {percent} %, in whole groups by {by}"),
            (None, true) => format!("{percent} %"),
            (None, false) => format!("{percent} % of each class"),
        };
        let chosen = format!("{of_what}, {held_out} photographs, chosen by seed {seed}");
        match self.count(Part::Test) {
            0 => chosen,
            test => format!("{chosen}; {} kept apart in folder test", grouped(test)),
        }
    }
}
