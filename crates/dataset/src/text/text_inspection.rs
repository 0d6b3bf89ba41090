//! The result of inspecting a folder or file of texts: values only. Paths are relative to `folder`.

use crate::chat::ChatColumn;
use crate::readers::Dialect;
use crate::rng;
use crate::seeded_selection;
use crate::task::Task;
use crate::types::{Class, Ignored, SkippedFile, Split, SplitKind};
use crate::user_messages::joined;
use format::format_count;
use std::path::PathBuf;

/// The contents of a folder or file of texts, and the reason if it cannot be trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct TextInspection {
    /// The folder: absolute, with links resolved. Of a single file, the folder that contains it.
    pub folder: PathBuf,
    /// Last name of the folder or file, for display.
    pub name: String,
    /// The task that the texts are for.
    pub task: Task,
    /// Why it is that task, as a sentence.
    pub reason: String,
    /// Columns that are read, if the files have columns.
    pub columns: Vec<Column>,
    /// Classes in label order: by value if all are integers, else by name. Empty for documents.
    pub classes: Vec<Class>,
    /// Files that samples come from, by path.
    pub files: Vec<TextFile>,
    /// Samples that can be used, by file and row.
    pub samples: Vec<TextSample>,
    /// Lengths of the samples.
    pub lengths: Lengths,
    /// Encodings of the files, including UTF-8, by name.
    pub encodings: Vec<DetectedEncoding>,
    /// Files and folders that were left out, each with its reason.
    pub skipped: Vec<SkippedFile>,
    /// Rows that were left out, by file and reason.
    pub skipped_rows: Vec<SkippedRows>,
    /// Files that were left out without a message.
    pub ignored: Ignored,
    /// Bytes of the samples' texts in UTF-8.
    pub bytes: u64,
    /// Why it cannot be trained on, and how to fix that.
    pub refusal: Option<String>,
    /// Sentences about encodings, duplicates and imbalance.
    pub notes: Vec<String>,
    /// How the held-out samples were chosen.
    pub split: SplitKind,
    /// Names of the folders or files that are splits of their own, in the order train, held-out,
    /// test.
    pub split_names: Vec<String>,
}

/// A column that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its contents.
    pub role: Role,
    /// Its name in the header, or "column 2" without a header.
    pub name: String,
    /// Why it was chosen: "recognized by its name", "you named it".
    pub reason: String,
}

/// The contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Texts, or parts of documents.
    Text,
    Label,
}

impl Column {
    /// `Text column: "body" (you named it).`
    pub fn describe(&self) -> String {
        let role = match self.role {
            Role::Text => "Text column",
            Role::Label => "Label column",
        };
        format!("{role}: \"{}\" ({}).", self.name, self.reason)
    }
}

impl Role {
    /// "text" or "label".
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
    pub(crate) dialect: Dialect,
    /// Columns that make up a sample's text.
    pub(crate) text_columns: Vec<usize>,
    /// What these columns hold, if the rows are conversations.
    pub(crate) chat: Vec<ChatColumn>,
}

/// One text or document that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextSample {
    /// Index of its file in `TextInspection::files`.
    pub file: u32,
    /// Index of its row among all rows of the file.
    pub row: u32,
    /// Index of its class; 0 for a document.
    pub label: u32,
    /// The set that it belongs to.
    pub split: Split,
    /// Offset of its first byte in the row's text, in UTF-8.
    pub start: u32,
    /// Offset of the byte after its last.
    pub end: u32,
    /// Number of characters.
    pub characters: u32,
    /// Hash of the row's text, which shows whether the text changed.
    pub(crate) hash: u64,
}

/// Lengths of samples in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// The median length.
    pub median_characters: u32,
    /// The length that 95 % of the samples do not exceed.
    pub p95_characters: u32,
    /// The longest length.
    pub longest_characters: u32,
}

impl Lengths {
    /// Computes the lengths of samples, given in any order.
    pub(crate) fn new(mut characters: Vec<u32>) -> Self {
        characters.sort_unstable();
        // The smallest length that at least this percentage does not exceed.
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

/// An encoding of some files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedEncoding {
    /// `UTF-8`, `windows-1252`, `UTF-16LE`.
    pub name: &'static str,
    pub files: u64,
    /// Number of these that start with a byte-order mark.
    pub marked_files: u64,
    /// Non-ASCII bytes that were decoded by this encoding because it was guessed.
    pub guessed_bytes: u64,
    /// Invalid bytes, each replaced by the character U+FFFD.
    pub replaced_bytes: u64,
}

/// Rows of one file that were left out for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRows {
    /// Relative to the folder.
    pub path: PathBuf,
    /// The reason, as the end of a sentence: "the row has no text".
    pub reason: String,
    /// Number of rows.
    pub rows: u64,
    /// Lines on which the first of them start, counted from 1.
    pub lines: Vec<u64>,
}

impl SkippedRows {
    /// "line 3", "lines 3, 8, 12 and 40 more".
    pub fn describe_lines(&self) -> String {
        let shown: Vec<String> = self.lines.iter().map(|line| format_count(*line)).collect();
        let more = self.rows - shown.len() as u64;
        match (shown.len(), more) {
            (1, 0) => format!("line {}", shown.join(", ")),
            (_, 0) => format!("lines {}", shown.join(", ")),
            _ => format!("lines {} and {} more", shown.join(", "), format_count(more)),
        }
    }
}

impl TextInspection {
    /// Number of samples in one split.
    pub fn count(&self, split: Split) -> u64 {
        self.samples.iter().filter(|s| s.split == split).count() as u64
    }

    /// Bytes of the texts of one split in UTF-8.
    pub fn split_bytes(&self, split: Split) -> u64 {
        let samples = self.samples.iter().filter(|s| s.split == split);
        samples.map(|s| u64::from(s.end - s.start)).sum()
    }

    /// A hash of the texts of one split and their order. It does not change between versions.
    pub fn content_hash(&self, split: Split) -> u64 {
        let samples = self.samples.iter().filter(|s| s.split == split);
        samples.fold(0, |hash, sample| {
            let place = rng::combine(u64::from(sample.start), u64::from(sample.end));
            rng::combine(hash, rng::combine(sample.hash, place))
        })
    }

    /// Number of texts or documents in the files. A document that is cut for the split counts once.
    pub fn source_count(&self) -> u64 {
        self.samples.iter().filter(|s| s.start == 0).count() as u64
    }

    /// "text" or "texts", "document" or "documents", "conversation" or "conversations",
    /// "preference" or "preferences".
    pub fn sample_noun(&self, n: u64) -> String {
        let noun = if self.has_preferences() {
            "preference"
        } else if self.has_conversations() {
            "conversation"
        } else {
            self.task.sample_noun()
        };
        format!("{noun}{}", if n == 1 { "" } else { "s" })
    }

    /// Whether the samples are conversations, for the chat template of a language model.
    pub fn has_conversations(&self) -> bool {
        self.files.iter().any(|file| !file.chat.is_empty())
    }

    /// Whether these conversations are preferences: each has a chosen and a rejected answer.
    pub fn has_preferences(&self) -> bool {
        let mut files = self.files.iter();
        files.any(|file| file.chat.contains(&ChatColumn::Chosen))
    }

    /// Whether the first word of each line is its label.
    pub fn has_label_lines(&self) -> bool {
        self.files.iter().any(|file| file.dialect.has_label_lines())
    }

    /// "20 % of each class, 1,115 texts, chosen by seed 7" or "from train.csv and val.csv".
    pub fn describe_split(&self) -> String {
        let held_out = self.count(Split::HeldOut);
        let SplitKind::Seeded { fraction, seed } = self.split else {
            return format!("from {}", joined(&self.split_names));
        };
        let percent = (fraction * 1000.0).round() / 10.0;
        let cut = self
            .samples
            .iter()
            .any(|s| s.split == Split::HeldOut && s.start > 0);
        let chosen = match (self.task.is_on_documents(), cut) {
            (false, _) if held_out == 0 => "nothing, so no accuracy can be measured".to_owned(),
            (true, true) => {
                format!("the last {percent} % of the only document")
            }
            (true, false) => format!(
                "{percent} % of the {}, {} {}, chosen by seed {seed}",
                self.sample_noun(0),
                format_count(held_out),
                self.sample_noun(held_out)
            ),
            _ => format!(
                "{percent} % of each class, {} {}, chosen by seed {seed}",
                format_count(held_out),
                self.sample_noun(held_out)
            ),
        };
        match self.count(Split::Test) {
            0 => chosen,
            test => format!("{chosen}; {} reserved for a final test", format_count(test)),
        }
    }

    /// Measures the lengths again, after samples were left out.
    pub(crate) fn measure(&mut self) {
        // A document that is cut for the split counts as a whole.
        let mut characters: Vec<u32> = Vec::with_capacity(self.samples.len());
        for sample in &self.samples {
            match characters.last_mut().filter(|_| sample.start > 0) {
                Some(document) => *document += sample.characters,
                None => characters.push(sample.characters),
            }
        }
        self.lengths = Lengths::new(characters);
        self.bytes = self
            .samples
            .iter()
            .map(|s| u64::from(s.end - s.start))
            .sum();
    }

    /// Keeps at most `limit` training samples, chosen by seed, each class in proportion. Held-out
    /// and test samples stay.
    pub fn limited(mut self, seed: u64, limit: usize) -> Self {
        let is_trained = |sample: &usize| self.samples[*sample].split == Split::Train;
        let trained: Vec<usize> = (0..self.samples.len()).filter(is_trained).collect();
        let named = |index: &usize| {
            let sample = &self.samples[*index];
            (sample.label, format!("{:016x}:{index}", sample.hash))
        };
        let names: Vec<(u32, String)> = trained.iter().map(named).collect();
        let mut keep = vec![true; self.samples.len()];
        trained.iter().for_each(|index| keep[*index] = false);
        for chosen in seeded_selection::choose_subset(seed, &names, limit) {
            keep[trained[chosen]] = true;
        }
        let mut keep = keep.into_iter();
        self.samples.retain(|_| keep.next().unwrap_or(true));
        for (label, class) in self.classes.iter_mut().enumerate() {
            let in_class = |s: &&TextSample| s.label as usize == label && s.split == Split::Train;
            class.train = self.samples.iter().filter(in_class).count() as u32;
        }
        self
    }
}
