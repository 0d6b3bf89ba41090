//! The labelled texts of one part of an inspected folder as plain arrays: one long text, where each begins, and its label.

use super::inspection::TextInspection;
use super::load;
use crate::error::DatasetError;
use crate::inspection::Part;

/// Texts with their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextRows {
    text: String,
    ends: Vec<usize>,
    labels: Vec<u32>,
}

impl TextRows {
    /// Reads one part of an inspected folder, in the order of its samples. Holds all its texts in memory.
    ///
    /// # Errors
    /// A file is gone, or is no longer what it was when the folder was looked at.
    pub fn open(inspection: &TextInspection, part: Part) -> Result<Self, DatasetError> {
        let mut rows = Self::default();
        load::texts(inspection, part, &mut |sample, text| {
            rows.text.push_str(text);
            rows.ends.push(rows.text.len());
            rows.labels.push(sample.label);
            Ok(())
        })?;
        Ok(rows)
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// A text and its label; `index` must be below `len`.
    pub fn row(&self, index: usize) -> (&str, u32) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.text[start..self.ends[index]], self.labels[index])
    }

    /// All texts, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> + Send {
        (0..self.len()).map(|index| self.row(index).0)
    }
}
