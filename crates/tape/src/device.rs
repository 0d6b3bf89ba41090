//! The one device of a run: which, why, and what must be true before it is made. A GPU that cannot be used is said aloud
//! and the CPU takes over; it is never a panic.

#[cfg(target_os = "macos")]
#[path = "device/macos.rs"]
mod platform;
#[cfg(not(target_os = "macos"))]
#[path = "device/other.rs"]
mod platform;

use crate::error::{Result, TapeError};
use candle_core::Device;

pub use platform::{allocated_bytes, limit_bytes, piece_scope, system_version};

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
    if !cfg!(feature = "cuda") {
        return Err(TapeError::Device("this build has no CUDA".to_owned()));
    }
    match Device::new_cuda(0) {
        Ok(device) => Ok(Chosen {
            device,
            kind: "cuda",
            reason: "the first CUDA device".to_owned(),
        }),
        Err(error) => Err(TapeError::Device(format!("CUDA cannot be used: {error}"))),
    }
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
