//! Matrix products of a GPU, into new memory or added to a sum. On CUDA this calls cuBLAS, like
//! candle, with three differences: a single matrix is not passed as a batch (for which cuBLAS has
//! fewer algorithms), half operands may have an f32 result, and the result may be added to a sum.
//! On Hopper, f32 products use tensor cores if that is faster, as sums of three bf16, with the same
//! precision. Other devices use candle's product. All of it is full f32 without TF32.

#[cfg(feature = "cuda")]
use super::blas;
use super::elements;
use crate::dtype::widened;
use crate::error::Result;
use candle_core::Tensor;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when f32 products may not use tensor cores.
static PLAIN_F32: AtomicBool = AtomicBool::new(false);

/// Allows or forbids f32 products on tensor cores, which split operands into bf16 sums of the same
/// precision. They are allowed until a check finds one wrong.
pub fn allow_tensor_cores(allowed: bool) {
    PLAIN_F32.store(!allowed, Ordering::Relaxed);
}

/// True unless [`allow_tensor_cores`] has forbidden tensor cores.
pub fn tensor_cores_allowed() -> bool {
    !PLAIN_F32.load(Ordering::Relaxed)
}

/// `a b` of two matrices or of batches of them, in the operands' type. Each may be row-major or
/// column-major.
pub(crate) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::product(a, b, a.dtype());
    }
    Ok(a.matmul(b)?)
}

/// [`product`] with an f32 result: intermediate sums are not rounded to a half type.
pub(crate) fn product_f32(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::product(a, b, candle_core::DType::F32);
    }
    widened(&a.matmul(b)?)
}

/// `sum += a b`, in place. `sum` must be contiguous, f32, and its memory held by nothing else.
pub(crate) fn add_product(sum: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    #[cfg(feature = "cuda")]
    if a.device().is_cuda() {
        return blas::multiply(a, b, sum, 1.0);
    }
    elements::add_to(sum, &product_f32(a, b)?)
}
