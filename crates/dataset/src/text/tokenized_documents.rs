//! The documents of one split as tokens: one long array, and the end of each document. A token
//! takes one, two or four bytes, depending on the vocabulary. The array is in memory, or in bytes
//! that the caller holds, such as a mapped file.

use super::text_encoder::TextEncoder;
use super::text_inspection::TextInspection;
use super::tokenize_conversations::LeftOut;
use super::tokenize_documents::{TokenSink, tokenize_documents};
use super::tokenizer::Tokenizer;
use crate::error::DatasetError;
use crate::types::Split;
use std::fmt;
use std::sync::Arc;

/// The documents of one split, as tokens.
#[derive(Debug, Clone)]
pub struct Documents {
    ids: Ids,
    ends: Vec<usize>,
    bytes: u64,
    left_out: LeftOut,
}

/// The number of bytes of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenWidth {
    /// One byte, for at most 256 different tokens.
    One,
    /// Two bytes, for at most 65,536 different tokens.
    Two,
    /// Four bytes.
    Four,
}

impl TokenWidth {
    /// The smallest width for tokens below `limit`.
    fn for_limit(limit: usize) -> Self {
        match limit {
            0..=0x100 => Self::One,
            0x101..=0x1_0000 => Self::Two,
            _ => Self::Four,
        }
    }

    /// The width of the tokens of a vocabulary.
    pub fn for_tokenizer(tokenizer: &Tokenizer) -> Self {
        Self::for_limit(tokenizer.id_limit())
    }

    /// Bytes per token: 1, 2 or 4.
    pub fn bytes(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Appends tokens in little-endian order.
    pub fn append(self, tokens: &[u32], bytes: &mut Vec<u8>) {
        match self {
            Self::One => bytes.extend(tokens.iter().map(|id| *id as u8)),
            Self::Two => bytes.extend(tokens.iter().flat_map(|id| (*id as u16).to_le_bytes())),
            Self::Four => bytes.extend(tokens.iter().flat_map(|id| id.to_le_bytes())),
        }
    }
}

/// Bytes that do not change, such as those of a mapped file.
pub trait TokenBytes: fmt::Debug + Send + Sync {
    /// All bytes; the same at every call.
    fn bytes(&self) -> &[u8];
}

/// Tokens that the caller holds, in little-endian order from the first byte on.
#[derive(Debug, Clone)]
pub struct StoredTokens {
    /// The tokens; more bytes may follow.
    pub bytes: Arc<dyn TokenBytes>,
    /// Bytes per token.
    pub width: TokenWidth,
    /// The end of each document, in tokens; never smaller than the one before.
    pub ends: Vec<usize>,
    /// Bytes of the texts in UTF-8.
    pub text_bytes: u64,
}

/// Tokens in the smallest integer type that fits the vocabulary.
#[derive(Debug, Clone)]
enum Ids {
    Narrow(Vec<u8>),
    Medium(Vec<u16>),
    Wide(Vec<u32>),
    Stored(Arc<dyn TokenBytes>, TokenWidth),
}

impl Ids {
    fn new(width: TokenWidth) -> Self {
        match width {
            TokenWidth::One => Self::Narrow(Vec::new()),
            TokenWidth::Two => Self::Medium(Vec::new()),
            TokenWidth::Four => Self::Wide(Vec::new()),
        }
    }

    fn extend(&mut self, ids: &[u32]) {
        match self {
            Self::Narrow(all) => all.extend(ids.iter().map(|id| *id as u8)),
            Self::Medium(all) => all.extend(ids.iter().map(|id| *id as u16)),
            Self::Wide(all) => all.extend(ids),
            Self::Stored(..) => debug_assert!(false, "stored documents are complete"),
        }
    }

    /// Frees unused capacity.
    fn shrink(&mut self) {
        match self {
            Self::Narrow(all) => all.shrink_to_fit(),
            Self::Medium(all) => all.shrink_to_fit(),
            Self::Wide(all) => all.shrink_to_fit(),
            Self::Stored(..) => {}
        }
    }

    fn at(&self, position: usize) -> u32 {
        match self {
            Self::Narrow(ids) => u32::from(ids[position]),
            Self::Medium(ids) => u32::from(ids[position]),
            Self::Wide(ids) => ids[position],
            Self::Stored(stored, width) => {
                let at = position * width.bytes();
                match (width, &stored.bytes()[at..at + width.bytes()]) {
                    (TokenWidth::Two, [a, b]) => u32::from(u16::from_le_bytes([*a, *b])),
                    (TokenWidth::Four, [a, b, c, d]) => u32::from_le_bytes([*a, *b, *c, *d]),
                    (_, bytes) => u32::from(bytes[0]),
                }
            }
        }
    }
}

/// Appends documents while they are tokenized.
struct Appending<'d> {
    documents: &'d mut Documents,
    /// Number of tokens so far.
    tokens: usize,
}

impl TokenSink for Appending<'_> {
    fn tokens(&mut self, tokens: &[u32]) -> Result<(), DatasetError> {
        self.documents.ids.extend(tokens);
        self.tokens += tokens.len();
        Ok(())
    }

    fn end_document(&mut self, bytes: u64) -> Result<(), DatasetError> {
        self.documents.ends.push(self.tokens);
        self.documents.bytes += bytes;
        Ok(())
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
        let mut encoder = TextEncoder::new(tokenizer, 1);
        let width = TokenWidth::for_tokenizer(tokenizer);
        Self::tokenized(inspection, split, &mut encoder, width, &|_| true)
    }

    /// Reads and tokenizes the documents of a split into memory. `width` is that of the encoder's
    /// vocabulary. `goes_on` gets the number of bytes that are tokenized, and returns false to
    /// stop.
    ///
    /// # Errors
    /// See [`tokenize_documents`].
    pub fn tokenized(
        inspection: &TextInspection,
        split: Split,
        encoder: &mut TextEncoder,
        width: TokenWidth,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Self, DatasetError> {
        let mut documents = Self::with_width(width);
        documents.append(|sink| tokenize_documents(inspection, split, encoder, goes_on, sink))?;
        Ok(documents)
    }

    /// Appends the documents that `tokenize` passes on.
    ///
    /// # Errors
    /// Those of `tokenize`.
    pub fn append<T>(
        &mut self,
        tokenize: impl FnOnce(&mut dyn TokenSink) -> Result<T, DatasetError>,
    ) -> Result<T, DatasetError> {
        let tokens = self.token_count();
        let mut sink = Appending {
            documents: self,
            tokens,
        };
        let outcome = tokenize(&mut sink);
        self.ids.shrink();
        outcome
    }

    /// Conversations that were left out while they were tokenized. Nothing is known about those of
    /// stored tokens.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// The same documents with what was left out.
    #[must_use]
    pub fn with_left_out(self, left_out: LeftOut) -> Self {
        Self { left_out, ..self }
    }

    /// Documents whose tokens the caller holds. No document can be added.
    pub fn stored(stored: StoredTokens) -> Self {
        Self {
            ids: Ids::Stored(stored.bytes, stored.width),
            ends: stored.ends,
            bytes: stored.text_bytes,
            left_out: LeftOut::default(),
        }
    }

    /// An empty list of documents whose tokens are below `vocabulary`.
    pub fn empty(vocabulary: usize) -> Self {
        Self::with_width(TokenWidth::for_limit(vocabulary))
    }

    /// An empty list of documents whose tokens have this width.
    pub fn with_width(width: TokenWidth) -> Self {
        Self {
            ids: Ids::new(width),
            ends: Vec::new(),
            bytes: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Adds a document. Its tokens must be below the vocabulary; `bytes` is the length of its text.
    pub fn push(&mut self, tokens: &[u32], bytes: u64) {
        self.ids.extend(tokens);
        self.ends.push(self.token_count() + tokens.len());
        self.bytes += bytes;
    }

    /// Whether the tokens are in memory that belongs to these documents.
    pub fn is_in_memory(&self) -> bool {
        !matches!(self.ids, Ids::Stored(..))
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
        self.ends.last().copied().unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl TokenBytes for Bytes {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    #[test]
    fn stored_documents_have_the_same_tokens_as_those_in_memory() {
        for (limit, width) in [(256, 1), (257, 2), (0x1_0000, 2), (0x1_0001, 4)] {
            let mut documents = Documents::empty(limit);
            let (first, second) = ([1, 255, limit as u32 - 1], [7, 0]);
            documents.push(&first, 5);
            documents.push(&[], 0);
            documents.push(&second, 4);
            let mut bytes = Vec::new();
            let width_of_limit = TokenWidth::for_limit(limit);
            assert_eq!(width_of_limit.bytes(), width);
            width_of_limit.append(&first, &mut bytes);
            width_of_limit.append(&second, &mut bytes);
            bytes.extend([9; 3]);
            let stored = Documents::stored(StoredTokens {
                bytes: Arc::new(Bytes(bytes)),
                width: width_of_limit,
                ends: vec![3, 3, 5],
                text_bytes: 9,
            });
            assert!(documents.is_in_memory() && !stored.is_in_memory());
            assert_eq!((stored.len(), stored.token_count()), (3, 5));
            assert_eq!(stored.bytes(), documents.bytes());
            for document in 0..3 {
                assert_eq!(stored.length(document), documents.length(document));
                for at in 0..stored.length(document) {
                    let tokens = (stored.token(document, at), documents.token(document, at));
                    assert_eq!(tokens.0, tokens.1, "token {at} below {limit}");
                }
            }
        }
    }
}
