//! Loads some of the tensors of a file, one at a time: neither the others nor the whole file are
//! ever in memory.

use crate::error::{Result, TrainError, at};
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::Metadata;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of the length of the header, with which a file begins.
const LENGTH_BYTES: u64 = 8;

/// Loads the tensors with these names. Those that are not in the file are missing in the result.
///
/// # Errors
/// The file cannot be read or is damaged, or the device has no memory.
pub(super) fn load_tensors(
    path: &Path,
    device: &Device,
    names: &HashSet<String>,
) -> Result<HashMap<String, Tensor>> {
    models::hub_format::expect_short_header(path).map_err(at(path))?;
    let mut file = File::open(path).map_err(at(path))?;
    let (metadata, begin) = read_header(&mut file).map_err(at(path))?;
    let mut loaded = HashMap::with_capacity(names.len());
    for name in names {
        let Some(info) = metadata.info(name) else {
            continue;
        };
        let (start, end) = info.data_offsets;
        let dtype = DType::try_from(info.dtype)?;
        let count = info
            .shape
            .iter()
            .try_fold(1, |n: usize, dim| n.checked_mul(*dim));
        let bytes = count.and_then(|count| count.checked_mul(dtype.size_in_bytes()));
        if bytes.is_none_or(|bytes| start.checked_add(bytes) != Some(end)) {
            return Err(TrainError::TensorMismatch {
                path: path.to_owned(),
                problem: format!("the length of {name} does not match its shape"),
            });
        }
        let data = read_at(&mut file, begin + start as u64, end - start).map_err(at(path))?;
        let tensor = Tensor::from_raw_buffer(&data, dtype, &info.shape, device)?;
        loaded.insert(name.clone(), tensor);
    }
    Ok(loaded)
}

/// Where the tensors are, after the position that is returned.
fn read_header(file: &mut File) -> io::Result<(Metadata, u64)> {
    let mut length = [0; LENGTH_BYTES as usize];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    Ok((serde_json::from_slice(&header)?, LENGTH_BYTES + length))
}

/// Reads these bytes. Never reserves more memory than the file has bytes.
fn read_at(file: &mut File, start: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let left = file.metadata()?.len().saturating_sub(start);
    if left < bytes as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    file.seek(SeekFrom::Start(start))?;
    let mut data = vec![0; bytes];
    file.read_exact(&mut data)?;
    Ok(data)
}
