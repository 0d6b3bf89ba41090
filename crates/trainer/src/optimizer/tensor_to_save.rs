//! Tensors that are written to a checkpoint from where they are, without a copy in memory: from the
//! storage of a CPU tensor, or from the pages of a mapped one. A tensor on a GPU is read first, one
//! at a time.

use candle_core::{CpuStorage, DType, Storage, StorageRef, Tensor};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, View, serialize_to_file};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the length of the header, with which a file begins.
const LENGTH_BYTES: usize = 8;

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

/// Writes tensors to a new file.
///
/// # Errors
/// The disk refuses it.
pub fn write_tensors(tensors: &[(String, SavedTensor)], path: &Path) -> io::Result<()> {
    let views = tensors.iter().map(|(name, tensor)| (name, tensor.view()));
    serialize_to_file(views, None, path).map_err(|error| match error {
        SafeTensorError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    })
}

/// Length and CRC-32 of the file that [`write_tensors`] wrote. The sum is that of the tensors in
/// memory, so that a disk that stored something else is noticed when the file is read.
///
/// # Errors
/// The file cannot be read, or is not that of these tensors.
pub fn sum_tensors(tensors: &[(String, SavedTensor)], path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut head = vec![0; LENGTH_BYTES];
    file.read_exact(&mut head)?;
    let length = head
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte));
    let read = file.by_ref().take(length).read_to_end(&mut head)?;
    if read as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // The library decides about the order of the tensors.
    let header: Metadata = serde_json::from_slice(&head[LENGTH_BYTES..])?;
    let by_name: HashMap<&str, &SavedTensor> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head);
    let mut bytes = head.len() as u64;
    for name in header.offset_keys() {
        let tensor = by_name
            .get(name.as_str())
            .ok_or(io::ErrorKind::InvalidData)?;
        let view = tensor.view();
        let data = view.data();
        sum.update(&data);
        bytes += data.len() as u64;
    }
    Ok((bytes, sum.finalize()))
}

impl SavedTensor {
    fn view(&self) -> TensorView<'_> {
        match self {
            SavedTensor::Resident(tensor) => {
                let (storage, layout) = tensor.storage_and_layout();
                let place = layout.contiguous_offsets();
                let place = place.map(|(begin, end)| (storage, begin..end));
                TensorView::Resident { tensor, place }
            }
            SavedTensor::Mapped(mapped) => TensorView::Mapped(mapped),
        }
    }
}

/// A tensor while it is written.
enum TensorView<'t> {
    Resident {
        tensor: &'t Tensor,
        /// Its elements, if they follow each other in memory.
        place: Option<(StorageRef<'t>, Range<usize>)>,
    },
    Mapped(&'t MappedTensor),
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

impl View for TensorView<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            TensorView::Resident { tensor, .. } => tensor.dtype(),
            TensorView::Mapped(mapped) => mapped.dtype.into(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            TensorView::Resident { tensor, .. } => tensor.dims(),
            TensorView::Mapped(mapped) => &mapped.dims,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            TensorView::Resident { tensor, place } => {
                let place = place.as_ref();
                let bytes = place.and_then(|(storage, range)| bytes_in(storage, range.clone()));
                bytes.map_or_else(|| View::data(*tensor), Cow::Borrowed)
            }
            TensorView::Mapped(mapped) => Cow::Borrowed(&mapped.map[mapped.range.clone()]),
        }
    }

    fn data_len(&self) -> usize {
        match self {
            TensorView::Resident { tensor, .. } => View::data_len(*tensor),
            TensorView::Mapped(mapped) => mapped.range.len(),
        }
    }
}
