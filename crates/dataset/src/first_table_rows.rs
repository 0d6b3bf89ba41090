//! The first rows of a table, for the window.

use crate::detected_dataset::DetectedDataset;
use crate::folder_listing::Listing;
use crate::options::StopReading;
use crate::readers::{FileFormat, OpenFile, Row, Use};
use crate::text_preview::shortened;
use std::path::{Path, PathBuf};

/// Characters of a cell that are shown.
const CELL_CHARACTERS: usize = 120;

/// The first rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRows {
    /// Its path, relative to the folder.
    pub file: PathBuf,
    /// Names of its columns.
    pub columns: Vec<String>,
    /// The beginning of each cell, row by row; empty if the cell is.
    pub rows: Vec<Vec<String>>,
}

/// The first rows of the table that a dataset is read from, or else of the first table in the
/// folder at `path`, which may be a file itself. `None` if there is no table that can be read.
pub fn table_rows(path: &Path, found: Option<&DetectedDataset>, rows: usize) -> Option<TableRows> {
    let (folder, file) = used_table(found).or_else(|| first_table(path))?;
    let opened = OpenFile::open(&folder.join(&file), FileFormat::from_path(&file)?).ok()?;
    let columns = opened.columns().to_vec();
    let all: Vec<usize> = (0..columns.len()).collect();
    let mut first = Vec::new();
    opened.visit(&all, &mut |_, row| {
        if let Row::Cells(cells) = row {
            let text = |cell: Option<&str>| shortened(cell.unwrap_or_default(), CELL_CHARACTERS);
            first.push(cells.iter().map(|cell| text(cell.as_deref())).collect());
        }
        first.len() < rows
    });
    Some(TableRows {
        file,
        columns,
        rows: first,
    })
}

fn is_table(file: &Path) -> bool {
    FileFormat::from_path(file).is_some_and(|format| format.is_for(Use::Rows))
}

/// The folder and the table that classes, targets or texts come from.
fn used_table(found: Option<&DetectedDataset>) -> Option<(PathBuf, PathBuf)> {
    match found? {
        DetectedDataset::Images(found) => Some((found.folder.clone(), found.table.clone()?)),
        DetectedDataset::Texts(found) => {
            let file = found.files.iter().find(|file| is_table(&file.path))?;
            Some((found.folder.clone(), file.path.clone()))
        }
    }
}

fn first_table(path: &Path) -> Option<(PathBuf, PathBuf)> {
    if path.is_file() {
        let file = PathBuf::from(path.file_name()?);
        return is_table(&file).then_some((path.parent()?.to_owned(), file));
    }
    let listing = Listing::from_folder(path, &StopReading::default(), &|_| {}).ok()?;
    let tables = listing.files.into_iter().map(|entry| entry.path);
    let table = tables.filter(|file| is_table(file)).min()?;
    Some((listing.root, table.into_path_buf()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InspectOptions, TextOptions, detect};

    #[test]
    fn the_first_rows_are_read_with_their_columns() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notes.csv");
        let long = "word ".repeat(60);
        let table = format!("id,question,answer\n1,{long},\n2,why?,because\n3,how?,so\n");
        std::fs::write(&path, table).expect("the folder can be written");
        std::fs::write(folder.path().join("readme.md"), "About the notes.")
            .expect("the folder can be written");
        let texts = TextOptions::default();
        let found = detect(folder.path(), &InspectOptions::default(), &texts, &|_| {});
        let found = found.expect("the folder can be read");
        for (place, found) in [(folder.path(), Some(&found)), (path.as_path(), None)] {
            let shown = table_rows(place, found, 2).expect("there is a table");
            assert_eq!(shown.file, Path::new("notes.csv"));
            assert_eq!(shown.columns, ["id", "question", "answer"]);
            assert_eq!(shown.rows.len(), 2);
            assert!(shown.rows[0][1].ends_with('…') && shown.rows[0][1].len() < 130);
            assert_eq!(shown.rows[1], ["2", "why?", "because"]);
        }
        assert_eq!(table_rows(&folder.path().join("readme.md"), None, 2), None);
    }
}
