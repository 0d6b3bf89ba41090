//! What a table gives its reader, whatever the format: rows of cells one after the other, and the rows that are none.

use std::borrow::Cow;

/// One row, in the columns that were asked for.
pub(crate) enum Row<'a> {
    /// A cell for each column asked for; nothing where the row has none.
    Cells(&'a [Option<Cow<'a, str>>]),
    /// Why the row cannot be read.
    Fault(String),
}

/// Takes a row and the number of its first line, counted from 1; says whether it wants more.
pub(crate) type Visit<'v> = dyn FnMut(u64, Row) -> bool + 'v;
