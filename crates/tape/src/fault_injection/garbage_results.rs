//! Values that a failed dispatch leaves behind: finite and of the size of the right ones, so that
//! nothing but the device's report tells them apart.

use super::garbage_stream;
use crate::rng::Rng;
use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Tensor};

/// A tensor of garbage in place of `tensor`. Integers stay: out of range they would end the process
/// instead of leaving garbage.
pub(super) fn tensor_like(tensor: &Tensor) -> Tensor {
    replaced(tensor).unwrap_or_else(|_| tensor.clone())
}

#[expect(
    clippy::disallowed_methods,
    reason = "Ebb's own function for reading a tensor can fail because of the injected fault"
)]
fn replaced(tensor: &Tensor) -> candle_core::Result<Tensor> {
    if !tensor.dtype().is_float() || !tensor.device().is_cpu() {
        return Ok(tensor.clone());
    }
    let values = tensor.flatten_all()?.to_dtype(DType::F64)?;
    let mut values = values.to_vec1::<f64>()?;
    fill(&mut values, garbage_stream());
    Tensor::from_vec(values, tensor.dims(), &Device::Cpu)?.to_dtype(tensor.dtype())
}

/// Overwrites the memory of a contiguous tensor on the CPU.
pub(super) fn overwrite(tensor: &Tensor) -> candle_core::Result<()> {
    tensor.inplace_op1(&Overwrite(garbage_stream()))
}

struct Overwrite(Rng);

impl InplaceOp1 for Overwrite {
    fn name(&self) -> &'static str {
        "garbage"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            return Err(candle_core::Error::RequiresContiguous { op: "garbage" });
        };
        match storage {
            CpuStorage::F32(values) => {
                let values = &mut values[start..end];
                let mut wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
                fill(&mut wide, self.0);
                let pairs = values.iter_mut().zip(wide);
                pairs.for_each(|(value, garbage)| *value = garbage as f32);
            }
            CpuStorage::F64(values) => fill(&mut values[start..end], self.0),
            CpuStorage::U8(codes) => {
                let pairs = codes[start..end].iter_mut().zip(0..);
                pairs.for_each(|(code, i)| *code = (256.0 * self.0.uniform(i)) as u8);
            }
            _ => candle_core::bail!("in-place operations need tensors of f32, f64 or u8"),
        }
        Ok(())
    }
}

/// Replaces values by random ones, by those of other places, by zeros, or the second half of them.
pub(super) fn fill(values: &mut [f64], stream: Rng) {
    let size = |values: &[f64]| {
        let largest = values.iter().map(|v| v.abs()).fold(0.0, f64::max);
        if largest > 0.0 && largest.is_finite() {
            largest
        } else {
            1.0
        }
    };
    let (scale, middle) = (size(values), values.len() / 2);
    let random = |values: &mut [f64]| {
        let pairs = values.iter_mut().zip(1..);
        pairs.for_each(|(value, i)| *value = scale * (2.0 * stream.uniform(i) - 1.0));
    };
    match (4.0 * stream.uniform(0)) as u32 {
        0 => values.fill(0.0),
        1 => random(&mut values[middle..]),
        2 if values.len() > 1 => {
            values.reverse();
            values[middle] += 0.5 * scale;
        }
        _ => random(values),
    }
}
