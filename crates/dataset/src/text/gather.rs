//! Reads every row of the files that were chosen and keeps what a sample needs to be found again: place, length, label and a
//! number that its text decides. Keeps no text, so that a large folder costs little memory. Counts what it leaves out.

use super::cells::Row;
use super::inspection::{EncodingFound, SkippedRows, TextFile};
use super::kind::{Label, Used};
use super::source::{Format, Source};
use crate::inspection::{Part, SkippedFile};
use crate::stream;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Bytes of the longest text that a class is learnt from. A document may be as long as its file.
const MAX_ROW_BYTES: usize = 1 << 20;
/// Characters of the longest label.
const MAX_LABEL_CHARS: usize = 200;
/// Labels of all files together.
const MAX_LABELS: usize = 100_000;
/// Rows of all files together: each costs some fifty bytes while it is looked at.
const MAX_ROWS: usize = 10_000_000;
/// Bytes of all files together.
const MAX_TOTAL_BYTES: u64 = 4 << 30;
/// Lines named of rows left out.
const LINES_NAMED: usize = 10;

/// A row that can be used, before classes have labels and parts are dealt out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub file: u32,
    pub row: u32,
    pub line: u64,
    /// Place of its label in `Gathered::labels`.
    pub label: u32,
    pub part: Option<Part>,
    pub bytes: u32,
    pub characters: u32,
    pub key: u64,
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub files: Vec<TextFile>,
    pub rows: Vec<Raw>,
    /// Labels in the order in which they came up.
    pub labels: Vec<String>,
    pub encodings: Vec<EncodingFound>,
    pub skipped_rows: Vec<SkippedRows>,
    /// The rows that are read at most were reached.
    pub too_many_rows: Option<u64>,
}

/// The text of a sample: one cell, or those that there are, a line each. Nothing where all are empty.
pub(crate) fn text_of<'a>(
    cells: &'a [Option<Cow<'a, str>>],
    format: Format,
) -> Option<Cow<'a, str>> {
    let mut filled = cells
        .iter()
        .flatten()
        .filter(|cell| !cell.trim().is_empty());
    let first = filled.next()?;
    if format == Format::Whole {
        return Some(Cow::Borrowed(first));
    }
    let mut text = Cow::Borrowed(first.trim());
    for more in filled {
        text.to_mut().push('\n');
        text.to_mut().push_str(more.trim());
    }
    Some(text)
}

/// Reads the files one after the other. `seen` is told the number of files read.
pub(crate) fn gather(
    root: &Path,
    used: &[Used],
    skipped: &mut Vec<SkippedFile>,
    seen: &dyn Fn(u64),
) -> Gathered {
    let mut gathered = Gathered::default();
    let mut labels: HashMap<String, u32> = HashMap::new();
    let mut encodings: BTreeMap<&'static str, EncodingFound> = BTreeMap::new();
    let mut left: BTreeMap<(PathBuf, String), SkippedRows> = BTreeMap::new();
    let mut total_bytes = 0;
    for (n, file) in used.iter().enumerate() {
        let path = &file.entry.path;
        total_bytes += file.entry.bytes;
        let opened = match total_bytes > MAX_TOTAL_BYTES {
            true => Err(format!(
                "The files before it hold {} GB already; no more is read. Take a part of them.",
                MAX_TOTAL_BYTES / 1_000_000_000
            )),
            false => Source::open(&root.join(path), file.format),
        };
        let source = match opened {
            Ok(source) => source,
            Err(reason) => {
                skipped.push(SkippedFile {
                    path: path.clone(),
                    reason,
                });
                continue;
            }
        };
        count(&mut encodings, &source);
        let place = gathered.files.len() as u32;
        gathered.files.push(TextFile {
            path: path.clone(),
            bytes: file.entry.bytes,
            format: file.format,
            texts: file.texts.clone(),
        });
        read(
            &source,
            file,
            place,
            &mut gathered,
            &mut labels,
            &mut |line, reason| {
                let kept =
                    left.entry((path.clone(), reason))
                        .or_insert_with_key(|(path, reason)| SkippedRows {
                            path: path.clone(),
                            reason: reason.clone(),
                            rows: 0,
                            lines: Vec::new(),
                        });
                kept.rows += 1;
                if kept.lines.len() < LINES_NAMED {
                    kept.lines.push(line);
                }
            },
        );
        seen(n as u64 + 1);
    }
    gathered.encodings = encodings.into_values().collect();
    gathered.skipped_rows = left.into_values().collect();
    gathered
}

fn count(encodings: &mut BTreeMap<&'static str, EncodingFound>, source: &Source) {
    let coded = source.coded;
    let found = encodings.entry(coded.encoding).or_insert(EncodingFound {
        name: coded.encoding,
        files: 0,
        marked_files: 0,
        guessed_bytes: 0,
        replaced_bytes: 0,
    });
    found.files += 1;
    found.marked_files += u64::from(coded.mark);
    found.guessed_bytes += coded.guessed_bytes;
    found.replaced_bytes += coded.replaced_bytes;
}

/// Reads one file's rows.
fn read(
    source: &Source,
    file: &Used,
    place: u32,
    gathered: &mut Gathered,
    labels: &mut HashMap<String, u32>,
    leave: &mut dyn FnMut(u64, String),
) {
    let mut wanted = file.texts.clone();
    if let Label::Column(label) = file.label {
        wanted.push(label);
    }
    let mut row = 0u32;
    source.visit(&wanted, &mut |line, found| {
        let this = row;
        row += 1;
        if gathered.rows.len() >= MAX_ROWS {
            gathered.too_many_rows = Some(MAX_ROWS as u64);
            return false;
        }
        let cells = match found {
            Row::Cells(cells) => cells,
            Row::Fault(reason) => {
                leave(line, reason);
                return true;
            }
        };
        let Some(text) = text_of(&cells[..file.texts.len()], file.format) else {
            leave(line, "it has no text".to_owned());
            return true;
        };
        if file.label != Label::None && text.len() > MAX_ROW_BYTES {
            leave(line, "its text is longer than 1 MiB".to_owned());
            return true;
        }
        let label = match &file.label {
            Label::Class(class) => class.as_str(),
            Label::Column(_) => cells
                .last()
                .and_then(|cell| cell.as_deref())
                .unwrap_or_default()
                .trim(),
            Label::None => "",
        };
        if file.label != Label::None && label.is_empty() {
            leave(line, "it has no label".to_owned());
            return true;
        }
        if label.chars().count() > MAX_LABEL_CHARS {
            leave(
                line,
                format!("its label is longer than {MAX_LABEL_CHARS} characters"),
            );
            return true;
        }
        if label.contains(char::is_control) {
            leave(
                line,
                "its label holds a line end or a control character".to_owned(),
            );
            return true;
        }
        if gathered.labels.len() >= MAX_LABELS && !labels.contains_key(label) {
            leave(
                line,
                format!("there are more than {MAX_LABELS} labels before it"),
            );
            return true;
        }
        let label = match labels.get(label) {
            Some(known) => *known,
            None => {
                let next = gathered.labels.len() as u32;
                labels.insert(label.to_owned(), next);
                gathered.labels.push(label.to_owned());
                next
            }
        };
        gathered.rows.push(Raw {
            file: place,
            row: this,
            line,
            label,
            part: file.part,
            bytes: text.len() as u32,
            characters: text.chars().count() as u32,
            key: stream::name(&text),
        });
        true
    });
}
