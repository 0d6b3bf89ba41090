//! The tensors of a folder by name, from one `model.safetensors`, several files with an index, or
//! the link to a GGUF file in an unpacked folder.
//! Headers are read and checked first, values one tensor at a time, so a file never has to fit into
//! memory and every problem can be reported at once. Pickled files are refused.

use super::gguf::{GGUF_FILE, GgufHeader, GgufTensor, RowOrder, published_tensors};
use super::json_config::JsonConfig;
use crate::error::{ModelError, Result};
use candle_core::{DType, Device, Tensor};
use format::format_io_error;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, Metadata};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Largest header that is read, in bytes. The format allows 100 million, but lists of tensors of
/// the largest models have about one; in memory a header takes up to ten times its bytes.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// Size of the field that holds the header's length, in bytes.
const LENGTH_BYTES: u64 = 8;
/// Values that a thread converts at once.
const CONVERTED: usize = 1 << 20;
/// Extensions of files that may hold a pickled program.
const PICKLED: [&str; 7] = ["bin", "pt", "pth", "ckpt", "pkl", "pickle", "joblib"];

/// Where the values of a tensor are stored.
#[derive(Debug, Clone)]
struct Location {
    file: PathBuf,
    shape: Vec<usize>,
    values: Stored,
}

/// How the values of a tensor are stored.
#[derive(Debug, Clone)]
enum Stored {
    Plain {
        dtype: Dtype,
        /// Offset of the first byte in the file.
        begin: u64,
        bytes: usize,
    },
    Gguf(GgufTensor, RowOrder),
}

/// All tensors of a folder, without their values.
#[derive(Debug, Clone)]
pub(crate) struct TensorIndex {
    folder: PathBuf,
    locations: BTreeMap<String, Location>,
}

impl TensorIndex {
    /// Reads the headers of a folder's tensor files.
    pub fn open(folder: &Path) -> Result<Self> {
        let gguf = folder.join(GGUF_FILE);
        if gguf.is_file() && !folder.join(FILE).exists() {
            return TensorIndex::from_gguf(folder, &gguf);
        }
        let mut locations = BTreeMap::new();
        for file in files(folder)? {
            for (name, location) in read_header(&file)? {
                let name = current_name(name);
                if locations.contains_key(&name) {
                    return Err(ModelError::hub_folder(
                        &file,
                        format!("the file holds {name} twice"),
                    ));
                }
                locations.insert(name, location);
            }
        }
        Ok(TensorIndex {
            folder: folder.to_owned(),
            locations,
        })
    }

    /// The tensors of the GGUF file in an unpacked folder.
    fn from_gguf(folder: &Path, file: &Path) -> Result<Self> {
        let header = GgufHeader::read(file)?;
        let tensors = published_tensors(&header)?.into_iter();
        let locations = tensors.map(|(name, tensor, order)| {
            let location = Location {
                file: file.to_owned(),
                shape: tensor.shape().to_vec(),
                values: Stored::Gguf(tensor, order),
            };
            (name, location)
        });
        Ok(TensorIndex {
            folder: folder.to_owned(),
            locations: locations.collect(),
        })
    }

    /// Names of the files that hold the tensors, and of the index if there is one.
    pub fn file_names(&self) -> BTreeSet<String> {
        let files = self
            .locations
            .values()
            .filter_map(|location| location.file.file_name());
        let mut names: BTreeSet<String> = files
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if !names.contains(FILE) && !names.contains(GGUF_FILE) {
            names.insert(INDEX.to_owned());
        }
        names
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.locations.keys().map(String::as_str)
    }

    pub fn count_values(&self) -> u64 {
        let counts = self.locations.values().map(|location| &location.shape);
        counts
            .map(|shape| shape.iter().product::<usize>() as u64)
            .sum()
    }

    /// The shape of a tensor; `None` if there is none of this name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.locations.get(name).map(|location| &*location.shape)
    }

    /// The values of a tensor in row-major order, rounded to f32. Fails if one is not finite.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let Some(location) = self.locations.get(name) else {
            return Err(ModelError::hub_folder(
                &self.folder,
                format!("the file has no tensor {name}"),
            ));
        };
        let refuse = |reason: String| ModelError::hub_folder(&location.file, reason);
        let values = match &location.values {
            Stored::Gguf(tensor, order) => {
                order.restore(tensor.read(&location.file)?, &location.shape)
            }
            Stored::Plain {
                dtype,
                begin,
                bytes,
            } => read_plain(name, location, *dtype, *begin, *bytes)?,
        };
        if values.par_iter().all(|v| v.is_finite()) {
            return Ok(values);
        }
        Err(refuse(format!(
            "{name} has NaN or infinite values; download the folder again"
        )))
    }
}

/// The values of a tensor of a safetensors file, which has this many
/// bytes from `begin` on, rounded to f32.
fn read_plain(
    name: &str,
    location: &Location,
    dtype: Dtype,
    begin: u64,
    bytes: usize,
) -> Result<Vec<f32>> {
    let refuse = |reason: String| ModelError::hub_folder(&location.file, reason);
    let mut bytes = vec![0; bytes];
    let read = File::open(&location.file).and_then(|mut file| {
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut bytes)
    });
    read.map_err(|error| {
        let problem = format_io_error(&error);
        refuse(format!("{name} cannot be read ({problem})"))
    })?;
    let dtype = match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        other => {
            return Err(refuse(format!(
                "{name} has the type {other:?}, but Ebb reads only F64, F32, F16 and BF16"
            )));
        }
    };
    let mut values = vec![0.0; location.shape.iter().product()];
    let parts = values.par_chunks_mut(CONVERTED);
    let parts = parts.zip(bytes.par_chunks(CONVERTED * dtype.size_in_bytes()));
    parts.try_for_each(|(values, bytes)| -> Result<()> {
        let part = Tensor::from_raw_buffer(bytes, dtype, &[values.len()], &Device::Cpu)?;
        values.copy_from_slice(&tape::device::read::<f32>(&part.to_dtype(DType::F32)?)?);
        Ok(())
    })?;
    Ok(values)
}

/// The folder's tensor files: `model.safetensors`, or those that the index names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let single = folder.join(FILE);
    if single.is_file() {
        return Ok(vec![single]);
    }
    let Some(index) = JsonConfig::read(folder, INDEX)? else {
        return Err(no_tensors(folder));
    };
    let Some(map) = index.get("weight_map").and_then(|map| map.as_object()) else {
        return Err(index.refuse("the index has no weight_map".to_owned()));
    };
    let mut names = BTreeSet::new();
    for name in map.values() {
        // Only plain file names: an index must not make Ebb open files outside the folder.
        let plain = name.as_str().filter(|name| {
            let plain = !name.contains(['/', '\\']) && *name != "..";
            plain && name.ends_with(".safetensors")
        });
        match plain {
            Some(name) => names.insert(name),
            None => {
                return Err(index.refuse(format!(
                    "the index names {name}, which is not a safetensors file in this folder"
                )));
            }
        };
    }
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !folder.join(name).is_file())
        .collect();
    if !missing.is_empty() {
        return Err(index.refuse(format!(
            "{} of the files in this index are missing: {}; download the missing files too",
            missing.len(),
            missing.join(", ")
        )));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The current name of a tensor: folders from before 2019 call a norm's tensors gamma and beta.
fn current_name(name: String) -> String {
    let renamed = [
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ]
    .iter()
    .find_map(|(old, new)| Some(format!("{}{new}", name.strip_suffix(old)?)));
    renamed.unwrap_or(name)
}

/// The error for a folder without safetensors files.
fn no_tensors(folder: &Path) -> ModelError {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return ModelError::hub_folder(folder, error.to_string()),
    };
    let mut pickled: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| is_pickled(Path::new(name)))
        .collect();
    pickled.sort();
    if pickled.is_empty() {
        return ModelError::hub_folder(
            folder,
            format!("the folder has neither {FILE} nor {INDEX}"),
        );
    }
    ModelError::Pickled {
        folder: folder.to_owned(),
        files: pickled.join(", "),
    }
}

/// Whether the file, by its extension, may contain a pickled program.
pub(super) fn is_pickled(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| PICKLED.contains(&extension.to_ascii_lowercase().as_str()))
}

/// Refuses what is no file, and a file of tensors whose header is longer than Ebb reads.
///
/// # Errors
/// That, or the file cannot be read.
pub fn expect_short_header(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is not a file"));
    }
    let mut length = [0; LENGTH_BYTES as usize];
    File::open(path)?.read_exact(&mut length)?;
    if u64::from_le_bytes(length) > MAX_HEADER_BYTES {
        return Err(io::Error::other("the list of tensors is too long"));
    }
    Ok(())
}

/// Where the tensors of one file are stored.
fn read_header(path: &Path) -> Result<Vec<(String, Location)>> {
    let refuse = |reason: String| ModelError::hub_folder(path, reason);
    let broken = |reason: String| {
        refuse(format!(
            "the file header is damaged ({reason}); download the file again"
        ))
    };
    let fail = |error: std::io::Error| {
        refuse(format!(
            "the file cannot be read ({})",
            format_io_error(&error)
        ))
    };
    let mut file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length)
        .map_err(|_| broken("the file is too short".to_owned()))?;
    let length = u64::from_le_bytes(length);
    let begin = LENGTH_BYTES.saturating_add(length);
    if length > MAX_HEADER_BYTES || begin > bytes {
        return Err(broken(format!("a header of {length} bytes is impossible")));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(fail)?;
    // Parsing checks that the tensors cover the file without gaps or overlaps and that each is as
    // long as its shape and type say.
    let header: Metadata =
        serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    if begin + header.data_len() as u64 != bytes {
        return Err(refuse(format!(
            "the tensors take {} bytes, but the file has {} bytes for them; download the file again",
            header.data_len(),
            bytes - begin
        )));
    }
    let location = |info: &safetensors::tensor::TensorInfo| Location {
        file: path.to_owned(),
        shape: info.shape.clone(),
        values: Stored::Plain {
            dtype: info.dtype,
            begin: begin + info.data_offsets.0 as u64,
            bytes: info.data_offsets.1 - info.data_offsets.0,
        },
    };
    let tensors = header.tensors().into_iter();
    Ok(tensors.map(|(name, info)| (name, location(info))).collect())
}
