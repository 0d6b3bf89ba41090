//! Kernel files that are opened once and read repeatedly from the start.

use crate::error::PressureError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Size of the first read, in bytes; doubled if the file fills it.
const FIRST_READ: usize = 512;

/// An open kernel file. A reading is one system call, without a path lookup and, after the first,
/// without an allocation.
pub(super) struct KernelFile {
    file: File,
    path: PathBuf,
    bytes: Mutex<Vec<u8>>,
}

impl KernelFile {
    /// Opens `path` for reading.
    pub(super) fn open(path: &Path) -> Result<Self, PressureError> {
        let file = File::open(path).map_err(|source| PressureError::Unreadable {
            what: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes: Mutex::new(vec![0; FIRST_READ]),
        })
    }

    /// Passes the present content of the file to `then`.
    ///
    /// # Errors
    /// The file cannot be read, is not UTF-8, or `then` fails.
    pub(super) fn read<R>(
        &self,
        then: impl FnOnce(&str) -> Result<R, PressureError>,
    ) -> Result<R, PressureError> {
        // A panic may have left partial bytes; they are overwritten.
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
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
            // The kernel writes these files at once: a read that does not fill the buffer was
            // complete, and another read would make the kernel format the file again.
            if filled < bytes.len() {
                break;
            }
            bytes.resize(2 * filled, 0);
        }
        match std::str::from_utf8(&bytes[..filled]) {
            Ok(text) => then(text),
            Err(_) => Err(self.unexpected("bytes that are not text")),
        }
    }

    /// The first numbers of a file like `/proc/self/statm`; 0 for missing ones.
    pub(super) fn numbers<const N: usize>(&self) -> Result<[u64; N], PressureError> {
        self.read(|text| {
            let mut numbers = [0; N];
            let mut words = text.split_ascii_whitespace().peekable();
            let empty = words.peek().is_none();
            let all = numbers
                .iter_mut()
                .zip(words)
                .try_for_each(|(number, word)| {
                    *number = word.parse().ok()?;
                    Some(())
                });
            all.filter(|()| !empty)
                .map(|()| numbers)
                .ok_or_else(|| self.unexpected(text))
        })
    }

    /// A file of one number, or `None` for "max" (no limit).
    pub(super) fn number(&self) -> Result<Option<u64>, PressureError> {
        self.read(|text| match text.trim() {
            "max" => Ok(None),
            number => number
                .parse()
                .map(Some)
                .map_err(|_| self.unexpected(number)),
        })
    }

    /// The numbers of lines like `MemFree:  12 kB` or `inactive_file 4096`, by name without the
    /// colon. Stops after the last of them, since this runs ten times per second.
    pub(super) fn named<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[Option<u64>; N], PressureError> {
        self.read(|text| {
            let (mut found, mut missing) = ([None; N], N);
            for line in text.lines() {
                let mut words = line.split_ascii_whitespace();
                let name = words.next().unwrap_or("").trim_end_matches(':');
                if let Some(index) = names.iter().position(|wanted| *wanted == name) {
                    found[index] = words.next().and_then(|number| number.parse().ok());
                    missing -= 1;
                    if missing == 0 {
                        break;
                    }
                }
            }
            Ok(found)
        })
    }

    /// The number after `mark` in the line that starts with `line`.
    pub(super) fn field(&self, line: &str, mark: &str) -> Result<u64, PressureError> {
        self.read(|text| {
            let found = text.lines().find(|l| l.starts_with(line));
            found
                .and_then(|l| {
                    l.split_ascii_whitespace()
                        .find_map(|word| word.strip_prefix(mark))
                })
                .and_then(|number| number.parse().ok())
                .ok_or_else(|| self.unexpected(text))
        })
    }

    /// The error for unknown content.
    pub(super) fn unexpected(&self, found: &str) -> PressureError {
        PressureError::Unexpected {
            what: self.path.display().to_string(),
            found: found.chars().take(60).collect(),
        }
    }
}

/// The text of a file that is read once.
pub(super) fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
