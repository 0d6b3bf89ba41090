//! Builds without CUDA, with the same surface as `cuda.rs`.

use crate::error::{Result, TapeError};
use candle_core::{Device, Tensor};
use std::ffi::c_void;

/// Always 0.
pub(super) fn count() -> usize {
    0
}

/// Always fails.
pub(super) fn make(_number: usize) -> Result<Device> {
    Err(missing())
}

fn missing() -> TapeError {
    TapeError::Device("this build has no CUDA".to_owned())
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

/// Always `None`.
pub(super) fn uuid(_device: &Device) -> Option<String> {
    None
}

/// Never made.
pub(super) enum SideStream {}

impl SideStream {
    /// Always fails.
    pub(super) fn new(_device: &Device) -> Result<Self> {
        Err(missing())
    }

    /// Never called.
    pub(super) fn after_all_work(&self, _device: &Device) -> Result<*mut c_void> {
        match *self {}
    }

    /// Never called.
    pub(super) fn mark(&self) -> Result<Mark> {
        match *self {}
    }
}

/// Always fails.
pub(super) fn address(_tensor: &Tensor) -> Result<u64> {
    Err(missing())
}

/// Never made.
pub(super) enum Mark {}

impl Mark {
    /// Never called.
    pub(super) fn is_passed(&self) -> Result<bool> {
        match *self {}
    }
}
