//! The one device of a run: which, why, and what must be true before it is made. A GPU that cannot be used is said aloud
//! and the CPU takes over; it is never a panic.

#[cfg(target_os = "macos")]
#[path = "device/macos.rs"]
mod platform;
#[cfg(not(target_os = "macos"))]
#[path = "device/other.rs"]
mod platform;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "device/without_cuda.rs"]
mod cuda;

use crate::error::{Result, TapeError};
use candle_core::{Device, Tensor};

pub use platform::{piece_scope, system_version};

/// Bytes that the GPU's driver says are allocated, those that no tensor uses included; 0 on the CPU.
pub fn allocated_bytes(device: &Device) -> u64 {
    match device {
        Device::Cuda(_) => cuda::allocated_bytes(device),
        _ => platform::allocated_bytes(device),
    }
}

/// The GPU's recommended working set, or on CUDA what is allocated and what is free; 0 on the CPU.
pub fn limit_bytes(device: &Device) -> u64 {
    match device {
        Device::Cuda(_) => cuda::limit_bytes(device),
        _ => platform::limit_bytes(device),
    }
}

/// Most bytes that tensors held at once since the last call, which starts a new measurement; 0 where the driver does not say.
pub fn take_peak_bytes(device: &Device) -> u64 {
    cuda::take_peak_bytes(device)
}

/// Gives back what the pools of the driver and of the kernels hold and no tensor uses. After a synchronise; candle's goes with that.
pub fn trim(device: &Device) {
    cuda::trim(device);
    platform::trim(device);
}

/// A tensor of these numbers, as many as the shape says, on the device: many of them without waiting where it can be helped.
///
/// # Errors
/// The device refuses the memory, or the shape is another.
pub fn upload(values: &[f32], shape: &[usize], device: &Device) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(cuda) = device
        && values.len() >= MANY
        && values.len() == shape.iter().product::<usize>()
    {
        return crate::kernels::upload::upload(values, shape, cuda);
    }
    Ok(Tensor::from_slice(values, shape, device)?)
}

/// Numbers from which on their way to a CUDA device is worth preparing.
#[cfg(feature = "cuda")]
const MANY: usize = 1 << 18;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wanted {
    /// The best that can be used.
    #[default]
    Auto,
    /// Metal or an error.
    Metal,
    /// CUDA or an error.
    Cuda,
    /// The CPU.
    Cpu,
}

/// The device, and the sentence that says why it is this one.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The device itself: made once, cloned, used from one thread.
    pub device: Device,
    /// `metal`, `cuda` or `cpu`.
    pub kind: &'static str,
    /// Why: "no GPU was found; training on 2 CPU threads".
    pub reason: String,
}

/// Makes the device of a run.
///
/// # Errors
/// A device that was asked for by name and cannot be used; with [`Wanted::Auto`] the CPU is taken instead.
pub fn choose(wanted: Wanted) -> Result<Chosen> {
    match wanted {
        Wanted::Cpu => Ok(cpu("asked for".to_owned())),
        Wanted::Metal => platform::metal().map_err(|error| refused("metal", &error)),
        Wanted::Cuda => cuda().map_err(|error| refused("cuda", &error)),
        Wanted::Auto => Ok(platform::metal()
            .or_else(|metal| {
                let first = metal.to_string();
                cuda().map_err(|_| first)
            })
            .unwrap_or_else(cpu)),
    }
}

/// A device that was asked for by name and cannot be had.
fn refused(name: &str, error: &TapeError) -> TapeError {
    TapeError::Device(format!(
        "{name} cannot be used: {error}; choose --device cpu or auto"
    ))
}

fn cpu(reason: String) -> Chosen {
    Chosen {
        device: Device::Cpu,
        kind: "cpu",
        reason,
    }
}

fn cuda() -> Result<Chosen> {
    Ok(Chosen {
        device: cuda::make()?,
        kind: "cuda",
        reason: "the first CUDA device, matrix products in full f32 (no TF32)".to_owned(),
    })
}

/// What [`choose`] will come to for [`Wanted::Auto`], in words and without making a device: there is one device, and it
/// belongs to the thread that trains.
pub fn foresee() -> String {
    match platform::foresee() {
        Ok(gpu) => gpu,
        Err(_) if cfg!(feature = "cuda") => "CUDA where there is a device, else the CPU".to_owned(),
        Err(error) => format!("CPU, {} threads: {error}", default_threads()),
    }
}

/// The kind of device that [`choose`] will come to, without making one: `metal`, `cuda` or `cpu`.
pub fn foresee_kind(wanted: Wanted) -> &'static str {
    match wanted {
        Wanted::Cpu => "cpu",
        Wanted::Metal => "metal",
        Wanted::Cuda => "cuda",
        Wanted::Auto if platform::foresee().is_ok() => "metal",
        Wanted::Auto if cfg!(feature = "cuda") => "cuda",
        Wanted::Auto => "cpu",
    }
}

/// Threads of the CPU kernels: the performance cores unless told otherwise.
pub fn default_threads() -> usize {
    candle_core::utils::get_num_threads()
}
