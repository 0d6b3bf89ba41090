//! The labeled texts of one split as plain arrays: one long string, the end of each text, and its
//! label.

use super::read_samples::read_samples;
use super::text_inspection::TextInspection;
use crate::error::DatasetError;
use crate::types::Split;

/// The texts of one split, with their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextDataset {
    text: String,
    ends: Vec<usize>,
    labels: Vec<u32>,
}

impl TextDataset {
    /// Reads the texts of a split into memory, in the order of the inspection.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection.
    pub fn open(inspection: &TextInspection, split: Split) -> Result<Self, DatasetError> {
        let mut rows = Self::default();
        read_samples(inspection, split, &mut |sample, text| {
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

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// A text and its label.
    ///
    /// # Panics
    /// If `index` is not below `len`.
    pub fn row(&self, index: usize) -> (&str, u32) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.text[start..self.ends[index]], self.labels[index])
    }

    /// All texts in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> + Clone + Send {
        (0..self.len()).map(|index| self.row(index).0)
    }
}
