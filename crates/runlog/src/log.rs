//! `events.jsonl`: one event a line, written so that a crash at any instant costs the last line at most. Knows the
//! file and its lines; what events mean is `reduce.rs`'s.

use crate::{RunEvent, RunFolder, RunlogError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Every `kind` that this version knows. Others are skipped: they come from a later version.
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
    /// Bytes of whole lines.
    len: u64,
}

impl EventWriter {
    /// Opens the file for more events, making it where it is missing. A torn last line, left by a crash, is cut off.
    pub fn append(folder: &RunFolder) -> Result<EventWriter, RunlogError> {
        let path = folder.events_path();
        let open = || -> io::Result<(File, u64)> {
            let mut file = open_to_go_on(&path)?;
            let len = whole_lines(&mut file)?;
            file.set_len(len)?;
            file.seek(SeekFrom::Start(len))?;
            Ok((file, len))
        };
        let (file, len) = open().map_err(RunlogError::disk("written", &path))?;
        Ok(EventWriter { file, path, len })
    }

    /// Writes one event and hands it to the system; what must outlive a power cut is synced to the disk.
    pub fn write(&mut self, event: &RunEvent) -> Result<(), RunlogError> {
        let mut line = serde_json::to_vec(event).expect("an event is plain data with text keys");
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| match event {
            RunEvent::Started(_)
            | RunEvent::Resumed { .. }
            | RunEvent::Checkpoint { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::Failed { .. } => self.file.sync_data(),
            _ => Ok(()),
        });
        if let Err(error) = written {
            // Half a line must not stand before the next one. If this fails too, the reader cuts it.
            let _ = self.file.set_len(self.len);
            let _ = self.file.seek(SeekFrom::Start(self.len));
            return Err(RunlogError::disk("written", &self.path)(error));
        }
        self.len += line.len() as u64;
        Ok(())
    }
}

/// A file to be read and gone on with, made where it is missing.
pub(crate) fn open_to_go_on(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false);
    options.read(true).write(true).open(path)
}

/// Bytes up to and with the last line break.
fn whole_lines(file: &mut File) -> io::Result<u64> {
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

/// Reads a file of events from its beginning. A torn last line is no event; a damaged line elsewhere is an error.
#[derive(Debug)]
pub struct EventReader {
    lines: BufReader<File>,
    path: PathBuf,
    line: u64,
    unknown: u64,
}

impl EventReader {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<EventReader, RunlogError> {
        let file = File::open(path).map_err(RunlogError::disk("read", path))?;
        Ok(EventReader {
            lines: BufReader::new(file),
            path: path.into(),
            line: 0,
            unknown: 0,
        })
    }

    /// Events of a later version that were skipped so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
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
            // Without a line break it is the torn end, or the end.
            let line = bytes.strip_suffix(b"\n")?;
            match parsed(line, &self.path, self.line) {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => self.unknown += u64::from(!line.trim_ascii().is_empty()),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// All events of a file; see [`EventReader`].
pub fn read_events(path: &Path) -> Result<Vec<RunEvent>, RunlogError> {
    EventReader::open(path)?.collect()
}

/// One line: an event, nothing for an empty line or a later version's kind, or an error.
fn parsed(line: &[u8], path: &Path, number: u64) -> Result<Option<RunEvent>, RunlogError> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let wrong = match serde_json::from_slice(line) {
        Ok(event) => return Ok(Some(event)),
        Err(wrong) => wrong,
    };
    let kind = serde_json::from_slice::<serde_json::Value>(line).ok();
    let kind = kind.as_ref().and_then(|value| value.get("kind")?.as_str());
    match kind {
        Some(kind) if !KINDS.contains(&kind) => Ok(None),
        _ => Err(RunlogError::DamagedEvent {
            path: path.into(),
            line: number,
            why: wrong.to_string(),
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
    /// Follows from the beginning; the file need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Tail {
        Tail {
            path: path.into(),
            offset: 0,
            line: 0,
        }
    }

    /// The whole lines written since the last time. A file that became shorter than what was read is a new one and is
    /// read from its beginning, where a `started` begins the fold anew.
    pub fn poll(&mut self) -> Result<Vec<RunEvent>, RunlogError> {
        let bytes = match self.fresh() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            bytes => bytes.map_err(RunlogError::disk("read", &self.path))?,
        };
        let mut events = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(whole) = line.strip_suffix(b"\n") else {
                break;
            };
            events.extend(parsed(whole, &self.path, self.line + 1)?);
            self.line += 1;
            self.offset += line.len() as u64;
        }
        Ok(events)
    }

    fn fresh(&mut self) -> io::Result<Vec<u8>> {
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
