//! CPU tensors as slices, and slices as tensors, without copies.

use crate::cpu::exponential::Exponential;
use crate::cpu::normal_cdf::NormalShare;
use crate::dry_run;
use crate::error::{Result, TapeError};
use candle_core::{DType, Device, Storage, StorageRef, Tensor, WithDType};
use std::marker::PhantomData;
use std::ops::Deref;

/// Number types for which every bit pattern is valid, zeros above all.
pub(crate) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for u8 {}

/// The element types of the fused kernels: `f32` for training, `f64` for checks.
pub(crate) trait Float:
    Plain
    + Exponential
    + NormalShare
    + Default
    + WithDType
    + num_traits::Float
    + num_traits::NumAssign
    + std::iter::Sum
    + Send
    + Sync
    + 'static
{
    /// Converts a constant.
    #[inline(always)]
    fn from_constant(value: f64) -> Self {
        <Self as WithDType>::from_f64(value)
    }
}
impl Float for f32 {}
impl Float for f64 {}

/// A contiguous CPU tensor as a slice.
pub(crate) struct View<'a, T> {
    guard: StorageRef<'a>,
    start: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<'a, T: Float> View<'a, T> {
    /// Views a tensor as a slice.
    ///
    /// # Errors
    /// The tensor is not contiguous, not on the CPU, or not of type `T`.
    pub fn new(op: &'static str, tensor: &'a Tensor) -> Result<Self> {
        let (guard, layout) = tensor.storage_and_layout();
        let Some((start, end)) = layout.contiguous_offsets() else {
            return Err(candle_core::Error::RequiresContiguous { op }.into());
        };
        let on_cpu =
            matches!(&*guard, Storage::Cpu(storage) if T::cpu_storage_as_slice(storage).is_ok());
        if !on_cpu {
            return Err(TapeError::Type {
                op,
                dtype: tensor.dtype(),
            });
        }
        Ok(View {
            guard,
            start,
            len: end - start,
            element: PhantomData,
        })
    }
}

impl<T: Float> Deref for View<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &*self.guard {
            Storage::Cpu(storage) => {
                let all = T::cpu_storage_as_slice(storage)
                    .expect("the element type was checked when the view was made");
                &all[self.start..self.start + self.len]
            }
            _ => unreachable!("the device was checked when the view was made"),
        }
    }
}

/// An uninitialized buffer, which the caller writes completely before anything reads it. In a dry
/// run, in which most kernels write nothing, it contains zeros.
#[allow(
    clippy::uninit_vec,
    reason = "filling the buffer with zeros first would cost a whole pass over memory"
)]
pub(crate) fn buffer<T: Plain>(len: usize) -> Vec<T> {
    if dry_run::is_active() {
        // SAFETY: every bit pattern is a valid number.
        return unsafe { Box::<[T]>::new_zeroed_slice(len).assume_init() }.into_vec();
    }
    let mut values = Vec::with_capacity(len);
    // SAFETY: the capacity is allocated, every bit pattern is a valid number, and each kernel
    // writes all elements first.
    unsafe { values.set_len(len) };
    values
}

/// Makes a CPU tensor from a buffer without copying it.
pub(crate) fn to_tensor<T: Float>(values: Vec<T>, shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

/// True if fused CPU kernels exist for this tensor.
pub(crate) fn is_fused(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && matches!(tensor.dtype(), DType::F32 | DType::F64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run by miri, which sees reads of memory that was never written.
    #[test]
    fn a_buffer_is_written_before_it_is_read() {
        for len in [0, 1, 7, 64] {
            let mut values = buffer::<f32>(len);
            assert_eq!(values.len(), len);
            for (index, value) in values.iter_mut().enumerate() {
                *value = index as f32;
            }
            let sum: f32 = values.iter().sum();
            assert_eq!(sum, (len * len.saturating_sub(1) / 2) as f32);
            let mut bytes = buffer::<u8>(len);
            bytes.fill(3);
            assert!(bytes.iter().all(|byte| *byte == 3));
        }
    }

    #[test]
    fn a_view_is_the_part_of_the_storage_that_the_tensor_shows() -> Result<()> {
        let tensor = to_tensor((0..12).map(f64::from).collect(), &[4, 3])?;
        let part = tensor.narrow(0, 1, 2)?;
        let view = View::<f64>::new("a test", &part)?;
        assert_eq!(*view, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!(View::<f64>::new("a test", &tensor.t()?).is_err());
        assert!(View::<f32>::new("a test", &tensor).is_err());
        Ok(())
    }
}
