//! The table of text and table formats. To add a format, write its reader and add one row to
//! [`FORMATS`].

use super::choose_columns::TablePreview;
use super::delimited::Delimited;
use super::json::Json;
use super::label_then_text::LabelLines;
use super::parquet_file;
use super::rows::{Contents, RowVisitor, Rows};
use super::text_as_one_row;
use super::text_encoding::{TextEncoding, decode};
use super::text_in_parts;
use crate::open_file::open_file;
use crate::user_messages::unreadable;
use format::format_bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::Read;
use std::path::Path;

/// Most bytes of a file, since a whole file is held in memory.
pub(crate) const MAX_FILE_BYTES: u64 = 512 << 20;
/// Plain texts of more bytes are read in parts, each of which is a document.
const MAX_WHOLE_TEXT_BYTES: u64 = 64 << 20;
/// Bytes from the beginning of a file that may show that its lines have no labels.
const HEAD_BYTES: u64 = 1 << 20;

/// A use of the files of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// They have rows and columns, which may be texts and labels.
    Rows,
    /// They are read as tables beside images.
    ImageTable,
    /// They, or their rows, may be documents without labels.
    Documents,
    /// Each may be a text whose class is its folder, or consist of lines with a label.
    LabeledTexts,
    /// They are data even in a folder of model weights, where notes and JSON are not.
    Data,
}

/// How files of a format are opened.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    /// Detects the dialect of the decoded text. The dialect is saved with the run.
    Text(fn(&str) -> Result<Dialect, String>),
    /// Reads the bytes; there are no dialects.
    Bytes(fn(Vec<u8>) -> Result<Contents, String>),
    /// Reads a file part by part; there are no dialects.
    Parts(fn(&Path) -> Result<Contents, String>),
}

/// One row of the format table.
pub(crate) struct FileFormat {
    /// Its name in the data file of a run. Never change it.
    pub key: &'static str,
    /// Extensions in lower case.
    pub extensions: &'static [&'static str],
    /// The uses of its files.
    pub uses: &'static [Use],
    /// How its files are opened.
    pub reader: Reader,
}

/// Every format. If a folder has the same table in two formats, the earlier format is read.
// tidy: table
#[rustfmt::skip]
pub(crate) const FORMATS: &[FileFormat] = &[
    FileFormat {
        key: "Csv",
        extensions: &["csv"],
        uses: &[Use::Rows, Use::ImageTable, Use::Data],
        reader: Reader::Text(|text| Delimited::detect_csv(text).map(Dialect::Delimited)),
    },
    FileFormat {
        key: "Tsv",
        extensions: &["tsv", "tab"],
        uses: &[Use::Rows, Use::ImageTable, Use::Data],
        reader: Reader::Text(|text| Delimited::detect_tsv(text).map(Dialect::Delimited)),
    },
    FileFormat {
        key: "JsonLines",
        extensions: &["jsonl", "ndjson"],
        uses: &[Use::Rows, Use::ImageTable, Use::Documents],
        reader: Reader::Text(|_| Ok(Dialect::Json(Json::Lines))),
    },
    FileFormat {
        key: "Json",
        extensions: &["json"],
        uses: &[Use::Rows, Use::ImageTable, Use::Documents],
        reader: Reader::Text(|text| Json::detect(text).map(Dialect::Json)),
    },
    FileFormat { key: "Parquet", extensions: &["parquet"], uses: &[Use::Rows, Use::Documents, Use::Data], reader: Reader::Bytes(parquet_file::open) },
    FileFormat { key: "Whole", extensions: &["txt", "text"], uses: &[Use::Documents, Use::LabeledTexts], reader: Reader::Bytes(text_as_one_row::open) },
    FileFormat { key: "Whole", extensions: &["md", "markdown"], uses: &[Use::Documents], reader: Reader::Bytes(text_as_one_row::open) },
    // Plain texts that are large, by their size.
    FileFormat { key: "Parts", extensions: &[], uses: &[Use::Documents], reader: Reader::Parts(text_in_parts::open) },
];

/// Whether the extension of a file is one of tables: each row may be a text.
pub fn is_table_file(path: &Path) -> bool {
    FileFormat::from_path(path).is_some_and(|format| format.is_for(Use::Rows))
}

/// Whether the extension of a file is one of plain texts: the whole file is one text.
pub fn is_text_file(path: &Path) -> bool {
    FileFormat::from_path(path).is_some_and(|format| !format.is_for(Use::Rows))
}

/// Whether the extension of a file is one of JSON lines.
pub(crate) fn is_json_lines_file(path: &Path) -> bool {
    FileFormat::from_path(path).is_some_and(|format| format.key == "JsonLines")
}

impl FileFormat {
    /// The format of a file by its extension.
    pub(crate) fn from_path(path: &Path) -> Option<&'static Self> {
        let extension = path.extension()?.to_str()?.to_lowercase();
        let has_extension = |f: &&Self| f.extensions.contains(&extension.as_str());
        FORMATS.iter().find(has_extension)
    }

    /// The format of one of `files` files. The only file may have a name without an extension; it
    /// is plain text then.
    pub(crate) fn from_path_among(path: &Path, files: usize) -> Option<&'static Self> {
        if files == 1 && path.extension().is_none() {
            return Self::from_key("Whole");
        }
        Self::from_path(path)
    }

    fn from_key(key: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.key == key)
    }

    /// Whether files of this format have this use.
    pub(crate) fn is_for(&self, wanted: Use) -> bool {
        self.uses.contains(&wanted)
    }

    /// Whether its files are not text: their rows are read from bytes.
    pub(crate) fn is_binary(&self) -> bool {
        matches!(self.reader, Reader::Bytes(_)) && self.is_for(Use::Rows)
    }

    /// Its position in the table: smaller is preferred.
    pub(crate) fn rank(&self) -> usize {
        let is_self = |format: &FileFormat| format.extensions == self.extensions;
        FORMATS.iter().position(is_self).unwrap_or(FORMATS.len())
    }

    /// How a file of this format is opened if no dialect has to be known.
    pub(crate) fn plain_dialect(&'static self) -> Dialect {
        Dialect::Plain(FormatKey(self))
    }

    /// How a file of documents in this format is opened if it has this many bytes.
    pub(crate) fn document_dialect(&'static self, bytes: u64) -> Dialect {
        let is_large = bytes > MAX_WHOLE_TEXT_BYTES && !self.is_for(Use::Rows);
        let parts = Self::from_key("Parts").filter(|_| is_large);
        parts.unwrap_or(self).plain_dialect()
    }
}

/// How one file is read. It is saved in the data file of a run, so that a resumed run reads the
/// same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// CSV or TSV.
    Delimited(Delimited),
    /// Lines that start with a label.
    LabelLines(LabelLines),
    /// JSON lines or a JSON list.
    Json(Json),
    /// A format without dialects, saved as its key.
    #[serde(untagged)]
    Plain(FormatKey),
}

impl Dialect {
    /// Whether the file is one text from its first to its last byte.
    pub(crate) fn is_whole_text(self) -> bool {
        matches!(self, Dialect::Plain(FormatKey(format)) if !format.is_for(Use::Rows))
    }

    /// Whether its texts have the line ends of the file. JSON and Parquet files store line ends as
    /// part of a value.
    pub(crate) fn has_line_ends(self) -> bool {
        match self {
            Dialect::Delimited(_) | Dialect::LabelLines(_) => true,
            Dialect::Json(_) => false,
            Dialect::Plain(_) => self.is_whole_text(),
        }
    }

    /// Whether each part of the file is a document.
    pub(crate) fn has_parts(self) -> bool {
        matches!(self, Dialect::Plain(FormatKey(format)) if matches!(format.reader, Reader::Parts(_)))
    }

    /// Whether each line of the file starts with a label.
    pub(crate) fn has_label_lines(self) -> bool {
        matches!(self, Dialect::LabelLines(_))
    }

    /// The number of columns if they have no names.
    pub(crate) fn unnamed_columns(self, columns: &[String]) -> Option<usize> {
        match self {
            Dialect::Delimited(delimited) if !delimited.header => Some(columns.len()),
            _ => None,
        }
    }

    fn columns(self, text: &str) -> Vec<String> {
        match self {
            Dialect::Delimited(delimited) => delimited.columns(text),
            Dialect::LabelLines(_) => vec!["label".to_owned(), "text".to_owned()],
            Dialect::Json(json) => json.columns(text),
            Dialect::Plain(_) => Vec::new(),
        }
    }
}

/// A format that is saved as its key.
#[derive(Clone, Copy)]
pub(crate) struct FormatKey(&'static FileFormat);

impl std::fmt::Debug for FormatKey {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.0.key)
    }
}

impl PartialEq for FormatKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for FormatKey {}

impl Serialize for FormatKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.key)
    }
}

impl<'de> Deserialize<'de> for FormatKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        let unknown = || serde::de::Error::custom(format!("no text format is called {key}"));
        FileFormat::from_key(&key)
            .map(FormatKey)
            .ok_or_else(unknown)
    }
}

/// An open file. It has the same rows whenever it is opened.
pub(crate) struct OpenFile {
    /// How it is read.
    pub dialect: Dialect,
    contents: Contents,
}

impl OpenFile {
    /// Opens a file for the first time, and detects its dialect.
    pub(crate) fn open(path: &Path, format: &'static FileFormat) -> Result<Self, String> {
        match format.reader {
            Reader::Bytes(read) => Ok(Self {
                dialect: format.plain_dialect(),
                contents: read(read_file(path)?)?,
            }),
            Reader::Parts(open) => Ok(Self {
                dialect: format.plain_dialect(),
                contents: open(path).or_else(|reason| {
                    // Another encoding can only be decoded as a whole.
                    let whole = read_file(path).and_then(text_as_one_row::open);
                    whole.map_err(|_| reason)
                })?,
            }),
            Reader::Text(detect) => {
                let (text, encoding) = decode_lines(read_file(path)?)?;
                Ok(Self::from_text(detect(&text)?, text, encoding))
            }
        }
    }

    /// Opens a file whose dialect is known.
    pub(crate) fn reopen(path: &Path, dialect: Dialect) -> Result<Self, String> {
        if let Dialect::Plain(FormatKey(format)) = dialect {
            return Self::open(path, format);
        }
        let (text, encoding) = decode_lines(read_file(path)?)?;
        Ok(Self::from_text(dialect, text, encoding))
    }

    /// Opens a plain file whose lines all start with a label; `None` if they do not.
    pub(crate) fn open_label_lines(path: &Path) -> Result<Option<Self>, String> {
        if read_head(path).is_some_and(|head| !LabelLines::is_possible(&head)) {
            return Ok(None);
        }
        let (text, encoding) = decode_lines(read_file(path)?)?;
        let found = LabelLines::detect(&text).map(Dialect::LabelLines);
        Ok(found.map(|dialect| Self::from_text(dialect, text, encoding)))
    }

    fn from_text(dialect: Dialect, text: String, encoding: TextEncoding) -> Self {
        let columns = dialect.columns(&text);
        let rows = Box::new(DialectRows {
            text,
            dialect,
            columns: columns.clone(),
        });
        Self {
            dialect,
            contents: Contents {
                columns,
                encoding,
                rows,
            },
        }
    }

    /// How its text was decoded. Complete once all rows were visited.
    pub(crate) fn encoding(&self) -> TextEncoding {
        let encoding = self.contents.encoding;
        TextEncoding {
            replaced_bytes: encoding.replaced_bytes + self.contents.rows.replaced_bytes(),
            ..encoding
        }
    }

    /// Names of its columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.contents.columns
    }

    /// Visits its rows in the columns `wanted`, given by index.
    pub(crate) fn visit(&self, wanted: &[usize], visit: &mut RowVisitor) {
        self.contents.rows.visit(wanted, visit);
    }

    /// Reads the first rows, from which columns are chosen.
    pub(crate) fn preview(&self) -> TablePreview {
        TablePreview::read(&self.contents.columns, self.contents.rows.as_ref())
    }
}

/// The rows of a text in a dialect.
struct DialectRows {
    text: String,
    dialect: Dialect,
    columns: Vec<String>,
}

impl Rows for DialectRows {
    fn visit(&self, wanted: &[usize], visit: &mut RowVisitor) {
        match self.dialect {
            Dialect::Delimited(delimited) => {
                delimited.visit(&self.text, self.columns.len(), wanted, visit)
            }
            Dialect::LabelLines(lines) => lines.visit(&self.text, wanted, visit),
            Dialect::Json(json) => json.visit(&self.text, &self.columns, wanted, visit),
            Dialect::Plain(_) => {}
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let file = open_file(path).map_err(|error| unreadable(&error))?;
    let bytes = file.metadata().map_err(|error| unreadable(&error))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(format!(
            "The file has {}; Ebb reads at most {} from one file. Split this file into smaller files.",
            format_bytes(bytes),
            format_bytes(MAX_FILE_BYTES)
        ));
    }
    let mut contents = Vec::with_capacity(bytes as usize);
    // The file may be growing.
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut contents)
        .map_err(|error| unreadable(&error))?;
    Ok(contents)
}

/// The whole lines at the beginning of a file of UTF-8 that has more; `None` for other files.
fn read_head(path: &Path) -> Option<String> {
    let file = open_file(path).ok()?;
    if file.metadata().ok()?.len() <= HEAD_BYTES {
        return None;
    }
    let mut head = Vec::with_capacity(HEAD_BYTES as usize);
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let end = head.iter().rposition(|byte| *byte == b'\n')?;
    head.truncate(end);
    String::from_utf8(head).ok()
}

/// Decodes a text by lines. Files of old Macs end their lines with a carriage return alone.
fn decode_lines(bytes: Vec<u8>) -> Result<(String, TextEncoding), String> {
    let (text, encoding) = decode(bytes)?;
    if text.contains('\r') && !text.contains('\n') {
        return Ok((text.replace('\r', "\n"), encoding));
    }
    Ok((text, encoding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_belongs_to_one_format() {
        let mut all: Vec<&str> = FORMATS.iter().flat_map(|f| f.extensions).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for extension in all {
            let path = Path::new("rows").with_extension(extension.to_uppercase());
            let format = FileFormat::from_path(&path).expect("the extension is in the table");
            assert!(format.extensions.contains(&extension));
            assert!(format.is_for(Use::Rows) || format.is_for(Use::Documents));
            assert!(is_table_file(&path) != is_text_file(&path));
            assert_eq!(format.is_binary(), extension == "parquet");
        }
    }

    #[test]
    fn a_file_is_a_table_or_a_text_by_its_extension() {
        for name in ["a.csv", "a.TAB", "a.ndjson", "a.json", "a.parquet"] {
            assert!(is_table_file(name.as_ref()), "{name}");
        }
        for name in ["a.txt", "a.TEXT", "a.md", "a.markdown"] {
            assert!(is_text_file(name.as_ref()), "{name}");
        }
        for name in ["a", "a.jpg", ".csv"] {
            let path: &Path = name.as_ref();
            assert!(!is_table_file(path) && !is_text_file(path), "{name}");
        }
    }

    #[test]
    fn only_large_plain_texts_are_read_in_parts() {
        let dialect = |name: &str, bytes: u64| {
            let format = FileFormat::from_path(name.as_ref()).expect("it is in the table");
            format.document_dialect(bytes)
        };
        for name in ["a.txt", "a.md"] {
            assert!(!dialect(name, MAX_WHOLE_TEXT_BYTES).has_parts());
            let large = dialect(name, MAX_WHOLE_TEXT_BYTES + 1);
            assert!(large.has_parts() && large.is_whole_text());
        }
        assert!(!dialect("a.parquet", u64::MAX).has_parts());
    }

    #[test]
    fn a_large_file_without_labels_is_known_by_its_beginning() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("large.txt");
        let lines = |count: usize, more: &str| {
            let lines = (0..count).map(|n| ["ham\tsee you\n", "spam\tyou won\n"][n % 2]);
            let text = lines.collect::<String>() + more;
            std::fs::write(&path, text).expect("it can be written");
            OpenFile::open_label_lines(&path)
        };
        assert!(read_head(&path).is_none());
        let labeled = lines(200_000, "").expect("it can be read");
        assert!(labeled.is_some() && read_head(&path).is_some());
        let other = lines(200_000, "unlabeled\n").expect("it can be read");
        assert!(other.is_none());
        let prose: String = (0..100_000).map(|n| format!("{n} bottles\n")).collect();
        std::fs::write(&path, prose).expect("it can be written");
        assert!(read_head(&path).is_some_and(|head| !LabelLines::is_possible(&head)));
        assert!(OpenFile::open_label_lines(&path).is_ok_and(|file| file.is_none()));
    }

    #[test]
    fn dialects_are_saved_under_the_same_names_as_ever() {
        let delimited = r#"{"Delimited":{"delimiter":44,"quoting":true,"header":true}}"#;
        for json in [
            delimited,
            r#"{"LabelLines":"Tab"}"#,
            r#"{"Json":"Lines"}"#,
            r#"{"Json":"List"}"#,
            r#""Parquet""#,
            r#""Whole""#,
            r#""Parts""#,
        ] {
            let dialect: Dialect = serde_json::from_str(json).expect("it was written by Ebb");
            assert_eq!(serde_json::to_string(&dialect).ok().as_deref(), Some(json));
        }
        assert!(serde_json::from_str::<Dialect>(r#""Papyrus""#).is_err());
    }
}
