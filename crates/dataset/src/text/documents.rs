//! The documents of one part of an inspected folder as tokens: one long array, and where each document ends. Tokens take one,
//! two or four bytes each, as the vocabulary needs.

use super::inspection::TextInspection;
use super::load;
use super::tokens::Tokenizer;
use crate::error::DatasetError;
use crate::inspection::Part;

/// Documents as tokens.
#[derive(Debug, Clone)]
pub struct Documents {
    ids: Ids,
    ends: Vec<usize>,
    bytes: u64,
}

/// Tokens in as few bytes as they need.
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

    /// Gives back what growing has left over.
    fn shrink(&mut self) {
        match self {
            Self::Narrow(all) => all.shrink_to_fit(),
            Self::Medium(all) => all.shrink_to_fit(),
            Self::Wide(all) => all.shrink_to_fit(),
        }
    }

    fn at(&self, place: usize) -> u32 {
        match self {
            Self::Narrow(ids) => u32::from(ids[place]),
            Self::Medium(ids) => u32::from(ids[place]),
            Self::Wide(ids) => ids[place],
        }
    }
}

impl Documents {
    /// Reads one part of an inspected folder and splits it into tokens, in the order of its samples.
    ///
    /// # Errors
    /// A file is gone or changed since the folder was looked at; the tokenizer cannot split a text.
    pub fn open(
        inspection: &TextInspection,
        part: Part,
        tokenizer: &Tokenizer,
    ) -> Result<Self, DatasetError> {
        let mut documents = Self::empty(tokenizer.ids());
        load::texts(inspection, part, &mut |_, text| {
            documents.push(&tokenizer.encode(text)?, text.len() as u64);
            Ok(())
        })?;
        documents.ids.shrink();
        Ok(documents)
    }

    /// No documents yet, of tokens below `vocabulary`.
    pub fn empty(vocabulary: usize) -> Self {
        Self {
            ids: Ids::for_vocabulary(vocabulary),
            ends: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a document of tokens below the vocabulary, which was `bytes` long as text.
    pub fn push(&mut self, tokens: &[u32], bytes: u64) {
        self.ids.extend(tokens);
        self.ends.push(self.ids.len());
        self.bytes += bytes;
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Tokens of all documents together.
    pub fn token_count(&self) -> usize {
        self.ids.len()
    }

    /// Bytes of their texts in UTF-8, for bits per byte.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of tokens of a document; `index` must be below `len`.
    pub fn length(&self, index: usize) -> usize {
        self.ends[index] - self.start(index)
    }

    /// A token of a document; both must be below what there is.
    pub fn token(&self, index: usize, place: usize) -> u32 {
        self.ids.at(self.start(index) + place)
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}
