//! A tensor to be written to a checkpoint. A mapped tensor is written from its pages, without a
//! copy in memory.

use candle_core::{DType, Tensor};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, View};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

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

impl View for SavedTensor {
    fn dtype(&self) -> Dtype {
        match self {
            SavedTensor::Resident(tensor) => tensor.dtype().into(),
            SavedTensor::Mapped(mapped) => mapped.dtype.into(),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            SavedTensor::Resident(tensor) => tensor.dims(),
            SavedTensor::Mapped(mapped) => &mapped.dims,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self {
            SavedTensor::Resident(tensor) => View::data(tensor),
            SavedTensor::Mapped(mapped) => Cow::Borrowed(&mapped.map[mapped.range.clone()]),
        }
    }

    fn data_len(&self) -> usize {
        match self {
            SavedTensor::Resident(tensor) => View::data_len(tensor),
            SavedTensor::Mapped(mapped) => mapped.range.len(),
        }
    }
}
