//! The interface of every reader: a file as columns and rows of cells, and the rows that cannot be
//! read.

use super::text_encoding::TextEncoding;
use std::borrow::Cow;

/// One row, in the columns that were asked for.
pub(crate) enum Row<'a> {
    /// One cell for each column; `None` if the row has no value there.
    Cells(&'a [Option<Cow<'a, str>>]),
    /// Why the row cannot be read, as the end of a sentence.
    Fault(Cow<'static, str>),
}

/// Takes a row and the number of its first line, counted from 1. Returns whether to continue.
pub(crate) type RowVisitor<'v> = dyn FnMut(u64, Row) -> bool + 'v;

/// A file whose rows can be visited any number of times, always in the same order.
pub(crate) trait Rows {
    /// Visits all rows in the columns `wanted`, given by index.
    fn visit(&self, wanted: &[usize], visit: &mut RowVisitor);

    /// Invalid bytes that the last visit replaced, if the encoding does not count them.
    fn replaced_bytes(&self) -> u64 {
        0
    }
}

/// The contents of a file, as a reader returns them.
pub(crate) struct Contents {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// How the text was decoded.
    pub encoding: TextEncoding,
    pub rows: Box<dyn Rows>,
}
