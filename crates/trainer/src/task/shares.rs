//! How common each token is in the texts trained on: counted once, kept in the run folder for whoever uses the run later.

use crate::durable::publish;
use crate::error::{Result, at};
use dataset::{Documents, Tokenizer};
use runlog::RunFolder;
use std::path::Path;
use std::sync::Arc;

/// The file in the run folder.
const SHARES: &str = "token_shares.json";

/// Counts the tokens of `documents`, and keeps the shares with the run.
pub fn counted(documents: &Documents, run: &RunFolder) -> Result<Arc<[f32]>> {
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
    let shares = counts.iter().map(|count| (*count as f64 / all) as f32);
    let shares: Vec<f32> = shares.collect();
    let path = run.path.join(SHARES);
    if !path.exists() {
        let written = serde_json::to_string(&shares).map_err(std::io::Error::other);
        publish(&path, written.map_err(at(&path))?.as_bytes())?;
    }
    Ok(shares.into())
}

/// The shares that a run was trained with.
pub fn kept(run: &Path) -> Result<Arc<[f32]>> {
    let path = run.join(SHARES);
    let text = std::fs::read_to_string(&path).map_err(at(&path))?;
    let shares: Vec<f32> = serde_json::from_str(&text)
        .map_err(std::io::Error::other)
        .map_err(at(&path))?;
    Ok(shares.into())
}
