//! A run that has learnt to leave tokens out: which tokens of a text it keeps, and what it makes of the gaps.

use super::SavedRun;
use crate::error::Result;
use crate::task::Sample;
use dataset::Window;
use models::Network;
use tape::Cancel;

/// A text that was compressed.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressed {
    /// The tokens that are kept, as text.
    pub kept: String,
    /// The text with a gap for each dropped token.
    pub marked: String,
    /// What stands for a gap: a sign that the text does not have.
    pub gap: char,
    /// What the language model fills in.
    pub filled: String,
    /// Tokens of the text.
    pub tokens: usize,
    /// Which of them are kept, counted from 0.
    pub kept_places: Vec<usize>,
    /// Dropped tokens that are filled in right.
    pub right: usize,
}

/// What may stand for a dropped token where a text is shown, the usual sign first.
const GAPS: [char; 4] = ['\u{b7}', '\u{2591}', '\u{25a1}', '\u{2423}'];

impl Compressed {
    /// Tokens that are dropped.
    pub fn dropped(&self) -> usize {
        self.tokens - self.kept_places.len()
    }

    /// Share of the tokens that is kept; 0 of no tokens.
    pub fn kept_fraction(&self) -> f64 {
        self.kept_places.len() as f64 / self.tokens.max(1) as f64
    }

    /// Share of the dropped tokens that is filled in right; 0 where none was dropped.
    pub fn right_fraction(&self) -> f64 {
        self.right as f64 / self.dropped().max(1) as f64
    }
}

impl SavedRun {
    /// Which tokens of a text are kept. What is longer than a window is compressed in several.
    ///
    /// # Errors
    /// The run has learnt something else.
    pub fn compress(&self, text: &str) -> Result<Compressed> {
        let Network::Compressor(network) = &self.learner.network else {
            return Err(self.wrong_task("a text to be compressed"));
        };
        let work = self.learner.evaluation_work(Cancel::default());
        let task = work.of_compression(network)?;
        let ids = self.tokenizer.encode(text)?;
        let (mut kept, mut filled) = (Vec::new(), Vec::new());
        for (index, part) in ids.chunks(self.plan.image_size as usize).enumerate() {
            let window = Window {
                inputs: part.to_vec(),
                ..Window::default()
            };
            if let Sample::Sequence(sequence) = self.reading.sample(window, index as u32, 0) {
                let (of_part, made) = task.mark(&sequence)?;
                kept.extend(of_part);
                filled.extend(made);
            }
        }
        let gap = GAPS.into_iter().find(|gap| !text.contains(*gap));
        Ok(self.shown(&ids, &kept, &filled, gap.unwrap_or(GAPS[0])))
    }

    fn shown(&self, ids: &[u32], kept: &[bool], filled: &[u32], gap: char) -> Compressed {
        let places = || ids.iter().zip(kept);
        let stay: Vec<u32> = places().filter(|(_, k)| **k).map(|(id, _)| *id).collect();
        // Runs of kept bytes are decoded together: a letter may be several.
        let (mut marked, mut run) = (String::new(), Vec::new());
        for (id, kept) in places() {
            match kept {
                true => run.push(*id),
                false => {
                    marked += &self.tokenizer.decode(&std::mem::take(&mut run));
                    marked.push(gap);
                }
            }
        }
        marked += &self.tokenizer.decode(&run);
        let right = places().zip(filled);
        let right = right.filter(|((id, kept), filled)| !**kept && id == filled);
        Compressed {
            kept: self.tokenizer.decode(&stay),
            marked,
            filled: self.tokenizer.decode(filled),
            gap,
            tokens: ids.len(),
            kept_places: (0..ids.len()).filter(|place| kept[*place]).collect(),
            right: right.count(),
        }
    }
}
