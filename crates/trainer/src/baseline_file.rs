//! The file of a baseline in the run folder and in an export: tensors as safetensors, with a
//! description as JSON in the header.

use crate::error::{Result, TrainError, at};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file.
const FILE: &str = "baseline.safetensors";
/// Most bytes of the file: three times those of the largest vocabulary of n-grams.
const MAX_BYTES: u64 = 512 << 20;
/// Most bytes of the header, which takes several times as much memory.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Key of the description in the header.
const KEY: &str = "ebb_baseline";

/// A tensor of the file.
pub(crate) struct NamedTensor {
    pub name: &'static str,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// Little-endian.
    pub bytes: Vec<u8>,
}

impl NamedTensor {
    /// A tensor of f32.
    pub fn floats(name: &'static str, shape: Vec<usize>, values: &[f32]) -> Self {
        NamedTensor {
            name,
            dtype: Dtype::F32,
            shape,
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }

    /// A row of u32.
    pub fn integers(name: &'static str, values: &[u32]) -> Self {
        NamedTensor {
            name,
            dtype: Dtype::U32,
            shape: vec![values.len()],
            bytes: values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
        }
    }
}

/// The file of the baseline in a folder.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// The bytes of the file of the baseline in a folder.
///
/// # Errors
/// There is none, or it is too large.
pub(crate) fn read(folder: &Path) -> Result<Vec<u8>> {
    let path = path_in(folder);
    disk::read_limited(&path, MAX_BYTES).map_err(at(&path))
}

/// Saves a baseline in a folder.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn save(
    folder: &Path,
    description: &impl Serialize,
    tensors: &[NamedTensor],
) -> Result<()> {
    let path = path_in(folder);
    let bytes = to_bytes(description, tensors).map_err(at(&path))?;
    disk::write_atomic(&path, &bytes).map_err(at(&path))
}

/// The bytes of the file.
pub(crate) fn to_bytes(
    description: &impl Serialize,
    tensors: &[NamedTensor],
) -> io::Result<Vec<u8>> {
    let header = HashMap::from([(KEY.to_owned(), serde_json::to_string(description)?)]);
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
        view.map(|view| (tensor.name, view))
            .map_err(io::Error::other)
    });
    let views: io::Result<Vec<_>> = views.collect();
    serialize(views?, Some(header)).map_err(io::Error::other)
}

/// Loads the baseline of a run. `decode` returns `None` for a damaged file.
///
/// # Errors
/// The run has none, or the file is damaged.
pub(crate) fn load<T>(folder: &Path, decode: impl FnOnce(&[u8]) -> Option<T>) -> Result<T> {
    let path = path_in(folder);
    let bytes = match disk::read_limited(&path, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(TrainError::NotTrainable {
                message: "this run has no baseline; Ebb trains a baseline for each new run of images or of texts with labels if you do not set --baseline none".to_owned(),
            });
        }
        bytes => bytes.map_err(at(&path))?,
    };
    let damaged = || TrainError::TensorMismatch {
        path: path.clone(),
        problem: "the file is damaged, or a different version of Ebb wrote it".to_owned(),
    };
    decode(&bytes).ok_or_else(damaged)
}

/// The description and the tensors of a file; `None` if it is damaged.
pub(crate) fn parse<D: DeserializeOwned>(bytes: &[u8]) -> Option<(D, SafeTensors<'_>)> {
    let header_bytes = u64::from_le_bytes(*bytes.first_chunk()?);
    if header_bytes > MAX_HEADER_BYTES {
        return None;
    }
    let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
    let description = metadata.metadata().as_ref()?.get(KEY)?;
    let description = serde_json::from_str(description).ok()?;
    Some((description, SafeTensors::deserialize(bytes).ok()?))
}

/// The values of a tensor of f32 with this shape; `None` if there is no such tensor, or if a value
/// is not finite.
pub(crate) fn floats(file: &SafeTensors, name: &str, shape: &[usize]) -> Option<Vec<f32>> {
    let view = file.tensor(name).ok()?;
    let (words, _) = view.data().as_chunks();
    let values: Vec<f32> = words.iter().copied().map(f32::from_le_bytes).collect();
    let is_usable = view.dtype() == Dtype::F32
        && view.shape() == shape
        && values.iter().all(|value| value.is_finite());
    is_usable.then_some(values)
}

/// The values of a row of u32.
pub(crate) fn integers(file: &SafeTensors, name: &str) -> Option<Vec<u32>> {
    let view = file.tensor(name).ok()?;
    let (words, _) = view.data().as_chunks();
    let is_usable = view.dtype() == Dtype::U32 && view.shape().len() == 1;
    is_usable.then(|| words.iter().copied().map(u32::from_le_bytes).collect())
}
