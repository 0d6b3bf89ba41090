//! Builds without CUDA, with the same surface as `cuda.rs`.

use crate::error::{Result, TapeError};
use candle_core::Device;

/// Always 0.
pub(super) fn count() -> usize {
    0
}

/// Always fails.
pub(super) fn make(_number: usize) -> Result<Device> {
    Err(TapeError::Device("this build has no CUDA".to_owned()))
}

/// Always 0.
pub(super) fn allocated_bytes(_device: &Device) -> u64 {
    0
}

/// Always 0.
pub(super) fn limit_bytes(_device: &Device) -> u64 {
    0
}

/// Always 0.
pub(super) fn take_peak_bytes(_device: &Device) -> u64 {
    0
}

/// Always empty.
pub(super) fn name(_device: &Device) -> String {
    String::new()
}

/// Always empty.
pub(super) fn family(_device: &Device) -> String {
    String::new()
}

/// Does nothing.
pub(super) fn trim(_device: &Device) {}
