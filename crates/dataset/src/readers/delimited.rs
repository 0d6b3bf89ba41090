//! Reads CSV and TSV as rows. Detects the delimiter and whether there is a header; TSV has no
//! quoting.

use super::choose_columns::is_column_name;
use super::rows::{Row, RowVisitor};
use csv::{ReaderBuilder, StringRecord};
use format::format_count;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

/// Rows that detect the delimiter and the header.
const DETECTION_ROWS: usize = 500;
/// Bytes that detect the delimiter and the header.
const DETECTION_BYTES: usize = 1 << 20;
/// Most characters of a column's name.
const MAX_NAME_CHARS: usize = 60;

/// Most columns of a table.
const MAX_COLUMNS: usize = 5_000;
/// Most delimiters in one row, also in its texts. The reader notes the place of each.
const MAX_ROW_DELIMITERS: usize = 1_000_000;
/// The reason for leaving out a row with more delimiters, and all that follow.
const TOO_WIDE_ROW: &str =
    "this line has more than a million delimiters; the rest of the file was not read";

/// How the cells of a row are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Delimited {
    /// The byte between two cells.
    pub delimiter: u8,
    /// Whether cells may be quoted, and contain delimiters and line ends then.
    pub quoting: bool,
    /// Whether the first row has the column names.
    pub header: bool,
}

/// The names of a header, made distinct: a repeated name gets a number ("text", "text 2"), and a
/// repeated empty name becomes "column 4". A name that the header contains is never given away.
fn distinct_names(names: &[&str]) -> Vec<String> {
    let given: HashSet<&str> = names.iter().copied().collect();
    let mut taken: HashSet<String> = HashSet::new();
    // The next number of each name, so that many equal names do not count from the start.
    let mut next: HashMap<&str, usize> = HashMap::new();
    let mut distinct = Vec::with_capacity(names.len());
    for (index, &name) in names.iter().enumerate() {
        let (stem, first) = match name {
            "" => ("column", index + 1),
            name => (name, 2),
        };
        let number = next.entry(name).or_default();
        *number = first.max(*number);
        let mut candidate = name.to_owned();
        while taken.contains(&candidate)
            || (candidate != name && given.contains(candidate.as_str()))
        {
            candidate = format!("{stem} {number}");
            *number += 1;
        }
        taken.insert(candidate.clone());
        distinct.push(candidate);
    }
    distinct
}

impl Delimited {
    /// Detects the delimiter and header of a CSV: comma, semicolon, tab or bar.
    ///
    /// # Errors
    /// The table has too many columns.
    pub(crate) fn detect_csv(text: &str) -> Result<Self, String> {
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
        best.1.check_width(text)?;
        Ok(best.1.with_header(text))
    }

    /// Detects the header of a TSV.
    ///
    /// # Errors
    /// The table has too many columns.
    pub(crate) fn detect_tsv(text: &str) -> Result<Self, String> {
        let plain = Self {
            delimiter: b'\t',
            quoting: false,
            header: false,
        };
        plain.check_width(head(text))?;
        Ok(plain.with_header(head(text)))
    }

    /// Refuses a first row with more cells than a table may have columns.
    fn check_width(self, text: &str) -> Result<(), String> {
        let mut width = 0;
        let too_wide = self.each(text, &mut |_, record| {
            width = record.len();
            false
        });
        if too_wide.is_none() && width <= MAX_COLUMNS {
            return Ok(());
        }
        Err(format!(
            "The first line has more than {} cells. Save only the columns that you need.",
            format_count(MAX_COLUMNS as u64)
        ))
    }

    fn with_header(self, text: &str) -> Self {
        let header = self.has_header(text);
        Self { header, ..self }
    }

    /// Number of rows that have the most common number of cells, if that is more than one.
    fn agreement(self, text: &str) -> usize {
        let mut widths = Vec::new();
        self.each(text, &mut |_, record| {
            widths.push(record.len());
            widths.len() < DETECTION_ROWS
        });
        let usual = |width: &usize| widths.iter().filter(|w| *w == width).count();
        widths
            .iter()
            .filter(|w| **w > 1)
            .map(usual)
            .max()
            .unwrap_or(0)
    }

    /// Whether the first row has column names: known ones, or short ones that no later row repeats
    /// in the same column.
    fn has_header(self, text: &str) -> bool {
        let mut rows: Vec<StringRecord> = Vec::new();
        self.each(text, &mut |_, record| {
            rows.push(record.clone());
            rows.len() < DETECTION_ROWS
        });
        let Some((first, rest)) = rows.split_first() else {
            return false;
        };
        let is_short = |cell: &str| {
            let cell = cell.trim();
            cell.chars().count() <= MAX_NAME_CHARS && cell.split_whitespace().count() <= 3
        };
        if !first.iter().all(is_short) {
            return false;
        }
        let is_name = |cell: &str| !cell.trim().is_empty() && cell.trim().parse::<f64>().is_err();
        // A first row of data has a label that occurs again, or a number.
        let repeated = |(i, cell): (usize, &str)| rest.iter().any(|row| row.get(i) == Some(cell));
        let distinct: HashSet<&str> = first.iter().collect();
        if distinct.len() < first.len() {
            // Some tables have two columns of the same name. So do rows of data.
            let is_name = |cell: &str| cell.trim().is_empty() || is_name(cell);
            return first.iter().any(is_column_name)
                && first.iter().all(is_name)
                && !first.iter().enumerate().any(repeated);
        }
        first.iter().any(is_column_name)
            || rest.len() >= 2
                && first.iter().all(is_name)
                && !first.iter().enumerate().any(repeated)
    }

    /// Names of the columns: those of the header, or "column 1" and so on. All names differ.
    pub(crate) fn columns(self, text: &str) -> Vec<String> {
        let mut names = Vec::new();
        self.each(text, &mut |_, record| {
            let cells = record.iter().take(MAX_COLUMNS);
            names = if self.header {
                distinct_names(&cells.map(str::trim).collect::<Vec<_>>())
            } else {
                (1..=cells.count()).map(|n| format!("column {n}")).collect()
            };
            false
        });
        names
    }

    /// Visits the rows below the header. A row must have `width` cells.
    pub(crate) fn visit(self, text: &str, width: usize, wanted: &[usize], visit: &mut RowVisitor) {
        let mut is_header = self.header;
        let too_wide = self.each(text, &mut |start, record| {
            if std::mem::take(&mut is_header) {
                return true;
            }
            if self.quoting && never_closed(text, start, record) {
                let reason = "a quote that opens here is never closed";
                return visit(start.line, Row::Fault(reason.into()));
            }
            if record.len() != width {
                let than = if record.len() < width {
                    "fewer"
                } else {
                    "more"
                };
                let reason =
                    format!("this line has {than} cells than the other lines, which have {width}");
                return visit(start.line, Row::Fault(reason.into()));
            }
            let cells: Vec<Option<Cow<str>>> = wanted
                .iter()
                .map(|i| record.get(*i).map(Cow::Borrowed))
                .collect();
            visit(start.line, Row::Cells(&cells))
        });
        if let Some(start) = too_wide {
            visit(start.line, Row::Fault(TOO_WIDE_ROW.into()));
        }
    }

    /// Visits every row, including the header. Returns the row with too many delimiters that ended
    /// the visit, if there is one.
    fn each(
        self,
        text: &str,
        visit: &mut dyn FnMut(RowStart, &StringRecord) -> bool,
    ) -> Option<RowStart> {
        let delimiters = Cell::new(0);
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .quoting(self.quoting)
            .flexible(true)
            .has_headers(false)
            .from_reader(CountingReader {
                rest: text.as_bytes(),
                delimiter: self.delimiter,
                delimiters: &delimiters,
            });
        let mut record = StringRecord::new();
        loop {
            let (line, byte) = (reader.position().line(), reader.position().byte() as usize);
            // The text is Unicode and a row may have any width, so reading can fail only at the end
            // of a row that is too wide.
            let has_record = reader.read_record(&mut record).unwrap_or(false);
            let start = RowStart::after_blank_lines(text, line, byte);
            if delimiters.get() > MAX_ROW_DELIMITERS {
                return Some(start);
            }
            if !has_record || !visit(start, &record) {
                return None;
            }
            delimiters.set(0);
        }
    }
}

/// Counts the delimiters that it passes on, and ends when there are too many, so that one row
/// cannot fill the memory with the places of its cells.
struct CountingReader<'a> {
    rest: &'a [u8],
    delimiter: u8,
    /// Delimiters since the last row.
    delimiters: &'a Cell<usize>,
}

impl Read for CountingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.delimiters.get() > MAX_ROW_DELIMITERS {
            return Ok(0);
        }
        let read = self.rest.read(buffer)?;
        let passed = buffer[..read].iter();
        let found = passed.filter(|byte| **byte == self.delimiter).count();
        self.delimiters.set(self.delimiters.get() + found);
        Ok(read)
    }
}

/// The start of a text. If a quote is never closed, one row could contain everything.
fn head(text: &str) -> &str {
    let end = text.floor_char_boundary(DETECTION_BYTES.min(text.len()));
    &text[..end]
}

#[derive(Clone, Copy)]
struct RowStart {
    /// Line, counted from 1.
    line: u64,
    /// Offset of its first byte.
    byte: usize,
}

impl RowStart {
    /// The reader skips blank lines in front of a row, but does not count them.
    fn after_blank_lines(text: &str, line: u64, byte: usize) -> Self {
        let rest = text.as_bytes().get(byte..).unwrap_or_default();
        let blank = rest
            .iter()
            .take_while(|b| matches!(b, b'\n' | b'\r'))
            .count();
        let lines = rest[..blank].iter().filter(|b| **b == b'\n').count();
        Self {
            line: line + lines as u64,
            byte: byte + blank,
        }
    }
}

/// Whether a row swallowed the rest of the file: it has several lines, reaches the end, and
/// contains an odd number of quotes.
fn never_closed(text: &str, start: RowStart, record: &StringRecord) -> bool {
    let longest = record
        .iter()
        .max_by_key(|cell| cell.len())
        .unwrap_or_default();
    if !longest.contains(['\n', '\r']) {
        return false;
    }
    let rest = &text.as_bytes()[start.byte.min(text.len())..];
    // The quotes of a row come in pairs, also escaped ones. Only the last row is followed by
    // nothing.
    record.as_slice().len() + 2 >= rest.len().saturating_sub(2 * record.len() + 8)
        && rest.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::distinct_names;

    #[test]
    fn a_repeated_name_gets_a_number_that_no_other_column_has() {
        let names = ["text", "text", "text 2", "text", "label", "", ""];
        let expected = [
            "text", "text 3", "text 2", "text 4", "label", "", "column 7",
        ];
        assert_eq!(distinct_names(&names), expected);
    }
}
