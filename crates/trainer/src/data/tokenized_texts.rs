//! The labeled texts of one split as tokens: all token ids in one array, the end of each text, and
//! its label.

use crate::error::Result;
use crate::preparation::{Preparation, stopped_before_start};
use dataset::{DatasetError, Split, TextEncoder, TextInspection, Tokenizer, read_samples};
use runlog::format_bytes;
use std::path::{Path, PathBuf};

/// A labeled text: its tokens, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Its position in the split.
    pub index: u32,
    /// Its class.
    pub label: u32,
    /// Its token ids.
    pub ids: Vec<u32>,
    /// Its class scores by the baseline; empty if they have no part in the prediction.
    pub baseline: Vec<f32>,
}

impl Text {
    /// Tokenizes an unlabeled text and truncates it to `max_tokens`.
    pub(crate) fn unlabeled(text: &str, tokenizer: &Tokenizer, max_tokens: usize) -> Result<Self> {
        Ok(Text {
            index: 0,
            label: 0,
            ids: truncated(tokenizer.encode_framed(text)?, max_tokens),
            baseline: Vec::new(),
        })
    }
}

/// The tokenized texts of one split.
#[derive(Debug, Default)]
pub struct Corpus {
    ids: Vec<u32>,
    ends: Vec<usize>,
    labels: Vec<u32>,
    files: Vec<PathBuf>,
    /// For each text, its index in `files`.
    file_of: Vec<u32>,
    truncated: u64,
}

impl Corpus {
    /// Reads and tokenizes one split.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection, the tokenizer fails, or the user
    /// stops the run.
    pub fn open(
        found: &TextInspection,
        part: Split,
        tokenizer: &Tokenizer,
        max_tokens: usize,
        preparation: Preparation,
    ) -> Result<Self> {
        let bytes = found.split_bytes(part);
        let work = preparation.begin(
            format!("Tokenizing {} of texts", format_bytes(bytes)),
            bytes,
        );
        let mut encoder = TextEncoder::new(tokenizer, 1);
        let mut done = 0;
        let of_part = || {
            let samples = found.samples.iter();
            samples.filter(move |sample| sample.split == part)
        };
        let mut corpus = Corpus {
            files: found.files.iter().map(|file| file.path.clone()).collect(),
            file_of: of_part().map(|sample| sample.file).collect(),
            ..Corpus::default()
        };
        read_samples(found, part, &mut |sample, text| {
            let ids = encoder.encode_framed(text).map_err(|error| {
                error.in_text(&found.files[sample.file as usize].path, sample.row)
            })?;
            corpus.truncated += u64::from(ids.len() > max_tokens);
            corpus.ids.extend(truncated(ids, max_tokens));
            corpus.ends.push(corpus.ids.len());
            corpus.labels.push(sample.label);
            done += text.len() as u64;
            if work.goes_on(done) {
                Ok(())
            } else {
                Err(DatasetError::Stopped)
            }
        })
        .map_err(stopped_before_start)?;
        // The array lives as long as the run, and growing it may have reserved twice its size.
        corpus.ids.shrink_to_fit();
        Ok(corpus)
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Number of texts that were longer than `max_tokens`.
    pub(crate) fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Token count of each text, in order.
    pub fn lengths(&self) -> Vec<u32> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = self.ends.iter().zip(starts).map(|(end, start)| end - start);
        lengths.map(|length| length as u32).collect()
    }

    /// The label of each text, in order.
    pub(crate) fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// One text; `index` must be below `len`.
    pub fn text(&self, index: u32) -> Text {
        let place = index as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Text {
            index,
            label: self.labels[place],
            ids: self.ids[start..self.ends[place]].to_vec(),
            baseline: Vec::new(),
        }
    }

    /// Replaces each label `n` with `labels[n]`.
    pub(crate) fn relabeled(mut self, labels: &[u32]) -> Self {
        for label in &mut self.labels {
            *label = labels[*label as usize];
        }
        self
    }

    /// The file that a text comes from.
    pub fn file(&self, index: u32) -> Option<&Path> {
        let file = *self.file_of.get(index as usize)?;
        self.files.get(file as usize).map(PathBuf::as_path)
    }
}

/// At most `max` tokens, and at least one: an empty text becomes a single token 0.
fn truncated(mut ids: Vec<u32>, max: usize) -> Vec<u32> {
    if ids.len() > max {
        // A truncated text keeps its closing token.
        let last = ids[ids.len() - 1];
        ids.truncate(max);
        ids[max - 1] = last;
    }
    if ids.is_empty() {
        ids.push(0);
    }
    ids
}
