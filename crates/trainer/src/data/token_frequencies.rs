//! The relative frequency of each token in the training texts: counted once and saved in the run
//! folder.

use crate::error::{Result, at};
use dataset::{Documents, Tokenizer};
use runlog::RunFolder;
use std::path::Path;
use std::sync::Arc;

/// File name in the run folder.
pub(crate) const FREQUENCIES: &str = "token_shares.json";

/// Most bytes of the file: a number for each of the few hundred tokens.
const MAX_BYTES: u64 = 1 << 20;

/// Counts the bytes of `documents` and saves their frequencies in the run folder.
pub(crate) fn token_frequencies(documents: &Documents, run: &RunFolder) -> Result<Arc<[f32]>> {
    let bytes = Tokenizer::bytes();
    let mut counts = vec![0u64; bytes.vocabulary()];
    if let Some(boundary) = bytes.boundary() {
        counts[boundary as usize] = documents.len() as u64;
    }
    for document in 0..documents.len() {
        for place in 0..documents.length(document) {
            counts[documents.token(document, place) as usize] += 1;
        }
    }
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let frequencies = counts.iter().map(|count| (*count as f64 / all) as f32);
    let frequencies: Vec<f32> = frequencies.collect();
    let path = run.path.join(FREQUENCIES);
    if !path.exists() {
        let json = serde_json::to_string(&frequencies).map_err(std::io::Error::other);
        let json = json.map_err(at(&path))?;
        disk::write_atomic(&path, json.as_bytes()).map_err(at(&path))?;
    }
    Ok(frequencies.into())
}

/// Reads the frequencies that a run was trained with.
pub(crate) fn load_token_frequencies(run: &Path) -> Result<Arc<[f32]>> {
    let path = run.join(FREQUENCIES);
    let text = disk::read_text_limited(&path, MAX_BYTES).map_err(at(&path))?;
    let frequencies: Vec<f32> = serde_json::from_str(&text)
        .map_err(std::io::Error::other)
        .map_err(at(&path))?;
    Ok(frequencies.into())
}
