//! Builds without CUDA. Same surface as the CUDA file beside it.

use crate::error::{Result, TapeError};
use candle_core::Device;

/// There is none.
pub(super) fn make() -> Result<Device> {
    Err(TapeError::Device("this build has no CUDA".to_owned()))
}

/// Bytes that the driver's pool holds; 0 without one.
pub(super) fn allocated_bytes(_device: &Device) -> u64 {
    0
}

/// Most that the pool could hold; 0 without one.
pub(super) fn limit_bytes(_device: &Device) -> u64 {
    0
}

/// Most bytes that tensors held at once; 0 without a pool.
pub(super) fn take_peak_bytes(_device: &Device) -> u64 {
    0
}

/// Gives back what no tensor uses: nothing.
pub(super) fn trim(_device: &Device) {}
