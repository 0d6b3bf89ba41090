//! Numbers from the host to a CUDA device by way of memory that is locked there: a piece's photographs are millions of numbers, and
//! from memory that the system may move the driver copies them with one thread, in small steps, while everything else waits.

use super::blas::{failed, place};
use crate::error::Result;
use candle_core::cuda_backend::CudaDevice;
use candle_core::cuda_backend::DeviceId;
use candle_core::cuda_backend::cudarc::driver::{
    CudaEvent, CudaStream, PinnedHostSlice, result::memcpy_htod_async,
};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// Numbers of one step, 4 MiB: one is filled while the other is on its way.
const STEP: usize = 1 << 20;
/// Numbers that a thread copies at a time.
const COPIED: usize = 1 << 15;

/// Locked memory, and when the device will have read what stands there.
struct Locked {
    memory: PinnedHostSlice<f32>,
    read: Option<CudaEvent>,
}

thread_local! {
    /// One thread uses a device.
    static LOCKED: RefCell<HashMap<DeviceId, [Locked; 2]>> = RefCell::default();
}

fn locked(stream: &CudaStream) -> Result<Locked> {
    // SAFETY: numbers are written before they are read.
    let memory = unsafe { stream.context().alloc_pinned_with_flags::<f32>(STEP, 0) };
    Ok(Locked {
        memory: memory.map_err(failed)?,
        read: None,
    })
}

/// A new tensor of these numbers, as many as the shape says. The device reads them in its own time; the host's may go at once.
pub(crate) fn upload(values: &[f32], shape: &[usize], device: &CudaDevice) -> Result<Tensor> {
    // SAFETY: all of it is copied to below, in the stream's order before anybody reads it.
    let whole = unsafe { Tensor::empty(shape, DType::F32, &Device::Cuda(device.clone()))? };
    let (address, ..) = place(&whole)?;
    let stream = device.cuda_stream();
    LOCKED.with_borrow_mut(|all| {
        if !all.contains_key(&device.id()) {
            all.insert(device.id(), [locked(&stream)?, locked(&stream)?]);
        }
        let Some(both) = all.get_mut(&device.id()) else {
            return Err(failed("the locked memory is gone"));
        };
        for (i, part) in values.chunks(STEP).enumerate() {
            let locked = &mut both[i % 2];
            // The device's tensors carry no events, and nor does what it reads: without this wait numbers on their way change.
            if let Some(read) = locked.read.take() {
                read.synchronize().map_err(failed)?;
            }
            let there = &mut locked.memory.as_mut_slice().map_err(failed)?[..part.len()];
            let pieces = there.par_chunks_mut(COPIED).zip(part.par_chunks(COPIED));
            pieces.for_each(|(to, from)| to.copy_from_slice(from));
            let at = address + (i * STEP * size_of::<f32>()) as u64;
            // SAFETY: the copy stays inside the new tensor and the locked memory, which is written again, or given back, only
            // after the event that follows it.
            unsafe { memcpy_htod_async(at, there, stream.cu_stream()) }.map_err(failed)?;
            locked.read = Some(stream.record_event(None).map_err(failed)?);
        }
        Ok(())
    })?;
    Ok(whole)
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(read) = self.read.take() {
            let _ = read.synchronize();
        }
    }
}
