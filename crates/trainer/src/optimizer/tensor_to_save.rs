//! Tensors that are written to a checkpoint from where they are, without a copy in memory: from the
//! storage of a CPU tensor, or from the pages of a mapped one. A tensor on a GPU is read first, one
//! at a time.

use candle_core::{CpuStorage, DType, Storage, Tensor};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, TensorInfo, View};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tape::TapeError;
use tape::device::{copy, to_host};

/// Bytes of one write. Linux copies a block of 25 MB three times slower into its cache than blocks
/// of 1 MB: 1,172 MB took 1.1 s instead of 0.34 s (ext4, Linux 6.18).
const BLOCK: usize = 1 << 20;

/// A tensor in memory or in a mapped file.
pub enum SavedTensor {
    /// In memory.
    Resident(Tensor),
    /// In a mapped file.
    Mapped(MappedTensor),
}

/// Pages of a file that hold a tensor.
pub struct MappedTensor {
    pub(super) map: Arc<Mmap>,
    pub(super) range: Range<usize>,
    pub(super) dtype: DType,
    pub(super) dims: Vec<usize>,
}

/// Why tensors could not be saved.
#[derive(Debug)]
pub enum SaveError {
    /// The disk refuses it.
    Disk(io::Error),
    /// The device fails to give a tensor.
    Device(TapeError),
}

/// The outcome of saving tensors.
pub type SaveResult<T> = Result<T, SaveError>;

impl From<io::Error> for SaveError {
    fn from(error: io::Error) -> Self {
        SaveError::Disk(error)
    }
}

impl From<TapeError> for SaveError {
    fn from(error: TapeError) -> Self {
        SaveError::Device(error)
    }
}

/// Writes tensors to a new file of the safetensors format. Returns its length and CRC-32, which is
/// that of the bytes in memory, so that a disk that stored something else is noticed when the file
/// is read. Each tensor on a GPU is read once.
///
/// # Errors
/// The disk refuses it, or the device fails.
pub fn save_tensors(tensors: &[(String, SavedTensor)], path: &Path) -> SaveResult<(u64, u32)> {
    let mut outcome = None;
    let written = disk::write_with(path, |path| match write_tensors(tensors, path) {
        Ok(sum) => {
            outcome = Some(Ok(sum));
            Ok(())
        }
        Err(SaveError::Disk(error)) => Err(error),
        Err(SaveError::Device(error)) => {
            outcome = Some(Err(error));
            Err(io::Error::other("the device failed"))
        }
    });
    match (written, outcome) {
        (_, Some(Err(error))) => Err(SaveError::Device(error)),
        (Err(error), _) => Err(SaveError::Disk(error)),
        (Ok(()), Some(Ok(sum))) => Ok(sum),
        (Ok(()), None) => Err(io::Error::other("nothing was written").into()),
    }
}

fn write_tensors(tensors: &[(String, SavedTensor)], path: &Path) -> SaveResult<(u64, u32)> {
    let mut tensors: Vec<_> = tensors.iter().collect();
    // As the library orders them: wide types first, so that all values are aligned.
    tensors.sort_by(|(a_name, a), (b_name, b)| {
        b.dtype().cmp(&a.dtype()).then_with(|| a_name.cmp(b_name))
    });
    let file = File::create(path)?; // tidy: not durable; `disk::write_with` calls this
    let mut file = BufWriter::with_capacity(BLOCK, file);
    let (mut bytes, mut sum) = (0, crc32fast::Hasher::new());
    let mut write = |data: &[u8]| -> io::Result<()> {
        bytes += data.len() as u64;
        for block in data.chunks(BLOCK) {
            sum.update(block);
            file.write_all(block)?;
        }
        Ok(())
    };
    write(&header(&tensors)?)?;
    for (_, tensor) in &tensors {
        tensor.with_bytes(&mut write)?;
    }
    file.flush()?;
    Ok((bytes, sum.finalize()))
}

/// The header of a file of these tensors: its length, and a JSON object that ends at a multiple of
/// 8 bytes (<https://github.com/huggingface/safetensors#format>).
fn header(tensors: &[&(String, SavedTensor)]) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let infos = tensors.iter().map(|(name, tensor)| {
        let begin = end;
        end += tensor.bytes();
        let info = TensorInfo {
            dtype: tensor.dtype(),
            shape: tensor.dims().to_vec(),
            data_offsets: (begin, end),
        };
        (name.clone(), info)
    });
    let metadata = Metadata::new(None, infos.collect()).map_err(io::Error::other)?;
    let mut json = serde_json::to_vec(&metadata)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    Ok(header)
}

impl SavedTensor {
    /// A copy in the memory of the host, which no step changes. `None` for one in a mapped file.
    ///
    /// # Errors
    /// The device fails, or has too little memory.
    pub fn copied(&self) -> Result<Option<Self>, TapeError> {
        let SavedTensor::Resident(tensor) = self else {
            return Ok(None);
        };
        // On the CPU, `to_host` returns the same memory.
        let copied = if tensor.device().is_cpu() {
            copy(tensor)?
        } else {
            to_host(tensor)?
        };
        Ok(Some(SavedTensor::Resident(copied)))
    }

    fn dtype(&self) -> Dtype {
        match self {
            SavedTensor::Resident(tensor) => tensor.dtype().into(),
            SavedTensor::Mapped(mapped) => mapped.dtype.into(),
        }
    }

    fn dims(&self) -> &[usize] {
        match self {
            SavedTensor::Resident(tensor) => tensor.dims(),
            SavedTensor::Mapped(mapped) => &mapped.dims,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            SavedTensor::Resident(tensor) => View::data_len(tensor),
            SavedTensor::Mapped(mapped) => mapped.range.len(),
        }
    }

    /// Calls `write` with the bytes of the elements.
    fn with_bytes(&self, write: &mut impl FnMut(&[u8]) -> io::Result<()>) -> SaveResult<()> {
        let tensor = match self {
            SavedTensor::Resident(tensor) => to_host(tensor)?,
            SavedTensor::Mapped(mapped) => return Ok(write(&mapped.map[mapped.range.clone()])?),
        };
        let (storage, layout) = tensor.storage_and_layout();
        let place = layout.contiguous_offsets();
        match place.and_then(|(begin, end)| bytes_in(&storage, begin..end)) {
            Some(bytes) => write(bytes)?,
            None => write(&copied_bytes(&tensor))?,
        }
        Ok(())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it panics if a device fails, but this tensor is on the CPU"
)]
fn copied_bytes(tensor: &Tensor) -> Cow<'_, [u8]> {
    View::data(tensor)
}

/// The bytes of elements of a CPU storage; `None` on a GPU, and for types that Ebb does not save.
fn bytes_in(storage: &Storage, range: Range<usize>) -> Option<&[u8]> {
    let Storage::Cpu(storage) = storage else {
        return None;
    };
    match storage {
        CpuStorage::F32(values) => Some(bytemuck::cast_slice(&values[range])),
        CpuStorage::F64(values) => Some(bytemuck::cast_slice(&values[range])),
        CpuStorage::U8(values) => Some(&values[range]),
        _ => None,
    }
}
