//! The device of a run: which one, why, and what must hold before it is made. If a GPU cannot be
//! used, the reason is reported and the CPU takes over; it never panics.

#[cfg(any(target_os = "macos", test))]
mod mac_support;
#[cfg(target_os = "macos")]
mod metal;
#[cfg(not(target_os = "macos"))]
#[path = "device/without_metal.rs"]
mod metal;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "device/without_cuda.rs"]
mod cuda;

mod exchange;
mod nccl;
mod thread_exchange;

use crate::error::{Result, TapeError};
use crate::fault_injection;
use crate::metal_peak_memory;
use candle_core::{Device, Tensor};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use crate::command_buffer_budget::{
    CANDLE_ENVIRONMENT, CommandBuffers, KernelTime, adapt as adapt_command_buffers,
    begin as measure_command_buffers, budget as command_buffer_budget,
    set_budget as set_command_buffer_budget, shorten as shorten_command_buffers,
    take_computed as take_command_buffers,
};
pub use crate::convert_dtype::{convert, upload_as};
pub use crate::device_sync::{confirm, forgets_failures, read, synchronize, to_host};
pub use crate::kernels::copies::{contiguous, copy, joined};
pub use crate::objective_c::{catch_exception, with_autorelease_pool};
pub use exchange::{DeviceExchange, ExchangeLibrary, ExchangeOffer};
pub use metal::system_version;
pub use nccl::{NCCL_ENVIRONMENT, NCCL_VARIABLE, Nccl, find_nccl};
pub use thread_exchange::{ThreadExchange, thread_exchanges};

/// The number of the CUDA device that [`select_device`] makes.
static PREFERRED_GPU: AtomicUsize = AtomicUsize::new(0);

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// The GPU of a Mac.
    Metal,
}

impl DeviceKind {
    /// `cpu`, `cuda` or `metal`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Metal => "metal",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeviceKind {
    type Err = TapeError;

    fn from_str(name: &str) -> Result<Self> {
        [DeviceKind::Cpu, DeviceKind::Cuda, DeviceKind::Metal]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                TapeError::Device(format!(
                    "there is no device `{name}`; choose cpu, cuda or metal"
                ))
            })
    }
}

/// The device that the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DevicePreference {
    /// The best one that can be used.
    #[default]
    Auto,
    /// Metal or an error.
    Metal,
    /// CUDA or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

impl From<DeviceKind> for DevicePreference {
    fn from(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Cpu => DevicePreference::Cpu,
            DeviceKind::Cuda => DevicePreference::Cuda,
            DeviceKind::Metal => DevicePreference::Metal,
        }
    }
}

/// The device of a run, and the reason for it.
#[derive(Debug, Clone)]
pub struct SelectedDevice {
    /// The device itself: made once, cloned, and used from one thread.
    pub device: Device,
    /// Its kind.
    pub kind: DeviceKind,
    /// The reason in words: "no GPU was found".
    pub reason: String,
}

impl SelectedDevice {
    /// The GPU's name, such as `applegpu_g16s`; empty on the CPU.
    pub fn gpu_name(&self) -> String {
        match &self.device {
            Device::Cuda(_) => cuda::name(&self.device),
            _ => metal::name(&self.device),
        }
    }

    /// The family of the GPU, such as `Apple 9` or `compute capability 9.0`; empty on the CPU.
    pub fn gpu_family(&self) -> String {
        match &self.device {
            Device::Cuda(_) => cuda::family(&self.device),
            _ => metal::family(&self.device),
        }
    }

    /// Number of GPUs of this kind that this process can use; 0 on the CPU.
    pub fn gpu_count(&self) -> usize {
        match self.kind {
            DeviceKind::Cpu => 0,
            DeviceKind::Metal => 1,
            DeviceKind::Cuda => cuda::count(),
        }
    }

    /// [`limit_bytes`] of the device.
    pub fn limit_bytes(&self) -> u64 {
        limit_bytes(&self.device)
    }
}

/// Makes [`select_device`] choose the CUDA device with this number, from 0, instead of the first
/// one. If there are fewer devices, counting starts again at the first. For several processes on
/// one machine, each of which gets a number of its own.
pub fn prefer_gpu(number: usize) {
    PREFERRED_GPU.store(number, Ordering::Relaxed);
}

/// Number of CUDA devices that this build can use, which it does not make.
pub fn cuda_device_count() -> usize {
    cuda::count()
}

/// The number of the device that a process gets, of `count`.
fn gpu_number(preferred: usize, count: usize) -> usize {
    preferred.checked_rem(count).unwrap_or(0)
}

/// Makes the device of a run.
///
/// # Errors
/// The preferred device cannot be used. With [`DevicePreference::Auto`] the CPU is used instead.
pub fn select_device(preference: DevicePreference) -> Result<SelectedDevice> {
    fault_injection::device_made();
    match preference {
        DevicePreference::Cpu => Ok(cpu("asked for".to_owned())),
        DevicePreference::Metal => {
            metal::select().map_err(|error| unavailable(DeviceKind::Metal, &error))
        }
        DevicePreference::Cuda => cuda().map_err(|error| unavailable(DeviceKind::Cuda, &error)),
        DevicePreference::Auto => Ok(first_usable(metal::select(), cuda)),
    }
}

/// The GPU that can be used, or the CPU and why Metal cannot.
fn first_usable(
    metal: Result<SelectedDevice>,
    cuda: impl FnOnce() -> Result<SelectedDevice>,
) -> SelectedDevice {
    metal
        .or_else(|why| cuda().map_err(|_| why.to_string()))
        .unwrap_or_else(cpu)
}

fn unavailable(kind: DeviceKind, error: &TapeError) -> TapeError {
    TapeError::Device(format!(
        "{kind} cannot be used: {error}; choose --device cpu or auto"
    ))
}

fn cpu(reason: String) -> SelectedDevice {
    SelectedDevice {
        device: Device::Cpu,
        kind: DeviceKind::Cpu,
        reason,
    }
}

fn cuda() -> Result<SelectedDevice> {
    let number = gpu_number(PREFERRED_GPU.load(Ordering::Relaxed), cuda::count());
    let which = match number {
        0 => "the first CUDA device".to_owned(),
        number => format!("CUDA device {number}, counted from 0"),
    };
    Ok(SelectedDevice {
        device: cuda::make(number)?,
        kind: DeviceKind::Cuda,
        reason: format!("{which}, with matrix products in full f32 (no TF32)"),
    })
}

/// Describes the device that [`select_device`] will return for [`DevicePreference::Auto`], without
/// making it: a process has one device, and it belongs to the training thread.
pub fn predict_device() -> String {
    predicted(metal::predict())
}

fn predicted(metal: Result<String>) -> String {
    match metal {
        Ok(gpu) => gpu,
        Err(_) if cfg!(feature = "cuda") => {
            "CUDA if a device is found, otherwise the CPU".to_owned()
        }
        Err(error) => format!("CPU, {} threads: {error}", default_threads()),
    }
}

/// The kind of device that [`select_device`] will return, without making it.
pub fn predict_device_kind(preference: DevicePreference) -> DeviceKind {
    match preference {
        DevicePreference::Cpu => DeviceKind::Cpu,
        DevicePreference::Metal => DeviceKind::Metal,
        DevicePreference::Cuda => DeviceKind::Cuda,
        DevicePreference::Auto if metal::predict().is_ok() => DeviceKind::Metal,
        DevicePreference::Auto if cfg!(feature = "cuda") => DeviceKind::Cuda,
        DevicePreference::Auto => DeviceKind::Cpu,
    }
}

/// Default number of threads of the CPU kernels: the performance cores.
pub fn default_threads() -> usize {
    candle_core::utils::get_num_threads()
}

/// Bytes that the GPU's driver has allocated, including those that no tensor uses; 0 on the CPU.
pub fn allocated_bytes(device: &Device) -> u64 {
    match device {
        Device::Cuda(_) => cuda::allocated_bytes(device),
        _ => metal::allocated_bytes(device),
    }
}

/// The GPU's recommended working set in bytes; on CUDA the allocated and the free bytes; 0 on the
/// CPU.
pub fn limit_bytes(device: &Device) -> u64 {
    match device {
        Device::Cuda(_) => cuda::limit_bytes(device),
        _ => metal::limit_bytes(device),
    }
}

/// Peak bytes of all tensors since the last call, which starts a new measurement; 0 if the driver
/// does not report it.
pub fn take_peak_bytes(device: &Device) -> u64 {
    match device {
        Device::Cuda(_) => cuda::take_peak_bytes(device),
        _ => metal_peak_memory::take_peak_bytes(device),
    }
}

/// Frees the memory that the pools of the driver and of the kernels hold and no tensor uses.
/// Synchronize the device first, which also frees candle's own pool.
pub fn trim(device: &Device) {
    cuda::trim(device);
    metal::trim(device);
}

/// Drops a device that was lost, frees its pools, and forgets its peak. Call it before another
/// device is made, and drop everything else that holds the lost one before: the driver counts what
/// is left as memory of this process.
pub fn discard(lost: Device) {
    // The last error of the lost device was reported already. This frees candle's pool.
    let _ = synchronize(&lost);
    metal::discard(&lost);
    cuda::trim(&lost);
    metal_peak_memory::reset();
}

/// Tells the pool of kernel outputs that a micro-batch has ended. The pool frees each buffer that
/// none of the last few micro-batches used. Synchronize the device first.
pub fn trim_old(device: &Device) {
    metal::trim_old(device);
}

/// Frees the pool of kernel outputs that this thread has on the device. Tensors keep their memory.
/// Call it when the thread will no longer use the device.
pub fn forget_pool(device: &Device) {
    metal::forget_pool(device);
}

/// Makes a tensor of `values` in the given shape on the device. Large uploads to CUDA do not block.
///
/// # Errors
/// The device has too little memory, or the shape does not fit the number of values.
pub fn upload(values: &[f32], shape: &[usize], device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device
        && values.len() >= ASYNC_UPLOAD_VALUES
        && values.len() == shape.iter().product::<usize>()
    {
        return crate::kernels::cuda_upload::upload(values, shape, cuda);
    }
    Ok(Tensor::from_slice(values, shape, device)?)
}

/// Number of values from which an asynchronous upload to CUDA pays off.
#[cfg(feature = "cuda")]
const ASYNC_UPLOAD_VALUES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::gpu_number;

    #[test]
    fn processes_share_the_devices_evenly() {
        let numbers = |count| [0, 1, 2, 3].map(|process| gpu_number(process, count));
        assert_eq!(numbers(4), [0, 1, 2, 3]);
        assert_eq!(numbers(2), [0, 1, 0, 1]);
        assert_eq!(numbers(1), [0; 4]);
        assert_eq!(numbers(0), [0; 4]);
    }
}
