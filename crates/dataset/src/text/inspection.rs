//! What a folder or file of texts was found to be: values only, no reading. Paths are relative to `folder`.

use super::source::Format;
use crate::inspection::{Class, Ignored, Part, SkippedFile, SplitKind};
use crate::sentences::grouped;
use std::path::PathBuf;

/// What can be learnt from a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Photographs into classes.
    ImageClassification,
    /// Texts into classes.
    TextClassification,
    /// The next token of documents.
    LanguageModel,
    /// Which tokens of documents can be left out. No folder is found to be for it: it is asked for where there are documents.
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

    /// `image-classification`, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Task::ImageClassification => "image-classification",
            Task::TextClassification => "text-classification",
            Task::LanguageModel => "language-model",
            Task::TokenCompression => "token-compression",
        }
    }

    /// What a folder is to be for it: documents, where they are to be compressed.
    pub fn looked_for(self) -> Task {
        match self {
            Task::TokenCompression => Task::LanguageModel,
            task => task,
        }
    }

    /// "image classification", as it is said.
    pub fn label(self) -> &'static str {
        match self {
            Task::ImageClassification => "image classification",
            Task::TextClassification => "text classification",
            Task::LanguageModel => "language model",
            Task::TokenCompression => "token compression",
        }
    }

    /// What one sample of it is called.
    pub fn sample(self) -> &'static str {
        match self {
            Task::ImageClassification => "photograph",
            Task::TextClassification => "text",
            Task::LanguageModel | Task::TokenCompression => "document",
        }
    }
}

/// What a folder or file of texts is, and why it cannot be trained where it cannot.
#[derive(Debug, Clone, PartialEq)]
pub struct TextInspection {
    /// The folder, absolute and without links; of a single file the folder that it stands in.
    pub folder: PathBuf,
    /// Last name of what was looked at, for showing.
    pub name: String,
    /// Text classification or language model.
    pub task: Task,
    /// Why that task, as a sentence.
    pub why: String,
    /// Columns read, where there are columns.
    pub columns: Vec<Column>,
    /// Classes in label order: by number where all are numbers, else by name. None for a language model.
    pub classes: Vec<Class>,
    /// Files that samples come from, by path.
    pub files: Vec<TextFile>,
    /// Samples that can be used, by file and place in it.
    pub samples: Vec<TextSample>,
    /// How long the samples are.
    pub lengths: Lengths,
    /// Encodings met, the usual one included, by name.
    pub encodings: Vec<EncodingFound>,
    /// Files and folders left out, by name.
    pub skipped: Vec<SkippedFile>,
    /// Rows left out, by file and reason.
    pub skipped_rows: Vec<SkippedRows>,
    /// Files passed over without a word.
    pub ignored: Ignored,
    /// Bytes of the samples' text in UTF-8.
    pub bytes: u64,
    /// Why it cannot be trained, and the next move.
    pub refusal: Option<String>,
    /// Sentences worth knowing: encodings, duplicates, imbalance.
    pub notes: Vec<String>,
    /// Where the held-out samples come from.
    pub split: SplitKind,
    /// Names of the folders or files that are parts of their own, in the order train, held out, test.
    pub split_names: Vec<String>,
}

/// A column that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What it serves for.
    pub role: Role,
    /// Its name in the header, or "column 2".
    pub name: String,
    /// Why it was taken: "by its name", "you named it".
    pub why: String,
}

/// What a column serves for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It holds the text, or a part of the document.
    Text,
    /// It holds the label.
    Label,
}

impl Role {
    /// `text`, `label`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Text => "text",
            Role::Label => "label",
        }
    }
}

/// A file that samples come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// Relative to the folder, as the file system spells it.
    pub path: PathBuf,
    /// Bytes on disk.
    pub bytes: u64,
    /// How it is read.
    pub(crate) format: Format,
    /// Columns that make up a sample's text.
    pub(crate) texts: Vec<usize>,
}

/// One text or document that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextSample {
    /// Place of its file in `TextInspection::files`.
    pub file: u32,
    /// Place of its row among all rows of the file, counted from 0.
    pub row: u32,
    /// Place of its class; 0 for a document.
    pub label: u32,
    /// What it serves for.
    pub part: Part,
    /// Its first byte in the row's text, in UTF-8.
    pub start: u32,
    /// The byte after its last.
    pub end: u32,
    /// Characters.
    pub characters: u32,
    /// A number that the text decides, to see that it is still the same.
    pub(crate) key: u64,
}

/// How long samples are, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Half are no longer.
    pub median_characters: u32,
    /// 95 of 100 are no longer.
    pub p95_characters: u32,
    /// The longest.
    pub longest_characters: u32,
}

impl Lengths {
    /// Of samples in any order.
    pub(crate) fn of(mut characters: Vec<u32>) -> Self {
        characters.sort_unstable();
        // The smallest length that at least this share does not exceed.
        let at = |percent: usize| {
            let rank = (characters.len() * percent).div_ceil(100);
            characters.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            median_characters: at(50),
            p95_characters: at(95),
            longest_characters: characters.last().copied().unwrap_or(0),
        }
    }
}

/// An encoding that files are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodingFound {
    /// `UTF-8`, `windows-1252`, `UTF-16LE`.
    pub name: &'static str,
    /// Files in it.
    pub files: u64,
    /// Of them, those that began with a byte-order mark.
    pub marked_files: u64,
    /// Bytes beyond ASCII that were read by this encoding because it was guessed.
    pub guessed_bytes: u64,
    /// Bytes that mean nothing in it and are the character U+FFFD now.
    pub replaced_bytes: u64,
}

/// Rows of one file that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRows {
    /// Relative to the folder.
    pub path: PathBuf,
    /// What is wrong, as the end of a sentence: "it has no text".
    pub reason: String,
    /// How many.
    pub rows: u64,
    /// Lines on which the first of them begin, counted from 1.
    pub lines: Vec<u64>,
}

impl SkippedRows {
    /// "line 3", "lines 3, 8, 12 and 40 more".
    pub fn describe_lines(&self) -> String {
        let shown: Vec<String> = self.lines.iter().map(|line| grouped(*line)).collect();
        let more = self.rows - shown.len() as u64;
        match (shown.len(), more) {
            (1, 0) => format!("line {}", shown.join(", ")),
            (_, 0) => format!("lines {}", shown.join(", ")),
            _ => format!("lines {} and {} more", shown.join(", "), grouped(more)),
        }
    }
}

impl TextInspection {
    /// Samples of one part.
    pub fn count(&self, part: Part) -> u64 {
        self.samples.iter().filter(|s| s.part == part).count() as u64
    }

    /// Texts or documents as they were found: the only document, which is cut for the split, counts once.
    pub fn found(&self) -> u64 {
        self.samples.iter().filter(|s| s.start == 0).count() as u64
    }

    /// "text" or "texts", "document" or "documents".
    pub fn noun(&self, n: u64) -> String {
        format!("{}{}", self.task.sample(), if n == 1 { "" } else { "s" })
    }

    /// "20 % of each class, 1,115 texts, chosen by seed 7" or "train.csv, val.csv".
    pub fn describe_split(&self) -> String {
        let held_out = self.count(Part::HeldOut);
        let SplitKind::Seeded { fraction, seed } = self.split else {
            return self.split_names.join(", ");
        };
        let percent = (fraction * 1000.0).round() / 10.0;
        let cut = self
            .samples
            .iter()
            .any(|s| s.part == Part::HeldOut && s.start > 0);
        let chosen = match (self.task, cut) {
            (Task::LanguageModel | Task::TokenCompression, true) => {
                format!("the last {percent} % of the only document")
            }
            (Task::LanguageModel | Task::TokenCompression, false) => format!(
                "{percent} % of the documents, {} {}, chosen by seed {seed}",
                grouped(held_out),
                self.noun(held_out)
            ),
            _ => format!(
                "{percent} % of each class, {} {}, chosen by seed {seed}",
                grouped(held_out),
                self.noun(held_out)
            ),
        };
        match self.count(Part::Test) {
            0 => chosen,
            test => format!("{chosen}; {} kept apart for a last test", grouped(test)),
        }
    }
}
