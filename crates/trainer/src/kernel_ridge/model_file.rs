//! The file of an image baseline: the features of the training images, and the coefficients.

use super::image_features::FEATURES;
use super::{GAMMA, KernelRidge, Target};
use crate::baseline_file::{self, NamedTensor};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the file. It changes whenever the features of an image would.
const VERSION: u32 = 1;

/// What the header holds besides the tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    version: u32,
    classes: Vec<String>,
    targets: Vec<Target>,
    /// Number of training images.
    images: usize,
    /// Falloff of the kernel.
    gamma: f32,
    /// Whether an image and its mirror image have the same outputs.
    symmetric: bool,
}

impl KernelRidge {
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
            targets: self.targets.clone(),
            images: self.images.len() / FEATURES,
            gamma: GAMMA,
            symmetric: self.is_symmetric,
        }
    }

    fn tensors(&self) -> [NamedTensor; 5] {
        let images = self.images.len() / FEATURES;
        let floats = NamedTensor::floats;
        [
            floats("means", vec![FEATURES], &self.means),
            floats("scale", vec![1], &[self.scale]),
            floats("images", vec![images, FEATURES], &self.images),
            floats(
                "coefficients",
                vec![self.outputs(), images],
                &self.coefficients,
            ),
            floats("bias", vec![self.outputs()], &self.bias),
        ]
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (description, file) = baseline_file::parse::<Description>(bytes)?;
        let outputs = description
            .classes
            .len()
            .checked_add(description.targets.len())?;
        let images = description.images;
        let floats = |name, shape: &[usize]| baseline_file::floats(&file, name, shape);
        let is_known = description.version == VERSION && description.gamma == GAMMA;
        if !is_known || outputs == 0 || images == 0 {
            return None;
        }
        Some(KernelRidge {
            classes: description.classes,
            targets: description.targets,
            means: floats("means", &[FEATURES])?,
            scale: floats("scale", &[1])?[0],
            is_symmetric: description.symmetric,
            images: floats("images", &[images, FEATURES])?,
            coefficients: floats("coefficients", &[outputs, images])?,
            bias: floats("bias", &[outputs])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> KernelRidge {
        KernelRidge {
            classes: ["cat", "dog"].map(str::to_owned).into(),
            targets: vec![Target {
                name: "mass".to_owned(),
                mean: 12.5,
                deviation: 3.0,
            }],
            means: vec![0.5; FEATURES],
            scale: 2.0,
            is_symmetric: true,
            images: vec![0.25; 2 * FEATURES],
            coefficients: vec![0.5, -0.5, 1.0, 2.0, -3.0, 0.25],
            bias: vec![-0.1, -2.0, 0.0],
        }
    }

    #[test]
    fn a_saved_image_baseline_is_loaded_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        model().save(folder.path()).expect("it can be written");
        let loaded = KernelRidge::load(folder.path());
        assert_eq!(loaded.expect("it was saved"), model());
    }

    #[test]
    fn a_damaged_image_baseline_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let to_bytes = |model: KernelRidge| {
            baseline_file::to_bytes(&model.description(), &model.tensors()).expect("memory")
        };
        let bytes = to_bytes(model());
        let bad = to_bytes(KernelRidge {
            bias: vec![f32::NAN, 0.0, 0.0],
            ..model()
        });
        for damaged in [&bytes[..bytes.len() - 1], &bytes[..7], &bad] {
            let path = baseline_file::path_in(folder.path());
            std::fs::write(path, damaged).expect("it is writable");
            let found = KernelRidge::load(folder.path()).map_err(|error| error.to_string());
            let message = found.expect_err("it is damaged");
            assert!(message.contains("the file is damaged"), "{message}");
        }
    }
}
