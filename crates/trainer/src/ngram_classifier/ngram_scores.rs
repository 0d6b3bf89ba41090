//! The class scores of a baseline for the texts of one split, in memory.

use super::NgramModel;
use dataset::TextDataset;

/// Class scores of the texts of one split.
#[derive(Debug, Clone, PartialEq)]
pub struct NgramScores {
    classes: usize,
    /// [texts, classes].
    values: Vec<f32>,
}

impl NgramScores {
    /// Bytes of the scores of this many texts.
    pub(crate) fn bytes(texts: usize, classes: usize) -> usize {
        texts.saturating_mul(classes).saturating_mul(4)
    }

    /// Computes the scores of all texts.
    pub(crate) fn from_texts(model: &NgramModel, texts: &TextDataset) -> Self {
        let scores = texts.texts().flat_map(|text| model.scores(text));
        NgramScores {
            classes: model.classes.len(),
            values: scores.map(|score| score as f32).collect(),
        }
    }

    /// The scores of one text: the logarithm of the probability of each class, plus a constant.
    /// Empty if there is no such text.
    pub(crate) fn for_text(&self, index: u32) -> &[f32] {
        let start = index as usize * self.classes;
        let scores = self.values.get(start..start + self.classes);
        scores.unwrap_or_default()
    }
}
