//! Readers of text and table files, below anything that knows their purpose: encodings,
//! rows and columns of each format, and the table of formats.

// The interface of a reader, and text encodings.
mod text_encoding;
mod rows;

// One reader per format.
mod delimited;
mod json;
mod label_then_text;
mod parquet_file;
mod parquet_header_limits;
mod parquet_nested;
mod parquet_page_sizes;
mod text_as_one_row;
mod text_in_parts;

// The first rows of a file, and the table of formats.
mod file_formats;
mod choose_columns;
mod preview_tables;

pub use file_formats::{is_table_file, is_text_file};

pub(crate) use choose_columns::{ChosenColumn, TablePreview, is_label_name};
pub(crate) use file_formats::{Dialect, FileFormat, OpenFile, Use, is_json_lines_file};
pub(crate) use preview_tables::{Candidate, PreviewedTable, preview_tables};
pub(crate) use rows::Row;
