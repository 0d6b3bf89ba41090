//! Metal on macOS, with the same surface as `without_metal_allocated.rs`.

use candle_core::Device;

/// Bytes that the GPU driver has allocated; 0 on the CPU.
pub(crate) fn allocated_bytes(device: &Device) -> u64 {
    device.as_metal_device().map_or(0, |metal| {
        metal.metal_device().current_allocated_size() as u64
    })
}
