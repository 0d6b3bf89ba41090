//! The values that every module of this crate shares: classes, splits and skipped files.

use std::path::PathBuf;

/// One class. Its label is its index in the inspection's list of classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The label of texts, or the folder path below the split folder: `butterfly`,
    /// `Fruit/Apple/Pink-Lady`.
    pub name: String,
    /// Samples in the training set.
    pub train: u32,
    /// Samples in the held-out set.
    pub held_out: u32,
    /// Samples in the test set.
    pub test: u32,
}

impl Class {
    /// A class without samples.
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            train: 0,
            held_out: 0,
            test: 0,
        }
    }

    /// Counts one more sample.
    pub(crate) fn add(&mut self, split: Split) {
        match split {
            Split::Train => self.train += 1,
            Split::HeldOut => self.held_out += 1,
            Split::Test => self.test += 1,
        }
    }

    /// Samples in all splits.
    pub fn samples(&self) -> u32 {
        self.train + self.held_out + self.test
    }
}

/// The set that a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// Used for training.
    Train,
    /// Used for evaluation during training.
    HeldOut,
    /// Reserved for a final test. No decision depends on it.
    Test,
}

impl Split {
    /// The split that a folder, file or cell names, such as `train`, `val` or `test`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "train" => Some(Split::Train),
            "val" | "valid" | "validation" => Some(Split::HeldOut),
            "test" => Some(Split::Test),
            _ => None,
        }
    }
}

/// How the held-out samples were chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SplitKind {
    /// The dataset brings its own split.
    Given,
    /// Ebb held out a fraction of each class.
    Seeded {
        /// Fraction of each class, `0.0..=0.9`.
        fraction: f64,
        /// Seed of the choice.
        seed: u64,
    },
}

/// A file or folder that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Path relative to the dataset's folder.
    pub path: PathBuf,
    /// The problem and how to fix it, in one or more sentences.
    pub reason: String,
}

/// Counts of files that were left out without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignored {
    /// Files that systems leave behind: hidden files, `._` sidecars, `__MACOSX`, thumbnail caches.
    /// A hidden folder counts as one.
    pub system: u64,
    /// Files of another kind, such as notes beside images.
    pub other: u64,
}

/// How much of a folder has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadProgress {
    /// Files read so far, or listed so far.
    pub files: u64,
    /// Number of all files that are read; 0 while they are listed.
    pub all_files: u64,
    /// Bytes of text read so far; 0 while only the headers of files are read.
    pub bytes: u64,
    /// Bytes of all files of texts that are read; 0 while only the headers of files are read.
    pub all_bytes: u64,
    /// Whether the files, or samples, are compared with each other to find copies.
    pub compares: bool,
}

impl ReadProgress {
    /// How much is read, as a fraction: of the bytes of texts, or else of the files; 0 while
    /// files are listed.
    pub fn fraction(&self) -> f64 {
        if self.all_bytes > 0 {
            self.bytes as f64 / self.all_bytes as f64
        } else {
            self.files.min(self.all_files) as f64 / self.all_files.max(1) as f64
        }
    }
}
