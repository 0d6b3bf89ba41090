//! The texts of evaluated samples, read again from the dataset.

use crate::error::{Result, TrainError};
use crate::manifest;
use crate::task::split_name;
use dataset::{DetectedDataset, Split, TextDataset};
use runlog::RunFolder;

/// The texts at these indices of a split (`held-out`, `test`) of a run.
///
/// # Errors
/// The run has no texts, or its files have moved or changed.
pub fn sample_texts(run: &RunFolder, part: &str, indices: &[u32]) -> Result<Vec<String>> {
    let found = match manifest::read(run)? {
        DetectedDataset::Texts(found) => found,
        DetectedDataset::Images(_) => {
            let message = "this run was trained on images, which have no text".to_owned();
            return Err(TrainError::NotTrainable { message });
        }
    };
    let split = [Split::Test, Split::HeldOut, Split::Train]
        .into_iter()
        .find(|split| split_name(*split) == part);
    let rows = TextDataset::open(&found, split.unwrap_or(Split::HeldOut))?;
    let known = indices
        .iter()
        .filter(|index| (**index as usize) < rows.len());
    Ok(known
        .map(|index| rows.row(*index as usize).0.to_owned())
        .collect())
}
