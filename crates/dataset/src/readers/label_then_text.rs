//! Reads lines that start with a label, such as `ham See you tonight`, as rows of (label, text).

use super::rows::{Row, RowVisitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashSet;

/// Most labels of a file.
const MAX_LABELS: usize = 200;
/// Fewest lines per label, on average.
const MIN_LINES_PER_LABEL: usize = 5;

/// The separator between the label and the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum LabelLines {
    Tab,
    Space,
}

impl LabelLines {
    /// Detects whether every line starts with one of few labels. The first words of prose are few
    /// too, but they also occur inside its lines.
    pub(crate) fn detect(text: &str) -> Option<Self> {
        [Self::Tab, Self::Space].into_iter().find(|kind| {
            let mut labels: HashSet<&str> = HashSet::new();
            let mut lines = 0usize;
            for (_, line) in filled_lines(text) {
                let Some((label, rest)) = kind.split(line) else {
                    return false;
                };
                lines += 1;
                labels.insert(label);
                if rest.trim().is_empty() || labels.len() > MAX_LABELS {
                    return false;
                }
            }
            let has_label_inside = |(_, line): &(u64, &str)| {
                kind.split(line).is_some_and(|(_, rest)| {
                    rest.split_whitespace().any(|word| labels.contains(word))
                })
            };
            labels.len() >= 2
                && lines >= MIN_LINES_PER_LABEL * labels.len()
                && (*kind == Self::Tab
                    || filled_lines(text).filter(has_label_inside).count() * 5 < lines)
        })
    }

    /// Whether every line of the beginning of a text may start with one of few labels. If not,
    /// `detect` finds none in the text either.
    pub(crate) fn is_possible(head: &str) -> bool {
        [Self::Tab, Self::Space].into_iter().any(|kind| {
            let mut labels: HashSet<&str> = HashSet::new();
            filled_lines(head).all(|(_, line)| {
                let parts = kind.split(line);
                let parts = parts.filter(|(_, text)| !text.trim().is_empty());
                parts.is_some_and(|(label, _)| {
                    labels.insert(label);
                    labels.len() <= MAX_LABELS
                })
            })
        })
    }

    fn split(self, line: &str) -> Option<(&str, &str)> {
        match self {
            Self::Tab => line.split_once('\t'),
            Self::Space => line.split_once(' '),
        }
    }

    /// Visits the lines as (label, text).
    pub(crate) fn visit(self, text: &str, wanted: &[usize], visit: &mut RowVisitor) {
        for (number, line) in filled_lines(text) {
            let goes_on = match self.split(line) {
                Some((label, rest)) => {
                    let both = [Some(Cow::Borrowed(label)), Some(Cow::Borrowed(rest))];
                    let cells: Vec<_> = wanted
                        .iter()
                        .filter_map(|i| both.get(*i).cloned())
                        .collect();
                    visit(number, Row::Cells(&cells))
                }
                None => visit(
                    number,
                    Row::Fault("this line has a label but no text".into()),
                ),
            };
            if !goes_on {
                return;
            }
        }
    }
}

/// Lines that are not blank, with their numbers counted from 1.
fn filled_lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(n, line)| (n as u64 + 1, line))
}
