//! Everything but macOS: no Metal. Same surface as the macOS file beside it.

use super::Chosen;
use crate::error::{Result, TapeError};
use candle_core::Device;

/// Metal exists on macOS only.
pub(super) fn metal() -> Result<Chosen> {
    Err(TapeError::Device(
        "no GPU that Ebb can use was found".to_owned(),
    ))
}

/// What a training will find here.
pub(super) fn foresee() -> Result<String> {
    metal().map(|chosen| chosen.reason)
}

/// Bytes that the GPU driver says are allocated; 0 where it does not say.
pub(super) fn allocated_bytes(_device: &Device) -> u64 {
    0
}

/// The GPU's recommended working set; 0 where there is none.
pub(super) fn limit_bytes(_device: &Device) -> u64 {
    0
}

/// Gives back the outputs of kernels that no tensor uses any longer: no pool of kernels' outputs is kept here.
pub(super) fn trim(_device: &Device) {}

/// The system's version, where the GPU's compiler depends on it.
pub fn system_version() -> String {
    std::env::consts::OS.to_owned()
}

/// Runs one piece of work. Nothing needs to be drained here.
pub fn piece_scope<R>(work: impl FnOnce() -> R) -> R {
    work()
}
