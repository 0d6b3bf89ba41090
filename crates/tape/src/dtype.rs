//! Element types, and half precision inside an operation: sums, exponentials and divisions are
//! computed in f32 and rounded once at the end. Matrix products stay in the half type, because
//! devices accumulate them in f32 themselves.

use crate::error::{Result, TapeError};
use crate::fault_injection;
use candle_core::{DType, Device, Tensor};

/// True for bf16 and f16.
pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// Converts a half tensor to f32. Any other tensor is returned as it is, without a copy.
pub fn widened(tensor: &Tensor) -> Result<Tensor> {
    Ok(if is_half(tensor.dtype()) {
        fault_injection::computed(tensor.to_dtype(DType::F32)?)
    } else {
        tensor.clone()
    })
}

/// [`widened`] on the CPU, whose convolutions do not support bf16 and accumulate f16 in f16. No
/// change on other devices.
pub(crate) fn widened_on_cpu(tensor: &Tensor) -> Result<Tensor> {
    if tensor.device().is_cpu() {
        widened(tensor)
    } else {
        Ok(tensor.clone())
    }
}

/// Runs `work` on widened tensors and rounds the result to the type of the first one.
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

/// Makes a tensor of type `dtype` (f64, f32, bf16 or f16) from host values.
pub(crate) fn host_tensor(
    values: Vec<f64>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    Ok(match dtype {
        DType::F64 => Tensor::from_vec(values, shape, device)?,
        DType::F32 => Tensor::from_vec(
            values.into_iter().map(|v| v as f32).collect::<Vec<_>>(),
            shape,
            device,
        )?,
        dtype if is_half(dtype) => {
            host_tensor(values, shape, DType::F32, device)?.to_dtype(dtype)?
        }
        dtype => {
            return Err(TapeError::Type {
                op: "parameter",
                dtype,
            });
        }
    })
}
