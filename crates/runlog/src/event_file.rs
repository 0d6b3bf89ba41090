//! `events.jsonl`: one event per line, written so that a crash at any instant costs at most the
//! last line. `fold_events.rs` interprets the events.

use crate::RunlogError;
use crate::event::RunEvent;
use crate::run_folder::RunFolder;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The kinds of events in this version. Other kinds come from a later version and are skipped.
const KINDS: [&str; 20] = [
    "started",
    "device_check",
    "baseline",
    "memory",
    "memory_limits",
    "stress_test",
    "decision",
    "prediction",
    "step",
    "evaluation",
    "answers",
    "checkpoint",
    "skipped",
    "warning",
    "group",
    "machines",
    "machine",
    "resumed",
    "stopped",
    "failed",
];

/// Most bytes of a line. Events of large evaluations have about a million.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// Bytes that are kept of a longer line.
const SHOWN_BYTES: usize = 100;
/// Most values of a line, about. Each takes 32 bytes in memory, however short it is in the file.
const MAX_LINE_VALUES: usize = 4_000_000;

/// Appends events to a run folder's file.
#[derive(Debug)]
pub struct EventWriter {
    file: disk::File,
    path: PathBuf,
    /// Bytes of complete lines.
    len: u64,
    /// Whether a part of a line may follow them.
    has_partial_line: bool,
}

impl EventWriter {
    /// Opens the file to append events, and creates it if it does not exist. An incomplete last
    /// line, left by a crash, is removed.
    pub fn append(folder: &RunFolder) -> Result<EventWriter, RunlogError> {
        let path = folder.events_path();
        let open = || -> io::Result<(disk::File, u64)> {
            let len = match disk::read_without_links(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                file => Some(complete_lines(&mut file?)?),
            };
            let file = disk::File::open(&path, len.unwrap_or(0))?;
            if len.is_none() {
                disk::sync_parent(&path)?;
            }
            Ok((file, len.unwrap_or(0)))
        };
        let (file, len) = open().map_err(RunlogError::disk("written", &path))?;
        Ok(EventWriter {
            file,
            path,
            len,
            has_partial_line: false,
        })
    }

    /// Writes one event. Events that must survive a power failure are synced to the disk.
    pub fn write(&mut self, event: &RunEvent) -> Result<(), RunlogError> {
        let mut line = serde_json::to_vec(event).expect("every event can be written as JSON");
        line.push(b'\n');
        if let Err(error) = self.write_line(&line, event) {
            // Remove the partial line before the next one is written.
            self.has_partial_line = self.file.truncate(self.len).is_err();
            return Err(RunlogError::disk("written", &self.path)(error));
        }
        self.len += line.len() as u64;
        Ok(())
    }

    fn write_line(&mut self, line: &[u8], event: &RunEvent) -> io::Result<()> {
        if self.has_partial_line {
            self.file.truncate(self.len)?;
            self.has_partial_line = false;
        }
        self.file.write_all(line)?;
        match event {
            RunEvent::Started(_)
            | RunEvent::Resumed { .. }
            | RunEvent::Checkpoint { .. }
            | RunEvent::Stopped { .. }
            | RunEvent::Failed { .. } => self.file.sync_data(),
            _ => Ok(()),
        }
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

/// Reads a file of events from its beginning. An incomplete last line is ignored. A damaged line
/// before it is skipped: the checkpoints are whole, and a log must not block them. In the place of
/// the first damaged line there is a warning.
#[derive(Debug)]
pub struct EventReader {
    lines: BufReader<File>,
    path: PathBuf,
    parser: Parser,
    skipped: u64,
}

impl EventReader {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<EventReader, RunlogError> {
        let file = disk::read_without_links(path).map_err(RunlogError::disk("read", path))?;
        Ok(EventReader {
            lines: BufReader::new(file),
            path: path.into(),
            parser: Parser::default(),
            skipped: 0,
        })
    }

    /// Reads the next line with its line break. Of a line that is too long to be an event, keeps
    /// only the beginning.
    fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        line.clear();
        let mut limited = Read::by_ref(&mut self.lines).take(MAX_LINE_BYTES);
        limited.read_until(b'\n', line)?;
        if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            self.lines.skip_until(b'\n')?;
            line.truncate(SHOWN_BYTES);
            line.push(b'\n');
        }
        Ok(())
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
            if let Err(error) = self.read_line(&mut bytes) {
                return Some(Err(RunlogError::disk("read", &self.path)(error)));
            }
            // Without a line break it is an incomplete line, or the end of the file.
            let line = bytes.strip_suffix(b"\n")?;
            match self.parser.parse(line) {
                Line::Event(event) => return Some(Ok(*event)),
                Line::OfLaterVersion => self.skipped += 1,
                Line::Empty | Line::Damaged => {}
            }
        }
    }
}

/// Reads all events of a file; see [`EventReader`].
///
/// # Errors
/// If the file cannot be read.
pub fn read_events(path: &Path) -> Result<Vec<RunEvent>, RunlogError> {
    EventReader::open(path)?.collect()
}

/// What a complete line contains.
enum Line {
    /// An event, or the warning that this line is damaged.
    Event(Box<RunEvent>),
    Empty,
    OfLaterVersion,
    /// Damaged like an earlier line, about which there is a warning.
    Damaged,
}

/// Parses the lines of one file in order.
#[derive(Debug, Default)]
struct Parser {
    /// Lines so far.
    line: u64,
    /// The time of the last event.
    at_ms: u64,
    /// Whether there is a warning about a damaged line.
    has_warned: bool,
}

impl Parser {
    /// Unknown fields are ignored.
    fn parse(&mut self, line: &[u8]) -> Line {
        self.line += 1;
        if line.trim_ascii().is_empty() {
            return Line::Empty;
        }
        let error = match parse_event(line) {
            Ok(event) => {
                self.at_ms = event.at_ms();
                return Line::Event(Box::new(event));
            }
            Err(error) => error,
        };
        let kind = serde_json::from_slice::<Kind>(line).ok();
        if kind.is_some_and(|line| !KINDS.contains(&line.kind.as_str())) {
            return Line::OfLaterVersion;
        }
        if std::mem::replace(&mut self.has_warned, true) {
            return Line::Damaged;
        }
        Line::Event(Box::new(RunEvent::Warning {
            at_ms: self.at_ms,
            code: "damaged_event".to_owned(),
            message: format!(
                "Line {} of events.jsonl is damaged ({error}). Ebb skips damaged lines. The charts have gaps, but no checkpoint is affected.",
                self.line
            ),
        }))
    }
}

/// Of an event only its kind.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// Parses an event. The reason why a line is none is the end of a sentence.
fn parse_event(line: &[u8]) -> Result<RunEvent, String> {
    let begins_value = |byte: &&u8| matches!(byte, b',' | b'[' | b'{');
    if line.iter().filter(begins_value).count() > MAX_LINE_VALUES {
        return Err("the line has millions of values".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

/// Follows a file of events that another process writes.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    parser: Parser,
}

impl Tail {
    /// Starts at the beginning. The file need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Tail {
        Tail {
            path: path.into(),
            offset: 0,
            parser: Parser::default(),
        }
    }

    /// Returns the events written since the last call. A file that became shorter is a new file; it
    /// is read from its beginning, and its `started` event resets the fold.
    pub fn poll(&mut self) -> Result<Vec<RunEvent>, RunlogError> {
        let mut events = Vec::new();
        loop {
            let bytes = match self.read_new_bytes() {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(events),
                // The next call reports it: these events are not read again.
                Err(_) if !events.is_empty() => return Ok(events),
                bytes => bytes.map_err(RunlogError::disk("read", &self.path))?,
            };
            let (begin, has_more) = (self.offset, bytes.len() as u64 == MAX_LINE_BYTES);
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let Some(complete) = line.strip_suffix(b"\n") else {
                    break;
                };
                if let Line::Event(event) = self.parser.parse(complete) {
                    events.push(*event);
                }
                self.offset += line.len() as u64;
            }
            if !has_more {
                return Ok(events);
            }
            if self.offset == begin {
                // This line is too long to be an event. Its end will be a damaged line.
                self.offset += bytes.len() as u64;
            }
        }
    }

    fn read_new_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut file = disk::read_without_links(&self.path)?;
        let len = file.metadata()?.len();
        if len < self.offset {
            (self.offset, self.parser) = (0, Parser::default());
        }
        let mut bytes = Vec::new();
        if len > self.offset {
            file.seek(SeekFrom::Start(self.offset))?;
            file.take(MAX_LINE_BYTES).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }
}
