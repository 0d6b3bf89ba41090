//! Making a CUDA device, and the memory that its driver reports. `without_cuda.rs` has the same
//! surface.

use crate::error::{Result, TapeError};
use candle_core::cuda_backend::cudarc::driver::sys::{
    CUmemPool_attribute, CUmemoryPool, cuDeviceGetDefaultMemPool, cuMemPoolGetAttribute,
    cuMemPoolSetAttribute, cuMemPoolTrimTo,
};
use candle_core::cuda_backend::cudarc::driver::{CudaContext, CudaEvent, CudaStream, DevicePtr};
use candle_core::cuda_backend::{CudaDevice, CudaStorageSlice};
use candle_core::{Device, Storage, Tensor};
use std::ffi::c_void;
use std::sync::Arc;

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

/// The identifier of the GPU among all GPUs; `None` on the CPU, or if the driver has none.
pub(super) fn uuid(device: &Device) -> Option<String> {
    let Device::Cuda(cuda) = device else {
        return None;
    };
    let uuid = cuda.cuda_stream().context().uuid().ok()?;
    let byte = |byte: &std::ffi::c_char| format!("{:02x}", *byte as u8);
    Some(uuid.bytes.iter().map(byte).collect())
}

/// A stream of the device for a library. All other work is on the per-thread default stream, whose
/// handle means another stream on each thread, so a library with threads of its own cannot use it.
pub(super) struct SideStream(Arc<CudaStream>);

impl SideStream {
    /// A new stream. Makes the device that of this thread.
    ///
    /// # Errors
    /// The device is lost, or is not one of CUDA.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let context = of_cuda(device)?.cuda_stream().context().clone();
        context.new_stream().map(SideStream).map_err(failed)
    }

    /// Its handle, for work that begins once the device has done all work that this thread gave to
    /// it.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn after_all_work(&self, device: &Device) -> Result<*mut c_void> {
        let stream = of_cuda(device)?.cuda_stream();
        self.0.join(&stream).map_err(failed)?;
        Ok(self.0.cu_stream().cast())
    }

    /// Marks the end of the work that this stream was given so far.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn mark(&self) -> Result<Mark> {
        self.0.record_event(None).map(Mark).map_err(failed)
    }
}

/// Where the values of a contiguous tensor begin in the memory of the device.
///
/// # Errors
/// The tensor has another element type than f32 and f64, or is not on CUDA.
pub(super) fn address(tensor: &Tensor) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else {
        return Err(failed("the tensor is not on CUDA"));
    };
    let stream = storage.device.cuda_stream();
    let begin = match &storage.slice {
        CudaStorageSlice::F32(slice) => slice.device_ptr(&stream).0,
        CudaStorageSlice::F64(slice) => slice.device_ptr(&stream).0,
        _ => return Err(failed("the tensor is neither in f32 nor in f64")),
    };
    Ok(begin + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64)
}

/// A place in the work of a stream.
pub(super) struct Mark(CudaEvent);

impl Mark {
    /// Whether the device has done the work of the stream up to the mark.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn is_passed(&self) -> Result<bool> {
        self.0.try_is_complete().map_err(failed)
    }
}

fn of_cuda(device: &Device) -> Result<&CudaDevice> {
    match device {
        Device::Cuda(cuda) => Ok(cuda),
        _ => Err(failed("the device is not one of CUDA")),
    }
}

fn failed(error: impl std::fmt::Display) -> TapeError {
    TapeError::from(candle_core::Error::Msg(error.to_string()))
}
