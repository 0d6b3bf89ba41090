//! Writing to a tensor's own memory, for accumulation and optimizer steps. Only for tensors whose
//! memory nothing else reads.

use crate::cpu::{Float, View};
use crate::device_sync::{read, to_host};
use crate::error::Result;
use crate::fault_injection::{self, Fate};
use crate::kernels::copies::contiguous;
use crate::kernels::{self, KernelGroup};
use candle_core::{CpuStorage, DType, InplaceOp1, InplaceOp2, Layout, Tensor};
use rayon::prelude::*;
use std::cell::RefCell;

/// `sum += other`, in the element type of `sum`: halves are accumulated in f32 if the sum is f32.
/// Works in place, except on a GPU without kernels, where a new tensor replaces `sum`.
pub fn add_assign(sum: &mut Tensor, other: &Tensor) -> Result<()> {
    fault_injection::begin()?;
    let fate = fault_injection::dispatch();
    if fate == Fate::Unwritten {
        return Ok(());
    }
    let other = &other.to_dtype(sum.dtype())?;
    if kernels::run_on(KernelGroup::Accumulate, sum) && sum.is_contiguous() {
        kernels::elementwise::add_to(sum, &contiguous(other)?)?;
    } else if sum.device().is_cpu()
        && matches!(sum.dtype(), DType::F32 | DType::F64)
        && sum.is_contiguous()
    {
        sum.inplace_op2(&contiguous(other)?, &AddAssign)?;
        if fate == Fate::Garbage {
            fault_injection::overwrite(sum)?;
        }
    } else {
        *sum = fault_injection::computed((&*sum + other)?);
    }
    Ok(())
}

/// [`add_assign`] for many pairs; on a GPU seven pairs per launch.
pub fn add_assign_all(sums: &mut [Tensor], others: &[Tensor]) -> Result<()> {
    let single = |t: &Tensor| {
        t.dtype() == DType::F32 && t.is_contiguous() && kernels::run_on(KernelGroup::Accumulate, t)
    };
    if sums.iter().zip(others).all(|(a, b)| single(a) && single(b)) {
        let pairs: Vec<_> = sums.iter().zip(others).collect();
        return kernels::multi_tensor::accumulate(&pairs);
    }
    for (sum, other) in sums.iter_mut().zip(others) {
        add_assign(sum, other)?;
    }
    Ok(())
}

struct AddAssign;

impl InplaceOp2 for AddAssign {
    fn name(&self) -> &'static str {
        "add-assign"
    }

    fn cpu_fwd(
        &self,
        sum: &mut CpuStorage,
        sum_layout: &Layout,
        other: &CpuStorage,
        other_layout: &Layout,
    ) -> candle_core::Result<()> {
        fn add<T: Float>(sum: &mut [T], other: &[T]) {
            const CHUNK: usize = 64 * 1024;
            sum.par_chunks_mut(CHUNK)
                .zip(other.par_chunks(CHUNK))
                .for_each(|(sum, other)| {
                    sum.iter_mut().zip(other).for_each(|(s, &o)| *s += o);
                });
        }
        let (a, b) = (range(sum_layout)?, range(other_layout)?);
        match (sum, other) {
            (CpuStorage::F32(sum), CpuStorage::F32(other)) => add(&mut sum[a], &other[b]),
            (CpuStorage::F64(sum), CpuStorage::F64(other)) => add(&mut sum[a], &other[b]),
            _ => candle_core::bail!("add-assign needs two f32 or two f64 tensors"),
        }
        Ok(())
    }
}

fn range(layout: &Layout) -> candle_core::Result<std::ops::Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => Err(candle_core::Error::RequiresContiguous { op: "in-place" }),
    }
}

/// The values of a CPU tensor, for writing.
pub enum SliceMut<'a> {
    /// Single precision.
    F32(&'a mut [f32]),
    /// Double precision.
    F64(&'a mut [f64]),
    /// Quantized codes.
    U8(&'a mut [u8]),
}

/// Lends the memory of a contiguous CPU tensor to `write`. Nothing else may read the tensor
/// meanwhile.
pub(crate) fn with_slice_mut<F: FnOnce(SliceMut) -> candle_core::Result<()>>(
    tensor: &Tensor,
    write: F,
) -> candle_core::Result<()> {
    let fate = fault_injection::dispatch();
    if fate == Fate::Unwritten {
        return Ok(());
    }
    tensor.inplace_op1(&BorrowMut(RefCell::new(Some(write))))?;
    if fate == Fate::Garbage {
        fault_injection::overwrite(tensor)?;
    }
    Ok(())
}

struct BorrowMut<F>(RefCell<Option<F>>);

impl<F: FnOnce(SliceMut) -> candle_core::Result<()>> InplaceOp1 for BorrowMut<F> {
    fn name(&self) -> &'static str {
        "borrow"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some(write) = self.0.borrow_mut().take() else {
            return Ok(());
        };
        let range = range(layout)?;
        match storage {
            CpuStorage::F32(values) => write(SliceMut::F32(&mut values[range])),
            CpuStorage::F64(values) => write(SliceMut::F64(&mut values[range])),
            CpuStorage::U8(values) => write(SliceMut::U8(&mut values[range])),
            _ => candle_core::bail!("in-place operations need tensors of f32, f64 or u8"),
        }
    }
}

/// The values of a tensor as f64, in row-major order.
///
/// # Errors
/// As [`synchronize`](crate::device::synchronize), for which this waits.
pub fn to_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    let tensor = to_host(&contiguous(tensor)?)?;
    match tensor.dtype() {
        DType::F32 => Ok(View::<f32>::new("read", &tensor)?
            .iter()
            .map(|&v| f64::from(v))
            .collect()),
        DType::F64 => Ok(View::<f64>::new("read", &tensor)?.to_vec()),
        _ => Ok(read::<f32>(&tensor.to_dtype(DType::F32)?)?
            .into_iter()
            .map(f64::from)
            .collect()),
    }
}
