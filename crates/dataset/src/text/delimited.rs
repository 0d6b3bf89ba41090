//! CSV, TSV and `label text` lines as rows. Finds the delimiter and whether there is a header; a TSV knows no quoting.
//! Knows nothing of what the columns mean.

use super::cells::{Row, Visit};
use super::columns::named_like_a_column;
use csv::{ReaderBuilder, StringRecord};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashSet;

/// Rows looked at to find the delimiter and the header.
const LOOKED_AT: usize = 500;
/// Bytes looked at for the same.
const LOOKED_AT_BYTES: usize = 1 << 20;
/// A longer first cell is no column's name.
const MAX_NAME_CHARS: usize = 60;

/// How the cells of a row are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Delimited {
    /// Between two cells.
    pub delimiter: u8,
    /// Cells may stand in quotes, and hold delimiters and line ends there.
    pub quoting: bool,
    /// The first row names the columns.
    pub header: bool,
}

impl Delimited {
    /// A CSV as it is found: comma, semicolon, tab or bar.
    pub(crate) fn csv(text: &str) -> Self {
        let text = head(text);
        let candidates = [b',', b';', b'\t', b'|'].map(|delimiter| Self {
            delimiter,
            quoting: true,
            header: false,
        });
        let mut best = (0, candidates[0]);
        for candidate in candidates {
            let score = candidate.agreement(text);
            if score > best.0 {
                best = (score, candidate);
            }
        }
        best.1.with_header(text)
    }

    /// A TSV: tabs, and no quoting.
    pub(crate) fn tsv(text: &str) -> Self {
        let plain = Self {
            delimiter: b'\t',
            quoting: false,
            header: false,
        };
        plain.with_header(head(text))
    }

    fn with_header(self, text: &str) -> Self {
        let header = self.has_header(text);
        Self { header, ..self }
    }

    /// Rows that have as many cells as most have, if that is more than one.
    fn agreement(self, text: &str) -> usize {
        let mut widths = Vec::new();
        self.each(text, &mut |_, record| {
            widths.push(record.len());
            widths.len() < LOOKED_AT
        });
        let usual = |width: &usize| widths.iter().filter(|w| *w == width).count();
        widths
            .iter()
            .filter(|w| **w > 1)
            .map(usual)
            .max()
            .unwrap_or(0)
    }

    /// The first row holds names: known ones, or short ones that no later row repeats in its place.
    fn has_header(self, text: &str) -> bool {
        let mut rows: Vec<StringRecord> = Vec::new();
        self.each(text, &mut |_, record| {
            rows.push(record.clone());
            rows.len() < LOOKED_AT
        });
        let Some((first, rest)) = rows.split_first() else {
            return false;
        };
        let is_short = |cell: &str| {
            let cell = cell.trim();
            cell.chars().count() <= MAX_NAME_CHARS && cell.split_whitespace().count() <= 3
        };
        let distinct: HashSet<&str> = first.iter().collect();
        if distinct.len() < first.len() || !first.iter().all(is_short) {
            return false;
        }
        let is_name = |cell: &str| !cell.trim().is_empty() && cell.trim().parse::<f64>().is_err();
        // A first row of data would show again: its label stands in other rows, its number is one.
        let repeated = |(i, cell): (usize, &str)| rest.iter().any(|row| row.get(i) == Some(cell));
        first.iter().any(named_like_a_column)
            || rest.len() >= 2
                && first.iter().all(is_name)
                && !first.iter().enumerate().any(repeated)
    }

    /// Names of the columns: the header's, or "column 1" and so on.
    pub(crate) fn columns(self, text: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.each(text, &mut |_, record| {
            names = match self.header {
                true => record.iter().map(|name| name.trim().to_owned()).collect(),
                false => (1..=record.len()).map(|n| format!("column {n}")).collect(),
            };
            false
        });
        names
    }

    /// Visits the rows below the header.
    pub(crate) fn visit(self, text: &str, wanted: &[usize], visit: &mut Visit) {
        let width = self.columns(text).len();
        let mut first = self.header;
        let mut last = (0, 0);
        let mut unread = false;
        self.each(text, &mut |at, record| {
            last = at;
            if std::mem::take(&mut first) {
                return true;
            }
            unread = true;
            if self.quoting && self.never_closed(text, at, record) {
                return visit(
                    at.0,
                    Row::Fault("a quote that opens here is never closed".to_owned()),
                );
            }
            if record.len() != width {
                let than = if record.len() < width {
                    "fewer"
                } else {
                    "more"
                };
                let reason = format!("it has {than} cells than the {width} of the others");
                return visit(at.0, Row::Fault(reason));
            }
            let cells: Vec<Option<Cow<str>>> = wanted
                .iter()
                .map(|i| record.get(*i).map(Cow::Borrowed))
                .collect();
            visit(at.0, Row::Cells(&cells))
        });
    }

    /// A row that goes on over lines to the very end with an odd number of quotes swallowed the rest of the file.
    fn never_closed(self, text: &str, at: (u64, usize), record: &StringRecord) -> bool {
        let longest = record
            .iter()
            .max_by_key(|cell| cell.len())
            .unwrap_or_default();
        if !longest.contains(['\n', '\r']) {
            return false;
        }
        let rest = &text.as_bytes()[at.1.min(text.len())..];
        // Quotes of one row come in pairs, escaped ones too; only the last row is followed by nothing.
        record.as_slice().len() + 2 >= rest.len().saturating_sub(2 * record.len() + 8)
            && rest.iter().filter(|byte| **byte == b'"').count() % 2 == 1
    }

    /// Visits every row with its first line and byte.
    fn each(self, text: &str, visit: &mut dyn FnMut((u64, usize), &StringRecord) -> bool) {
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .quoting(self.quoting)
            .flexible(true)
            .has_headers(false)
            .from_reader(text.as_bytes());
        let mut record = StringRecord::new();
        // The text is Unicode, and a row may have any width: nothing is left that could fail.
        while reader.read_record(&mut record).unwrap_or(false) {
            let (line, byte) = record
                .position()
                .map_or((0, 0), |place| (place.line(), place.byte() as usize));
            if !visit(past_empty_lines(text, line, byte), &record) {
                return;
            }
        }
    }
}

/// As much of a text as is looked at: a quote that never closes may make one row of all of it.
fn head(text: &str) -> &str {
    let end = text.floor_char_boundary(LOOKED_AT_BYTES.min(text.len()));
    &text[..end]
}

/// Empty lines in front of a row are passed over by the reader, but not by its line number.
fn past_empty_lines(text: &str, line: u64, byte: usize) -> (u64, usize) {
    let rest = text.as_bytes().get(byte..).unwrap_or_default();
    let empty = rest
        .iter()
        .take_while(|b| matches!(b, b'\n' | b'\r'))
        .count();
    let lines = rest[..empty].iter().filter(|b| **b == b'\n').count();
    (line + lines as u64, byte + empty)
}

/// `label text` lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LabelLines {
    /// A tab after the label.
    Tab,
    /// A space after the label.
    Space,
}

/// Labels that lines may have at most.
const MAX_LINE_LABELS: usize = 200;
/// Lines for each label on average at least.
const MIN_LINES_A_LABEL: usize = 5;

fn filled(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty())
}

impl LabelLines {
    /// Whether every line begins with one of few labels. The first words of prose are few too, but stand inside its lines
    /// as well.
    pub(crate) fn find(text: &str) -> Option<Self> {
        [Self::Tab, Self::Space].into_iter().find(|kind| {
            let mut labels: HashSet<&str> = HashSet::new();
            let mut lines = 0usize;
            for line in filled(text) {
                let Some((label, rest)) = kind.cut(line) else {
                    return false;
                };
                lines += 1;
                labels.insert(label);
                if rest.trim().is_empty() || labels.len() > MAX_LINE_LABELS {
                    return false;
                }
            }
            let inside = |line: &&str| {
                kind.cut(line).is_some_and(|(_, rest)| {
                    rest.split_whitespace().any(|word| labels.contains(word))
                })
            };
            labels.len() >= 2
                && lines >= MIN_LINES_A_LABEL * labels.len()
                && (*kind == Self::Tab || filled(text).filter(inside).count() * 5 < lines)
        })
    }

    fn cut(self, line: &str) -> Option<(&str, &str)> {
        match self {
            Self::Tab => line.split_once('\t'),
            Self::Space => line.split_once(' '),
        }
    }

    /// Visits the lines as (label, text).
    pub(crate) fn visit(self, text: &str, wanted: &[usize], visit: &mut Visit) {
        for (n, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let number = n as u64 + 1;
            let row = match self.cut(line) {
                Some((label, rest)) => {
                    let both = [Some(Cow::Borrowed(label)), Some(Cow::Borrowed(rest))];
                    let cells: Vec<_> = wanted
                        .iter()
                        .filter_map(|i| both.get(*i).cloned())
                        .collect();
                    if visit(number, Row::Cells(&cells)) {
                        continue;
                    }
                    return;
                }
                None => Row::Fault("it has a label and no text".to_owned()),
            };
            if !visit(number, row) {
                return;
            }
        }
    }
}
