//! Systems without Metal, with the same surface as `metal.rs`.

use super::SelectedDevice;
use crate::error::{Result, TapeError};
use candle_core::Device;

/// Always fails: Metal exists on macOS only.
pub(super) fn select() -> Result<SelectedDevice> {
    Err(TapeError::Device(
        "no GPU that Ebb can use was found".to_owned(),
    ))
}

/// Always fails.
pub(super) fn predict() -> Result<String> {
    select().map(|chosen| chosen.reason)
}

/// Always 0.
pub(super) fn allocated_bytes(_device: &Device) -> u64 {
    0
}

/// Always 0.
pub(super) fn limit_bytes(_device: &Device) -> u64 {
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

/// Does nothing: there is no pool of kernel outputs.
pub(super) fn trim(_device: &Device) {}

/// Does nothing: there is no pool of kernel outputs.
pub(super) fn discard(_device: &Device) {}

/// Does nothing: there is no pool of kernel outputs.
pub(super) fn trim_old(_device: &Device) {}

/// Does nothing: there is no pool of kernel outputs.
pub(super) fn forget_pool(_device: &Device) {}

/// The name of the system; no GPU compiler depends on its version.
pub fn system_version() -> String {
    std::env::consts::OS.to_owned()
}
