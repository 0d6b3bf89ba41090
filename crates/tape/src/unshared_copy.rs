//! Copies by candle of tensors that are written in place afterwards.

use crate::convert_dtype::word_aligned;
use crate::error::{Result, TapeError};
use crate::fault_injection;
use candle_core::{CpuStorage, Storage, Tensor};

/// A contiguous copy of a tensor in memory of its own. `Tensor::copy` of candle is no substitute:
/// on Metal both tensors share their memory.
///
/// # Errors
/// The device has too little memory, or the copy shares the memory of `tensor`.
pub(crate) fn copy(tensor: &Tensor) -> Result<Tensor> {
    unshared(tensor, word_aligned(tensor)?.force_contiguous()?)
}

/// The copy of a tensor, however it was made.
///
/// # Errors
/// It shares the memory of `tensor`.
pub(crate) fn unshared(tensor: &Tensor, copy: Tensor) -> Result<Tensor> {
    let copy = fault_injection::copied(tensor, copy);
    if share_memory(tensor, &copy) {
        return Err(TapeError::Device(
            "the device made no separate copy of a tensor, so results could be wrong; choose --device cpu"
                .to_owned(),
        ));
    }
    Ok(copy)
}

/// True if both tensors are known to be in the same memory.
fn share_memory(a: &Tensor, b: &Tensor) -> bool {
    a.elem_count() > 0 && address(a).is_some_and(|place| address(b) == Some(place))
}

/// Where the memory of a tensor begins; `None` on CUDA, where every copy has its own.
fn address(tensor: &Tensor) -> Option<usize> {
    fn begin<T>(values: &[T]) -> Option<usize> {
        Some(values.as_ptr().addr())
    }
    match &*tensor.storage_and_layout().0 {
        Storage::Cpu(CpuStorage::F32(values)) => begin(values),
        Storage::Cpu(CpuStorage::F64(values)) => begin(values),
        Storage::Cpu(CpuStorage::BF16(values)) => begin(values),
        Storage::Cpu(CpuStorage::F16(values)) => begin(values),
        #[cfg(target_os = "macos")]
        Storage::Metal(storage) => Some(std::ptr::from_ref(storage.buffer()).addr()),
        _ => None,
    }
}
