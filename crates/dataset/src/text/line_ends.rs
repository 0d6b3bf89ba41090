//! Line ends of texts. A text is the same whether its lines end as on Windows (a carriage return
//! and a line feed) or with a line feed alone.

use std::borrow::Cow;

/// Which line ends a text has after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnds {
    /// Line feeds.
    LineFeeds,
    /// Those of the file. Earlier versions of Ebb trained on them.
    AsStored,
}

/// The text with line feeds as line ends.
pub(crate) fn with_line_feeds(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") {
        return Cow::Owned(text.replace("\r\n", "\n"));
    }
    Cow::Borrowed(text)
}

/// A text of a user as Ebb reads texts of files: without a byte-order mark, and with line feeds as
/// line ends.
pub fn normalized_text(text: &str) -> Cow<'_, str> {
    with_line_feeds(text.strip_prefix('\u{FEFF}').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_line_ends_and_the_mark_change() {
        assert_eq!(normalized_text("\u{FEFF}a\r\nb\rc\n\r\n"), "a\nb\rc\n\n");
        assert!(matches!(
            normalized_text("a\nb\u{FEFF}"),
            Cow::Borrowed("a\nb\u{FEFF}")
        ));
    }
}
