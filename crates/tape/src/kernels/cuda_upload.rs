//! Uploads host values to a CUDA device through pinned memory. The images of a micro-batch are
//! millions of values, and from pageable memory the driver copies them with one thread, in small
//! steps, while everything else waits.

use super::cublas::place;
use super::cuda_error::failed;
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
use std::collections::hash_map::Entry;

/// Values per step, 4 MiB: one buffer is filled while the other is being copied.
const STEP: usize = 1 << 20;
/// Values per thread.
const COPIED: usize = 1 << 15;

/// Pinned memory, and the event after which the device has read it.
struct Locked {
    memory: PinnedHostSlice<f32>,
    read: Option<CudaEvent>,
}

thread_local! {
    /// A device is used by one thread.
    static LOCKED: RefCell<HashMap<DeviceId, [Locked; 2]>> = RefCell::default();
}

fn locked(stream: &CudaStream) -> Result<Locked> {
    // SAFETY: values are written before they are read.
    let memory = unsafe { stream.context().alloc_pinned_with_flags::<f32>(STEP, 0) };
    Ok(Locked {
        memory: memory.map_err(failed)?,
        read: None,
    })
}

/// A new tensor of these values, whose number must fit the shape. The device copies them
/// asynchronously; the caller may drop its own at once.
pub(crate) fn upload(values: &[f32], shape: &[usize], device: &CudaDevice) -> Result<Tensor> {
    // SAFETY: all of it is copied to below, in stream order, before anything reads it.
    let whole = unsafe { Tensor::empty(shape, DType::F32, &Device::Cuda(device.clone()))? };
    let (address, ..) = place(&whole)?;
    let stream = device.cuda_stream();
    LOCKED.with_borrow_mut(|all| {
        if let Entry::Vacant(pair) = all.entry(device.id()) {
            pair.insert([locked(&stream)?, locked(&stream)?]);
        }
        let Some(both) = all.get_mut(&device.id()) else {
            return Err(failed("the locked memory was freed"));
        };
        for (i, part) in values.chunks(STEP).enumerate() {
            let locked = &mut both[i % 2];
            // The device's tensors carry no events, and neither does the pinned memory: without
            // this wait, values would change while they are being copied.
            if let Some(read) = locked.read.take() {
                read.synchronize().map_err(failed)?;
            }
            let there = &mut locked.memory.as_mut_slice().map_err(failed)?[..part.len()];
            let chunks = there.par_chunks_mut(COPIED).zip(part.par_chunks(COPIED));
            chunks.for_each(|(to, from)| to.copy_from_slice(from));
            let at = address + (i * STEP * size_of::<f32>()) as u64;
            // SAFETY: the copy stays inside the new tensor and the pinned memory, which is reused
            // or freed only after the event that follows it.
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
