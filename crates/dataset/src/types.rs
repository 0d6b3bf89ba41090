//! The values that every module of this crate shares: tasks, classes, splits and skipped files.

use std::path::PathBuf;

/// A task that a model can be trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Predict the class of an image, its regression targets, or both.
    ImageClassification,
    /// Predict the class of a text.
    TextClassification,
    /// Predict the next token of a document.
    LanguageModel,
    /// Decide which tokens of a document can be left out. Ebb never detects this task; the user
    /// asks for it on a dataset of documents.
    TokenCompression,
}

impl Task {
    /// Every task, in the order of `--help`.
    pub const ALL: [Task; 4] = [
        Task::ImageClassification,
        Task::TextClassification,
        Task::LanguageModel,
        Task::TokenCompression,
    ];

    /// The name on the command line, such as `image-classification`.
    pub fn name(self) -> &'static str {
        match self {
            Task::ImageClassification => "image-classification",
            Task::TextClassification => "text-classification",
            Task::LanguageModel => "language-model",
            Task::TokenCompression => "token-compression",
        }
    }

    /// The task that a dataset is detected as when the user asks for this one. Token compression
    /// trains on the same documents as a language model.
    pub fn detected_as(self) -> Task {
        match self {
            Task::TokenCompression => Task::LanguageModel,
            task => task,
        }
    }

    /// The name in sentences, such as "image classification".
    pub fn label(self) -> &'static str {
        match self {
            Task::ImageClassification => "image classification",
            Task::TextClassification => "text classification",
            Task::LanguageModel => "language model",
            Task::TokenCompression => "token compression",
        }
    }

    /// The singular noun for one sample: "image", "text" or "document".
    pub fn sample_noun(self) -> &'static str {
        match self {
            Task::ImageClassification => "image",
            Task::TextClassification => "text",
            Task::LanguageModel | Task::TokenCompression => "document",
        }
    }

    /// Whether samples are documents, which have no label.
    pub(crate) fn is_on_documents(self) -> bool {
        matches!(self, Task::LanguageModel | Task::TokenCompression)
    }
}

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
