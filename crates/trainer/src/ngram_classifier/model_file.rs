//! The file of a baseline in the run folder and in an export: the hashes, the weights and the
//! biases as safetensors, with the class names as JSON in its header.

use super::NgramModel;
use crate::error::{Result, TrainError, at};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "baseline.safetensors";
/// Key of the description in the header.
const KEY: &str = "ebb_baseline";
/// Version of the file. It changes whenever the n-grams of a text would.
const VERSION: u32 = 1;

/// What the header holds besides the tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    version: u32,
    classes: Vec<String>,
}

impl NgramModel {
    /// The file of the baseline in a folder.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Saves the model in a folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let path = Self::path_in(folder);
        let bytes = self.to_bytes().map_err(at(&path))?;
        disk::write_atomic(&path, &bytes).map_err(at(&path))
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let classes = self.classes.clone();
        let description = serde_json::to_string(&Description {
            version: VERSION,
            classes,
        })?;
        let hashes: Vec<u8> = self.hashes.iter().flat_map(|n| n.to_le_bytes()).collect();
        let weights: Vec<u8> = self.weights.iter().flat_map(|n| n.to_le_bytes()).collect();
        let bias: Vec<u8> = self.bias.iter().flat_map(|n| n.to_le_bytes()).collect();
        let (rows, classes) = (self.hashes.len(), self.bias.len());
        let tensor =
            |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).map_err(io::Error::other);
        let tensors = [
            ("hashes", tensor(Dtype::U32, vec![rows], &hashes)?),
            (
                "weights",
                tensor(Dtype::F32, vec![rows, classes], &weights)?,
            ),
            ("bias", tensor(Dtype::F32, vec![classes], &bias)?),
        ];
        let header = HashMap::from([(KEY.to_owned(), description)]);
        serialize(tensors, Some(header)).map_err(io::Error::other)
    }

    /// Loads the baseline of a run.
    ///
    /// # Errors
    /// The run has none, or the file is damaged.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = Self::path_in(folder);
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(TrainError::NotTrainable {
                    message: "this run has no baseline; Ebb trains a baseline for each new run that classifies texts, unless you set --baseline none".to_owned(),
                });
            }
            bytes => bytes.map_err(at(&path))?,
        };
        let damaged = || TrainError::TensorMismatch {
            path: path.clone(),
            problem: "it is damaged, or another version of Ebb wrote it".to_owned(),
        };
        Self::from_bytes(&bytes).ok_or_else(damaged)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
        let description = metadata.metadata().as_ref()?.get(KEY)?;
        let description: Description = serde_json::from_str(description).ok()?;
        let file = SafeTensors::deserialize(bytes).ok()?;
        let tensor = |name, dtype| file.tensor(name).ok().filter(|view| view.dtype() == dtype);
        let words = |view: &TensorView| -> Vec<[u8; 4]> {
            let (words, _) = view.data().as_chunks();
            words.to_vec()
        };
        let floats = |view: &TensorView| -> Vec<f32> {
            words(view).into_iter().map(f32::from_le_bytes).collect()
        };
        let hashes = words(&tensor("hashes", Dtype::U32)?);
        let hashes: Vec<u32> = hashes.into_iter().map(u32::from_le_bytes).collect();
        let weights = tensor("weights", Dtype::F32)?;
        let (classes, rows) = (description.classes.len(), hashes.len());
        let bias = floats(&tensor("bias", Dtype::F32)?);
        let fits = weights.shape() == [rows, classes] && bias.len() == classes && classes > 0;
        let weights = floats(&weights);
        let is_usable = fits
            && description.version == VERSION
            && hashes.is_sorted()
            && weights.iter().chain(&bias).all(|weight| weight.is_finite());
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
        let bytes = model().to_bytes().expect("memory can be written");
        let unsorted = NgramModel {
            hashes: vec![5, 3, 900],
            ..model()
        };
        let not_finite = NgramModel {
            bias: vec![f32::NAN, 0.0],
            ..model()
        };
        let bad = [unsorted, not_finite].map(|model| model.to_bytes().expect("memory"));
        for damaged in [&bytes[..bytes.len() - 1], &bytes[..7], &bad[0], &bad[1]] {
            std::fs::write(NgramModel::path_in(folder.path()), damaged).expect("it is writable");
            let found = message().expect_err("it is damaged");
            assert!(found.contains("it is damaged"), "{found}");
        }
    }
}
