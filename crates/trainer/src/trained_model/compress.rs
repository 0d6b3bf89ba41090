//! Compresses texts with a model that was trained for token compression.

use super::TrainedModel;
use crate::data::load_token_frequencies;
use crate::error::Result;
use crate::task::{CompressionTask, Sequence};
use dataset::Task;
use std::sync::Arc;
use tape::device::with_autorelease_pool;

/// A compressed text.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressedText {
    /// The kept tokens as text.
    pub kept: String,
    /// The text with `gap` in place of each dropped token.
    pub marked: String,
    /// The character that marks a dropped token; the text does not contain it if that is possible.
    pub gap: char,
    /// The text as the language model fills it in.
    pub filled: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Positions of the kept tokens, counted from 0.
    pub kept_places: Vec<usize>,
    /// Number of dropped tokens that are filled in correctly.
    pub correct: usize,
}

/// Characters for a dropped token, in order of preference.
const GAPS: [char; 4] = ['\u{b7}', '\u{2591}', '\u{25a1}', '\u{2423}'];

impl CompressedText {
    /// Number of dropped tokens.
    pub fn dropped(&self) -> usize {
        self.tokens - self.kept_places.len()
    }

    /// Fraction of the tokens that is kept; 0 without tokens.
    pub fn kept_fraction(&self) -> f64 {
        self.kept_places.len() as f64 / self.tokens.max(1) as f64
    }

    /// Fraction of the dropped tokens that is filled in correctly; 0 if none is dropped.
    pub fn correct_fraction(&self) -> f64 {
        self.correct as f64 / self.dropped().max(1) as f64
    }
}

impl TrainedModel {
    /// Compresses a text, window by window.
    ///
    /// # Errors
    /// The model was trained for another task.
    pub fn compress(&self, text: &str) -> Result<CompressedText> {
        if self.task() != Task::TokenCompression {
            return Err(self.wrong_task("compress a text"));
        }
        let frequencies = load_token_frequencies(&self.run)?;
        let context = self.context();
        let ids = self.tokenizer.encode(text)?;
        let (mut kept, mut filled) = (Vec::new(), Vec::new());
        for (index, window) in ids.chunks(self.plan.input_size as usize).enumerate() {
            let sequence = Sequence {
                index: index as u32,
                step: 0,
                ids: window.to_vec(),
                frequencies: Arc::clone(&frequencies),
            };
            let reconstruct = || CompressionTask::reconstruct(&context, sequence);
            let reconstruction = with_autorelease_pool(reconstruct)?;
            kept.extend(reconstruction.kept);
            filled.extend(reconstruction.filled);
        }
        let gap = GAPS.into_iter().find(|gap| !text.contains(*gap));
        Ok(self.compressed(&ids, &kept, &filled, gap.unwrap_or(GAPS[0])))
    }

    fn compressed(&self, ids: &[u32], kept: &[bool], filled: &[u32], gap: char) -> CompressedText {
        let tokens = || ids.iter().zip(kept);
        let kept_ids: Vec<u32> = tokens().filter(|(_, k)| **k).map(|(id, _)| *id).collect();
        // Consecutive bytes are decoded together, because a character may have several.
        let (mut marked, mut run) = (String::new(), Vec::new());
        for (id, kept) in tokens() {
            if *kept {
                run.push(*id);
            } else {
                marked += &self.tokenizer.decode(&std::mem::take(&mut run));
                marked.push(gap);
            }
        }
        marked += &self.tokenizer.decode(&run);
        let correct = tokens().zip(filled);
        let correct = correct.filter(|((id, kept), filled)| !**kept && id == filled);
        CompressedText {
            kept: self.tokenizer.decode(&kept_ids),
            marked,
            filled: self.tokenizer.decode(filled),
            gap,
            tokens: ids.len(),
            kept_places: (0..ids.len()).filter(|place| kept[*place]).collect(),
            correct: correct.count(),
        }
    }
}
