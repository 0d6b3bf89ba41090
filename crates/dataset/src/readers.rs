//! Readers of text and table files, below anything that knows their purpose: encodings,
//! rows and columns of each format, and the table of formats.

// The interface of a reader, and text encodings.
mod text_encoding;
mod rows;

// One reader per format.
mod delimited;
mod json;
mod label_lines;
mod parquet_file;
mod parquet_headers;
mod whole_text;

// The first rows of a file, and the table of formats.
mod formats;
mod table_preview;
mod preview_tables;

pub(crate) use formats::{Dialect, FileFormat, OpenFile, Use};
pub(crate) use preview_tables::{Candidate, PreviewedTable, preview_tables};
pub(crate) use rows::Row;
pub(crate) use table_preview::{ChosenColumn, TablePreview, is_label_name};
