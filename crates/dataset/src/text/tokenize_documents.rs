//! Tokenizes the documents of a split one after the other. Neither their texts nor their tokens are
//! collected here.

use super::read_samples::read_samples;
use super::text_encoder::TextEncoder;
use super::text_inspection::TextInspection;
use crate::error::DatasetError;
use crate::types::Split;

/// Takes the tokens of documents while they are encoded.
pub trait TokenSink {
    /// Takes the next tokens of the current document.
    ///
    /// # Errors
    /// They cannot be stored. [`DatasetError::Stopped`] if the sink remembers the reason.
    fn tokens(&mut self, tokens: &[u32]) -> Result<(), DatasetError>;

    /// Ends the current document, whose text has `bytes` bytes.
    ///
    /// # Errors
    /// As for `tokens`.
    fn end_document(&mut self, bytes: u64) -> Result<(), DatasetError>;
}

/// Reads and tokenizes the documents of a split, in the order of the inspection. `goes_on` gets the
/// number of bytes that are tokenized, and returns false to stop.
///
/// # Errors
/// A file is missing or has changed since the inspection, the tokenizer cannot encode a text, or
/// `sink` fails; [`DatasetError::Stopped`] after a stop.
pub fn tokenize_documents(
    inspection: &TextInspection,
    split: Split,
    encoder: &mut TextEncoder,
    goes_on: &dyn Fn(u64) -> bool,
    sink: &mut dyn TokenSink,
) -> Result<(), DatasetError> {
    let mut done = 0;
    read_samples(inspection, split, &mut |sample, text| {
        let encoded = encoder.encode(text, &mut |tokens, bytes| {
            sink.tokens(tokens)?;
            done += bytes as u64;
            if goes_on(done) {
                Ok(())
            } else {
                Err(DatasetError::Stopped)
            }
        });
        let file = &inspection.files[sample.file as usize].path;
        encoded.map_err(|error| error.in_text(file, sample.row))?;
        sink.end_document(text.len() as u64)
    })
}
