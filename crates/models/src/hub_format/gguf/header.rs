//! The header of a GGUF file: its metadata, and where its tensors are. candle parses the header,
//! whose end and number of values were found first.

use super::header_bytes::{HeaderEnd, read_header};
use crate::error::{ModelError, Result, at};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::{Device, Shape};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};

/// Name of the GGUF file, or of the link to it, in an unpacked folder.
pub(crate) const GGUF_FILE: &str = "model.gguf";
/// Most values of a tensor, so that sizes in bytes cannot overflow.
const MAX_VALUES: usize = 1 << 40;
/// How candle begins an error about a type of tensors that it does not know.
const UNKNOWN_TYPE: &str = "unknown dtype for tensor ";
/// The types of tensors that are read, for messages.
const READ_TYPES: &str = "choose a file whose name has F16, BF16, Q8_0, Q6_K, Q5_K_M, Q4_K_M or Q4_0, or the Hugging Face folder of the model";
/// Types of ggml that are not read, with their numbers in a file.
// tidy: table
#[rustfmt::skip]
const OTHER_TYPES: [(u32, &str); 17] = [
    (16, "IQ2_XXS"), (17, "IQ2_XS"), (18, "IQ3_XXS"), (19, "IQ1_S"), (20, "IQ4_NL"), (21, "IQ3_S"),
    (22, "IQ2_S"), (23, "IQ4_XS"), (24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64"),
    (29, "IQ1_M"), (34, "TQ1_0"), (35, "TQ2_0"), (39, "MXFP4"),
];

/// Where a tensor of a GGUF file is, and how it is stored.
#[derive(Debug, Clone)]
pub(crate) struct GgufTensor {
    kind: GgmlDType,
    /// As in a safetensors file: the last axis is contiguous.
    shape: Vec<usize>,
    /// Offset of its first byte in the file.
    begin: u64,
}

impl GgufTensor {
    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its values in row-major order, dequantized to f32.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read(&self, path: &Path) -> Result<Vec<f32>> {
        let mut file = File::open(path).map_err(at(path))?;
        let info = TensorInfo {
            ggml_dtype: self.kind,
            shape: Shape::from(self.shape.clone()),
            offset: self.begin,
        };
        let tensor = info.read(&mut file, 0, &Device::Cpu)?;
        Ok(tape::device::read::<f32>(
            &tensor.dequantize(&Device::Cpu)?,
        )?)
    }
}

/// The header of a GGUF file.
#[derive(Debug)]
pub(crate) struct GgufHeader {
    path: PathBuf,
    metadata: HashMap<String, Value>,
    tensors: BTreeMap<String, GgufTensor>,
}

impl GgufHeader {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// The file is no GGUF file, is damaged or a part of a larger one, or has tensors of a type
    /// that is not read.
    pub fn read(path: &Path) -> Result<Self> {
        let about = fs::metadata(path).map_err(at(path))?;
        if !about.is_file() {
            return Err(ModelError::hub_folder(path, "this is not a file"));
        }
        let file = File::open(path).map_err(at(path))?;
        let (bytes, end) = read_header(BufReader::new(file)).map_err(at(path))?;
        if let HeaderEnd::Beyond(limit) = end {
            return Err(ModelError::hub_folder(
                path,
                format!(
                    "the header of the GGUF file has more than {limit}, the most that Ebb reads; choose the Hugging Face folder of the model"
                ),
            ));
        }
        if has_zero_alignment(&bytes) {
            return Err(damaged(path, "its alignment is 0"));
        }
        let content = Content::read(&mut Cursor::new(&bytes))
            .map_err(|error| unreadable(path, &error.to_string()))?;
        drop(bytes);
        let mut tensors = BTreeMap::new();
        for (name, info) in content.tensor_infos {
            let begin = content.tensor_data_offset.checked_add(info.offset);
            let tensor = GgufTensor {
                kind: info.ggml_dtype,
                shape: info.shape.into_dims(),
                begin: begin.unwrap_or(u64::MAX),
            };
            check_tensor(&tensor, about.len())
                .map_err(|what| damaged(path, &format!("{name} {what}")))?;
            tensors.insert(name, tensor);
        }
        let header = GgufHeader {
            path: path.to_owned(),
            metadata: content.metadata,
            tensors,
        };
        match header.count("split.count")? {
            None | Some(0 | 1) => Ok(header),
            Some(parts) => Err(header.refuse(format!(
                "the file is one of {parts} parts of a model; join them with llama-gguf-split --merge"
            ))),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this file.
    pub fn refuse(&self, reason: impl Into<String>) -> ModelError {
        ModelError::hub_folder(&self.path, reason)
    }

    /// Keys of the metadata that begin with `prefix`, without it, with their values.
    pub fn entries<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let entries = self.metadata.iter();
        entries.filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value)))
    }

    pub fn tensors(&self) -> &BTreeMap<String, GgufTensor> {
        &self.tensors
    }

    /// The values of a tensor; `None` if there is none of this name.
    pub fn tensor_values(&self, name: &str) -> Result<Option<Vec<f32>>> {
        let found = self.tensors.get(name);
        found.map(|tensor| tensor.read(&self.path)).transpose()
    }

    /// A text; `None` if it is absent.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(self.refuse(format!("its {key} is not a string"))),
        }
    }

    /// A whole number; `None` if it is absent.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let count = match *value {
            Value::U64(count) => Some(count),
            Value::I8(count) => u64::try_from(count).ok(),
            Value::I16(count) => u64::try_from(count).ok(),
            Value::I32(count) => u64::try_from(count).ok(),
            Value::I64(count) => u64::try_from(count).ok(),
            Value::U8(count) => Some(count.into()),
            Value::U16(count) => Some(count.into()),
            Value::U32(count) => Some(count.into()),
            _ => None,
        };
        // No network has such a count; multiplying it could overflow.
        let count = count.filter(|count| *count < 1 << 32);
        match count.and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(self.refuse(format!("its {key} is not a whole number that Ebb can use"))),
        }
    }

    /// A number; `None` if it is absent.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let number = match self.metadata.get(key) {
            None => return Ok(None),
            Some(Value::F32(number)) => Some(f64::from(*number)),
            Some(Value::F64(number)) => Some(*number),
            Some(_) => None,
        };
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(format!("its {key} is not a number"))),
        }
    }

    /// A boolean; `None` if it is absent or something else.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.metadata.get(key) {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        }
    }

    /// A list; `None` if it is absent.
    pub fn list(&self, key: &str) -> Result<Option<&[Value]>> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values.as_slice())),
            Some(_) => Err(self.refuse(format!("its {key} is not a list"))),
        }
    }
}

fn damaged(path: &Path, what: &str) -> ModelError {
    let reason = format!("the GGUF file is damaged ({what}); download it again");
    ModelError::hub_folder(path, reason)
}

/// The error for a header that candle does not read.
fn unreadable(path: &Path, error: &str) -> ModelError {
    let Some(rest) = error.strip_prefix(UNKNOWN_TYPE) else {
        return damaged(path, error.lines().next().unwrap_or_default());
    };
    let number = rest.split_whitespace().next().unwrap_or_default();
    let known = OTHER_TYPES.iter().find(|(n, _)| n.to_string() == number);
    let kind = known.map_or_else(
        || format!("number {number}"),
        |(_, name)| (*name).to_owned(),
    );
    let reason =
        format!("the file has tensors of the type {kind}, which Ebb does not read; {READ_TYPES}");
    ModelError::hub_folder(path, reason)
}

/// Whether the header may set the alignment of tensors to 0, by which candle would divide.
fn has_zero_alignment(bytes: &[u8]) -> bool {
    const KEY: &[u8] = b"general.alignment";
    let mut places = bytes.windows(KEY.len()).enumerate();
    places.any(|(at, found)| {
        if found != KEY {
            return false;
        }
        let Some((kind, value)) = bytes[at + KEY.len()..].split_first_chunk::<4>() else {
            return false;
        };
        let size = match u32::from_le_bytes(*kind) {
            0 | 1 => 1,
            2 | 3 => 2,
            4 | 5 => 4,
            _ => return false,
        };
        value.iter().take(size).all(|byte| *byte == 0)
    })
}

/// Refuses a tensor without values, with rows that are not whole blocks, or beyond the file, which
/// has `file_bytes`. The text ends a sentence.
fn check_tensor(tensor: &GgufTensor, file_bytes: u64) -> std::result::Result<(), String> {
    let row = tensor.shape.last().copied().unwrap_or(1);
    let mut sides = tensor.shape.iter();
    let values = sides.try_fold(1usize, |values, side| values.checked_mul(*side));
    let values = values.filter(|values| (1..MAX_VALUES).contains(values));
    let Some(values) = values else {
        return Err(format!("has the impossible shape {:?}", tensor.shape));
    };
    let block = tensor.kind.block_size();
    if !row.is_multiple_of(block) {
        return Err(format!(
            "has rows of {row} values, which is not a multiple of the block size {block}"
        ));
    }
    let bytes = (values / block * tensor.kind.type_size()) as u64;
    match tensor.begin.checked_add(bytes) {
        Some(end) if end <= file_bytes => Ok(()),
        _ => Err("ends beyond the end of the file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::safetensors;

    /// The values of random blocks of every type are those of the gguf package
    /// (`make_references.py`), bit by bit.
    #[test]
    fn blocks_have_the_values_of_the_gguf_package() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = here.join("tests/fixtures/published/references");
        let header = GgufHeader::read(&folder.join("blocks.gguf")).expect("it is a GGUF file");
        let all = safetensors::load(folder.join("values.safetensors"), &Device::Cpu);
        let all = all.expect("it can be read");
        let kinds = [
            ("Q4_0", GgmlDType::Q4_0),
            ("Q8_0", GgmlDType::Q8_0),
            ("Q4_K", GgmlDType::Q4K),
            ("Q5_K", GgmlDType::Q5K),
            ("Q6_K", GgmlDType::Q6K),
        ];
        assert_eq!(header.tensors().len(), kinds.len());
        for (name, kind) in kinds {
            let tensor = &header.tensors()[name];
            assert_eq!(tensor.kind, kind);
            assert_eq!(tensor.shape(), [2, 512]);
            let found = header.tensor_values(name).expect("it can be read");
            let expected = &all[&format!("gguf.{name}")];
            let expected = tape::device::read::<f32>(expected).expect("it has values");
            assert_eq!(found, Some(expected), "{name}");
        }
    }
}
