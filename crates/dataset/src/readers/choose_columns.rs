//! The first rows of a table, and the choice of its text and label columns: by name, or else by
//! their cells. Each choice comes with its reason.

use super::rows::{Row, Rows};
use std::borrow::Cow;
use std::collections::HashSet;

/// Rows that are read to choose columns.
const PREVIEW_ROWS: usize = 2000;
/// Rows that cannot be read, after which the others are not read either.
const PREVIEW_FAULTS: usize = 1_000_000;
/// Names of text columns, the likeliest first.
const TEXT_NAMES: [&str; 22] = [
    "text",
    "sentence",
    "content",
    "review",
    "message",
    "body",
    "comment",
    "utterance",
    "tweet",
    "document",
    "question",
    "query",
    "prompt",
    "title",
    "description",
    "headline",
    "abstract",
    "sentence1",
    "premise",
    "article",
    "sms",
    "texte",
];
/// Names of label columns, the likeliest first.
const LABEL_NAMES: [&str; 19] = [
    "label",
    "labels",
    "category",
    "class",
    "target",
    "sentiment",
    "intent",
    "topic",
    "tag",
    "emotion",
    "polarity",
    "genre",
    "language",
    "lang",
    "stars",
    "rating",
    "score",
    "type",
    "y",
];
/// Names of columns that contain a whole document.
const DOCUMENT_NAMES: [&str; 6] = ["text", "content", "document", "body", "article", "markdown"];
/// Most labels of a column that is chosen by its cells.
const MAX_GUESSED_LABELS: usize = 1000;
/// Most characters of a label, on average.
const MAX_LABEL_CHARS: f64 = 60.0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenColumn {
    pub index: usize,
    pub name: String,
    /// Why it was chosen, as the end of a sentence.
    pub reason: String,
}

/// Statistics of the first rows of a table, column by column.
#[derive(Debug, Default)]
pub(crate) struct TablePreview {
    /// Names of the columns.
    pub names: Vec<String>,
    /// Number of rows read.
    pub rows: usize,
    /// Number of rows that cannot be read.
    pub faults: usize,
    columns: Vec<ColumnStats>,
}

#[derive(Debug, Default)]
struct ColumnStats {
    filled: usize,
    numbers: usize,
    chars: usize,
    distinct: HashSet<u64>,
}

/// Whether a cell of the first row is a known column name.
pub(crate) fn is_column_name(cell: &str) -> bool {
    let cell = normalized(cell);
    TEXT_NAMES.contains(&cell.as_str()) || LABEL_NAMES[..11].contains(&cell.as_str())
}

/// Whether a column of this name contains classes.
pub(crate) fn is_label_name(name: &str) -> bool {
    let name = normalized(name);
    LABEL_NAMES[..12].contains(&name.as_str())
        || ["food", "dish", "species"].contains(&name.as_str())
}

fn normalized(name: &str) -> String {
    name.trim().to_lowercase()
}

impl TablePreview {
    /// Reads the first rows. A file without any readable row among its first ones is not read to its
    /// end.
    pub(super) fn read(names: &[String], rows: &dyn Rows) -> Self {
        let mut preview = Self::new(names.to_vec());
        let all: Vec<usize> = (0..names.len()).collect();
        rows.visit(&all, &mut |_, row| {
            match row {
                Row::Cells(cells) => preview.add(cells),
                Row::Fault(_) => preview.faults += 1,
            }
            preview.rows < PREVIEW_ROWS && preview.faults < PREVIEW_FAULTS
        });
        preview
    }

    /// True if so many rows could not be read that the others were left out.
    pub(super) fn is_cut(&self) -> bool {
        self.faults >= PREVIEW_FAULTS
    }

    fn new(names: Vec<String>) -> Self {
        let columns = names.iter().map(|_| ColumnStats::default()).collect();
        Self {
            names,
            rows: 0,
            faults: 0,
            columns,
        }
    }

    fn add(&mut self, cells: &[Option<Cow<str>>]) {
        self.rows += 1;
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            let Some(cell) = cell
                .as_deref()
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
            else {
                continue;
            };
            column.filled += 1;
            column.numbers += usize::from(cell.parse::<f64>().is_ok());
            column.chars += cell.chars().count();
            column.distinct.insert(crate::rng::hash_text(cell));
        }
    }

    fn is_numeric(&self, index: usize) -> bool {
        let column = &self.columns[index];
        column.filled > 0 && column.numbers * 10 > column.filled * 9
    }

    fn mean_chars(&self, index: usize) -> f64 {
        let column = &self.columns[index];
        column.chars as f64 / column.filled.max(1) as f64
    }

    /// The column that a user means by a name, or by a number counted from 1.
    pub(crate) fn find(&self, wanted: &str) -> Option<ChosenColumn> {
        let exact = self.names.iter().position(|name| name == wanted);
        let alike = || {
            self.names
                .iter()
                .position(|name| normalized(name) == normalized(wanted))
        };
        let number = || {
            let n: usize = wanted.trim().parse().ok()?;
            (1..=self.names.len()).contains(&n).then(|| n - 1)
        };
        let index = exact.or_else(alike).or_else(number)?;
        Some(self.choose(index, "you named it".to_owned()))
    }

    fn choose(&self, index: usize, reason: String) -> ChosenColumn {
        ChosenColumn {
            index,
            name: self.names[index].clone(),
            reason,
        }
    }

    /// Chooses the column with the first of `names` that one of them has.
    fn choose_named(
        &self,
        names: &[&str],
        is_allowed: impl Fn(&usize) -> bool,
    ) -> Option<ChosenColumn> {
        let column = |name| self.names.iter().position(|n| normalized(n) == name);
        let mut columns = names.iter().filter_map(|name| column(*name));
        let index = columns.find(is_allowed)?;
        Some(self.choose(index, "recognized by its name".to_owned()))
    }

    /// Chooses the text column, other than the column `label`.
    pub(crate) fn choose_text(&self, label: Option<usize>) -> Option<ChosenColumn> {
        let free = |index: &usize| {
            Some(*index) != label && !self.is_numeric(*index) && self.columns[*index].filled > 0
        };
        let named = self.choose_named(&TEXT_NAMES, free);
        if named.is_some() {
            return named;
        }
        let longest = (0..self.names.len()).filter(free).max_by(|a, b| {
            self.mean_chars(*a)
                .total_cmp(&self.mean_chars(*b))
                .then(b.cmp(a))
        })?;
        let reason = format!(
            "its cells are the longest: {:.0} characters on average",
            self.mean_chars(longest)
        );
        Some(self.choose(longest, reason))
    }

    /// Chooses the label column, other than the column `text`.
    pub(crate) fn choose_label(&self, text: usize) -> Option<ChosenColumn> {
        let distinct = |index: usize| self.columns[index].distinct.len();
        let repeats = |index: &usize| {
            let (kinds, filled) = (distinct(*index), self.columns[*index].filled);
            *index != text && kinds > 0 && (self.rows < 20 || kinds * 10 <= filled * 9)
        };
        let named = self.choose_named(&LABEL_NAMES, repeats);
        if named.is_some() {
            return named;
        }
        let is_label = |index: &usize| {
            let (kinds, filled) = (distinct(*index), self.columns[*index].filled);
            *index != text
                && filled * 2 > self.rows
                && kinds <= MAX_GUESSED_LABELS
                && kinds * 4 <= filled
                && self.mean_chars(*index) <= MAX_LABEL_CHARS
                && self.mean_chars(*index) < self.mean_chars(text)
        };
        let column = (0..self.names.len())
            .filter(is_label)
            .min_by_key(|index| distinct(*index))?;
        let reason = format!(
            "the first {1} rows contain only {0}",
            values(distinct(column)),
            self.rows
        );
        Some(self.choose(column, reason))
    }

    /// The column that is named like labels, but whose cells hardly repeat: "label", or "price
    /// (numbers)".
    pub(crate) fn label_without_repeats(&self) -> Option<String> {
        let column = |name: &&str| self.names.iter().position(|n| normalized(n) == *name);
        let index = LABEL_NAMES.iter().find_map(column)?;
        let stats = &self.columns[index];
        let numbers = if self.is_numeric(index) {
            " (numbers)"
        } else {
            ""
        };
        let differs = self.rows >= 20 && stats.distinct.len() * 10 > stats.filled * 9;
        differs.then(|| format!("{}{numbers}", self.names[index]))
    }

    /// Chooses the columns that make up a document: one by its name, or else all that contain text.
    pub(crate) fn choose_document(&self) -> Vec<ChosenColumn> {
        let has_text = |index: &usize| !self.is_numeric(*index) && self.columns[*index].filled > 0;
        let named = DOCUMENT_NAMES.iter().find_map(|name| {
            self.names
                .iter()
                .position(|n| normalized(n) == *name)
                .filter(has_text)
        });
        if let Some(index) = named {
            return vec![self.choose(index, "recognized by its name".to_owned())];
        }
        (0..self.names.len())
            .filter(has_text)
            .map(|index| self.choose(index, "it contains text".to_owned()))
            .collect()
    }
}

fn values(n: usize) -> String {
    format!("{n} different value{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(names: &[&str], rows: &[&[&str]]) -> TablePreview {
        let mut preview = TablePreview::new(names.iter().map(|name| (*name).to_owned()).collect());
        for row in rows {
            let cells: Vec<_> = row.iter().map(|cell| Some(Cow::Borrowed(*cell))).collect();
            preview.add(&cells);
        }
        preview
    }

    #[test]
    fn names_take_precedence_over_cells() {
        let rows: Vec<[&str; 3]> = (0..30)
            .map(|i| {
                [
                    "a longer note about it",
                    "words",
                    if i % 2 == 0 { "1" } else { "0" },
                ]
            })
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(|row| row.as_slice()).collect();
        let found = preview(&["note", "Text", "LABEL"], &rows);
        let text = found.choose_text(None).expect("a column is chosen");
        assert_eq!(
            (text.name.as_str(), text.reason.as_str()),
            ("Text", "recognized by its name")
        );
        assert_eq!(
            found.choose_label(text.index).map(|c| c.name).as_deref(),
            Some("LABEL")
        );
    }

    #[test]
    fn without_names_long_cells_are_texts_and_repeated_ones_labels() {
        let rows: Vec<[String; 3]> = (0..40)
            .map(|i| {
                [
                    i.to_string(),
                    if i % 3 == 0 { "spam" } else { "ham" }.to_owned(),
                    format!("message number {i} of them all"),
                ]
            })
            .collect();
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let found = preview(&["column 1", "column 2", "column 3"], &rows);
        assert_eq!(found.choose_text(None).map(|c| c.index), Some(2));
        let label = found.choose_label(2).expect("a column is chosen");
        assert_eq!(
            (label.index, label.reason.as_str()),
            (1, "the first 40 rows contain only 2 different values")
        );
        assert_eq!(found.find("2").map(|c| c.name).as_deref(), Some("column 2"));
        assert_eq!(found.find("label"), None);
    }

    #[test]
    fn numbers_that_never_repeat_are_named() {
        let rows: Vec<[String; 2]> = (0..40)
            .map(|i| [format!("what is {i}?"), format!("{i}.25")])
            .collect();
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let found = preview(&["text", "label"], &rows);
        assert_eq!(
            found.label_without_repeats().as_deref(),
            Some("label (numbers)")
        );
    }

    #[test]
    fn cells_that_never_repeat_are_not_labels() {
        let rows: Vec<[String; 2]> = (0..40)
            .map(|i| [format!("what is {i}?"), format!("it is {i}")])
            .collect();
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let found = preview(&["question", "answer"], &rows);
        assert_eq!(found.choose_label(0), None);
        assert_eq!(found.label_without_repeats(), None);
        let columns: Vec<String> = found
            .choose_document()
            .into_iter()
            .map(|c| c.name)
            .collect();
        assert_eq!(columns, ["question", "answer"]);
    }
}
