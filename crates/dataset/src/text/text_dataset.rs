//! The labeled texts of one split as plain arrays: one long string, the end of each text, and its
//! label.

use super::read_samples::{read_chosen, read_samples};
use super::text_inspection::TextInspection;
use crate::error::DatasetError;
use crate::seeded_selection::choose_samples;
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

    /// Reads about `max_bytes` of the texts of a split into memory, chosen by seed, each class in
    /// proportion; all of them if they are no larger. `goes_on` is called for each text that is
    /// read.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection; [`DatasetError::Stopped`] if
    /// `goes_on` returns false.
    pub fn open_selection(
        inspection: &TextInspection,
        split: Split,
        seed: u64,
        max_bytes: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, DatasetError> {
        let samples = &inspection.samples;
        let of_split: Vec<usize> = (0..samples.len())
            .filter(|index| samples[*index].split == split)
            .collect();
        let labels: Vec<u32> = of_split.iter().map(|i| samples[*i].label).collect();
        let share = max_bytes as f64 / inspection.split_bytes(split).max(1) as f64;
        let limit = (labels.len() as f64 * share.min(1.0)).ceil() as usize;
        let chosen: Vec<usize> = choose_samples(seed, &labels, limit)
            .into_iter()
            .map(|place| of_split[place as usize])
            .collect();
        let mut rows = Self::default();
        read_chosen(inspection, &chosen, &mut |index, text| {
            rows.text.push_str(text);
            rows.ends.push(rows.text.len());
            rows.labels.push(samples[index].label);
            if goes_on() {
                Ok(())
            } else {
                Err(DatasetError::Stopped)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DetectedDataset, InspectOptions, TextOptions, detect};
    use std::cell::Cell;

    #[test]
    fn a_selection_has_the_proportions_of_the_classes_and_can_be_stopped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let row = |i: usize| {
            format!(
                "text number {i:04},{}\n",
                ["a", "b"][usize::from(i.is_multiple_of(10))]
            )
        };
        let rows: String = (0..1000).map(row).collect();
        let path = folder.path().join("texts.csv");
        std::fs::write(&path, format!("text,label\n{rows}")).expect("it can be written");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(&path, &options, &texts, &|_| {}).expect("it can be read");
        let DetectedDataset::Texts(found) = found else {
            panic!("it has texts");
        };
        let open = |seed: u64, max_bytes: u64| {
            TextDataset::open_selection(&found, Split::Train, seed, max_bytes, &|| true)
                .expect("no file changed")
        };
        let whole = TextDataset::open(&found, Split::Train).expect("no file changed");
        let bytes = found.split_bytes(Split::Train);
        assert_eq!(open(7, bytes), whole);
        let tenth = open(7, bytes / 10);
        assert!((78..=82).contains(&tenth.len()), "{}", tenth.len());
        let rare = (0..tenth.len()).filter(|index| tenth.row(*index).1 == 1);
        assert!((7..=9).contains(&rare.count()));
        assert_eq!(tenth, open(7, bytes / 10));
        assert_ne!(tenth, open(8, bytes / 10));
        let read = Cell::new(0);
        let stopped = TextDataset::open_selection(&found, Split::Train, 7, bytes, &|| {
            read.set(read.get() + 1);
            read.get() < 3
        });
        assert!(matches!(stopped, Err(DatasetError::Stopped)));
        assert_eq!(read.get(), 3);
    }
}
