//! Reads every row of the chosen files and records how to find a sample again: file, row, length,
//! label and a hash of its text. Stores no text, so that a large folder needs little memory. Counts
//! the rows that are left out.

use super::line_ends::{LineEnds, with_line_feeds};
use super::task_decision::{ChosenFile, LabelSource};
use super::text_inspection::{DetectedEncoding, SkippedRows, TextFile};
use crate::chat::{ChatColumn, Conversation, first_prompt, plain_text};
use crate::error::DatasetError;
use crate::readers::{Dialect, OpenFile, Row};
use crate::rng;
use crate::types::{ReadProgress, SkippedFile, Split};
use format::format_bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Most bytes of a text with a label. A document may be as long as its file.
const MAX_ROW_BYTES: usize = 1 << 20;
/// Most characters of a label.
const MAX_LABEL_CHARS: usize = 200;
/// Most labels in all files.
const MAX_LABELS: usize = 100_000;
/// Most rows in all files. Each takes about fifty bytes during the inspection.
const MAX_ROWS: usize = 10_000_000;
/// Most bytes of all files.
const MAX_TOTAL_BYTES: u64 = 1_000_000_000_000;
/// Bytes that are read between two calls of `on_progress`.
const BYTES_PER_REPORT: u64 = 4 << 20;
/// Rows listed by line for each file and reason.
const LISTED_LINES: usize = 10;

/// A row that can be used, before labels and splits are assigned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScannedRow {
    /// Index of its file.
    pub file: u32,
    /// Index among all rows of the file.
    pub row: u32,
    /// Line on which it starts, counted from 1.
    pub line: u64,
    /// Index of its label in `ScannedRows::labels`.
    pub label: u32,
    /// The split that its file gives.
    pub split: Option<Split>,
    /// Bytes of its text in UTF-8.
    pub bytes: u32,
    pub characters: u32,
    /// Hash of its text.
    pub hash: u64,
    /// Hash of what the user says first in its conversation; of another text itself.
    pub prompt_hash: u64,
}

/// The rows of all chosen files.
#[derive(Debug, Default)]
pub(crate) struct ScannedRows {
    /// Files that were read.
    pub files: Vec<TextFile>,
    /// Rows that can be used.
    pub rows: Vec<ScannedRow>,
    /// Labels in the order in which they first occur.
    pub labels: Vec<String>,
    /// Encodings of the files.
    pub encodings: Vec<DetectedEncoding>,
    /// Rows that were left out.
    pub skipped_rows: Vec<SkippedRows>,
    /// The limit on the number of rows, if it was reached.
    pub too_many_rows: Option<u64>,
}

/// The text of a sample: its filled cells, one per line. `None` if all are empty.
fn join_cells<'a>(cells: &'a [Option<Cow<'a, str>>], dialect: Dialect) -> Option<Cow<'a, str>> {
    let mut filled = cells
        .iter()
        .flatten()
        .filter(|cell| !cell.trim().is_empty());
    let first = filled.next()?;
    if dialect.is_whole_text() {
        return Some(Cow::Borrowed(first));
    }
    let mut text = Cow::Borrowed(first.trim());
    for more in filled {
        text.to_mut().push('\n');
        text.to_mut().push_str(more.trim());
    }
    Some(text)
}

/// The text of a row: its cells joined, or the canonical text of its conversation. The error is the
/// end of a sentence about the row.
pub(crate) fn row_text<'a>(
    cells: &'a [Option<Cow<'a, str>>],
    dialect: Dialect,
    chat: &[ChatColumn],
    line_ends: LineEnds,
) -> Result<Cow<'a, str>, String> {
    let is_foreign = |cell: &Cow<str>| cell.contains("\r\n");
    if line_ends == LineEnds::LineFeeds
        && dialect.has_line_ends()
        && cells.iter().flatten().any(is_foreign)
    {
        let cells = cells
            .iter()
            .map(|cell| cell.as_deref().map(with_line_feeds));
        let cells: Vec<Option<Cow<str>>> = cells.collect();
        return Ok(Cow::Owned(stored_text(&cells, dialect, chat)?.into_owned()));
    }
    stored_text(cells, dialect, chat)
}

/// The text of a row with the line ends of its cells.
fn stored_text<'a>(
    cells: &'a [Option<Cow<'a, str>>],
    dialect: Dialect,
    chat: &[ChatColumn],
) -> Result<Cow<'a, str>, String> {
    if !chat.is_empty() {
        return Conversation::text_of_cells(cells, chat).map(Cow::Owned);
    }
    join_cells(cells, dialect).ok_or_else(|| "the row has no text".to_owned())
}

/// The text of a row as a person reads it.
fn readable<'a>(text: &'a str, chat: &[ChatColumn]) -> Cow<'a, str> {
    if chat.is_empty() {
        return Cow::Borrowed(text);
    }
    plain_text(text)
}

/// Scans the files one after the other. `goes_on` is called while they are read, and returns false
/// to stop.
///
/// # Errors
/// [`DatasetError::Stopped`] if the user stops it.
pub(crate) fn scan_rows(
    root: &Path,
    files: &[ChosenFile],
    skipped: &mut Vec<SkippedFile>,
    goes_on: &dyn Fn(ReadProgress) -> bool,
) -> Result<ScannedRows, DatasetError> {
    let mut scan = Scan::default();
    let all_bytes = files.iter().map(|file| file.entry.bytes).sum();
    let mut encodings: BTreeMap<&'static str, DetectedEncoding> = BTreeMap::new();
    let mut total_bytes = 0;
    for (n, file) in files.iter().enumerate() {
        let before = ReadProgress {
            files: n as u64,
            all_files: files.len() as u64,
            bytes: total_bytes,
            all_bytes,
            compares: false,
        };
        total_bytes += file.entry.bytes;
        let opened = if total_bytes > MAX_TOTAL_BYTES {
            Err(format!(
                "Ebb reads at most {} GB, and the files up to this one exceed that limit. Use fewer files.",
                MAX_TOTAL_BYTES / 1_000_000_000
            ))
        } else {
            OpenFile::reopen(&root.join(&file.entry.path), file.dialect)
        };
        match opened {
            Ok(opened) => {
                scan.file(&opened, file, &|bytes| {
                    let bytes = total_bytes.min(before.bytes + bytes);
                    goes_on(ReadProgress { bytes, ..before })
                });
                count_encoding(&mut encodings, &opened);
                let read = ReadProgress {
                    files: n as u64 + 1,
                    bytes: total_bytes,
                    ..before
                };
                if !goes_on(read) {
                    return Err(DatasetError::Stopped);
                }
            }
            Err(reason) => skipped.push(file.entry.skip(reason)),
        }
    }
    scan.found.encodings = encodings.into_values().collect();
    scan.found.skipped_rows = scan.left_out.into_values().collect();
    Ok(scan.found)
}

fn count_encoding(encodings: &mut BTreeMap<&'static str, DetectedEncoding>, file: &OpenFile) {
    let encoding = file.encoding();
    let found = encodings.entry(encoding.name).or_insert(DetectedEncoding {
        name: encoding.name,
        files: 0,
        marked_files: 0,
        guessed_bytes: 0,
        replaced_bytes: 0,
    });
    found.files += 1;
    found.marked_files += u64::from(encoding.has_mark);
    found.guessed_bytes += encoding.guessed_bytes;
    found.replaced_bytes += encoding.replaced_bytes;
}

/// A scan that is under way.
#[derive(Default)]
struct Scan {
    found: ScannedRows,
    labels: HashMap<String, u32>,
    left_out: BTreeMap<(PathBuf, String), SkippedRows>,
}

impl Scan {
    /// Scans the rows of one file. `on_bytes` gets the bytes of text read so far, and decides
    /// whether the scan goes on.
    fn file(&mut self, opened: &OpenFile, file: &ChosenFile, on_bytes: &dyn Fn(u64) -> bool) {
        let index = self.found.files.len() as u32;
        self.found.files.push(TextFile {
            path: file.entry.path.to_path_buf(),
            bytes: file.entry.bytes,
            dialect: file.dialect,
            text_columns: file.text_columns.clone(),
            chat: file.chat.clone(),
        });
        let mut wanted = file.text_columns.clone();
        if let LabelSource::Column(label) = file.label {
            wanted.push(label);
        }
        let mut rows = 0u32;
        let (mut bytes, mut reported) = (0, 0);
        opened.visit(&wanted, &mut |line, row| {
            let this = rows;
            rows += 1;
            if self.found.rows.len() >= MAX_ROWS {
                self.found.too_many_rows = Some(MAX_ROWS as u64);
                return false;
            }
            match self.sample(file, row) {
                Ok(sample) => {
                    bytes += u64::from(sample.bytes);
                    self.found.rows.push(ScannedRow {
                        file: index,
                        row: this,
                        line,
                        ..sample
                    });
                }
                Err(reason) => self.leave_out(&file.entry.path, reason, line),
            }
            if bytes - reported >= BYTES_PER_REPORT {
                reported = bytes;
                return on_bytes(bytes);
            }
            true
        });
    }

    /// Reads one row, or gives the reason why it is left out. The caller fills in its file, row and
    /// line.
    fn sample(&mut self, file: &ChosenFile, row: Row) -> Result<ScannedRow, String> {
        let cells = match row {
            Row::Cells(cells) => cells,
            Row::Fault(reason) => return Err(reason.into_owned()),
        };
        let cells_of_text = &cells[..file.text_columns.len()];
        let text = row_text(cells_of_text, file.dialect, &file.chat, LineEnds::LineFeeds)?;
        let label = match &file.label {
            LabelSource::Unlabeled => "",
            LabelSource::Class(class) => class.as_str(),
            LabelSource::Column(_) => {
                let cell = cells.last().and_then(|cell| cell.as_deref());
                cell.unwrap_or_default().trim()
            }
        };
        if file.label != LabelSource::Unlabeled {
            if text.len() > MAX_ROW_BYTES {
                let limit = format_bytes(MAX_ROW_BYTES as u64);
                return Err(format!("the text is longer than {limit}"));
            }
            if label.is_empty() {
                return Err("the row has no label".to_owned());
            }
        }
        let prompt = (!file.chat.is_empty())
            .then(|| first_prompt(&text))
            .flatten();
        let hash = rng::hash_text(&text);
        Ok(ScannedRow {
            file: 0,
            row: 0,
            line: 0,
            label: self.label(label)?,
            split: file.split,
            bytes: text.len() as u32,
            characters: readable(&text, &file.chat).chars().count() as u32,
            hash,
            prompt_hash: prompt.map_or(hash, |prompt| rng::hash_text(&prompt)),
        })
    }

    /// The index of a label.
    fn label(&mut self, label: &str) -> Result<u32, String> {
        if label.chars().count() > MAX_LABEL_CHARS {
            return Err(format!(
                "the label is longer than {MAX_LABEL_CHARS} characters"
            ));
        }
        if label.contains(char::is_control) {
            return Err("the label contains a line break or a control character".to_owned());
        }
        if let Some(known) = self.labels.get(label) {
            return Ok(*known);
        }
        let labels = &mut self.found.labels;
        if labels.len() >= MAX_LABELS {
            return Err(format!(
                "Ebb uses at most {MAX_LABELS} labels, and the earlier rows already use all of them"
            ));
        }
        let index = labels.len() as u32;
        labels.push(label.to_owned());
        self.labels.insert(label.to_owned(), index);
        Ok(index)
    }

    fn leave_out(&mut self, path: &Path, reason: String, line: u64) {
        let key = (path.to_path_buf(), reason);
        let rows = self
            .left_out
            .entry(key)
            .or_insert_with_key(|(path, reason)| SkippedRows {
                path: path.clone(),
                reason: reason.clone(),
                rows: 0,
                lines: Vec::new(),
            });
        rows.rows += 1;
        if rows.lines.len() < LISTED_LINES {
            rows.lines.push(line);
        }
    }
}
