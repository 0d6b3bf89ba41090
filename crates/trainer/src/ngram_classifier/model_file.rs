//! The file of an n-gram baseline: the hashes, the weights and the biases.

use super::NgramModel;
use crate::baseline_file::{self, NamedTensor};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the file. It changes whenever the n-grams of a text would.
const VERSION: u32 = 1;

/// What the header holds besides the tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    version: u32,
    classes: Vec<String>,
}

impl NgramModel {
    /// Saves the model in a folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        baseline_file::save(folder, &self.description(), &self.tensors())
    }

    /// Loads the baseline of a run.
    ///
    /// # Errors
    /// The run has none, or the file is damaged.
    pub fn load(folder: &Path) -> Result<Self> {
        baseline_file::load(folder, Self::from_bytes)
    }

    fn description(&self) -> Description {
        Description {
            version: VERSION,
            classes: self.classes.clone(),
        }
    }

    fn tensors(&self) -> [NamedTensor; 3] {
        let (rows, classes) = (self.hashes.len(), self.bias.len());
        [
            NamedTensor::integers("hashes", &self.hashes),
            NamedTensor::floats("weights", vec![rows, classes], &self.weights),
            NamedTensor::floats("bias", vec![classes], &self.bias),
        ]
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (description, file) = baseline_file::parse::<Description>(bytes)?;
        let hashes = baseline_file::integers(&file, "hashes")?;
        let (classes, rows) = (description.classes.len(), hashes.len());
        let weights = baseline_file::floats(&file, "weights", &[rows, classes])?;
        let bias = baseline_file::floats(&file, "bias", &[classes])?;
        let is_usable = classes > 0 && description.version == VERSION && hashes.is_sorted();
        is_usable.then_some(NgramModel {
            classes: description.classes,
            hashes,
            weights,
            bias,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> NgramModel {
        NgramModel {
            classes: ["ham", "spam"].map(str::to_owned).into(),
            hashes: vec![3, 5, 900],
            weights: vec![0.5, -0.5, 1.0, 2.0, -3.0, 0.25],
            bias: vec![-0.1, -2.0],
        }
    }

    #[test]
    fn a_saved_baseline_is_loaded_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        model().save(folder.path()).expect("it can be written");
        let loaded = NgramModel::load(folder.path());
        assert_eq!(loaded.expect("it was saved"), model());
    }

    #[test]
    fn a_damaged_or_missing_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let message = || NgramModel::load(folder.path()).map_err(|error| error.to_string());
        let missing = message().expect_err("there is no file");
        assert!(missing.starts_with("this run has no baseline"), "{missing}");
        let to_bytes = |model: NgramModel| {
            baseline_file::to_bytes(&model.description(), &model.tensors()).expect("memory")
        };
        let bytes = to_bytes(model());
        let unsorted = NgramModel {
            hashes: vec![5, 3, 900],
            ..model()
        };
        let not_finite = NgramModel {
            bias: vec![f32::NAN, 0.0],
            ..model()
        };
        let bad = [unsorted, not_finite].map(to_bytes);
        for damaged in [&bytes[..bytes.len() - 1], &bytes[..7], &bad[0], &bad[1]] {
            std::fs::write(baseline_file::path_in(folder.path()), damaged).expect("it is writable");
            let found = message().expect_err("it is damaged");
            assert!(found.contains("the file is damaged"), "{found}");
        }
    }
}
