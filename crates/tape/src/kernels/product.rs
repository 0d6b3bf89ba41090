//! Matrix products of a GPU: into new memory, or added to what is there. On CUDA cuBLAS is called here, as candle calls it but for
//! three things: one matrix is no batch (for which cuBLAS has fewer ways), the result may be single precision where the operands are
//! halves, and it may be added to a sum. f32 goes to Hopper's tensor cores where that pays, as sums of three bf16 that are as exact.
//! Elsewhere the device's own product runs. Full f32 without TF32 throughout.

#[cfg(feature = "cuda")]
use super::blas;
use super::elements;
use crate::dtype::widened;
use crate::error::Result;
use candle_core::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};

/// Products of f32 are left to the device's own.
static PLAIN_F32: AtomicBool = AtomicBool::new(false);

/// Whether products of f32 may run on tensor cores, as sums of bf16 that are as exact. They do until an examination finds one wrong.
pub fn allow_tensor_cores(allowed: bool) {
    PLAIN_F32.store(!allowed, Ordering::Relaxed);
}

/// True where [`allow_tensor_cores`] has not left products of f32 to the device's own.
pub fn tensor_cores_allowed() -> bool {
    !PLAIN_F32.load(Ordering::Relaxed)
}

/// `a b` of two matrices or of batches of them, in the operands' type. Each is stored by rows or by columns.
pub(crate) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::uninit(a, b, a.dtype());
    }
    Ok(a.matmul(b)?)
}

/// As [`product`], the result in f32: what is added up on the way is not rounded to a half in between.
pub(crate) fn product_f32(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::uninit(a, b, candle_core::DType::F32);
    }
    widened(&a.matmul(b)?)
}

/// `sum += a b`, in place: nobody else may hold the memory of `sum`, which is contiguous and f32.
pub(crate) fn add_product(sum: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::multiply(a, b, sum, 1.0);
    }
    elements::add_to(sum, &product_f32(a, b)?)
}
