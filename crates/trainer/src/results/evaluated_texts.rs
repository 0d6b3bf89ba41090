//! The texts of evaluated samples, read again from the dataset.

use super::Results;
use crate::error::{Result, TrainError};
use crate::sample_manifest;
use crate::task::split_name;
use dataset::{DetectedDataset, Split, TextInspection, read_samples};
use runlog::RunFolder;
use std::collections::BTreeMap;

impl Results {
    /// The texts of the samples at these indices of the evaluated split of the run.
    ///
    /// # Errors
    /// The run has no texts, or its files have moved or changed.
    pub fn sample_texts(&self, run: &RunFolder, indices: &[u32]) -> Result<Vec<String>> {
        let (found, split) = split_of_run(run, &self.report.part)?;
        let mut texts = BTreeMap::new();
        let mut place = 0;
        read_samples(&found, split, &mut |_, text| {
            if indices.contains(&place) {
                texts.insert(place, text.to_owned());
            }
            place += 1;
            Ok(())
        })?;
        let known = indices.iter().filter_map(|index| texts.get(index));
        Ok(known.cloned().collect())
    }
}

/// The texts of a run, and its split with the name `part` (`held-out`, `test`).
///
/// # Errors
/// The run has no texts, or its list of samples cannot be read.
pub(super) fn split_of_run(run: &RunFolder, part: &str) -> Result<(TextInspection, Split)> {
    let found = match sample_manifest::read(run)? {
        DetectedDataset::Texts(found) => found,
        DetectedDataset::Images(_) => {
            let message = "this run was trained on images, which have no text".to_owned();
            return Err(TrainError::NotTrainable { message });
        }
    };
    let split = [Split::Test, Split::HeldOut, Split::Train]
        .into_iter()
        .find(|split| split_name(*split) == part);
    Ok((found, split.unwrap_or(Split::HeldOut)))
}
