//! A large file of text, read as one row for each part of about 16 MB, so that only one part is in
//! memory. A part ends at the end of a line, if it has one.

use super::rows::{Contents, Row, RowVisitor, Rows};
use super::text_encoding::{Part, TextEncoding, check_first_part};
use crate::open_file::open_file;
use crate::user_messages::unreadable;
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a part. Saved runs depend on it.
const PART_BYTES: usize = 16 << 20;

/// Checks the beginning of a file and reads nothing else.
///
/// # Errors
/// It cannot be read, or it is not UTF-8.
pub(crate) fn open(path: &Path) -> Result<Contents, String> {
    let mut start = Vec::new();
    let file = open_file(path).map_err(|error| unreadable(&error))?;
    file.take(1 << 20)
        .read_to_end(&mut start)
        .map_err(|error| unreadable(&error))?;
    let mark_bytes = check_first_part(&start)?;
    Ok(Contents {
        columns: vec!["text".to_owned()],
        encoding: TextEncoding {
            has_mark: mark_bytes > 0,
            ..TextEncoding::UTF_8
        },
        rows: Box::new(TextParts {
            path: path.to_owned(),
            mark_bytes,
            part_bytes: PART_BYTES,
            replaced_bytes: Cell::new(0),
        }),
    })
}

struct TextParts {
    path: PathBuf,
    /// Bytes of the byte-order mark.
    mark_bytes: usize,
    part_bytes: usize,
    /// Invalid bytes in the parts that the last visit read.
    replaced_bytes: Cell<u64>,
}

impl Rows for TextParts {
    fn visit(&self, wanted: &[usize], visit: &mut RowVisitor) {
        let mut line = 1;
        let read = self.read(&mut |text| {
            let cells: Vec<_> = wanted.iter().map(|_| Some(Cow::Borrowed(text))).collect();
            let goes_on = visit(line, Row::Cells(&cells));
            line += text.bytes().filter(|byte| *byte == b'\n').count() as u64;
            goes_on
        });
        if let Err(error) = read {
            let reason = format!("the file cannot be read from here on: {error}");
            visit(line, Row::Fault(reason.into()));
        }
    }

    fn replaced_bytes(&self) -> u64 {
        self.replaced_bytes.get()
    }
}

impl TextParts {
    /// Reads the parts until `take` returns false.
    fn read(&self, take: &mut dyn FnMut(&str) -> bool) -> io::Result<()> {
        self.replaced_bytes.set(0);
        let mut file = open_file(&self.path)?;
        let mut bytes = Vec::with_capacity(self.part_bytes);
        fill(&mut file, &mut bytes, self.mark_bytes)?;
        bytes.clear();
        loop {
            fill(&mut file, &mut bytes, self.part_bytes)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let is_last = bytes.len() < self.part_bytes;
            let end = if is_last {
                bytes.len()
            } else {
                part_end(&bytes)
            };
            let rest = bytes.split_off(end);
            let part = Part::decode(bytes);
            self.replaced_bytes
                .set(self.replaced_bytes.get() + part.replaced_bytes);
            if !take(&part.text) {
                return Ok(());
            }
            bytes = part.text.into_bytes();
            bytes.clear();
            bytes.extend_from_slice(&rest);
        }
    }
}

/// Reads until there are `count` bytes, or the file ends.
fn fill(file: &mut File, bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let missing = count.saturating_sub(bytes.len()) as u64;
    file.take(missing).read_to_end(bytes).map(|_| ())
}

/// Where the first part of these bytes ends: after the last line end in the second half, or before
/// the last character. There are at least eight bytes.
fn part_end(bytes: &[u8]) -> usize {
    let half = bytes.len() / 2;
    let line_end = bytes[half..].iter().rposition(|byte| *byte == b'\n');
    let is_start = |at: &usize| bytes[*at] & 0xC0 != 0x80;
    line_end
        .map(|at| half + at + 1)
        .or_else(|| (half..bytes.len()).rev().find(is_start))
        .unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &[u8], part_bytes: usize) -> (Vec<(u64, String)>, u64) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("large.txt");
        std::fs::write(&path, text).expect("it can be written");
        let rows = TextParts {
            path,
            mark_bytes: 0,
            part_bytes,
            replaced_bytes: Cell::new(0),
        };
        let mut found = Vec::new();
        rows.visit(&[0], &mut |line, row| {
            let Row::Cells([Some(text)]) = row else {
                panic!("every part can be read");
            };
            found.push((line, text.to_string()));
            true
        });
        (found, rows.replaced_bytes())
    }

    #[test]
    fn parts_are_the_text_and_end_at_line_ends() {
        let text: String = (0..50).map(|n| format!("line {n} is short\n")).collect();
        let (found, replaced) = parts(text.as_bytes(), 100);
        let whole: String = found.iter().map(|(_, part)| part.as_str()).collect();
        assert_eq!((whole, replaced), (text.clone(), 0));
        assert!(found.len() > 8);
        for (line, part) in &found {
            assert!(part.len() <= 100 && part.ends_with('\n'));
            let start = format!("line {} ", line - 1);
            assert!(part.starts_with(&start), "{part}");
        }
    }

    #[test]
    fn a_part_without_lines_ends_between_characters() {
        let text = "ü日x".repeat(40);
        let (found, replaced) = parts(text.as_bytes(), 64);
        let whole: String = found.iter().map(|(_, part)| part.as_str()).collect();
        assert_eq!((whole, replaced), (text, 0));
    }

    #[test]
    fn invalid_bytes_are_replaced_and_counted() {
        let mut text = "plain text. ".repeat(20).into_bytes();
        text[30] = 0xFF;
        text[200] = 0xFE;
        let (found, replaced) = parts(&text, 64);
        let whole: String = found.iter().map(|(_, part)| part.as_str()).collect();
        assert_eq!(whole.matches('\u{FFFD}').count(), 2);
        assert_eq!(replaced, 2);
    }

    #[test]
    fn a_visit_ends_early_and_can_be_repeated() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("large.txt");
        std::fs::write(&path, "\u{FEFF}some text\n".repeat(9)).expect("it can be written");
        let contents = open(&path).expect("it is text");
        assert!(contents.encoding.has_mark);
        for _ in 0..2 {
            let mut visited = 0;
            contents.rows.visit(&[0], &mut |line, _| {
                visited += 1;
                assert_eq!(line, 1);
                false
            });
            assert_eq!(visited, 1);
        }
        std::fs::write(&path, b"\xFF\xFEh\0i\0").expect("it can be written");
        let refused = open(&path).err().expect("it is not UTF-8");
        assert!(refused.contains("UTF-8"), "{refused}");
    }
}
