//! Making a CUDA device, and the memory that its driver reports. `without_cuda.rs` has the same
//! surface.

use crate::error::{Result, TapeError};
use candle_core::Device;
use candle_core::cuda_backend::CudaDevice;
use candle_core::cuda_backend::cudarc::driver::CudaContext;
use candle_core::cuda_backend::cudarc::driver::sys::{
    CUmemPool_attribute, CUmemoryPool, cuDeviceGetDefaultMemPool, cuMemPoolGetAttribute,
    cuMemPoolSetAttribute, cuMemPoolTrimTo,
};

/// Number of devices; 0 if CUDA cannot be used.
pub(super) fn count() -> usize {
    CudaContext::device_count().map_or(0, |count| usize::try_from(count).unwrap_or(0))
}

/// Makes the device with this number. Its pool keeps freed memory until [`trim`]. Tensors carry no
/// events, because there is one stream.
pub(super) fn make(number: usize) -> Result<Device> {
    let device = Device::new_cuda(number)
        .map_err(|e| TapeError::Device(format!("CUDA cannot be used: {e}")))?;
    if let Device::Cuda(cuda) = &device {
        // SAFETY: everything runs on this device's one stream, in its order.
        unsafe { cuda.disable_event_tracking() };
        if let Some(pool) = pool(cuda) {
            // By default the pool frees everything at each synchronization, and every step would
            // begin with new pages.
            let mut keep = u64::MAX;
            // SAFETY: the attribute is a 64-bit number, which outlives the call.
            let _ = unsafe {
                cuMemPoolSetAttribute(
                    pool,
                    CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                    std::ptr::from_mut(&mut keep).cast(),
                )
            };
        }
    }
    Ok(device)
}

fn pool(device: &CudaDevice) -> Option<CUmemoryPool> {
    let stream = device.cuda_stream();
    stream.context().bind_to_thread().ok()?;
    let mut pool = std::ptr::null_mut();
    // SAFETY: a context was made for this device, and the pool outlives it.
    let outcome = unsafe { cuDeviceGetDefaultMemPool(&mut pool, stream.context().cu_device()) };
    outcome.result().ok().map(|()| pool)
}

fn attribute(device: &Device, name: CUmemPool_attribute) -> u64 {
    let Device::Cuda(cuda) = device else { return 0 };
    let mut bytes = 0u64;
    if let Some(pool) = pool(cuda) {
        // SAFETY: the attribute is a 64-bit number, and so is what it is written to.
        let _ = unsafe { cuMemPoolGetAttribute(pool, name, std::ptr::from_mut(&mut bytes).cast()) };
    }
    bytes
}

/// Bytes that the pool holds, including those that no tensor uses.
pub(super) fn allocated_bytes(device: &Device) -> u64 {
    attribute(
        device,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    )
}

/// Bytes that the pool could hold now: those it holds and the free ones.
pub(super) fn limit_bytes(device: &Device) -> u64 {
    let Device::Cuda(cuda) = device else { return 0 };
    match cuda.cuda_stream().context().mem_get_info() {
        Ok((free, _)) => free as u64 + allocated_bytes(device),
        Err(_) => 0,
    }
}

/// Peak bytes of all tensors since the last call, which starts a new measurement.
pub(super) fn take_peak_bytes(device: &Device) -> u64 {
    let Device::Cuda(cuda) = device else { return 0 };
    let high = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    let peak = attribute(device, high);
    if let Some(pool) = pool(cuda) {
        let mut zero = 0u64;
        // SAFETY: the attribute is a 64-bit number, and zero is what resets it.
        let _ = unsafe { cuMemPoolSetAttribute(pool, high, std::ptr::from_mut(&mut zero).cast()) };
    }
    peak
}

/// The GPU's name, such as `NVIDIA H100 80GB HBM3`.
pub(super) fn name(device: &Device) -> String {
    let Device::Cuda(cuda) = device else {
        return String::new();
    };
    cuda.cuda_stream().context().name().unwrap_or_default()
}

/// The compute capability of the GPU.
pub(super) fn family(device: &Device) -> String {
    let Device::Cuda(cuda) = device else {
        return String::new();
    };
    match cuda.cuda_stream().context().compute_capability() {
        Ok((major, minor)) => format!("compute capability {major}.{minor}"),
        Err(_) => String::new(),
    }
}

/// Frees the memory that no tensor uses.
pub(super) fn trim(device: &Device) {
    if let Device::Cuda(cuda) = device
        && let Some(pool) = pool(cuda)
    {
        // SAFETY: trimming frees unused memory only.
        let _ = unsafe { cuMemPoolTrimTo(pool, 0) };
    }
}
