//! Systems without Metal, with the same surface as `metal_peak_memory.rs`.

use candle_core::Device;

/// Does nothing.
pub(crate) fn note_peak(_device: &Device) {}

/// Always 0.
pub(crate) fn take_peak_bytes(_device: &Device) -> u64 {
    0
}
