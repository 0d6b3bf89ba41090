//! Metal on macOS, with the same surface as `without_metal_allocated.rs`.

use crate::fault_injection;
use candle_core::Device;

/// Bytes that the GPU driver has allocated; on the CPU 0, or what a test says.
pub(crate) fn allocated_bytes(device: &Device) -> u64 {
    device.as_metal_device().map_or_else(
        |_| fault_injection::allocated_bytes(),
        |metal| metal.metal_device().current_allocated_size() as u64,
    )
}
