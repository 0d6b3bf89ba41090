//! Reads the flat columns of a Parquet file: texts, numbers and booleans. Checks the sizes that
//! headers declare before the library follows them, so that a small file cannot unpack to
//! gigabytes. Nested columns are ignored, except those that may be parts of a conversation.

use super::parquet_header_limits;
use super::parquet_nested::{NestedColumn, nested_cells, nested_columns};
use super::parquet_page_sizes::unpacks_to_more;
use super::rows::{Contents, Row, RowVisitor, Rows};
use super::text_encoding::TextEncoding;
use bytes::Bytes;
use format::{format_bytes, format_count};
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most bytes of an unpacked page. Writers make pages of about one megabyte.
const MAX_PAGE_BYTES: u64 = 64 << 20;
/// Most bytes of all unpacked pages of a column.
const MAX_UNPACKED_BYTES: u64 = 2 << 30;
/// Most bytes of the footer.
const MAX_FOOTER_BYTES: usize = 16 << 20;
/// Rows read at once.
const BATCH_ROWS: usize = 512;
/// Rows of nested columns read at once.
const NESTED_BATCH_ROWS: usize = 8;
/// Most values of a nested column in a row group: for each row, and in all.
const MAX_ROW_VALUES: u64 = 1_000;
const MAX_GROUP_VALUES: u64 = 16 << 20;
/// Bytes of cells that any file may have. A dictionary repeats a cell at no cost in the file.
const MIN_CELL_BYTES: u64 = 64 << 20;
/// Most bytes of cells for each byte of a larger file.
const MAX_EXPANSION: u64 = 256;

/// Opens a Parquet file.
pub(crate) fn open(bytes: Vec<u8>) -> Result<Contents, String> {
    let file = ParquetFile::open(bytes)?;
    Ok(Contents {
        columns: file.column_names(),
        encoding: TextEncoding::UTF_8,
        rows: Box::new(file),
    })
}

/// An open file whose sizes were checked.
struct ParquetFile {
    bytes: Bytes,
    reader: SerializedFileReader<Bytes>,
    /// Flat columns: name, and index among all leaf columns.
    columns: Vec<(String, usize)>,
    /// Nested columns, which come after the flat ones.
    nested: Vec<NestedColumn>,
    /// Class names of integer columns, if the file has them.
    names: HashMap<String, Vec<String>>,
}

impl ParquetFile {
    fn open(bytes: Vec<u8>) -> Result<Self, String> {
        check_footer(&bytes)?;
        let bytes = Bytes::from(bytes);
        let reader = guarded(|| SerializedFileReader::new(bytes.clone()))?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        let columns: Vec<(String, usize)> = (0..schema.num_columns())
            .filter(|i| {
                let column = schema.column(*i);
                let flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
                flat && !matches!(
                    column.physical_type(),
                    Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY
                )
            })
            .map(|i| (schema.column(i).name().to_owned(), i))
            .collect();
        let names = label_names(&reader);
        let nested = nested_columns(&schema);
        let file = Self {
            bytes,
            reader,
            columns,
            nested,
            names,
        };
        file.check_pages()?;
        file.check_nested_pages()?;
        Ok(file)
    }

    fn column_names(&self) -> Vec<String> {
        let flat = self.columns.iter().map(|(name, _)| name.clone());
        flat.chain(self.nested.iter().map(|column| column.name.clone()))
            .collect()
    }

    fn visit_group(
        &self,
        group: usize,
        wanted: &[usize],
        progress: &mut Progress,
        visit: &mut RowVisitor,
    ) -> Result<bool, String> {
        let group = self
            .reader
            .get_row_group(group)
            .map_err(|error| short(&error))?;
        let (mut readers, batch) = self.open_columns(&*group, wanted)?;
        loop {
            let mut columns: Vec<ColumnBatch> = Vec::new();
            for reader in &mut readers {
                columns.push(match reader {
                    CellReader::Flat(reader, names) => read(reader, batch, *names)?,
                    CellReader::Nested(rows) => ColumnBatch::Values(nested_cells(rows, batch)?),
                });
            }
            let rows = columns.iter().map(ColumnBatch::len).min().unwrap_or(0);
            if rows == 0 {
                return Ok(true);
            }
            for n in 0..rows {
                let cells: Vec<Option<Cow<str>>> =
                    columns.iter().map(|column| column.cell(n)).collect();
                let bytes: usize = cells.iter().flatten().map(|cell| cell.len()).sum();
                progress.cell_bytes += bytes as u64;
                progress.rows += 1;
                if progress.cell_bytes > self.max_cell_bytes() {
                    visit(progress.rows, Row::Fault(self.expands_too_much().into()));
                    return Ok(false);
                }
                if !visit(progress.rows, Row::Cells(&cells)) {
                    return Ok(false);
                }
            }
        }
    }

    /// Opens columns of a row group, and decides how many rows are read at once.
    fn open_columns<'g>(
        &'g self,
        group: &'g dyn RowGroupReader,
        wanted: &[usize],
    ) -> Result<(Vec<CellReader<'g, 'g>>, usize), String> {
        let mut readers = Vec::new();
        let mut batch = BATCH_ROWS;
        for i in wanted {
            let Some((name, place)) = self.columns.get(*i) else {
                let column = i.checked_sub(self.columns.len());
                let column = column.and_then(|index| self.nested.get(index));
                let column = column.ok_or_else(|| "a column is missing".to_owned())?;
                readers.push(CellReader::Nested(Box::new(column.rows(group)?)));
                batch = batch.min(NESTED_BATCH_ROWS);
                continue;
            };
            // With this encoding each value may repeat the previous one, page after page, so that a
            // batch could take gigabytes.
            if group
                .metadata()
                .column(*place)
                .encodings()
                .any(|e| e == Encoding::DELTA_BYTE_ARRAY)
            {
                batch = 1;
            }
            let reader = group
                .get_column_reader(*place)
                .map_err(|error| short(&error))?;
            readers.push(CellReader::Flat(Box::new(reader), self.names.get(name)));
        }
        Ok((readers, batch))
    }

    /// Most bytes of cells that one visit reads.
    fn max_cell_bytes(&self) -> u64 {
        let expanded = MAX_EXPANSION.saturating_mul(self.bytes.len() as u64);
        expanded.clamp(MIN_CELL_BYTES, MAX_UNPACKED_BYTES)
    }

    fn expands_too_much(&self) -> String {
        format!(
            "the rows up to this one take more than {} when unpacked; the rest of the file was not read",
            format_bytes(self.max_cell_bytes())
        )
    }

    /// Limits the values of nested columns, which take more memory than their bytes.
    fn check_nested_pages(&self) -> Result<(), String> {
        let leaves = self.nested.iter().flat_map(|column| &column.leaves);
        for (leaf, group) in leaves.flat_map(|leaf| {
            let groups = self.reader.metadata().row_groups().iter();
            groups.map(move |group| (*leaf, group))
        }) {
            let column = group.column(leaf);
            if column
                .encodings()
                .any(|it| it == Encoding::DELTA_BYTE_ARRAY)
            {
                return Err(
                    "A nested column is encoded with delta_byte_array, which is not supported. Save the file with plain or dictionary encoding."
                        .to_owned(),
                );
            }
            let rows = u64::try_from(group.num_rows()).map_err(|_| damaged())?;
            let most = rows.saturating_mul(MAX_ROW_VALUES).min(MAX_GROUP_VALUES);
            if self.declared_size(column)?.values > most {
                return Err(format!(
                    "A nested column has more than {} values in a row group. Save the file with smaller row groups.",
                    format_count(most)
                ));
            }
        }
        Ok(())
    }

    /// Checks the declared page sizes of every column that may be read.
    fn check_pages(&self) -> Result<(), String> {
        let nested = self.nested.iter().flat_map(|column| &column.leaves);
        for place in self.columns.iter().map(|(_, place)| place).chain(nested) {
            let mut unpacked = 0u64;
            for group in self.reader.metadata().row_groups() {
                let column = group.column(*place);
                let codec = column.compression();
                if matches!(codec, Compression::LZO) {
                    let name = format!("{codec:?}").to_lowercase();
                    let name = name.split('(').next().unwrap_or_default();
                    return Err(format!(
                        "The file is compressed with {name}, which is not supported. Save the file with snappy or zstd compression."
                    ));
                }
                unpacked += self.declared_size(column)?.bytes;
                if unpacked > MAX_UNPACKED_BYTES {
                    return Err(format!(
                        "A column would take more than {} when unpacked. Split this file into smaller files.",
                        format_bytes(MAX_UNPACKED_BYTES)
                    ));
                }
            }
        }
        Ok(())
    }

    /// What the pages of a column declare to unpack to.
    fn declared_size(&self, column: &ColumnChunkMetaData) -> Result<DeclaredSize, String> {
        // Some writers leave an offset at 0; the first page is at the smaller of the others.
        let offsets = [
            column.dictionary_page_offset(),
            Some(column.data_page_offset()),
        ];
        let first = offsets
            .into_iter()
            .flatten()
            .filter(|offset| *offset > 0)
            .min();
        let (Ok(start), Ok(length)) = (
            usize::try_from(first.unwrap_or(4)),
            usize::try_from(column.compressed_size()),
        ) else {
            return Err(damaged());
        };
        let end = start
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len());
        let Some(mut rest) = end.and_then(|end| self.bytes.get(start..end.max(start))) else {
            return Err(damaged());
        };
        let mut declared = DeclaredSize::default();
        while !rest.is_empty() {
            let page = match parquet_header_limits::read_page_header(rest) {
                Ok(page) => page,
                // Padding after the last page.
                Err(_) if declared.bytes > 0 => break,
                Err(_) => return Err(damaged()),
            };
            if page.unpacked_bytes > MAX_PAGE_BYTES {
                return Err(format!(
                    "A page of this Parquet file would take {} when unpacked; at most {} are supported. Save the file with smaller pages.",
                    format_bytes(page.unpacked_bytes),
                    format_bytes(MAX_PAGE_BYTES)
                ));
            }
            declared.bytes += page.unpacked_bytes;
            declared.values += page.values;
            let next = page.header_bytes as u64 + page.packed_bytes;
            let next = usize::try_from(next).unwrap_or(usize::MAX);
            let packed = rest.get(page.header_bytes..next.min(rest.len()));
            if unpacks_to_more(column.compression(), page, packed.unwrap_or_default()) {
                return Err(
                    "A page of this Parquet file is larger than its header declares. Copy the file here again."
                        .to_owned(),
                );
            }
            rest = rest.get(next..).unwrap_or_default();
        }
        Ok(declared)
    }
}

/// What the pages of a column declare.
#[derive(Debug, Clone, Copy, Default)]
struct DeclaredSize {
    /// Unpacked bytes.
    bytes: u64,
    values: u64,
}

impl Rows for ParquetFile {
    /// Rows are counted from 1. Visiting ends at the first damage, which is reported as a fault.
    fn visit(&self, wanted: &[usize], visit: &mut RowVisitor) {
        let mut progress = Progress::default();
        for group in 0..self.reader.num_row_groups() {
            match guarded(|| Ok(self.visit_group(group, wanted, &mut progress, visit))) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return,
                Ok(Err(reason)) | Err(reason) => {
                    let reason = format!(
                        "the file is damaged here ({reason}); the rest of the file was not read"
                    );
                    visit(progress.rows + 1, Row::Fault(reason.into()));
                    return;
                }
            }
        }
    }
}

/// How much of a file one visit has read.
#[derive(Default)]
struct Progress {
    rows: u64,
    cell_bytes: u64,
}

/// The next cells of a column.
enum ColumnBatch<'n> {
    /// Numbers, booleans and the names of classes.
    Values(Vec<Option<Cow<'n, str>>>),
    /// Texts. They share the memory of their page or dictionary, so a text that the file repeats is
    /// in memory once.
    Texts(Vec<Option<ByteArray>>),
}

impl ColumnBatch<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Values(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }

    fn cell(&self, row: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Values(cells) => cells[row].as_deref().map(Cow::Borrowed),
            Self::Texts(cells) => {
                let text = cells[row].as_ref();
                text.map(|text| String::from_utf8_lossy(text.data()))
            }
        }
    }
}

fn damaged() -> String {
    "This Parquet file is damaged. Copy the file here again.".to_owned()
}

fn check_footer(bytes: &[u8]) -> Result<(), String> {
    let Some((rest, [a, b, c, d, mark @ ..])) = bytes.split_last_chunk::<8>() else {
        return Err(damaged());
    };
    if mark == b"PARE" {
        return Err("This Parquet file is encrypted. Save the file without encryption.".to_owned());
    }
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    if mark != b"PAR1" || !bytes.starts_with(b"PAR1") || length > rest.len() {
        return Err(
            "This is not a Parquet file, or the file is incomplete. Copy the file here again."
                .to_owned(),
        );
    }
    if length > MAX_FOOTER_BYTES {
        return Err(format!(
            "The footer of this Parquet file is larger than {}. Save the file with fewer row groups.",
            format_bytes(MAX_FOOTER_BYTES as u64)
        ));
    }
    parquet_header_limits::check_footer(&rest[rest.len() - length..]).map_err(|_| damaged())
}

/// Runs the library on a hostile file: a panic costs the file, not the process.
fn guarded<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!(
            "This Parquet file is damaged: {}. Copy the file here again.",
            short(&error)
        )),
        Err(_) => Err(damaged()),
    }
}

fn short(error: &parquet::errors::ParquetError) -> String {
    let text = error.to_string();
    let line = text
        .lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.');
    line.chars().take(120).collect()
}

/// Reads the cells of a column.
enum CellReader<'g, 'n> {
    /// With class names, if the column has them.
    Flat(Box<ColumnReader>, Option<&'n Vec<String>>),
    Nested(Box<RowIter<'g>>),
}

/// Reads the next cells of a column.
fn read<'n>(
    reader: &mut ColumnReader,
    batch: usize,
    names: Option<&'n Vec<String>>,
) -> Result<ColumnBatch<'n>, String> {
    let number = |n: i64| -> Cow<'n, str> {
        match names.and_then(|names| names.get(usize::try_from(n).ok()?)) {
            Some(name) => Cow::Borrowed(name.as_str()),
            None => Cow::Owned(n.to_string()),
        }
    };
    let values: Result<Vec<Option<Cow<'n, str>>>, String> = match reader {
        ColumnReader::BoolColumnReader(r) => typed(r, batch, |v| Cow::Owned(v.to_string())),
        ColumnReader::Int32ColumnReader(r) => typed(r, batch, |v| number(i64::from(*v))),
        ColumnReader::Int64ColumnReader(r) => typed(r, batch, |v| number(*v)),
        ColumnReader::FloatColumnReader(r) => typed(r, batch, |v| Cow::Owned(v.to_string())),
        ColumnReader::DoubleColumnReader(r) => typed(r, batch, |v| Cow::Owned(v.to_string())),
        ColumnReader::ByteArrayColumnReader(r) => {
            return typed(r, batch, ByteArray::clone).map(ColumnBatch::Texts);
        }
        _ => Err("a column has an unsupported type".to_owned()),
    };
    values.map(ColumnBatch::Values)
}

fn typed<T: DataType, C>(
    reader: &mut ColumnReaderImpl<T>,
    batch: usize,
    to_cell: impl Fn(&T::T) -> C,
) -> Result<Vec<Option<C>>, String> {
    let (mut present, mut values) = (Vec::new(), Vec::new());
    let (rows, _, _) = reader
        .read_records(batch, Some(&mut present), None, &mut values)
        .map_err(|error| short(&error))?;
    // A required column has no definition levels.
    if present.is_empty() {
        return Ok(values.iter().map(|value| Some(to_cell(value))).collect());
    }
    let mut next = values.iter();
    let mut cells = Vec::with_capacity(rows);
    for level in present {
        cells.push(if level > 0 {
            next.next().map(&to_cell)
        } else {
            None
        });
    }
    Ok(cells)
}

/// Class names of integer columns, as the Hugging Face `datasets` library saves them in the file.
fn label_names(reader: &SerializedFileReader<Bytes>) -> HashMap<String, Vec<String>> {
    let about = reader.metadata().file_metadata().key_value_metadata();
    let text = about
        .into_iter()
        .flatten()
        .find(|pair| pair.key == "huggingface")
        .and_then(|pair| pair.value.as_deref());
    let about: serde_json::Value = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let features = about["info"]["features"].as_object();
    features
        .into_iter()
        .flatten()
        .filter_map(|(column, feature)| {
            let names = feature["names"].as_array()?;
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            Some((column.clone(), names.collect::<Option<Vec<_>>>()?))
        })
        .collect()
}
