//! Tokens of documents in a file that is written once and mapped into memory, so that they need no
//! memory of their own and a later run need not tokenize again.
//!
//! The file has, in little-endian order: all tokens; zeros up to a multiple of 8 bytes; the end of
//! each document, counted in tokens (u64); the checksum of each block of the bytes before (u32);
//! the footer. A file that is incomplete, damaged or for other texts is not opened.

use dataset::{DatasetError, Documents, StoredTokens, TokenBytes, TokenSink, TokenWidth};
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// How the footer begins. Changes with the format.
const MAGIC: u64 = u64::from_le_bytes(*b"EBBTOKN1");
/// Bytes of the footer: eight numbers and their checksum, each of 8 bytes.
const FOOTER_BYTES: usize = 72;
/// Bytes of a block that has a checksum.
const BLOCK_BYTES: usize = 1 << 20;
/// Most blocks that are checked when a file is opened, so that it takes seconds. They are spread
/// evenly over the file.
const CHECKED_BLOCKS: usize = 1 << 12;

/// The texts that tokens were made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenFileKey {
    /// Hash of the texts and the vocabulary.
    pub content: u64,
    /// Hash of the names, sizes and times of change of the text files.
    pub sources: u64,
}

/// The last bytes of a token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Footer {
    key: TokenFileKey,
    /// Bytes per token.
    width: u64,
    tokens: u64,
    documents: u64,
    text_bytes: u64,
    /// Checksum of the checksums of all blocks.
    checksum: u32,
}

/// Where the parts of a file begin.
struct Places {
    ends: u64,
    checksums: u64,
    footer: u64,
}

impl Footer {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [
            MAGIC,
            self.width,
            self.tokens,
            self.documents,
            self.text_bytes,
            self.key.content,
            self.key.sources,
            self.checksum.into(),
        ];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let checksum = u64::from(crc32fast::hash(&bytes));
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Reads a footer; `None` if it is damaged.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let numbers: [u64; 9] = numbers(bytes).try_into().ok()?;
        let [
            magic,
            width,
            tokens,
            documents,
            text_bytes,
            content,
            sources,
            checksum,
            own,
        ] = numbers;
        let is_intact = own == u64::from(crc32fast::hash(&bytes[..FOOTER_BYTES - 8]));
        (is_intact && magic == MAGIC).then_some(Footer {
            key: TokenFileKey { content, sources },
            width,
            tokens,
            documents,
            text_bytes,
            checksum: u32::try_from(checksum).ok()?,
        })
    }

    /// Where the parts of the file begin; `None` if no file is that large.
    fn places(&self) -> Option<Places> {
        let tokens = self.tokens.checked_mul(self.width)?;
        let ends = tokens.checked_next_multiple_of(8)?;
        let checksums = ends.checked_add(self.documents.checked_mul(8)?)?;
        let blocks = checksums.div_ceil(BLOCK_BYTES as u64);
        Some(Places {
            ends,
            checksums,
            footer: checksums.checked_add(4 * blocks)?,
        })
    }

    fn token_width(&self) -> Option<TokenWidth> {
        let widths = [TokenWidth::One, TokenWidth::Two, TokenWidth::Four];
        let mut widths = widths.into_iter();
        widths.find(|width| width.bytes() as u64 == self.width)
    }
}

/// The numbers of 8 bytes each.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    bytes.chunks_exact(8).map(number).collect()
}

/// Writes a token file.
pub(super) struct TokenFileWriter {
    file: disk::File,
    width: TokenWidth,
    /// The bytes of the block that is not full yet.
    block: Vec<u8>,
    checksums: Vec<u32>,
    tokens: u64,
    ends: Vec<u64>,
    text_bytes: u64,
    failure: Option<io::Error>,
}

impl TokenFileWriter {
    /// Begins a file at `path`.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn create(path: &Path, width: TokenWidth) -> io::Result<Self> {
        Ok(TokenFileWriter {
            file: disk::File::open(path, 0)?,
            width,
            block: Vec::with_capacity(BLOCK_BYTES),
            checksums: Vec::new(),
            tokens: 0,
            ends: Vec::new(),
            text_bytes: 0,
            failure: None,
        })
    }

    /// Why the disk refused tokens, if it did.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Completes the file. A small file is not synced: if a power failure damages it, it is written
    /// again. In a large file, not every block is checked.
    ///
    /// # Errors
    /// The disk is full or failed.
    pub fn finish(mut self, key: TokenFileKey) -> io::Result<()> {
        let token_bytes = self.tokens * self.width.bytes() as u64;
        let padding = (token_bytes.next_multiple_of(8) - token_bytes) as usize;
        self.append(&[0; 8][..padding])?;
        let ends = std::mem::take(&mut self.ends);
        for end in &ends {
            self.append(&end.to_le_bytes())?;
        }
        self.end_block()?;
        let checksums = self.checksums.iter().flat_map(|sum| sum.to_le_bytes());
        let checksums: Vec<u8> = checksums.collect();
        self.file.write_all(&checksums)?;
        let footer = Footer {
            key,
            width: self.width.bytes() as u64,
            tokens: self.tokens,
            documents: ends.len() as u64,
            text_bytes: self.text_bytes,
            checksum: crc32fast::hash(&checksums),
        };
        self.file.write_all(&footer.to_bytes())?;
        if self.checksums.len() > CHECKED_BLOCKS {
            self.file.sync_data()?;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rest.len().min(BLOCK_BYTES - self.block.len());
            let (now, later) = rest.split_at(count);
            self.block.extend_from_slice(now);
            rest = later;
            if self.block.len() == BLOCK_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            self.checksums.push(crc32fast::hash(&self.block));
            self.file.write_all(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }
}

impl TokenSink for TokenFileWriter {
    fn tokens(&mut self, tokens: &[u32]) -> Result<(), DatasetError> {
        let mut bytes = Vec::with_capacity(tokens.len() * self.width.bytes());
        self.width.append(tokens, &mut bytes);
        self.tokens += tokens.len() as u64;
        self.append(&bytes).map_err(|error| {
            self.failure = Some(error);
            DatasetError::Stopped
        })
    }

    fn end_document(&mut self, bytes: u64) -> Result<(), DatasetError> {
        self.ends.push(self.tokens);
        self.text_bytes += bytes;
        Ok(())
    }
}

/// The bytes of a mapped file.
#[derive(Debug)]
struct MappedTokens(Mmap);

impl TokenBytes for MappedTokens {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Opens a token file, and marks it as used now. `None` if there is none for these texts, or if it
/// is incomplete or damaged.
pub(super) fn open_token_file(path: &Path, key: TokenFileKey) -> Option<Documents> {
    let file = File::open(path).ok()?;
    let footer_at = file
        .metadata()
        .ok()?
        .len()
        .checked_sub(FOOTER_BYTES as u64)?;
    let footer = read_at(&file, footer_at, FOOTER_BYTES as u64)?;
    let footer = Footer::from_bytes(&footer).filter(|footer| footer.key == key)?;
    let (width, places) = (footer.token_width()?, footer.places()?);
    if places.footer != footer_at {
        return None;
    }
    let checksums = read_at(&file, places.checksums, footer_at - places.checksums)?;
    let is_intact = crc32fast::hash(&checksums) == footer.checksum
        && blocks_are_intact(&file, places.checksums, &checksums);
    let ends = numbers(&read_at(&file, places.ends, 8 * footer.documents)?);
    if !is_intact || !ends.is_sorted() || ends.last().copied().unwrap_or(0) != footer.tokens {
        return None;
    }
    // SAFETY: Ebb replaces a token file as a whole, by a rename, and never changes it. The mapping
    // stays valid if the file is removed.
    let map = unsafe { Mmap::map(&file) }.ok()?;
    // Only the age of files that are not used depends on it.
    let _ = file.set_modified(SystemTime::now());
    Some(Documents::stored(StoredTokens {
        bytes: Arc::new(MappedTokens(map)),
        width,
        ends: ends.into_iter().map(|end| end as usize).collect(),
        text_bytes: footer.text_bytes,
    }))
}

fn read_at(file: &File, start: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut buffer, start).ok()?;
    Some(buffer)
}

/// Whether the blocks up to `end` have their checksums.
fn blocks_are_intact(file: &File, end: u64, checksums: &[u8]) -> bool {
    let checksums = checksums.chunks_exact(4).enumerate();
    let interval = checksums.len().div_ceil(CHECKED_BLOCKS).max(1);
    let mut buffer = vec![0; BLOCK_BYTES];
    checksums.step_by(interval).all(|(index, checksum)| {
        let start = index as u64 * BLOCK_BYTES as u64;
        let length = (end - start).min(BLOCK_BYTES as u64) as usize;
        let block = &mut buffer[..length];
        let is_read = file.read_exact_at(block, start).is_ok();
        is_read && crc32fast::hash(block).to_le_bytes() == checksum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: TokenFileKey = TokenFileKey {
        content: 11,
        sources: 22,
    };

    /// Two long documents and an empty one between them, in blocks that are not all full.
    fn write(path: &Path) -> Vec<Vec<u32>> {
        let document = |length: u32, step: u32| -> Vec<u32> {
            (0..length).map(|i| i.wrapping_mul(step) % 60_000).collect()
        };
        let documents = vec![document(700_001, 7), Vec::new(), document(500_002, 13)];
        let mut writer = TokenFileWriter::create(path, TokenWidth::Two).expect("a new file");
        for document in &documents {
            for tokens in document.chunks(1000) {
                writer.tokens(tokens).expect("the disk has space");
            }
            writer.end_document(5).expect("the disk has space");
        }
        assert!(writer.take_failure().is_none());
        writer.finish(KEY).expect("the disk has space");
        documents
    }

    #[test]
    fn a_token_file_has_the_documents_that_were_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("texts.tokens");
        assert!(open_token_file(&path, KEY).is_none());
        let written = write(&path);
        let read = open_token_file(&path, KEY).expect("it is complete");
        assert!(!read.is_in_memory());
        assert_eq!((read.len(), read.bytes()), (3, 15));
        for (index, document) in written.iter().enumerate() {
            assert_eq!(read.length(index), document.len());
            let tokens = (0..document.len()).map(|at| read.token(index, at));
            assert!(tokens.eq(document.iter().copied()), "document {index}");
        }
    }

    #[test]
    fn a_token_file_of_other_texts_is_not_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("texts.tokens");
        write(&path);
        let (content, sources) = (12, 23);
        assert!(open_token_file(&path, TokenFileKey { content, ..KEY }).is_none());
        assert!(open_token_file(&path, TokenFileKey { sources, ..KEY }).is_none());
    }

    #[test]
    fn a_damaged_or_incomplete_token_file_is_not_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("texts.tokens");
        write(&path);
        let whole = std::fs::read(&path).expect("it is there");
        let is_opened = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("it can be written");
            open_token_file(&path, KEY).is_some()
        };
        assert!(is_opened(&whole));
        // A bit of the first block, of the last block, of the checksums, and of the footer.
        let last = whole.len();
        for at in [
            5,
            1_100_000,
            last - 100,
            last - 75,
            last - 70,
            last - 40,
            last - 5,
        ] {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            assert!(!is_opened(&damaged), "byte {at} of {last}");
        }
        for length in [0, 10, FOOTER_BYTES, 1 << 20, last - 8, last - 1] {
            assert!(!is_opened(&whole[..length]), "{length} of {last} bytes");
        }
        assert!(!is_opened(&[whole.as_slice(), &[0; 8]].concat()));
        assert!(is_opened(&whole));
    }

    #[test]
    fn a_full_disk_is_remembered_as_the_reason() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let Ok(mut writer) = TokenFileWriter::create(full, TokenWidth::Four) else {
            // Some systems do not shorten a device.
            return;
        };
        let tokens = vec![1; BLOCK_BYTES];
        assert!(matches!(writer.tokens(&tokens), Err(DatasetError::Stopped)));
        assert!(writer.take_failure().is_some());
    }
}
