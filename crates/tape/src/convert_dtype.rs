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
        fault_injection::computed(word_aligned(tensor)?.to_dtype(DType::F32)?)
    } else {
        tensor.clone()
    })
}

/// A tensor that candle can read on every device. On Metal, candle's kernels for one strided tensor
/// (conversions, copies, functions of each value) take it from constant memory, where a view may
/// begin at multiples of 4 bytes only. Any other view is copied.
pub(crate) fn word_aligned(tensor: &Tensor) -> Result<Tensor> {
    if tensor.device().is_metal() && begins_inside_word(tensor) {
        copied_from_device_memory(tensor)
    } else {
        Ok(tensor.clone())
    }
}

/// A contiguous copy with the same bits. candle's choice between two tensors, here twice the same,
/// reads them from device memory.
fn copied_from_device_memory(tensor: &Tensor) -> Result<Tensor> {
    let always = Tensor::new(1u8, tensor.device())?.broadcast_as(tensor.shape())?;
    Ok(always.where_cond(tensor, tensor)?)
}

/// True for a strided view that does not begin at a multiple of 4 bytes.
fn begins_inside_word(tensor: &Tensor) -> bool {
    let begin = tensor.layout().start_offset() * tensor.dtype().size_in_bytes();
    !tensor.is_contiguous() && !begin.is_multiple_of(4)
}

/// A tensor of the device converted to `dtype` there.
///
/// # Errors
/// The device cannot convert between these types: Metal has no f64. Values of the host become a
/// tensor with [`upload_as`].
pub fn convert(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    fault_injection::converts(tensor.dtype(), dtype)?;
    Ok(word_aligned(tensor)?.to_dtype(dtype)?)
}

/// Makes a tensor of `values` in the given shape on the device. The host converts them to `dtype`,
/// because Metal has no f64, not even to convert from it.
///
/// # Errors
/// The device has too little memory, or the shape does not fit the number of values.
pub fn upload_as(
    values: Vec<f64>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let values = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?;
    Ok(values.to_device(device)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strided_views_that_begin_inside_a_word_are_copied() {
        let column = |dtype, at| {
            let x = Tensor::zeros((3, 5), dtype, &Device::Cpu).expect("small");
            begins_inside_word(&x.narrow(1, at, 2).expect("a column"))
        };
        assert!(column(DType::BF16, 1) && column(DType::F16, 3) && column(DType::U8, 2));
        assert!(!column(DType::BF16, 0) && !column(DType::BF16, 2) && !column(DType::F32, 1));
        let rows = Tensor::zeros((3, 5), DType::BF16, &Device::Cpu).expect("small");
        let rows = rows.narrow(0, 1, 2).expect("two rows");
        assert!(
            !begins_inside_word(&rows),
            "contiguous ones are in device memory"
        );
    }

    #[test]
    fn a_view_that_begins_inside_a_word_is_copied_bit_by_bit() {
        let bits = |x: &Tensor| {
            let mut bytes = Vec::new();
            x.write_bytes(&mut bytes).expect("memory");
            bytes
        };
        for dtype in [DType::BF16, DType::F16, DType::U8] {
            // All bits of a byte, so that NaN and -0 are among the halves.
            let count = 12 * 31;
            let bytes = (0..count * dtype.size_in_bytes()).map(|i| (37 * i) as u8);
            let bytes: Vec<u8> = bytes.collect();
            let x = Tensor::from_raw_buffer(&bytes, dtype, &[12, 31], &Device::Cpu);
            let x = x.expect("as many as the shape has");
            let views = [
                x.narrow(1, 5, 7),
                x.narrow(0, 1, 7).and_then(|x| x.t()),
                x.narrow(1, 3, 1).and_then(|x| x.broadcast_as((12, 9))),
            ];
            for view in views {
                let view = view.expect("a view");
                assert!(begins_inside_word(&view));
                let expected = bits(&view.force_contiguous().expect("memory"));
                let copy = copied_from_device_memory(&view).expect("memory");
                assert!(copy.is_contiguous());
                assert_eq!(bits(&copy), expected, "{dtype:?}");
            }
        }
    }
}
