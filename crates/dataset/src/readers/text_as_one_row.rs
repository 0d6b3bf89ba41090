//! A file that is one text from its first to its last byte, read as one row with one cell.

use super::rows::{Contents, Row, RowVisitor, Rows};
use super::text_encoding::decode;
use std::borrow::Cow;

/// Decodes the text.
pub(crate) fn open(bytes: Vec<u8>) -> Result<Contents, String> {
    let (text, encoding) = decode(bytes)?;
    Ok(Contents {
        columns: vec!["text".to_owned()],
        encoding,
        rows: Box::new(WholeText(text)),
    })
}

struct WholeText(String);

impl Rows for WholeText {
    fn visit(&self, wanted: &[usize], visit: &mut RowVisitor) {
        let text = || Some(Cow::Borrowed(self.0.as_str()));
        let cells: Vec<_> = wanted.iter().map(|_| text()).collect();
        visit(1, Row::Cells(&cells));
    }
}
