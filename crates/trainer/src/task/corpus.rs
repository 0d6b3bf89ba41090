//! The labelled texts of one part of a folder as tokens: one long array, where each text ends, and its label. The vocabulary is
//! learnt from the texts that are trained on, once, and kept in the run folder.

use super::Text;
use crate::durable::publish;
use crate::error::{Result, TrainError, at};
use dataset::{Split, TextDataset, TextInspection, Tokenizer, Vocabulary};
use runlog::{RunFolder, format_count};
use std::path::{Path, PathBuf};

/// The vocabulary's file in the run folder.
pub const TOKENIZER: &str = "tokenizer.json";

/// Texts as tokens.
#[derive(Debug, Default)]
pub struct Corpus {
    ids: Vec<u32>,
    ends: Vec<usize>,
    labels: Vec<u32>,
    /// Files that texts come from, and which of them each comes from.
    files: Vec<PathBuf>,
    file_of: Vec<u32>,
    /// Texts that were longer than the model has room for.
    cut: u64,
}

impl Corpus {
    /// Reads one part of an inspected folder.
    ///
    /// # Errors
    /// A file is gone or changed since the folder was looked at; the tokenizer cannot split a text.
    pub fn open(
        found: &TextInspection,
        part: Split,
        tokenizer: &Tokenizer,
        most: usize,
    ) -> Result<Self> {
        let rows = TextDataset::open(found, part)?;
        let of_part = found.samples.iter().filter(|sample| sample.split == part);
        let mut corpus = Corpus {
            files: found.files.iter().map(|file| file.path.clone()).collect(),
            file_of: of_part.map(|sample| sample.file).collect(),
            ..Corpus::default()
        };
        for index in 0..rows.len() {
            let (text, label) = rows.row(index);
            let ids = tokenizer.encode_framed(text)?;
            corpus.cut += u64::from(ids.len() > most);
            corpus.ids.extend(cut(ids, most));
            corpus.ends.push(corpus.ids.len());
            corpus.labels.push(label);
        }
        // It stays for the whole run, and growing has left up to as much again.
        corpus.ids.shrink_to_fit();
        Ok(corpus)
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Texts that lost their end because the model has no room for it.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Tokens of each text, in order.
    pub fn lengths(&self) -> Vec<u32> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let lengths = self.ends.iter().zip(starts).map(|(end, start)| end - start);
        lengths.map(|length| length as u32).collect()
    }

    /// One text; `index` must be below `len`.
    pub fn text(&self, index: u32) -> Text {
        let place = index as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Text {
            index,
            label: self.labels[place],
            ids: self.ids[start..self.ends[place]].to_vec(),
        }
    }

    /// The same texts, class `n` of which is class `labels[n]` now.
    pub fn relabelled(mut self, labels: &[u32]) -> Self {
        self.labels
            .iter_mut()
            .for_each(|label| *label = labels[*label as usize]);
        self
    }

    /// The file that a text comes from.
    pub fn file(&self, index: u32) -> Option<&Path> {
        let file = *self.file_of.get(index as usize)?;
        self.files.get(file as usize).map(PathBuf::as_path)
    }
}

impl Text {
    /// A text without a class, of at most `most` tokens.
    pub fn read(text: &str, tokenizer: &Tokenizer, most: usize) -> Result<Self> {
        Ok(Text {
            index: 0,
            label: 0,
            ids: cut(tokenizer.encode_framed(text)?, most),
        })
    }
}

/// At most so many tokens, and at least one: what is no text at all is one token that stands for nothing.
fn cut(mut ids: Vec<u32>, most: usize) -> Vec<u32> {
    if ids.len() > most {
        // What closes a text closes a cut one too.
        let last = ids[ids.len() - 1];
        ids.truncate(most);
        ids[most - 1] = last;
    }
    if ids.is_empty() {
        ids.push(0);
    }
    ids
}

/// The token between documents.
///
/// # Errors
/// The vocabulary has none.
pub(crate) fn boundary(tokenizer: &Tokenizer) -> Result<u32> {
    tokenizer.boundary().ok_or_else(|| TrainError::NotTrainable {
        sentence: "the vocabulary of these weights has no token that could stand between documents (<|endoftext|>, </s>, <eos>); choose another folder"
            .to_owned(),
    })
}

/// The vocabulary of a run, of at most `size` tokens: as it was learnt in an earlier life, else learnt now and kept.
pub(super) fn learnt(run: &RunFolder, found: &TextInspection, size: u32) -> Result<Tokenizer> {
    let path = run.path.join(TOKENIZER);
    if path.exists() {
        return Ok(Tokenizer::load(&path)?);
    }
    let rows = TextDataset::open(found, Split::Train)?;
    // Byte pairs: the library numbers word pieces anew each time it learns them, and two runs would differ.
    let learnt = Tokenizer::train(Vocabulary::BytePairs, size as usize, rows.texts())?;
    if learnt.vocabulary() > size as usize {
        return Err(TrainError::Setting {
            key: "vocabulary",
            value: size.to_string(),
            allowed: format!(
                "the characters of these texts alone make {} tokens; write at least as many",
                format_count(learnt.vocabulary() as u64)
            ),
        });
    }
    let unwritable = || std::io::Error::other("the vocabulary cannot be written as JSON");
    let written = learnt.to_json().ok_or_else(unwritable).map_err(at(&path))?;
    publish(&path, written.as_bytes())?;
    // As it will be read in every later life.
    Ok(Tokenizer::load(&path)?)
}
