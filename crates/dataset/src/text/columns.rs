//! Which column of a table holds the texts and which the labels: by name, else by what stands in them. Sees cells of the
//! first rows only; says why it chose.

use std::borrow::Cow;
use std::collections::HashSet;

/// Names of columns that hold texts, the likeliest first.
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
/// Names of columns that hold labels, the likeliest first.
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
/// Names of columns that alone are the document.
const DOCUMENT_NAMES: [&str; 6] = ["text", "content", "document", "body", "article", "markdown"];
/// Labels that a column may have where nobody says that it is the label.
const MAX_GUESSED_LABELS: usize = 1000;
/// Longer on average is no label.
const MAX_LABEL_CHARS: f64 = 60.0;

/// A column that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its place.
    pub place: usize,
    /// Its name.
    pub name: String,
    /// Why it, as the end of a sentence.
    pub why: String,
}

/// The first rows of a table, column by column.
#[derive(Debug, Default)]
pub(crate) struct Glance {
    /// Names of the columns.
    pub names: Vec<String>,
    /// Rows looked at.
    pub rows: usize,
    columns: Vec<Column>,
}

#[derive(Debug, Default)]
struct Column {
    filled: usize,
    numbers: usize,
    chars: usize,
    distinct: HashSet<u64>,
}

/// A first cell with one of these names is a header's.
pub(crate) fn named_like_a_column(cell: &str) -> bool {
    let cell = plain(cell);
    TEXT_NAMES.contains(&cell.as_str()) || LABEL_NAMES[..11].contains(&cell.as_str())
}

/// A column of such a name holds classes.
pub(crate) fn is_named_label(name: &str) -> bool {
    let name = plain(name);
    LABEL_NAMES[..12].contains(&name.as_str())
        || ["food", "dish", "species"].contains(&name.as_str())
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

impl Glance {
    /// Nothing looked at yet.
    pub(crate) fn at(names: Vec<String>) -> Self {
        let columns = names.iter().map(|_| Column::default()).collect();
        Self {
            names,
            rows: 0,
            columns,
        }
    }

    /// Looks at one row.
    pub(crate) fn take(&mut self, cells: &[Option<Cow<str>>]) {
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
            column.distinct.insert(crate::stream::name(cell));
        }
    }

    fn is_numbers(&self, place: usize) -> bool {
        let column = &self.columns[place];
        column.filled > 0 && column.numbers * 10 > column.filled * 9
    }

    fn mean_chars(&self, place: usize) -> f64 {
        let column = &self.columns[place];
        column.chars as f64 / column.filled.max(1) as f64
    }

    /// The column that a user means by a name or a number counted from 1.
    pub(crate) fn named(&self, wanted: &str) -> Option<Choice> {
        let exact = self.names.iter().position(|name| name == wanted);
        let alike = || {
            self.names
                .iter()
                .position(|name| plain(name) == plain(wanted))
        };
        let number = || {
            let n: usize = wanted.trim().parse().ok()?;
            (1..=self.names.len()).contains(&n).then(|| n - 1)
        };
        let place = exact.or_else(alike).or_else(number)?;
        Some(self.choice(place, "you named it".to_owned()))
    }

    fn choice(&self, place: usize, why: String) -> Choice {
        Choice {
            place,
            name: self.names[place].clone(),
            why,
        }
    }

    /// The column of texts, other than `label`.
    pub(crate) fn text(&self, label: Option<usize>) -> Option<Choice> {
        let free = |place: &usize| {
            Some(*place) != label && !self.is_numbers(*place) && self.columns[*place].filled > 0
        };
        let named = TEXT_NAMES.iter().find_map(|name| {
            self.names
                .iter()
                .position(|n| plain(n) == *name)
                .filter(free)
        });
        if let Some(place) = named {
            return Some(self.choice(place, "by its name".to_owned()));
        }
        let longest = (0..self.names.len()).filter(free).max_by(|a, b| {
            self.mean_chars(*a)
                .total_cmp(&self.mean_chars(*b))
                .then(b.cmp(a))
        })?;
        let why = format!(
            "its cells are the longest, {:.0} characters on average",
            self.mean_chars(longest)
        );
        Some(self.choice(longest, why))
    }

    /// The column of labels, other than the texts'.
    pub(crate) fn label(&self, text: usize) -> Option<Choice> {
        let distinct = |place: usize| self.columns[place].distinct.len();
        let repeats = |place: &usize| {
            let (kinds, filled) = (distinct(*place), self.columns[*place].filled);
            *place != text && kinds > 0 && (self.rows < 20 || kinds * 10 <= filled * 9)
        };
        let named = LABEL_NAMES.iter().find_map(|name| {
            self.names
                .iter()
                .position(|n| plain(n) == *name)
                .filter(repeats)
        });
        if let Some(place) = named {
            return Some(self.choice(place, "by its name".to_owned()));
        }
        let is_label = |place: &usize| {
            let (kinds, filled) = (distinct(*place), self.columns[*place].filled);
            *place != text
                && filled * 2 > self.rows
                && kinds <= MAX_GUESSED_LABELS
                && kinds * 4 <= filled
                && self.mean_chars(*place) <= MAX_LABEL_CHARS
                && self.mean_chars(*place) < self.mean_chars(text)
        };
        let fewest = (0..self.names.len())
            .filter(is_label)
            .min_by_key(|place| distinct(*place))?;
        let why = format!(
            "it repeats {} in {} rows looked at",
            values(distinct(fewest)),
            self.rows
        );
        Some(self.choice(fewest, why))
    }

    /// The columns that make up a document: the one so named, else all that hold texts.
    pub(crate) fn document(&self) -> Vec<Choice> {
        let holds_text =
            |place: &usize| !self.is_numbers(*place) && self.columns[*place].filled > 0;
        let named = DOCUMENT_NAMES.iter().find_map(|name| {
            self.names
                .iter()
                .position(|n| plain(n) == *name)
                .filter(holds_text)
        });
        if let Some(place) = named {
            return vec![self.choice(place, "by its name".to_owned())];
        }
        (0..self.names.len())
            .filter(holds_text)
            .map(|place| self.choice(place, "it holds text".to_owned()))
            .collect()
    }
}

fn values(n: usize) -> String {
    format!("{n} value{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glance(names: &[&str], rows: &[&[&str]]) -> Glance {
        let mut glance = Glance::at(names.iter().map(|name| (*name).to_owned()).collect());
        for row in rows {
            let cells: Vec<_> = row.iter().map(|cell| Some(Cow::Borrowed(*cell))).collect();
            glance.take(&cells);
        }
        glance
    }

    #[test]
    fn names_win_over_contents() {
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
        let found = glance(&["note", "Text", "LABEL"], &rows);
        let text = found.text(None).expect("there is one");
        assert_eq!(
            (text.name.as_str(), text.why.as_str()),
            ("Text", "by its name")
        );
        assert_eq!(
            found.label(text.place).map(|c| c.name).as_deref(),
            Some("LABEL")
        );
    }

    #[test]
    fn without_names_the_longest_is_text_and_the_repeated_is_label() {
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
        let found = glance(&["column 1", "column 2", "column 3"], &rows);
        assert_eq!(found.text(None).map(|c| c.place), Some(2));
        let label = found.label(2).expect("there is one");
        assert_eq!(
            (label.place, label.why.as_str()),
            (1, "it repeats 2 values in 40 rows looked at")
        );
        assert_eq!(
            found.named("2").map(|c| c.name).as_deref(),
            Some("column 2")
        );
        assert_eq!(found.named("label"), None);
    }

    #[test]
    fn answers_that_never_repeat_are_no_labels() {
        let rows: Vec<[String; 2]> = (0..40)
            .map(|i| [format!("what is {i}?"), format!("it is {i}")])
            .collect();
        let rows: Vec<Vec<&str>> = rows
            .iter()
            .map(|row| row.iter().map(String::as_str).collect())
            .collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let found = glance(&["question", "answer"], &rows);
        assert_eq!(found.label(0), None);
        let parts: Vec<String> = found.document().into_iter().map(|c| c.name).collect();
        assert_eq!(parts, ["question", "answer"]);
    }
}
