//! The texts in one column of a table, row by row: to predict each of them.

use crate::readers::{FileFormat, OpenFile, Row, Use};
use crate::text::normalized_text;
use crate::user_messages::joined;
use std::path::Path;

/// Passes the text of each row of a table in the column `column` to `take`, or the reason why the
/// row has none; then `take` returns whether to go on.
///
/// # Errors
/// The file is no table or cannot be read, or it has no such column. The reason is a sentence.
pub fn read_text_column(
    table: &Path,
    column: &str,
    take: &mut dyn FnMut(Result<&str, String>) -> bool,
) -> Result<(), String> {
    let name = table.display();
    let format = FileFormat::from_path(table).filter(|format| format.is_for(Use::Rows));
    let format = format.ok_or_else(|| {
        format!("{name} is not a table; choose a CSV, TSV, JSON lines or Parquet file")
    })?;
    let opened = OpenFile::open(table, format)
        .map_err(|reason| format!("{name} cannot be read: {reason}"))?;
    let columns = opened.columns();
    let place = columns.iter().position(|name| name == column);
    let place = place.ok_or_else(|| {
        format!(
            "{name} has no column {column}; its columns are {}",
            joined(columns)
        )
    })?;
    opened.visit(&[place], &mut |_, row| match row {
        Row::Cells([Some(cell)]) if !cell.trim().is_empty() => {
            take(Ok(normalized_text(cell).as_ref()))
        }
        Row::Cells(_) => take(Err("the text is empty".to_owned())),
        Row::Fault(reason) => take(Err(reason.into_owned())),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, column: &str) -> Result<Vec<Result<String, String>>, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("table.csv");
        std::fs::write(&path, text).expect("it can be written");
        let mut rows = Vec::new();
        read_text_column(&path, column, &mut |row| {
            rows.push(row.map(str::to_owned));
            rows.len() < 4
        })?;
        Ok(rows)
    }

    #[test]
    fn each_row_of_the_column_is_read_in_order() {
        let table =
            "id,note,mood\n1,\"first\r\nline\",good\n2,,bad\n3,third,bad\n4,fourth,bad\n5,x,y\n";
        let rows = read(table, "note").expect("it has the column");
        let empty = Err("the text is empty".to_owned());
        let text = |text: &str| Ok(text.to_owned());
        assert_eq!(
            rows,
            [text("first\nline"), empty, text("third"), text("fourth")],
            "it ends when the caller says so"
        );
    }

    #[test]
    fn a_missing_column_is_named_with_those_there_are() {
        let refused = read("id,note\n1,a\n2,b\n", "text").expect_err("there is no such column");
        assert!(
            refused.contains("has no column text; its columns are id and note"),
            "{refused}"
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("photo.jpg");
        let refused = read_text_column(&path, "text", &mut |_| true);
        assert!(
            refused
                .expect_err("it is no table")
                .contains("is not a table")
        );
    }
}
