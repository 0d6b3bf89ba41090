//! Kernel files that are opened once and read again and again from their beginning. Knows their syntax, not their meaning.

use crate::error::PressureError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A kernel file kept open: one system call a reading, no path look-up.
pub(super) struct Kept {
    file: File,
    path: PathBuf,
}

impl Kept {
    /// Opens `path` for reading.
    pub(super) fn open(path: &Path) -> Result<Self, PressureError> {
        let file = File::open(path).map_err(|source| PressureError::Unreadable {
            what: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// The whole file as it is now.
    pub(super) fn text(&self) -> Result<String, PressureError> {
        let mut bytes = vec![0u8; 8192];
        let mut filled = 0;
        loop {
            let read = self
                .file
                .read_at(&mut bytes[filled..], filled as u64)
                .map_err(|source| PressureError::Unreadable {
                    what: self.path.display().to_string(),
                    source,
                })?;
            filled += read;
            // The kernel writes these files in one go: a reading that leaves room was the whole, and asking again for the end
            // would have it written once more.
            if filled < bytes.len() {
                break;
            }
            bytes.resize(2 * filled, 0);
        }
        bytes.truncate(filled);
        String::from_utf8(bytes).map_err(|_| self.unexpected("bytes that are no text"))
    }

    /// All numbers of a file like `/proc/self/statm`.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, PressureError> {
        let text = self.text()?;
        let numbers = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>();
        numbers
            .ok()
            .filter(|n| !n.is_empty())
            .ok_or_else(|| self.unexpected(&text))
    }

    /// A file of one number, or `None` for "max" (no limit).
    pub(super) fn number(&self) -> Result<Option<u64>, PressureError> {
        let text = self.text()?;
        match text.trim() {
            "max" => Ok(None),
            number => number
                .parse()
                .map(Some)
                .map_err(|_| self.unexpected(number)),
        }
    }

    /// The numbers of lines like `MemFree:  12 kB` or `inactive_file 4096`, by name without the colon. No allocation for
    /// the many lines that nobody asked for: this runs ten times a second.
    pub(super) fn named<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<u64>; N], PressureError> {
        let text = self.text()?;
        let mut found = [None; N];
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or("").trim_end_matches(':');
            if let Some(index) = names.iter().position(|wanted| *wanted == name) {
                found[index] = words.next().and_then(|number| number.parse().ok());
            }
        }
        Ok(found)
    }

    /// The number behind `mark` in the line that begins with `line`.
    pub(super) fn field(&self, line: &str, mark: &str) -> Result<u64, PressureError> {
        let text = self.text()?;
        let found = text.lines().find(|l| l.starts_with(line));
        found
            .and_then(|l| {
                l.split_whitespace()
                    .find_map(|word| word.strip_prefix(mark))
            })
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| self.unexpected(&text))
    }

    /// The error for content that nobody knows.
    pub(super) fn unexpected(&self, found: &str) -> PressureError {
        PressureError::Unexpected {
            what: self.path.display().to_string(),
            found: found.chars().take(60).collect(),
        }
    }
}

/// A file that is read once.
pub(super) fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
