//! Half precision inside an operation: what is summed, exponentiated or divided is computed in f32 and rounded once, at the
//! end. Matrix products stay in the half type: devices add them up in f32 themselves. Knows no operation and no device but
//! the CPU, whose convolutions have no half kernels worth the name.

use crate::error::Result;
use candle_core::{DType, Tensor};

/// True for bf16 and f16.
pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// A half tensor as f32, of the same shape; any other as it is, without a copy.
pub fn widened(tensor: &Tensor) -> Result<Tensor> {
    Ok(if is_half(tensor.dtype()) {
        tensor.to_dtype(DType::F32)?
    } else {
        tensor.clone()
    })
}

/// As [`widened`] on the CPU, where convolutions know no bf16 and add f16 up in f16; elsewhere as it is.
pub(crate) fn widened_on_cpu(tensor: &Tensor) -> Result<Tensor> {
    if tensor.device().is_cpu() {
        widened(tensor)
    } else {
        Ok(tensor.clone())
    }
}

/// `work` on widened tensors; what it gives is rounded to the type of the first.
pub(crate) fn in_full<const N: usize>(
    tensors: [&Tensor; N],
    work: impl FnOnce([Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    let dtype = tensors[0].dtype();
    let mut wide = tensors.map(Clone::clone);
    for tensor in &mut wide {
        *tensor = widened(tensor)?;
    }
    Ok(work(wide)?.to_dtype(dtype)?)
}
