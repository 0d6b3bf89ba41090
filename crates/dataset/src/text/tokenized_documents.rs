//! The documents of one split as tokens: one long array, and the end of each document. A token
//! takes one, two or four bytes, depending on the vocabulary.

use super::read_samples::read_samples;
use super::text_inspection::TextInspection;
use super::tokenizer::Tokenizer;
use crate::error::DatasetError;
use crate::types::Split;

/// The documents of one split, as tokens.
#[derive(Debug, Clone)]
pub struct Documents {
    ids: Ids,
    ends: Vec<usize>,
    bytes: u64,
}

/// Tokens in the smallest integer type that fits the vocabulary.
#[derive(Debug, Clone)]
enum Ids {
    Narrow(Vec<u8>),
    Medium(Vec<u16>),
    Wide(Vec<u32>),
}

impl Ids {
    fn for_vocabulary(size: usize) -> Self {
        match size {
            0..=0x100 => Self::Narrow(Vec::new()),
            0x101..=0x1_0000 => Self::Medium(Vec::new()),
            _ => Self::Wide(Vec::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Medium(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
        }
    }

    fn extend(&mut self, ids: &[u32]) {
        match self {
            Self::Narrow(all) => all.extend(ids.iter().map(|id| *id as u8)),
            Self::Medium(all) => all.extend(ids.iter().map(|id| *id as u16)),
            Self::Wide(all) => all.extend(ids),
        }
    }

    /// Frees unused capacity.
    fn shrink(&mut self) {
        match self {
            Self::Narrow(all) => all.shrink_to_fit(),
            Self::Medium(all) => all.shrink_to_fit(),
            Self::Wide(all) => all.shrink_to_fit(),
        }
    }

    fn at(&self, position: usize) -> u32 {
        match self {
            Self::Narrow(ids) => u32::from(ids[position]),
            Self::Medium(ids) => u32::from(ids[position]),
            Self::Wide(ids) => ids[position],
        }
    }
}

impl Documents {
    /// Reads and tokenizes the documents of a split, in the order of the inspection.
    ///
    /// # Errors
    /// A file is missing or has changed since the inspection, or the tokenizer cannot encode a
    /// text.
    pub fn open(
        inspection: &TextInspection,
        split: Split,
        tokenizer: &Tokenizer,
    ) -> Result<Self, DatasetError> {
        let mut documents = Self::empty(tokenizer.id_limit());
        read_samples(inspection, split, &mut |_, text| {
            documents.push(&tokenizer.encode(text)?, text.len() as u64);
            Ok(())
        })?;
        documents.ids.shrink();
        Ok(documents)
    }

    /// An empty list of documents whose tokens are below `vocabulary`.
    pub fn empty(vocabulary: usize) -> Self {
        Self {
            ids: Ids::for_vocabulary(vocabulary),
            ends: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a document. Its tokens must be below the vocabulary; `bytes` is the length of its text.
    pub fn push(&mut self, tokens: &[u32], bytes: u64) {
        self.ids.extend(tokens);
        self.ends.push(self.ids.len());
        self.bytes += bytes;
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of tokens of all documents.
    pub fn token_count(&self) -> usize {
        self.ids.len()
    }

    /// Bytes of all texts in UTF-8, for bits per byte.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of tokens of a document. Panics if `index` is not below `len`.
    pub fn length(&self, index: usize) -> usize {
        self.ends[index] - self.start(index)
    }

    /// The token of a document at a position. Panics if there is none.
    pub fn token(&self, index: usize, position: usize) -> u32 {
        self.ids.at(self.start(index) + position)
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}
