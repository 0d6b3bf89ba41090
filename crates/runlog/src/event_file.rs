//! `events.jsonl`: one event per line, written so that a crash at any instant costs at most the
//! last line. `fold_events.rs` interprets the events.

use crate::RunlogError;
use crate::event::RunEvent;
use crate::run_folder::RunFolder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The kinds of events in this version. Other kinds come from a later version and are skipped.
const KINDS: [&str; 12] = [
    "started",
    "memory",
    "decision",
    "prediction",
    "step",
    "evaluation",
    "checkpoint",
    "skipped",
    "warning",
    "resumed",
    "stopped",
    "failed",
];

/// Appends events to a run folder's file.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
    path: PathBuf,
    /// Bytes of complete lines.
    len: u64,
}

impl EventWriter {
    /// Opens the file to append events, and creates it if it does not exist. An incomplete last
    /// line, left by a crash, is removed.
    pub fn append(folder: &RunFolder) -> Result<EventWriter, RunlogError> {
        let path = folder.events_path();
        let open = || -> io::Result<(File, u64)> {
            let mut file = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(&path)?;
            let len = complete_lines(&mut file)?;
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len))?;
            Ok((file, len))
        };
        let (file, len) = open().map_err(RunlogError::disk("written", &path))?;
        Ok(EventWriter { file, path, len })
    }

    /// Writes one event. Events that must survive a power failure are synced to the disk.
    pub fn write(&mut self, event: &RunEvent) -> Result<(), RunlogError> {
        let mut line = serde_json::to_vec(event).expect("every event has a form in JSON");
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| match event {
            RunEvent::Started(_)
            | RunEvent::Resumed { .. }
            | RunEvent::Checkpoint { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::Failed { .. } => disk::sync_data(&self.file),
            _ => Ok(()),
        });
        if let Err(error) = written {
            // Remove the half line before the next one is written. If this fails too, the next
            // `append` removes it.
            let _ = self.file.set_len(self.len);
            let _ = self.file.seek(SeekFrom::Start(self.len));
            return Err(RunlogError::disk("written", &self.path)(error));
        }
        self.len += line.len() as u64;
        Ok(())
    }
}

/// Number of bytes up to and including the last line break.
fn complete_lines(file: &mut File) -> io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let mut end = file.metadata()?.len();
    let mut block = Vec::new();
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(begin))?;
        block.clear();
        Read::by_ref(file)
            .take(end - begin)
            .read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Reads a file of events from its beginning. An incomplete last line is ignored; a damaged line
/// before it is an error.
#[derive(Debug)]
pub struct EventReader {
    lines: BufReader<File>,
    path: PathBuf,
    line: u64,
    skipped: u64,
}

impl EventReader {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<EventReader, RunlogError> {
        let file = File::open(path).map_err(RunlogError::disk("read", path))?;
        Ok(EventReader {
            lines: BufReader::new(file),
            path: path.into(),
            line: 0,
            skipped: 0,
        })
    }

    /// Number of events of later versions that were skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl Iterator for EventReader {
    type Item = Result<RunEvent, RunlogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            if let Err(error) = self.lines.read_until(b'\n', &mut bytes) {
                return Some(Err(RunlogError::disk("read", &self.path)(error)));
            }
            self.line += 1;
            // Without a line break it is an incomplete line, or the end of the file.
            let line = bytes.strip_suffix(b"\n")?;
            match parse_line(line, &self.path, self.line) {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => self.skipped += u64::from(!line.trim_ascii().is_empty()),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Reads all events of a file; see [`EventReader`].
///
/// # Errors
/// If the file cannot be read, or a complete line is damaged.
pub fn read_events(path: &Path) -> Result<Vec<RunEvent>, RunlogError> {
    EventReader::open(path)?.collect()
}

/// Parses one line. Returns `None` for an empty line and for a kind of a later version. Unknown
/// fields are ignored.
fn parse_line(line: &[u8], path: &Path, number: u64) -> Result<Option<RunEvent>, RunlogError> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let error = match serde_json::from_slice(line) {
        Ok(event) => return Ok(Some(event)),
        Err(error) => error,
    };
    let kind = serde_json::from_slice::<serde_json::Value>(line).ok();
    let kind = kind.as_ref().and_then(|value| value.get("kind")?.as_str());
    match kind {
        Some(kind) if !KINDS.contains(&kind) => Ok(None),
        _ => Err(RunlogError::DamagedEvent {
            path: path.into(),
            line: number,
            reason: error.to_string(),
        }),
    }
}

/// Follows a file of events that another process writes.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    line: u64,
}

impl Tail {
    /// Starts at the beginning. The file need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Tail {
        Tail {
            path: path.into(),
            offset: 0,
            line: 0,
        }
    }

    /// Returns the events written since the last call. A file that became shorter is a new file; it
    /// is read from its beginning, and its `started` event resets the fold.
    pub fn poll(&mut self) -> Result<Vec<RunEvent>, RunlogError> {
        let bytes = match self.read_new_bytes() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(RunlogError::disk("read", &self.path))?,
        };
        let mut events = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(complete) = line.strip_suffix(b"\n") else {
                break;
            };
            events.extend(parse_line(complete, &self.path, self.line + 1)?);
            self.line += 1;
            self.offset += line.len() as u64;
        }
        Ok(events)
    }

    fn read_new_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        let len = file.metadata()?.len();
        if len < self.offset {
            (self.offset, self.line) = (0, 0);
        }
        let mut bytes = Vec::new();
        if len > self.offset {
            file.seek(SeekFrom::Start(self.offset))?;
            file.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }
}
