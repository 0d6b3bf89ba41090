//! The tensors of a folder by name: one `model.safetensors`, or several with an index. The headers are read and checked first;
//! numbers are read one tensor at a time, from where the header says they are. Pickled files are refused.
//!
//! Refuses to know what a tensor is for.

use super::settings::{Settings, refusal};
use crate::error::{Result, TrainError};
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{Dtype, Metadata};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of a header: what the format allows.
const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Bytes that say how long the header is.
const LENGTH_BYTES: u64 = 8;
/// Endings of files that may hold a pickled program.
const PICKLED: [&str; 7] = ["bin", "pt", "pth", "ckpt", "pkl", "pickle", "joblib"];

/// Where one tensor lies.
#[derive(Debug, Clone)]
struct Place {
    file: PathBuf,
    dtype: Dtype,
    shape: Vec<usize>,
    /// Bytes of the file.
    begin: u64,
    bytes: usize,
}

/// All tensors of a folder. No number has been read.
#[derive(Debug, Clone)]
pub(super) struct Tensors {
    folder: PathBuf,
    places: BTreeMap<String, Place>,
}

impl Tensors {
    /// Reads the headers of a folder's tensor files.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut places = BTreeMap::new();
        for file in files(folder)? {
            for (name, place) in header(&file)? {
                let name = today(name);
                if places.contains_key(&name) {
                    return Err(refusal(&file, format!("it holds {name} a second time")));
                }
                places.insert(name, place);
            }
        }
        Ok(Tensors {
            folder: folder.to_owned(),
            places,
        })
    }

    /// Names of the files that they lie in, and of the index where there is one.
    pub fn files(&self) -> BTreeSet<String> {
        let files = self
            .places
            .values()
            .filter_map(|place| place.file.file_name());
        let mut names: BTreeSet<String> = files
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        if !names.contains(FILE) {
            names.insert(INDEX.to_owned());
        }
        names
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Numbers that all tensors hold.
    pub fn count(&self) -> u64 {
        let counts = self.places.values().map(|place| &place.shape);
        counts
            .map(|shape| shape.iter().product::<usize>() as u64)
            .sum()
    }

    /// The axes of a tensor, where there is one of that name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.places.get(name).map(|place| &*place.shape)
    }

    /// The numbers of a tensor, row by row, rounded to f32; finite ones only.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let Some(place) = self.places.get(name) else {
            return Err(refusal(&self.folder, format!("there is no {name}")));
        };
        let refuse = |reason: String| refusal(&place.file, reason);
        let mut bytes = vec![0; place.bytes];
        let read = File::open(&place.file).and_then(|mut file| {
            file.seek(SeekFrom::Start(place.begin))?;
            file.read_exact(&mut bytes)
        });
        read.map_err(|error| refuse(format!("{name} cannot be read ({error})")))?;
        let dtype = match place.dtype {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => {
                return Err(refuse(format!(
                    "{name} is of type {other:?}; Ebb reads F64, F32, F16 and BF16"
                )));
            }
        };
        let count = place.shape.iter().product::<usize>();
        let values = Tensor::from_raw_buffer(&bytes, dtype, &[count], &Device::Cpu)?;
        drop(bytes);
        let values = values.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(refuse(format!(
                "{name} holds numbers that are not finite; download the folder again"
            ))),
        }
    }
}

/// The folder's tensor files: the one, or those of the index.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let whole = folder.join(FILE);
    if whole.is_file() {
        return Ok(vec![whole]);
    }
    let Some(index) = Settings::read(folder, INDEX)? else {
        return Err(no_tensors(folder));
    };
    let Some(map) = index.get("weight_map").and_then(|map| map.as_object()) else {
        return Err(index.refuse("it does not say weight_map".to_owned()));
    };
    let mut names = BTreeSet::new();
    for name in map.values() {
        // A plain name: nothing outside the folder is opened because a file says so.
        let plain = name.as_str().filter(|name| {
            let plain = !name.contains(['/', '\\']) && *name != "..";
            plain && name.ends_with(".safetensors")
        });
        match plain {
            Some(name) => names.insert(name),
            None => {
                return Err(index.refuse(format!(
                    "it names {name}, which is no safetensors file beside it"
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
            "{} of the files it names are not there: {}; download them too",
            missing.len(),
            missing.join(", ")
        )));
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The name as it is written today: folders from before 2019 call a norm's tensors gamma and beta.
fn today(name: String) -> String {
    let renamed = [
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ]
    .iter()
    .find_map(|(old, new)| Some(format!("{}{new}", name.strip_suffix(old)?)));
    renamed.unwrap_or(name)
}

/// What is wrong with a folder that holds no safetensors.
fn no_tensors(folder: &Path) -> TrainError {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return refusal(folder, error.to_string()),
    };
    let mut pickled: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| is_pickled(Path::new(name)))
        .collect();
    pickled.sort();
    if pickled.is_empty() {
        return refusal(folder, format!("there is no {FILE} and no {INDEX} in it"));
    }
    TrainError::Pickled {
        folder: folder.to_owned(),
        files: pickled.join(", "),
    }
}

/// True for files that may hold a pickled program, by their ending.
pub(super) fn is_pickled(file: &Path) -> bool {
    let ending = file.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| PICKLED.contains(&ending.to_ascii_lowercase().as_str()))
}

/// Where the tensors of one file lie.
fn header(path: &Path) -> Result<Vec<(String, Place)>> {
    let refuse = |reason: String| refusal(path, reason);
    let broken = |reason: String| {
        refuse(format!(
            "its header is damaged ({reason}); download it again"
        ))
    };
    let fail = |error: std::io::Error| refuse(format!("it cannot be read ({error})"));
    let mut file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length)
        .map_err(|_| broken("it is too short".to_owned()))?;
    let length = u64::from_le_bytes(length);
    let begin = LENGTH_BYTES.saturating_add(length);
    if length > MOST_HEADER_BYTES || begin > bytes {
        return Err(broken(format!("it says it has {length} bytes")));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(fail)?;
    // Checks that spans follow one another without gap or overlap and are as long as shapes and types say.
    let header: Metadata =
        serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    if begin + header.data_len() as u64 != bytes {
        return Err(refuse(format!(
            "its tensors take {} bytes and it has {}; download it again",
            header.data_len(),
            bytes - begin
        )));
    }
    let place = |info: &safetensors::tensor::TensorInfo| Place {
        file: path.to_owned(),
        dtype: info.dtype,
        shape: info.shape.clone(),
        begin: begin + info.data_offsets.0 as u64,
        bytes: info.data_offsets.1 - info.data_offsets.0,
    };
    let tensors = header.tensors().into_iter();
    Ok(tensors.map(|(name, info)| (name, place(info))).collect())
}
