//! One file of texts, opened: its format, its columns and its rows. Reads a file whole, but never one that is larger than a
//! limit; a file is the same rows whenever it is opened. Knows neither labels nor parts.

use super::cells::{Row, Visit};
use super::columns::Glance;
use super::delimited::{Delimited, LabelLines};
use super::encoding::{Decoded, decode};
use super::json::Json;
use super::parquet_file::ParquetFile;
use crate::header::lost;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the largest file that is read: it is held in memory while it is looked at.
pub(crate) const MAX_FILE_BYTES: u64 = 512 << 20;
/// Rows looked at to choose columns.
const GLANCED_ROWS: usize = 2000;

/// What a file of texts is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Format {
    /// CSV or TSV.
    Delimited(Delimited),
    /// `label text` lines.
    LabelLines(LabelLines),
    /// JSON lines or a JSON list.
    Json(Json),
    /// Parquet.
    Parquet,
    /// One text from the first byte to the last.
    Whole,
}

/// What a file claims to be by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// `.csv`
    Csv,
    /// `.tsv`, `.tab`
    Tsv,
    /// `.jsonl`, `.ndjson`
    JsonLines,
    /// `.json`
    Json,
    /// `.parquet`
    Parquet,
    /// `.txt`, `.text`
    Plain,
    /// `.md`, `.markdown`
    Markdown,
}

impl Claim {
    /// By the end of the name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let end = path.extension()?.to_str()?.to_lowercase();
        Some(match end.as_str() {
            "csv" => Self::Csv,
            "tsv" | "tab" => Self::Tsv,
            "jsonl" | "ndjson" => Self::JsonLines,
            "json" => Self::Json,
            "parquet" => Self::Parquet,
            "txt" | "text" => Self::Plain,
            "md" | "markdown" => Self::Markdown,
            _ => return None,
        })
    }

    /// A file that was given alone may have a name without an end: it is read as plain text.
    pub(crate) fn of_single(path: &Path, files: usize) -> Option<Self> {
        let nameless = files == 1 && path.extension().is_none();
        Self::of(path).or(nameless.then_some(Self::Plain))
    }

    /// It has rows and columns.
    pub(crate) fn is_table(self) -> bool {
        !matches!(self, Self::Plain | Self::Markdown)
    }

    /// Its rows may be documents without any label.
    pub(crate) fn may_hold_documents(self) -> bool {
        !matches!(self, Self::Csv | Self::Tsv)
    }
}

/// How a file's text was had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coded {
    /// `UTF-8`, `windows-1252`; Parquet keeps its own.
    pub encoding: &'static str,
    /// It began with a byte-order mark.
    pub mark: bool,
    /// Bytes read by a guessed encoding.
    pub guessed_bytes: u64,
    /// Bytes that mean nothing in it.
    pub replaced_bytes: u64,
}

/// An open file.
pub(crate) struct Source {
    /// Its format.
    pub format: Format,
    /// Its columns.
    pub columns: Vec<String>,
    /// How its text was had.
    pub coded: Coded,
    content: Content,
}

enum Content {
    Text(String),
    Parquet(Box<ParquetFile>),
}

impl Source {
    /// Opens a table by what it claims to be.
    pub(crate) fn table(path: &Path, claim: Claim) -> Result<Self, String> {
        let bytes = read(path)?;
        if claim == Claim::Parquet {
            return Self::parquet(bytes);
        }
        let (text, coded) = rows_of(bytes)?;
        let format = match claim {
            Claim::Csv => Format::Delimited(Delimited::csv(&text)),
            Claim::Tsv => Format::Delimited(Delimited::tsv(&text)),
            Claim::JsonLines => Format::Json(Json::Lines),
            _ => match Json::of_json(&text) {
                Some(json) => Format::Json(json),
                None => {
                    return Err("It is no list of JSON objects. Save one object a line, or one list of them.".to_owned());
                }
            },
        };
        Ok(Self::of(format, text, coded))
    }

    /// Opens a file in a format that is known.
    pub(crate) fn open(path: &Path, format: Format) -> Result<Self, String> {
        let bytes = read(path)?;
        match format {
            Format::Parquet => Self::parquet(bytes),
            Format::Whole => {
                let (text, coded) = text_of(bytes)?;
                Ok(Self::of(format, text, coded))
            }
            _ => {
                let (text, coded) = rows_of(bytes)?;
                Ok(Self::of(format, text, coded))
            }
        }
    }

    /// Opens a plain file: `label text` lines where all of them are, else one text.
    pub(crate) fn lines(path: &Path) -> Result<Option<Self>, String> {
        let (text, coded) = rows_of(read(path)?)?;
        let found = LabelLines::find(&text);
        Ok(found.map(|kind| Self::of(Format::LabelLines(kind), text, coded)))
    }

    fn parquet(bytes: Vec<u8>) -> Result<Self, String> {
        let file = ParquetFile::open(bytes)?;
        Ok(Self {
            format: Format::Parquet,
            columns: file.columns(),
            coded: Coded {
                encoding: "UTF-8",
                mark: false,
                guessed_bytes: 0,
                replaced_bytes: 0,
            },
            content: Content::Parquet(Box::new(file)),
        })
    }

    fn of(format: Format, text: String, coded: Coded) -> Self {
        let columns = match format {
            Format::Delimited(kind) => kind.columns(&text),
            Format::LabelLines(_) => vec!["label".to_owned(), "text".to_owned()],
            Format::Json(kind) => kind.columns(&text),
            Format::Parquet | Format::Whole => vec!["text".to_owned()],
        };
        Self {
            format,
            columns,
            coded,
            content: Content::Text(text),
        }
    }

    /// Visits the rows in these columns.
    pub(crate) fn visit(&self, wanted: &[usize], visit: &mut Visit) {
        match (&self.content, self.format) {
            (Content::Parquet(file), _) => file.visit(wanted, visit),
            (Content::Text(text), Format::Delimited(kind)) => kind.visit(text, wanted, visit),
            (Content::Text(text), Format::LabelLines(kind)) => kind.visit(text, wanted, visit),
            (Content::Text(text), Format::Json(kind)) => {
                kind.visit(text, &self.columns, wanted, visit)
            }
            (Content::Text(text), _) => {
                let cells: Vec<_> = wanted
                    .iter()
                    .map(|_| Some(Cow::Borrowed(text.as_str())))
                    .collect();
                visit(1, Row::Cells(&cells));
            }
        }
    }

    /// Looks at the first rows to choose columns.
    pub(crate) fn sample_fast(&self) -> Glance {
        let mut glance = Glance::at(self.columns.clone());
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.visit(&all, &mut |_, row| {
            if let Row::Cells(cells) = row {
                glance.take(cells);
            }
            glance.rows < GLANCED_ROWS
        });
        glance
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| lost(&error))?;
    let bytes = file.metadata().map_err(|error| lost(&error))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "It has {} MB; at most {} are read from one file. Cut it into smaller files.",
            bytes / 1_000_000,
            MAX_FILE_BYTES / 1_000_000
        ));
    }
    let mut read = Vec::with_capacity(bytes as usize);
    // The file may be growing.
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut read)
        .map_err(|error| lost(&error))?;
    Ok(read)
}

fn text_of(bytes: Vec<u8>) -> Result<(String, Coded), String> {
    let Decoded {
        text,
        encoding,
        mark,
        guessed_bytes,
        replaced_bytes,
    } = decode(bytes)?;
    let coded = Coded {
        encoding,
        mark,
        guessed_bytes,
        replaced_bytes,
    };
    Ok((text, coded))
}

/// Text whose lines end as lines do: an old Mac's file has carriage returns alone.
fn rows_of(bytes: Vec<u8>) -> Result<(String, Coded), String> {
    let (text, coded) = text_of(bytes)?;
    match text.contains('\r') && !text.contains('\n') {
        true => Ok((text.replace('\r', "\n"), coded)),
        false => Ok((text, coded)),
    }
}
